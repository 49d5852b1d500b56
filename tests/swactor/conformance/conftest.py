"""What every test of the suite builds on: the event loops, the two kinds of handler, and a world to wait in.

A test takes ``world`` and so runs on every loop; it takes ``kind`` too where the style of a handler could
matter. Waiting goes through the world, because on some loops time passes only when somebody lets it.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import pytest

from sim.clock import WorldClock
from sim.loop import VirtualLoop
from swactor import (
    Actor,
    ActorRef,
    ActorStatistics,
    ActorSystem,
    Context,
    Event,
    ExitReason,
    MailboxPolicy,
    Reply,
    Request,
)
from swactor.testing import ManualClock, until

from .supervised import Fragile

T = TypeVar("T")
E = TypeVar("E", bound=Event)
Handler = Callable[[Context[Any], Any], Any]
StartHook = Callable[[Context[Any]], Any]
StopHook = Callable[[Context[Any], ExitReason], Any]

DEADLINE_S = 20.0
"""How long a test waits for what must happen; a loaded machine needs a small part of it."""
SETTLE_TURNS = 60
"""Turns of a real loop after which nothing more happens on its own in these tests."""


# -- actors --------------------------------------------------------------------------------------------------


def ignore(ctx: Context[Any], message: Any) -> None:
    """Handle nothing."""


def echo(ctx: Context[Any], message: Any) -> Any:
    """Answer with what was asked."""
    return message


def fail(ctx: Context[Any], message: Any) -> None:
    """Handle by failing."""
    raise RuntimeError("asked to fail")


def do(ctx: Context[Any], message: Any) -> Any:
    """Do what the message says if it is a function of the context; answer with anything else."""
    return message(ctx) if callable(message) else message


def collecting(replies: list[Reply[Any]]) -> Callable[[Context[Any], Any], object]:
    """Return a handler that defers what it is asked and keeps the reply."""

    def handle(ctx: Context[Any], message: Any) -> object:
        if message == "now":
            return "at once"
        replies.append(ctx.defer())
        return "ignored"

    return handle


def _no_start(ctx: Context[Any]) -> None:
    """Prepare nothing."""


def _no_stop(ctx: Context[Any], reason: ExitReason) -> None:
    """Tidy nothing up."""


class _Sync(Actor[Any]):
    """Runs a function as a synchronous handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        return self._handler(ctx, message)


class _SyncHooks(_Sync):
    """Has synchronous hooks, too."""

    def __init__(self, handler: Handler, start: StartHook, stop: StopHook) -> None:
        super().__init__(handler)
        self._start = start
        self._stop = stop

    def on_start(self, ctx: Context[Any]) -> None:
        self._start(ctx)

    def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        self._stop(ctx, reason)


class _Async(Actor[Any]):
    """Runs the same function as an asynchronous handler, after one turn of the loop."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        return await _after_a_turn(lambda: self._handler(ctx, message))


class _AsyncHooks(_Async):
    """Has asynchronous hooks, too."""

    def __init__(self, handler: Handler, start: StartHook, stop: StopHook) -> None:
        super().__init__(handler)
        self._start = start
        self._stop = stop

    async def on_start(self, ctx: Context[Any]) -> None:
        await _after_a_turn(lambda: self._start(ctx))

    async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        await _after_a_turn(lambda: self._stop(ctx, reason))


class _SyncGated(_Sync):
    """Starts once a gate is open, so that whatever comes before then waits in its mailbox."""

    def __init__(self, handler: Handler, gate: anyio.Event, start: StartHook) -> None:
        super().__init__(handler)
        self._gate = gate
        self._start = start

    async def on_start(self, ctx: Context[Any]) -> None:
        self._start(ctx)
        await self._gate.wait()


class _AsyncGated(_Async):
    """Starts once a gate is open, so that whatever comes before then waits in its mailbox."""

    def __init__(self, handler: Handler, gate: anyio.Event, start: StartHook) -> None:
        super().__init__(handler)
        self._gate = gate
        self._start = start

    async def on_start(self, ctx: Context[Any]) -> None:
        self._start(ctx)
        await self._gate.wait()


async def _after_a_turn(function: Callable[[], Any]) -> Any:
    await anyio.lowlevel.checkpoint()
    result = function()
    return await result if inspect.isawaitable(result) else result


class Kind:
    """Makes actors of one style of handler from plain functions; hooks have the same style."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits

    def __call__(
        self, handler: Handler = ignore, *, start: StartHook | None = None, stop: StopHook | None = None
    ) -> Actor[Any]:
        """Return a new actor; it has hooks only if a function for one is given."""
        if start is None and stop is None:
            return _Async(handler) if self.waits else _Sync(handler)
        hooked = _AsyncHooks if self.waits else _SyncHooks
        return hooked(handler, start or _no_start, stop or _no_stop)

    def gated(self, handler: Handler, gate: anyio.Event, *, start: StartHook = _no_start) -> Actor[Any]:
        """Return an actor that calls ``start`` and is then starting until ``gate`` is set."""
        return (_AsyncGated if self.waits else _SyncGated)(handler, gate, start)


SYNC = Kind(waits=False)
ASYNC = Kind(waits=True)


class Seen:
    """An Observer that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


# -- loops ---------------------------------------------------------------------------------------------------


class World:
    """Makes systems on the loop under test, and lets time pass on it."""

    @asynccontextmanager
    async def system(self, **options: Any) -> AsyncIterator[ActorSystem]:
        """Run a system; leaving it stops all actors, however long their graces are."""
        system = await self.new(**options).__aenter__()
        try:
            yield system
        finally:
            await self.result(system.shutdown())

    def new(self, **options: Any) -> ActorSystem:
        """Return a system that is not started yet."""
        return ActorSystem(**options)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn, and time pass, until ``condition`` holds."""
        await until(condition, timeout_s=DEADLINE_S)

    async def result(self, awaitable: Awaitable[T]) -> T:
        """Return what ``awaitable`` gives, letting time pass until it does."""
        with anyio.fail_after(DEADLINE_S):
            return await awaitable

    async def settle(self) -> None:
        """Let the loop turn often enough that whatever can happen without time passing has happened."""
        for _ in range(SETTLE_TURNS):
            await anyio.lowlevel.checkpoint()

    async def elapse(self, system: ActorSystem, seconds: float) -> None:
        """Let ``seconds`` pass on the clock of ``system``."""
        ends_ns = system.clock.monotonic_ns() + round(seconds * 1e9)
        await self.until(lambda: system.clock.monotonic_ns() >= ends_ns)

    def tasks(self) -> int:
        """Return how many tasks of the loop have not ended."""
        try:
            return len(asyncio.all_tasks())
        except RuntimeError:
            import trio

            return trio.lowlevel.current_statistics().tasks_living


class ManualWorld(World):
    """Time stands still but for what the world lets pass."""

    def __init__(self) -> None:
        self._clock = ManualClock()

    def new(self, **options: Any) -> ActorSystem:
        """Return a system whose timers are on the manual clock."""
        return ActorSystem(**{"clock": self._clock, "loop": self._clock.loop, **options})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop settle, then move from timer to timer until ``condition`` holds."""
        await until(condition, self._clock, timeout_s=DEADLINE_S)

    async def result(self, awaitable: Awaitable[T]) -> T:
        """Return what ``awaitable`` gives, moving from timer to timer until it does."""
        return await self._clock.run(awaitable)

    async def settle(self) -> None:
        """Let everything happen that can without time passing."""
        await self._clock.settle()

    async def elapse(self, system: ActorSystem, seconds: float) -> None:
        """Let ``seconds`` pass."""
        await self._clock.advance(seconds)


class VirtualWorld(World):
    """In virtual time, as the simulator has it: time jumps when everybody waits for it."""

    def new(self, **options: Any) -> ActorSystem:
        """Return a system whose clock is the loop's."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return ActorSystem(**{"clock": WorldClock(loop, epoch_ms=0), **options})


Backend = tuple[str, dict[str, Any]]
REAL_LOOPS = ("asyncio", "uvloop", "trio")
TIMELESS_LOOPS = ("manual", "virtual")
"""Where a long time passes in none. A test about real or about exact time names its own ``loop_name``."""
WORLDS: dict[str, type[World]] = {"manual": ManualWorld, "virtual": VirtualWorld}


@pytest.fixture(params=[*REAL_LOOPS, *TIMELESS_LOOPS])
def loop_name(request: pytest.FixtureRequest) -> str:
    """Each event loop in turn."""
    name: str = request.param
    return name


@pytest.fixture
def anyio_backend(loop_name: str) -> Backend:
    """Run the test on the loop of that name."""
    import uvloop

    options: dict[str, Backend] = {
        "uvloop": ("asyncio", {"loop_factory": uvloop.new_event_loop}),
        "trio": ("trio", {}),
        "virtual": ("asyncio", {"loop_factory": VirtualLoop}),
    }
    return options.get(loop_name, ("asyncio", {}))


@pytest.fixture
def world(loop_name: str) -> World:
    """Where the test's systems live."""
    return WORLDS.get(loop_name, World)()


@pytest.fixture(params=[SYNC, ASYNC], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Both kinds of handler in turn."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def fragile(kind: Kind) -> Fragile:
    """Children of either kind for a supervisor."""
    return Fragile(kind)


@pytest.fixture(autouse=True)
def backend_has_nothing_to_complain_about(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception that reaches the event loop was forgotten by the runtime, whatever else went well."""
    yield
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.levelno >= logging.ERROR
        and (record.name in {"asyncio", "trio"} or "exception in callback" in record.getMessage())
    ]
    assert complaints == []


# -- looking at a system from outside ------------------------------------------------------------------------


def statistics_of(system: ActorSystem, ref: ActorRef[Any]) -> ActorStatistics | None:
    """Return the values of one actor, None when it has ended."""
    serial = ref.actor_id.serial
    return next((actor for actor in system.statistics().actors if actor.serial == serial), None)


def depth_of(system: ActorSystem, ref: ActorRef[Any]) -> int:
    """Return how many messages wait for ``ref``."""
    actor = statistics_of(system, ref)
    return 0 if actor is None else actor.depth


def is_handling(system: ActorSystem, ref: ActorRef[Any]) -> bool:
    """Return whether an asynchronous actor is in the middle of a message."""
    actor = statistics_of(system, ref)
    return actor is not None and actor.handling is not None


async def spawn_gated(
    system: ActorSystem,
    kind: Kind,
    handler: Handler,
    gate: anyio.Event,
    *,
    start: StartHook = _no_start,
    mailbox: MailboxPolicy | None = None,
) -> ActorRef[Any]:
    """Return the address of an actor that is still starting, and handles nothing until ``gate`` is set."""
    return await spawn_starting(system, kind.gated(handler, gate, start=start), mailbox=mailbox)


async def spawn_starting(
    system: ActorSystem, actor: Actor[Any], *, mailbox: MailboxPolicy | None = None
) -> ActorRef[Any]:
    """Return the address of an actor without waiting until it has started."""
    policy = mailbox or MailboxPolicy()

    def spawn(ctx: Context[Any], message: Any) -> ActorRef[Any]:
        return ctx.spawn(actor, mailbox=policy)

    ref: ActorRef[Any] = await (await system.spawn(SYNC(spawn))).ask(SpawnIt())
    return ref


class SpawnIt(Request[Any]):
    """Asks for the address of something new."""
