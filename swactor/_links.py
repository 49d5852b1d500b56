"""Who is to be told when one actor ends, and whom it wants to be told of.

Owns: the three relations of one actor, insertion-ordered, so nothing depends on addresses.
Not here: when an end is told, and what it does to the one that is told (`_life`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swactor._messages import Down, LinkDown

if TYPE_CHECKING:
    from swactor._messages import ExitReason
    from swactor._ref import ActorRef, LocalRef


class Ties:
    """The relations of one actor. Made when it has its first."""

    __slots__ = ("links", "watchers", "watching")

    def __init__(self) -> None:
        self.watchers: dict[ActorRef[Any], None] = {}
        """Told when this actor has ended for good; they belong to its address."""
        self.watching: dict[ActorRef[Any], None] = {}
        """Whose end this life of the actor is told."""
        self.links: dict[LocalRef[Any], None] = {}
        """Who fails when this life of the actor does, and the other way round."""

    def end_life(self, me: LocalRef[Any], reason: ExitReason) -> None:
        """This life of ``me`` is over: it watches nobody any more, and who is linked to it hears why."""
        for watched in self.watching:
            watched.remove_watcher(me)
        self.watching.clear()
        links, self.links = self.links, {}
        for linked in links:
            linked.cell.unlinked(me)
            if reason.abnormal:
                linked.cell.signal(LinkDown(me, reason))

    def end(self, me: LocalRef[Any], reason: ExitReason) -> None:
        """``me`` has ended for good: tell each watcher, once."""
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.notify_down(Down(me, reason))
