"""The whole: what actors are built from, the root of their tree, and the end of it all.

Owns: the ports, the root, spawning, names, observers, statistics, shutdown.
Not here: what happens inside an actor's life (`_cell`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from swactor._actor import Actor
from swactor._cell import Cell
from swactor._errors import SystemStoppingError
from swactor._ids import ActorId
from swactor._life import STOPPED, LifeState
from swactor._loop import running_loop
from swactor._mailbox import DEFAULT_POLICY, MailboxPolicy
from swactor._messages import ExitReason, Stop
from swactor._moments import DeadLetters
from swactor._names import Names
from swactor._ports import SystemClock, SystemRandom
from swactor._ref import LocalRef
from swactor._runqueue import RunQueue
from swactor._statistics import ActorStatistics, SystemStatistics

if TYPE_CHECKING:
    from swactor._events import Event
    from swactor._ref import ActorRef
    from swactor.abc import Clock, Loop, Observer, Random

N = TypeVar("N")
log = logging.getLogger("swactor")


class _Root(Actor[object]):
    """The parent of everything that `ActorSystem.spawn` starts; its children's failures stay theirs."""


class ActorSystem:
    """Actors of one process, on one event loop. Use it as an async context manager.

    Leaving the context stops all actors, newest first, each within its grace. Ports that are not given are
    the machine's own; a simulator gives its own and runs the same actors.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        name: str = "system",
        grace_s: float = 5.0,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.name = name
        self.names = Names()
        self._grace_s = grace_s
        self._observers: list[Observer] = []
        self._serial = 0
        self._dead_letters = 0
        self._root: Cell | None = None
        self.loop: Loop
        self.run_queue: RunQueue

    async def __aenter__(self) -> Self:
        self.loop = running_loop()
        self.run_queue = RunQueue(self.loop, self.clock)
        self._root = Cell(self, _Root(), ActorId("", 0), parent=None, policy=DEFAULT_POLICY)
        self._root.start()
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
        root = self._running_root()
        if name is not None:
            self.names.require_free(name)
        ref: ActorRef[N] = self.spawn_child(root, actor, name=name, mailbox=mailbox)
        cell = self._cell_of(ref)
        if name is not None and cell.state is not LifeState.ENDED:
            self.names.register(name, ref)
        await cell.wait_started()
        return ref

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

    def new_cell(
        self,
        parent: Cell,
        actor: Actor[Any],
        *,
        name: str | None,
        policy: MailboxPolicy,
        supervised: bool = False,
        grace_s: float | None = None,
    ) -> Cell:
        """Return a cell that hangs below ``parent`` and is not started yet."""
        self._running_root()
        if parent.state not in {LifeState.STARTING, LifeState.RUNNING}:
            raise SystemStoppingError(f"{parent.actor_id} is stopping, it has no new children")
        self._serial += 1
        part = name or f"{type(actor).__name__}-{self._serial}"
        cell = Cell(
            self,
            actor,
            ActorId(f"{parent.actor_id.path}/{part}", self._serial),
            parent=parent,
            policy=policy,
            supervised=supervised,
            grace_s=grace_s,
        )
        if parent.children is None:
            parent.children = {}
        parent.children[self._serial] = cell
        return cell

    def register(self, name: str, ref: ActorRef[Any]) -> None:
        """Give a living local actor one more name.

        Raises:
            NameTakenError: another living actor has it.
        """
        self.names.register(name, ref)

    def whereis(self, name: str) -> ActorRef[Any] | None:
        """Return the living actor with this name, or None."""
        return self.names.whereis(name)

    async def stop_actor(
        self, ref: ActorRef[Any], *, grace_s: float = 5.0, drain: bool = False
    ) -> ExitReason:
        """Stop a local actor and wait until it has ended; return why it did.

        Now, after the current message, or with ``drain`` once it has handled all that waits already.
        """
        cell = self._cell_of(ref)
        if drain:
            cell.drain(grace_s)
        else:
            cell.signal(Stop(STOPPED, grace_s, for_good=True))
        return await cell.wait_ended()

    async def wait_stopped(self, ref: ActorRef[Any]) -> ExitReason:
        """Wait until a local actor has ended for good; return why."""
        return await self._cell_of(ref).wait_ended()

    def _cell_of(self, ref: ActorRef[Any]) -> Cell:
        if not isinstance(ref, LocalRef):
            raise TypeError(f"{ref!r} is not an actor of this system")
        return ref.cell

    def _running_root(self) -> Cell:
        root = self._root
        if root is None or root.state is not LifeState.RUNNING:
            raise SystemStoppingError(f"{self.name} is not running")
        return root

    # -- the outside --------------------------------------------------------------------------------------

    def attach(self, observer: Observer) -> None:
        """Report moments to ``observer`` from now on."""
        self._observers.append(observer)

    def detach(self, observer: Observer) -> None:
        """Stop reporting to ``observer``; does nothing when it is not attached."""
        if observer in self._observers:
            self._observers.remove(observer)

    def emit(self, event: Event) -> None:
        """Report ``event`` to every observer. One that raises is reported once and detached."""
        for observer in self._observers[:]:
            try:
                observer.observe(event)
            except Exception:
                log.exception("observer %r raised on %s and is detached", observer, type(event).__name__)
                self.detach(observer)

    def dead_letter(self, actor: ActorId, message: object) -> None:
        """Count a message that nobody will handle."""
        self._dead_letters += 1
        total = self._dead_letters
        if total & (total - 1) == 0:  # 1, 2, 4, 8 ...: the first is told at once, a flood is told in a few
            kind = type(message).__name__
            log.warning("dead letter %s to %s (%d so far)", kind, actor, total)
            self.emit(DeadLetters(actor=actor.path, message_type=kind, total=total))

    def statistics(self) -> SystemStatistics:
        """Return the current values of all actors, parents before children."""
        root = self._root
        cells = [] if root is None else _walk(root)
        return SystemStatistics(
            actors=tuple(
                ActorStatistics(
                    path=cell.actor_id.path,
                    serial=cell.actor_id.serial,
                    actor_type=cell.type_name,
                    state=cell.state.value,
                    depth=len(cell.mailbox),
                    handled=cell.handled,
                    dropped=cell.mailbox.dropped,
                    restarts=cell.restarts,
                    handling=cell.current,
                )
                for cell in cells
                if cell.parent is not None
            ),
            ready=len(self.run_queue) if root is not None else 0,
            dead_letters=self._dead_letters,
        )

    async def shutdown(self) -> None:
        """Stop all actors, newest first, and wait. Nothing can be spawned from now on. Idempotent.

        Cannot be cancelled: each actor has its grace, and one that ignores even its cancellation is left
        behind and reported as `ActorStuck`.
        """
        if self._root is None:
            return
        with anyio.CancelScope(shield=True):
            self._root.signal(Stop(STOPPED, self._grace_s))
            await self._root.wait_ended()


def _walk(cell: Cell) -> Iterator[Cell]:
    yield cell
    for child in (cell.children or {}).values():
        yield from _walk(child)
