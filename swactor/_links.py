"""Who is told when one actor ends, and whom it wants to be told of.

Owns: the three relations of an actor (watching, watched, linked), and the news at the end of it. They are
insertion-ordered, so nothing depends on addresses.
Not here: when an end comes (`_life`), what a `Down` does to the actor that is told (`_cell`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swactor._messages import Down, LinkDown
from swactor._states import DOWN, ENDED

if TYPE_CHECKING:
    from swactor._cell import Cell
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

    @staticmethod
    def of(cell: Cell) -> Ties:
        """Return the ties of ``cell``."""
        if cell.ties is None:
            cell.ties = Ties()
        return cell.ties

    def end_life(self, me: LocalRef[Any], reason: ExitReason) -> None:
        """This life of ``me`` is over: it watches nobody any more, and who is linked to it hears why."""
        watching, self.watching = self.watching, {}
        for watched in watching:
            watched.remove_watcher(me)
        links, self.links = self.links, {}
        for linked in links:
            _untie(linked.cell, me)
            if reason.abnormal:
                linked.cell.signal(LinkDown(me, reason))

    def end(self, me: LocalRef[Any], reason: ExitReason) -> None:
        """``me`` has ended for good: tell each watcher, once."""
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.notify_down(Down(me, reason))


def watch(cell: Cell, other: ActorRef[Any]) -> None:
    """Have ``cell`` told when ``other`` ends; the end of this life of ``cell`` ends the watching."""
    Ties.of(cell).watching[other] = None
    other.add_watcher(cell.ref)


def unwatch(cell: Cell, other: ActorRef[Any]) -> None:
    """Do not have it told after all."""
    Ties.of(cell).watching.pop(other, None)
    other.remove_watcher(cell.ref)


def add_watcher(cell: Cell, watcher: ActorRef[Any]) -> None:
    """Tell ``watcher`` when ``cell`` has ended; at once when it has."""
    if cell.state is ENDED:
        watcher.notify_down(Down(cell.ref, cell.reason))
    else:
        Ties.of(cell).watchers[watcher] = None


def remove_watcher(cell: Cell, watcher: ActorRef[Any]) -> None:
    """Do not tell ``watcher`` after all."""
    if cell.ties is not None:
        cell.ties.watchers.pop(watcher, None)


def link(one: Cell, other: Cell) -> None:
    """Let the lives of ``one`` and ``other`` fail together; at once when the other has already."""
    if other.state is not DOWN and other.state is not ENDED:
        Ties.of(one).links[other.ref] = None
        Ties.of(other).links[one.ref] = None
    elif other.reason.abnormal:
        one.signal(LinkDown(other.ref, other.reason))


def unlink(one: Cell, other: Cell) -> None:
    """Let them not, after all."""
    _untie(one, other.ref)
    _untie(other, one.ref)


def _untie(cell: Cell, other: LocalRef[Any]) -> None:
    if cell.ties is not None:
        cell.ties.links.pop(other, None)
