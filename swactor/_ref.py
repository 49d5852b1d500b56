"""References: what one holds of an actor, and what comes back from an ask.

Owns: `ActorRef` (also the base of references to other nodes), the local reference, `Reply`.
Not here: the queue behind it (`_mailbox`), the life behind it (`_cell`).
"""

from __future__ import annotations

import abc
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from swactor._errors import AskCircleError, AskTimeoutError, MailboxFullError
from swactor._messages import Ask, Down, Request

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._ids import ActorId
    from swactor.abc import Waiter

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
            Exception: what the handler raised, which also ended the actor.
        """

    @abc.abstractmethod
    async def send(self, message: M_contra) -> None:
        """Send ``message``, waiting for room when the mailbox is full. Never waits for it to be handled."""

    @abc.abstractmethod
    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """Tell ``watcher`` `Down` once this actor has ended; at once when it has already."""

    @abc.abstractmethod
    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """Do not tell ``watcher`` after all."""

    @abc.abstractmethod
    def notify_down(self, down: Down) -> None:
        """Deliver ``down`` ahead of user messages. For references that watch on behalf of others."""


class Reply(Generic[R]):
    """The answer to one ask: set once, by the handler's return or by whoever deferred it."""

    __slots__ = ("_error", "_held_in", "_value", "_waiter", "deferred", "done")

    def __init__(self) -> None:
        self.done = False
        self.deferred = False
        self._value: R | None = None
        self._error: BaseException | None = None
        self._waiter: Waiter[R] | None = None
        self._held_in: dict[Reply[Any], None] | None = None

    def send(self, value: R) -> None:
        """Answer with ``value``; does nothing when already answered or no longer waited for."""
        if not self.done:
            self._value = value
            self.close()
            if self._waiter is not None:
                self._waiter.set(value)

    def fail(self, error: BaseException) -> None:
        """Answer with an error that the asker sees raised."""
        if not self.done:
            self._error = error
            self.close()
            if self._waiter is not None:
                self._waiter.fail(error)

    def close(self) -> None:
        """It is settled: what is set from now on is dropped."""
        self.done = True
        if self._held_in is not None:
            self._held_in.pop(self, None)

    def defer(self, held_in: dict[Reply[Any], None]) -> None:
        """Stand in ``held_in`` until it is settled."""
        self.deferred = True
        self._held_in = held_in
        held_in[self] = None

    def result(self) -> R:
        """Return or raise what was set; only when ``done``."""
        if self._error is not None:
            raise self._error
        return cast("R", self._value)

    def attach(self, waiter: Waiter[R]) -> None:
        """Pass what is set from now on to ``waiter``."""
        self._waiter = waiter


class LocalRef(ActorRef[M_contra]):
    """The address of an actor of this system."""

    __slots__ = ("_mailbox", "cell")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._mailbox = cell.mailbox

    @property
    def actor_id(self) -> ActorId:
        """Which actor this is."""
        return self.cell.actor_id

    def tell(self, message: M_contra) -> None:
        """Enqueue ``message`` and, unless that happened already, have somebody look at it."""
        mailbox = self._mailbox
        user = mailbox.user
        if mailbox.awake and user is not None and len(user) < mailbox.capacity:
            user.append(message)  # the short way, taken by nearly every message of a burst
        elif not self.cell.accept(message):
            raise MailboxFullError(self.cell.actor_id, mailbox.capacity)

    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any:
        """Enqueue, let the run queue work inline, and wait only if the reply is not there by then."""
        cell = self.cell
        asker = running_cell.get()
        if asker is not None:
            _refuse_circle(asker, cell)
        reply: Reply[Any] = Reply()
        if not cell.accept(Ask(message, reply)):
            raise MailboxFullError(cell.actor_id, cell.mailbox.capacity)
        cell.system.run_queue.drain_inline(by_actor=asker is not None)
        if reply.done:
            return reply.result()
        return await self._wait_for(reply, message, timeout_s=timeout_s, asker=asker)

    async def _wait_for(
        self, reply: Reply[Any], message: object, *, timeout_s: float, asker: Cell | None
    ) -> Any:
        cell = self.cell
        loop = cell.system.loop
        waiter: Waiter[Any] = loop.waiter()
        reply.attach(waiter)
        timeout = AskTimeoutError(cell.actor_id, type(message).__name__, timeout_s)
        timer = loop.call_later(timeout_s, lambda: reply.fail(timeout))
        if asker is not None:
            asker.asking = cell
        try:
            return await waiter.wait()
        finally:
            reply.close()  # nobody waits any more
            timer.cancel()
            if asker is not None:
                asker.asking = None

    async def send(self, message: M_contra) -> None:
        """Enqueue as soon as there is room."""
        cell = self.cell
        while not cell.accept(message):
            waiter: Waiter[None] = cell.system.loop.waiter()
            cell.mailbox.wait_for_room(waiter)
            try:
                await waiter.wait()
            except BaseException:
                cell.mailbox.announce_room()  # the room that this sender was told of is the next one's
                raise

    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """See `ActorRef.add_watcher`."""
        self.cell.add_watcher(watcher)

    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """See `ActorRef.remove_watcher`."""
        self.cell.remove_watcher(watcher)

    def notify_down(self, down: Down) -> None:
        """Put ``down`` into the system lane."""
        self.cell.signal(down)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalRef) and other.cell is self.cell

    def __hash__(self) -> int:
        return hash(self.cell)

    def __repr__(self) -> str:
        return f"<ref {self.actor_id}>"


def _refuse_circle(asker: Cell, asked: Cell) -> None:
    """Raise when ``asked`` waits, directly or through others, for ``asker``."""
    chain = [asker.actor_id]
    waits_for: Cell | None = asked
    while waits_for is not None:
        chain.append(waits_for.actor_id)
        if waits_for is asker:
            raise AskCircleError(tuple(chain))
        waits_for = waits_for.asking
