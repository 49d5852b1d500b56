"""The actors of this process: snapshot block ``actors``, from ``system.statistics()``. Emits no events.

Lists the actors that deserve a look first, up to a limit: those that are busy longest, whose oldest message
waits longest, that have most messages, most restarts, in turns. The totals are over all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest

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
        shown = _worth_a_look(now.actors, self._actors_max)
        return ActorsBlock(
            actors=tuple(_entry(actor) for actor in sorted(shown, key=lambda actor: actor.serial)),
            actors_total=len(now.actors),
            actors_omitted=len(now.actors) - len(shown),
            messages_waiting=sum(actor.depth for actor in now.actors),
            messages_dropped=sum(actor.dropped for actor in now.actors),
            messages_handled=sum(actor.handled for actor in now.actors),
            restarts=sum(actor.restarts for actor in now.actors),
            dead_letters=now.dead_letters,
            ready_depth=now.ready,
            run_queue_lag_ms=round(now.lag_s * 1000),
            scraped_at_ms=self._clock.wall_ms(),
        )


_RANKINGS: tuple[Callable[[ActorStatistics], float], ...] = (
    lambda actor: actor.handling_s or 0.0,
    lambda actor: actor.oldest_wait_s or 0.0,
    lambda actor: actor.depth,
    lambda actor: actor.restarts,
)
"""What makes an actor worth a look; none of them hides the leaders of another."""


def _worth_a_look(actors: Sequence[ActorStatistics], count: int) -> Sequence[ActorStatistics]:
    """Return ``count`` actors: the first of each ranking, then the second of each, then the tree's order."""
    if len(actors) <= count:
        return actors
    chosen: dict[int, ActorStatistics] = {}
    for actor in (*_leaders(actors, count), *actors[:count]):
        if len(chosen) == count:
            break
        chosen.setdefault(actor.serial, actor)
    return tuple(chosen.values())


def _leaders(actors: Sequence[ActorStatistics], count: int) -> Iterator[ActorStatistics]:
    """Yield the leaders of the rankings in turns; an actor with nothing of what is ranked leads nothing."""
    rankings = [[actor for actor in nlargest(count, actors, key=key) if key(actor)] for key in _RANKINGS]
    for place in range(count):
        for ranking in rankings:
            if place < len(ranking):
                yield ranking[place]


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
