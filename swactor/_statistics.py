"""The current values of a system: what an introspector reads.

Owns: the frozen records that `ActorSystem.statistics` returns, and how they are read from the cells, so that
handling a message costs nothing for it. Moments are events instead (`_moments`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swactor._cell import Cell


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """One actor, now."""

    path: str
    serial: int
    """With ``path`` the actor's id; see `ActorId`."""
    actor_type: str
    state: str
    """``starting``, ``running``, ``stopping``, or ``down`` while it waits for its restart."""
    depth: int
    """User messages that wait."""
    handled: int
    """Messages handled since it was first started."""
    dropped: int
    """Messages lost to a full mailbox."""
    restarts: int
    handling: str | None
    """Type of the message an asynchronous actor is busy with."""
    handling_s: float | None
    """For how many seconds it has been busy with it, at least; None when it is not."""
    oldest_wait_s: float | None
    """How many seconds the oldest message has waited, at most; None when none waits."""


@dataclass(frozen=True, slots=True)
class SystemStatistics:
    """One system, now; actors in the order of the tree, parents first."""

    actors: tuple[ActorStatistics, ...]
    ready: int
    """Actors that wait for their turn."""
    lag_s: float
    """How many seconds the run queue's last wakeup took to come: what else the event loop was busy with."""
    dead_letters: int
    """Messages so far that nobody handled."""


class Readings:
    """Takes readings of all actors. Remembers from one to the next which message an actor was busy with."""

    def __init__(self) -> None:
        self._busy: dict[int, tuple[int, int]] = {}  # serial -> messages handled, first reading that saw it

    def take(self, root: Cell, now_ns: int) -> tuple[ActorStatistics, ...]:
        """Return all actors below ``root``, parents first, newer siblings after older ones."""
        before, self._busy = self._busy, {}
        return tuple(self._read(cell, now_ns, before) for cell in _walk(root) if cell.parent is not None)

    def _read(self, cell: Cell, now_ns: int, before: dict[int, tuple[int, int]]) -> ActorStatistics:
        mailbox, message = cell.mailbox, cell.current
        handling_s = None
        if message is not None and mailbox is not None:
            since_ns = now_ns
            seen = before.get(cell.serial)
            if cell.handled == mailbox.woken_at + 1:
                since_ns = mailbox.since_ns  # it was woken for this one
            elif seen is not None and seen[0] == cell.handled:
                since_ns = seen[1]
            self._busy[cell.serial] = (cell.handled, since_ns)
            handling_s = (now_ns - since_ns) / 1e9
        waits = mailbox is not None and bool(mailbox.lane)
        return ActorStatistics(
            path=cell.path,
            serial=cell.serial,
            actor_type=cell.kind.name,
            state=cell.state.value,
            depth=0 if mailbox is None else mailbox.depth,
            handled=cell.handled,
            dropped=0 if mailbox is None else mailbox.dropped,
            restarts=cell.restarts,
            handling=None if message is None else type(message).__name__,
            handling_s=handling_s,
            oldest_wait_s=(now_ns - mailbox.since_ns) / 1e9 if waits and mailbox is not None else None,
        )


def _walk(root: Cell) -> Iterator[Cell]:
    """Each cell of the tree, parents first; without recursion, a tree may be deeper than Python's stack."""
    waiting = [root]
    while waiting:
        cell = waiting.pop()
        yield cell
        waiting.extend(reversed((cell.children or {}).values()))
