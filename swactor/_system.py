"""The whole: what actors are built from, the root of their tree, and the end of it all.

Owns: the ports, the root, spawning, names, observers, statistics, shutdown.
Not here: what happens inside an actor's life (`_cell`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import anyio

from swactor._actor import Actor, ActorKind
from swactor._cell import Cell
from swactor._errors import ActorDeadError, SystemStoppingError
from swactor._loop import running_loop
from swactor._mailbox import DEFAULT_POLICY, MailboxPolicy
from swactor._messages import ASKED_TO_STOP, ExitReason, Stop
from swactor._moments import DeadLetters
from swactor._names import Names
from swactor._ports import SystemClock, SystemRandom
from swactor._ref import LocalRef
from swactor._reply import Deadlines
from swactor._runqueue import RunQueue
from swactor._seconds import check_seconds
from swactor._states import ENDED, RUNNING, STARTING
from swactor._statistics import Readings, SystemStatistics
from swactor._watchdog import BlockReport

if TYPE_CHECKING:
    from swactor._events import Event
    from swactor._ids import ActorId
    from swactor._ref import ActorRef
    from swactor.abc import Clock, Loop, Observer, Random, Waiter, Watchdog

N = TypeVar("N")
log = logging.getLogger("swactor")


class _Root(Actor[object]):
    """The parent of everything that `ActorSystem.spawn` starts; its children's failures stay theirs."""


@dataclass(frozen=True, slots=True)
class ShutdownReport:
    """How a shutdown went."""

    stuck: tuple[ActorId, ...]
    """Who ignored both the stop and the cancellation, and was left behind."""


class ActorSystem:
    """Actors of one process, on one event loop. Use it as an async context manager.

    Leaving the context stops all actors, newest first, each within its grace: ``grace_s`` seconds where
    nobody gave it another. Ports that are not given are the machine's own; a simulator gives its own and runs
    the same actors. ``loop`` says how to get at the event loop that is running; by default asyncio's or
    trio's. A ``watchdog`` names what holds the loop. Errors call it ``name``.

    Raises:
        ValueError: ``grace_s`` is no number.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        loop: Callable[[], Loop] | None = None,
        watchdog: Watchdog | None = None,
        name: str = "system",
        grace_s: float = 5.0,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.name = name
        self.names = Names()
        self._find_loop = loop or running_loop
        self._watchdog = watchdog
        check_seconds("grace_s", grace_s)
        self._grace_s = grace_s
        self.observers: tuple[Observer, ...] = ()
        """Who hears of moments."""
        self._kinds: dict[type[Actor[Any]], ActorKind] = {}
        self._serial = 0
        self._dead_letters = 0
        self._stuck: list[ActorId] = []
        self._readings = Readings()
        self._root: Cell | None = None
        self.loop: Loop
        self.run_queue: RunQueue
        self.deadlines: Deadlines

    async def __aenter__(self) -> Self:
        self.loop = self._find_loop()
        self.run_queue = RunQueue(self.loop, self.clock)
        self.deadlines = Deadlines(self.loop)
        root = _Root()
        self._root = Cell(self, root, None, 0, DEFAULT_POLICY)
        self._root.start()
        if self._watchdog is not None:
            report = BlockReport(self.emit)
            self._watchdog.start(self.loop, self.clock, found=report.found, over=report.over)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # -- actors -------------------------------------------------------------------------------------------

    async def spawn(
        self,
        actor: Actor[N] | Callable[[], Actor[N]],
        *,
        name: str | None = None,
        mailbox: MailboxPolicy = DEFAULT_POLICY,
    ) -> ActorRef[N]:
        """Start a top-level actor and wait for its ``on_start``; with a name it can be found by `whereis`.

        Raises:
            NameTakenError: a living actor has the name.
            SystemStoppingError: the system is not running.
            Exception: what ``on_start`` raised.
        """
        root = self._root or self._refuse()
        instance = actor if isinstance(actor, Actor) else actor()
        if name is not None:
            self.names.require_free(name)
        cell = self.new_cell(root, instance, name=name, policy=mailbox)
        if name is not None:
            self.names.register(name, cell.ref)  # before it starts, and so before it may give the name away
        cell.start()
        if cell.state is not RUNNING:
            try:
                await cell.wait_started()
            except BaseException:
                cell.stop(self._grace_s)  # nobody will ever hold its address
                raise
        return cell.ref

    def spawn_child(
        self,
        parent: Cell,
        actor: Actor[N] | Callable[[], Actor[N]],
        *,
        name: str | None,
        mailbox: MailboxPolicy,
    ) -> ActorRef[N]:
        """Start a child of ``parent`` without waiting; the way behind `Context.spawn`."""
        instance = actor if isinstance(actor, Actor) else actor()
        cell = self.new_cell(parent, instance, name=name, policy=mailbox)
        cell.start()
        return cell.ref

    @property
    def is_running(self) -> bool:
        """Whether actors can be spawned: from the start until the shutdown begins."""
        return self._root is not None and self._root.state is RUNNING

    def new_cell(
        self,
        parent: Cell,
        actor: Actor[Any],
        *,
        name: str | None,
        policy: MailboxPolicy,
    ) -> Cell:
        """Return a cell that hangs below ``parent`` and is not started yet."""
        if self._root is None or self._root.state is not RUNNING:
            self._refuse()
        if parent.state is not RUNNING and parent.state is not STARTING:
            raise SystemStoppingError(f"{parent.actor_id} is stopping, it has no new children")
        self._serial = serial = self._serial + 1
        cell = Cell(self, actor, parent, serial, policy)
        cell.name = name
        if parent.children is None:
            parent.children = {}
        parent.children[serial] = cell
        return cell

    def kind_of(self, actor: Actor[Any]) -> ActorKind:
        """Return what is known of the class of ``actor``."""
        actor_type = type(actor)
        kind = self._kinds.get(actor_type)
        if kind is None:
            kind = self._kinds[actor_type] = ActorKind.of(actor_type)
        return kind

    def register(self, name: str, ref: ActorRef[Any]) -> None:
        """Give a living local actor one more name.

        Raises:
            ActorDeadError: the actor has ended.
            NameTakenError: another living actor has it.
            TypeError: the actor is not of this system.
        """
        cell = self._cell_of(ref)
        if cell.state is ENDED:
            raise ActorDeadError(cell.actor_id, str(cell.reason))
        self.names.register(name, ref)

    def whereis(self, name: str) -> ActorRef[Any] | None:
        """Return the living actor with this name, or None."""
        return self.names.whereis(name)

    async def stop_actor(
        self, ref: ActorRef[Any], *, grace_s: float = 5.0, drain: bool = False
    ) -> ExitReason:
        """Stop a local actor and wait until it has ended; return why it did.

        Now, after the current message, or with ``drain`` once it has handled all that waits already. After
        ``grace_s`` seconds it is cancelled.

        Raises:
            TypeError: the actor is not of this system.
            ValueError: ``grace_s`` is no number.
        """
        check_seconds("grace_s", grace_s)
        # Asked here as well: one call more for each stop would be felt.
        cell = ref.cell if isinstance(ref, LocalRef) and ref.cell.system is self else self._cell_of(ref)
        if drain:
            cell.drain(grace_s)
        else:
            cell.stop(grace_s)
        return cell.reason if cell.state is ENDED else await cell.wait_ended()

    async def wait_stopped(self, ref: ActorRef[Any]) -> ExitReason:
        """Wait until a local actor has ended for good; return why.

        Raises:
            TypeError: the actor is not of this system.
        """
        return await self._cell_of(ref).wait_ended()

    def _cell_of(self, ref: ActorRef[Any]) -> Cell:
        if not isinstance(ref, LocalRef) or ref.cell.system is not self:
            raise TypeError(f"{ref!r} is not an actor of this system")
        return ref.cell

    def _refuse(self) -> NoReturn:
        raise SystemStoppingError(f"{self.name} is not running")

    # -- the outside --------------------------------------------------------------------------------------

    def attach(self, observer: Observer) -> None:
        """Report moments to ``observer`` from now on."""
        self.observers = (*self.observers, observer)

    def detach(self, observer: Observer) -> None:
        """Stop reporting to ``observer``; does nothing when it is not attached."""
        self.observers = tuple(other for other in self.observers if other is not observer)

    def emit(self, event: Event) -> None:
        """Report ``event`` to every observer. One that raises is reported once and detached."""
        for observer in self.observers:
            try:
                observer.observe(event)
            except Exception:
                log.exception("observer %r raised on %s and is detached", observer, type(event).__name__)
                self.detach(observer)

    def members(self, group: str) -> tuple[ActorRef[Any], ...]:
        """Return the living members of ``group``, in the order in which they joined."""
        return self.names.members(group)

    def publish(self, group: str, message: object) -> int:
        """Tell every member of ``group`` and return how many took it.

        What a full mailbox refuses is a dead letter: one slow member costs the others nothing.
        """
        taken = 0
        for member in self.names.members(group):
            cell = self._cell_of(member)
            if cell.is_deaf or not cell.accept(message):
                self.dead_letter(cell, message)
            else:
                taken += 1
        return taken

    def dead_letter(self, cell: Cell, message: object) -> None:
        """Count a message that nobody will handle."""
        self._dead_letters += 1
        total = self._dead_letters
        if total & (total - 1) == 0:  # 1, 2, 4, 8 ...: the first is told at once, a flood is told in a few
            kind = type(message).__name__
            log.warning("dead letter %s to %s (%d so far)", kind, cell.actor_id, total)
            self.emit(DeadLetters(actor=cell.path, message_type=kind, total=total))

    def note_stuck(self, actor: ActorId) -> None:
        """An actor was left behind."""
        self._stuck.append(actor)

    def statistics(self) -> SystemStatistics:
        """Return the current values of all actors, parents before children."""
        if self._root is None:
            return SystemStatistics(actors=(), ready=0, lag_s=0.0, dead_letters=0)
        return SystemStatistics(
            actors=self._readings.take(self._root, self.clock.monotonic_ns()),
            ready=len(self.run_queue.ready),
            lag_s=self.run_queue.lag_ns / 1e9,
            dead_letters=self._dead_letters,
        )

    async def pause(self) -> None:
        """Let the event loop turn once."""
        waiter: Waiter[None] = self.loop.waiter()
        self.loop.call_soon(partial(waiter.set, None))
        await waiter.wait()

    async def shutdown(self) -> ShutdownReport:
        """Stop all actors, newest first, and wait. Nothing can be spawned from now on. Idempotent.

        Cannot be cancelled: each actor has its grace, and one that ignores even its cancellation is left
        behind, reported as `ActorStuck`, and named in what is returned.
        """
        if self._root is not None:
            self._root.signal(Stop(ASKED_TO_STOP, self._grace_s))
            with anyio.CancelScope(shield=True):
                await self._see_out(self._root)
        return ShutdownReport(tuple(self._stuck))

    async def _see_out(self, root: Cell) -> None:
        """Wait for the end; a cancellation, which asyncio delivers in spite of the shield, comes after it."""
        cancelled: BaseException | None = None
        while root.state is not ENDED:
            try:
                await root.wait_ended()
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
        self.deadlines.close()
        self.loop.close()
        if self._watchdog is not None:
            self._watchdog.stop()
        if cancelled is not None:
            raise cancelled
