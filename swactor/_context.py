"""What a running actor may do: the only way out of a handler.

Owns: the vocabulary of an author. Not here: how any of it is done (`_cell`, `_timers`, `_system`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from swactor._actor import Actor
from swactor._errors import NotAskedError
from swactor._links import link, unlink, unwatch, watch
from swactor._mailbox import DEFAULT_POLICY, MailboxPolicy
from swactor._messages import ASKED_TO_STOP, COMPLETED, ExitReason, Stop
from swactor._ref import LocalRef
from swactor._seconds import check_seconds
from swactor._states import ENDED

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._events import Event
    from swactor._ids import ActorId
    from swactor._ref import ActorRef
    from swactor._reply import Reply
    from swactor._system import ActorSystem
    from swactor.abc import Clock, Loop, RandomStream

M = TypeVar("M")
N = TypeVar("N")


class Context(Generic[M]):
    """Handed to every hook of one actor; the same object for all of its life."""

    __slots__ = ("_cell", "_random", "clock")

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._random: RandomStream | None = None
        self.clock: Clock = cell.system.clock
        """Where times come from."""

    @property
    def ref(self) -> ActorRef[M]:
        """This actor's own address."""
        return self._cell.ref

    @property
    def actor_id(self) -> ActorId:
        """This actor's id."""
        return self._cell.actor_id

    @property
    def system(self) -> ActorSystem:
        """The system this actor lives in."""
        return self._cell.system

    @property
    def loop(self) -> Loop:
        """The event loop, for actors that own a port (a child process, a connection)."""
        return self._cell.system.loop

    @property
    def random(self) -> RandomStream:
        """This actor's own random numbers."""
        if self._random is None:
            self._random = self._cell.system.random.stream("actor", self._cell.path)
        return self._random

    def spawn(
        self,
        actor: Actor[N] | Callable[[], Actor[N]],
        *,
        name: str | None = None,
        mailbox: MailboxPolicy = DEFAULT_POLICY,
    ) -> ActorRef[N]:
        """Start a child and return its address; its ``on_start`` runs now, or goes on in a task of its own.

        The child is stopped before this actor is. When it fails, this actor fails with `ChildFailedError`,
        unless it monitors the child and so is told `Down`.

        Raises:
            SystemStoppingError: the system, or this actor, is stopping.
        """
        return self._cell.system.spawn_child(self._cell, actor, name=name, mailbox=mailbox)

    def stop(self, value: object = None) -> None:
        """End this actor after the current message, complete, with ``value`` as result."""
        self._cell.signal(Stop(ExitReason(COMPLETED, value=value), grace_s=5.0))

    def stop_child(self, child: ActorRef[Any], *, grace_s: float = 5.0) -> None:
        """Ask ``child`` to stop; it has ``grace_s`` seconds before it is cancelled. Does not wait.

        Raises:
            ValueError: ``child`` is not a living child of this actor, or ``grace_s`` is no number.
        """
        check_seconds("grace_s", grace_s)
        cell = child.cell if isinstance(child, LocalRef) else None
        if cell is None or (self._cell.children or {}).get(cell.serial) is not cell:
            raise ValueError(f"{child!r} is not a living child of {self.actor_id}")
        cell.signal(Stop(ASKED_TO_STOP, grace_s, for_good=True))

    def monitor(self, other: ActorRef[Any]) -> None:
        """Be told ``Down(other, reason)`` exactly once, when ``other`` ends; at once when it has."""
        watch(self._cell, other)

    def demonitor(self, other: ActorRef[Any]) -> None:
        """Do not be told after all. A `Down` that already waits in the mailbox still comes."""
        unwatch(self._cell, other)

    def link(self, other: ActorRef[Any]) -> None:
        """Fail when ``other`` fails, and let it fail when this actor does; at once when it has.

        A normal end of either dissolves the link. Links are of one life: a restarted actor has none. Fails
        with `LinkedActorFailedError`.

        Raises:
            ValueError: ``other`` is this actor itself, or not of this system: monitor it instead.
        """
        link(self._cell, self._linkable(other))

    def unlink(self, other: ActorRef[Any]) -> None:
        """Take a link back; does nothing when there is none.

        Raises:
            ValueError: as for `link`.
        """
        unlink(self._cell, self._linkable(other))

    def _linkable(self, other: ActorRef[Any]) -> Cell:
        if not isinstance(other, LocalRef) or other.cell.system is not self._cell.system:
            raise ValueError(f"{other!r} is not an actor of this system; monitor it instead of linking")
        if other.cell is self._cell:
            raise ValueError(f"{other!r} cannot be linked to itself")
        return other.cell

    def join(self, group: str) -> None:
        """Be a member of ``group``, which `ActorSystem.publish` tells; the end of this actor leaves it."""
        if self._cell.state is not ENDED:
            self._cell.system.names.join(group, self._cell.ref)

    def leave(self, group: str) -> None:
        """Be no member of ``group`` any more; does nothing when it is none."""
        self._cell.system.names.leave(group, self._cell.ref)

    def send_after(self, delay_s: float, message: M, *, key: Hashable = None) -> None:
        """Tell this actor ``message`` in ``delay_s`` seconds; replaces a timer with the same key.

        Without a key the message itself is the key, so it must be hashable.

        Raises:
            TypeError: the key is not hashable.
            ValueError: ``delay_s`` is negative, infinite or no number.
        """
        self._cell.timers.start(message if key is None else key, message, delay_s=delay_s)

    def send_every(
        self, period_s: float, message: M, *, first_s: float | None = None, key: Hashable = None
    ) -> None:
        """Tell this actor ``message`` every ``period_s`` seconds, the first time after ``first_s`` if given.

        Rounds that fall due while the actor is busy are skipped; the rhythm does not drift. The key is that
        of `send_after`.

        Raises:
            TypeError: the key is not hashable.
            ValueError: ``period_s`` is below a nanosecond, ``first_s`` negative, or one of them has no end.
        """
        self._cell.timers.start(
            message if key is None else key,
            message,
            delay_s=period_s if first_s is None else first_s,
            period_s=period_s,
        )

    def cancel(self, key: Hashable) -> None:
        """Call the timer ``key`` off; it does not fire any more, even if it is due already."""
        self._cell.timers.cancel(key)

    @property
    def is_asked(self) -> bool:
        """Whether the current message was asked, so that somebody waits for a reply."""
        return self._cell.asked is not None

    def defer(self) -> Reply[Any]:
        """Take over the reply to the current message; the handler's return value is then ignored.

        When this actor ends, or is restarted, before it was sent, the asker gets `ActorDeadError`.

        Raises:
            NotAskedError: the current message was told, so nobody waits.
        """
        ask = self._cell.asked
        if ask is None:
            raise NotAskedError(self.actor_id)
        return self._cell.defer(ask)

    def emit(self, event: Event) -> None:
        """Report a moment to every Observer of the system. Never raises, never waits."""
        self._cell.system.emit(event)
