"""References: what one holds of an actor.

Owns: `ActorRef` (also the base of references to other nodes) and the local reference.
Not here: the queue behind it (`_mailbox`), the life behind it (`_cell`), the answer (`_reply`).
"""

from __future__ import annotations

import abc
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from swactor._errors import AskCircleError, MailboxFullError
from swactor._links import add_watcher, remove_watcher
from swactor._messages import Down, Request
from swactor._reply import Ask
from swactor._seconds import check_seconds

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._ids import ActorId
    from swactor.abc import Waiter

INLINE_ASKS = 64
"""Asks in a row that may be answered inline before the event loop gets its chance."""

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")

running_cell: ContextVar[Cell | None] = ContextVar("running_cell", default=None)
"""The actor whose own task is running, so that an ask knows who waits."""


class ActorRef(abc.ABC, Generic[M_contra]):
    """A stable address. Survives restarts of its actor; may be kept, compared, hashed and passed on."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def actor_id(self) -> ActorId:
        """Which actor this is, within its own system."""

    @abc.abstractmethod
    def tell(self, message: M_contra) -> None:
        """Send ``message`` and go on; it is handled after everything this sender sent before.

        A message to an actor that has ended becomes a dead letter, which is counted, not raised.

        Raises:
            MailboxFullError: the mailbox is full and its policy refuses.
        """

    @overload
    async def ask(self, message: Request[R], *, timeout_s: float = ...) -> R: ...
    @overload
    async def ask(self, message: M_contra, *, timeout_s: float = ...) -> object: ...
    @abc.abstractmethod
    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any:
        """Send ``message`` and return the reply.

        Raises:
            ActorDeadError: the actor had ended, or ended before it replied.
            AskTimeoutError: no reply within ``timeout_s`` seconds; a late one is dropped.
            AskCircleError: the reply would depend on the asking actor itself.
            MailboxFullError: the mailbox is full and its policy refuses.
            ValueError: ``timeout_s`` is no number.
            Exception: what the handler raised, which also ended the actor.
        """

    @abc.abstractmethod
    async def send(self, message: M_contra) -> None:
        """Send ``message``, waiting for room when the mailbox is full. Never waits for it to be handled.

        To an actor that has ended it is a dead letter, as with `tell`; also when it ends meanwhile.
        """

    @abc.abstractmethod
    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """Tell ``watcher`` `Down` once this actor has ended; at once when it has already."""

    @abc.abstractmethod
    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """Do not tell ``watcher`` after all."""

    @abc.abstractmethod
    def notify_down(self, down: Down) -> None:
        """Deliver ``down`` ahead of user messages. For references that watch on behalf of others."""


class LocalRef(ActorRef[M_contra]):
    """The address of an actor of this system. There is one for each actor, so equal is identical."""

    __slots__ = ("capacity", "cell", "lane")

    def __init__(self, cell: Cell, capacity: int) -> None:
        self.cell = cell
        self.lane: deque[object] | None = None
        """Where messages go while somebody is on the way to look at them; None when somebody must be sent."""
        self.capacity = capacity

    @property
    def actor_id(self) -> ActorId:
        """Which actor this is."""
        return self.cell.actor_id

    def tell(self, message: M_contra) -> None:
        """Enqueue ``message`` and, unless that happened already, have somebody look at it."""
        lane = self.lane
        if lane is not None and len(lane) < self.capacity:
            lane.append(message)  # the short way, taken by nearly every message of a burst
        elif not self.cell.accept(message):
            raise MailboxFullError(self.cell.actor_id, self.capacity)

    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any:
        """Enqueue, let the run queue work inline, and wait only if the reply is not there by then."""
        check_seconds("timeout_s", timeout_s)
        cell = self.cell
        asker = running_cell.get()
        if asker is not None and (cell is asker or cell.asking):
            _refuse_circle(asker, cell)
        ask: Ask[Any] = Ask(message)
        run_queue = cell.run_queue
        # A task is merely woken; a synchronous actor may well have answered before this returns.
        accepted = cell.accept(ask) if cell.waits else run_queue.ask_inline(cell, ask)
        if not accepted:
            raise MailboxFullError(cell.actor_id, self.capacity)
        if ask.done:
            if not run_queue.inline_asks % INLINE_ASKS:
                await cell.system.pause()
            if ask.error is not None:
                raise ask.error
            return ask.value
        system = cell.system
        waiter: Waiter[Any] = system.loop.waiter()
        ask.waiter = waiter
        system.deadlines.watch(ask, self, timeout_s)
        if asker is not None:
            asker.asking = (*asker.asking, cell)
        try:
            return await waiter.wait()
        finally:
            if not ask.done:
                ask.give_up()
            if asker is not None:
                asker.asking = _without(asker.asking, cell)

    async def send(self, message: M_contra) -> None:
        """Enqueue as soon as there is room."""
        cell = self.cell
        mailbox = cell.opened_mailbox()
        if mailbox.room is None and cell.accept(message):
            return
        first = False
        try:
            while True:
                waiter: Waiter[None] = cell.system.loop.waiter()
                mailbox.wait_for_room(waiter, first=first)
                try:
                    await waiter.wait()
                finally:
                    mailbox.stop_waiting(waiter)
                if cell.accept(message):
                    return
                first = True  # somebody who never waits was faster
        finally:
            mailbox.announce_room()  # this sender is in, or has given up: the next one's turn

    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """See `ActorRef.add_watcher`."""
        add_watcher(self.cell, watcher)

    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """See `ActorRef.remove_watcher`."""
        remove_watcher(self.cell, watcher)

    def notify_down(self, down: Down) -> None:
        """Put ``down`` into the system lane."""
        self.cell.signal(down)

    def __repr__(self) -> str:
        return f"<ref {self.actor_id}>"


def _without(cells: tuple[Cell, ...], cell: Cell) -> tuple[Cell, ...]:
    """Return ``cells`` with ``cell`` once less."""
    place = cells.index(cell)
    return cells[:place] + cells[place + 1 :]


def _refuse_circle(asker: Cell, asked: Cell) -> None:
    """Raise when ``asked`` waits, directly or through others, for ``asker``."""
    came_from: dict[Cell, Cell] = {asked: asker}
    ways = [asked]
    while ways:
        here = ways.pop()
        if here is asker:
            chain = [asker]
            step = came_from[asker]
            while step is not asker:
                chain.append(step)
                step = came_from[step]
            chain.append(asker)
            raise AskCircleError(tuple(cell.actor_id for cell in reversed(chain)))
        for waited_for in here.asking:
            if waited_for not in came_from:
                came_from[waited_for] = here
                ways.append(waited_for)
