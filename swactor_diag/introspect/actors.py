"""The actors of this process: snapshot block ``actors``, from ``system.statistics()``. Emits no events.

Lists the actors that deserve a look first (most messages waiting, then most restarts, then the order of the
tree) up to a limit; the totals are over all of them.
"""

from collections.abc import Callable

from msgspec import UNSET, UnsetType

from swactor import ActorStatistics, SystemStatistics
from swactor.abc import Clock
from swactor_diag.schema.blocks import ActorEntry, ActorsBlock

ACTORS_MAX = 64
"""Actors listed one by one; the rest is counted in ``actors_omitted``."""


class ActorsIntrospector:
    """Asks an actor system for its statistics."""

    name = "actors"
    record = ActorsBlock

    def __init__(
        self, statistics: Callable[[], SystemStatistics], *, clock: Clock, actors_max: int = ACTORS_MAX
    ) -> None:
        self._statistics = statistics
        self._clock = clock
        self._actors_max = actors_max

    def observe(self) -> ActorsBlock:
        """Return the current values."""
        now = self._statistics()
        shown = sorted(now.actors, key=lambda actor: (-actor.depth, -actor.restarts, actor.serial))
        shown = shown[: self._actors_max]
        return ActorsBlock(
            actors=tuple(_entry(actor) for actor in sorted(shown, key=lambda actor: actor.serial)),
            actors_total=len(now.actors),
            actors_omitted=len(now.actors) - len(shown),
            messages_waiting=sum(actor.depth for actor in now.actors),
            messages_dropped=sum(actor.dropped for actor in now.actors),
            dead_letters=now.dead_letters,
            ready_depth=now.ready,
            run_queue_lag_ms=round(now.lag_s * 1000),
            scraped_at_ms=self._clock.wall_ms(),
        )


def _entry(actor: ActorStatistics) -> ActorEntry:
    return ActorEntry(
        actor=f"{actor.path}#{actor.serial}",
        behaviour=actor.actor_type,
        state=actor.state,
        mailbox_depth=actor.depth,
        current_message=actor.handling or UNSET,
        current_message_ms=_milliseconds(actor.handling_s),
        oldest_wait_ms=_milliseconds(actor.oldest_wait_s),
        handled=actor.handled,
        dropped=actor.dropped,
        restarts=actor.restarts,
    )


def _milliseconds(seconds: float | None) -> int | UnsetType:
    return UNSET if seconds is None else round(seconds * 1000)
