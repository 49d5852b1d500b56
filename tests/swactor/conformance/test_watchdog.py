"""The watchdog: it says who held the event loop, and nothing about those who did not."""

import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from swactor import Actor, ActorRef, ActorSystem, Context, HandlerBlocked, ThreadWatchdog
from swactor.abc import Clock, Loop, Watchdog

from .conftest import REAL_LOOPS, SYNC, Kind, Seen, World, echo, ignore

pytestmark = pytest.mark.parametrize("loop_name", REAL_LOOPS)

BOUND_S = 0.05
HELD_S = 10.0
"""How long the loop is held at most: until the watchdog has found it, which a loaded machine may delay."""
IN_SPIN = "in spin\n"
"""How a stack says that `spin` holds the loop."""
NEVER_S = 30.0
"""A bound that nothing here reaches, however slow the machine is."""


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Collect no garbage: that holds the loop too, and what follows without a turn is the same block."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Found(logging.Handler):
    """Notices when the watchdog says, from its own thread, that it has found `spin`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if IN_SPIN in record.getMessage():
            self.event.set()


def hold_the_loop(ctx: Context[Any], message: Any) -> str:
    """Let nothing else run until that was found out."""
    spin(ctx.system)
    return "held"


def spin(system: ActorSystem) -> None:
    """Keep the processor busy until the watchdog has said so, for `HELD_S` seconds at most."""
    found = Found()
    logger = logging.getLogger("swactor")
    logger.addHandler(found)
    ends_ns = system.clock.monotonic_ns() + round(HELD_S * 1e9)
    try:
        while not found.event.is_set() and system.clock.monotonic_ns() < ends_ns:
            pass
    finally:
        logger.removeHandler(found)


def spinning(seen: Seen) -> list[HandlerBlocked]:
    """Return what was found in `spin`; on a loaded machine anything may hold the loop for longer."""
    return [event for event in seen.of(HandlerBlocked) if IN_SPIN in event.stack]


async def test_a_handler_that_holds_the_loop_is_named_with_its_message_and_its_stack(
    world: World, kind: Kind
) -> None:
    seen = Seen()
    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        actor = kind(hold_the_loop)
        ref = await system.spawn(actor, name="holds")
        ref.tell(["a list"])
        await world.until(lambda: len(spinning(seen)) == 1)
    (blocked,) = spinning(seen)
    assert blocked.actor == "/holds"
    assert blocked.actor_type == type(actor).__qualname__
    assert blocked.message_type == "list"
    assert blocked.held_ms >= BOUND_S * 1000


async def test_a_handler_that_was_asked_or_woken_by_a_timer_is_named_with_the_message_itself(
    world: World, kind: Kind
) -> None:
    seen = Seen()
    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        ref = await system.spawn(kind(hold_the_loop))
        await world.settle()  # what held the loop until now is a block of its own
        await world.result(ref.ask(("asked",)))
        await world.until(lambda: len(spinning(seen)) == 1)
        await system.spawn(kind(hold_the_loop, start=lambda ctx: ctx.send_after(0.0, 1.5)))
        await world.until(lambda: len(spinning(seen)) == 2)
    assert [event.message_type for event in spinning(seen)] == ["tuple", "float"]


async def test_a_hook_that_holds_the_loop_is_named_without_a_message(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        await system.spawn(kind(start=lambda ctx: spin(ctx.system)), name="starts")
        await world.until(lambda: len(spinning(seen)) == 1)
    assert [(event.actor, event.message_type) for event in spinning(seen)] == [("/starts", UNSET)]


async def test_of_an_actor_that_asks_and_one_that_holds_the_loop_the_latter_is_named(world: World) -> None:
    seen = Seen()

    class Asks(Actor[ActorRef[Any]]):
        async def on_message(self, ctx: Context[Any], message: ActorRef[Any]) -> object:
            return await message.ask("question")

    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        holds = await system.spawn(SYNC(hold_the_loop), name="holds")
        asks = await system.spawn(Asks(), name="asks")
        await world.settle()  # what held the loop until now is a block of its own
        await world.result(asks.ask(holds))
        await world.until(lambda: len(spinning(seen)) == 1)
    assert [event.actor for event in spinning(seen)] == ["/holds"]


async def test_what_holds_the_loop_and_is_no_actor_is_reported_as_such(world: World) -> None:
    seen = Seen()
    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        await world.settle()  # what held the loop until now is a block of its own
        spin(system)
        await world.until(lambda: len(spinning(seen)) == 1)
    (blocked,) = spinning(seen)
    assert (blocked.actor, blocked.actor_type, blocked.message_type) == (UNSET, UNSET, UNSET)


async def test_a_handler_that_waits_does_not_hold_the_loop(world: World) -> None:
    seen = Seen()
    opened = anyio.Event()

    class Waits(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            await opened.wait()

    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        (await system.spawn(Waits(), name="waits")).tell("wait")
        await world.elapse(system, 5 * BOUND_S)
        opened.set()
    assert [event for event in seen.of(HandlerBlocked) if event.actor == "/waits"] == []


async def test_each_block_is_reported_once(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system(watchdog=ThreadWatchdog(BOUND_S)) as system:
        system.attach(seen)
        ref = await system.spawn(kind(hold_the_loop))
        for count in range(1, 3):
            await world.settle()  # what held the loop until now is a block of its own
            await world.result(ref.ask("hold"))
            await world.until(lambda count=count: len(spinning(seen)) >= count)  # type: ignore[misc]  # bound now
        assert len(spinning(seen)) == 2


class Told(Watchdog):
    """Finds what it is told to."""

    found: Callable[[FrameType], None]
    over: Callable[[float], None]

    def start(
        self,
        loop: Loop,
        clock: Clock,
        *,
        found: Callable[[FrameType], None],
        over: Callable[[float], None],
    ) -> None:
        self.found, self.over = found, over

    def stop(self) -> None:
        pass


async def test_a_block_that_follows_at_once_does_not_take_the_place_of_the_one_before(world: World) -> None:
    watchdog, seen = Told(), Seen()

    def first() -> None:
        watchdog.found(sys._getframe())

    def second() -> None:
        watchdog.found(sys._getframe())

    async with world.system(watchdog=watchdog) as system:
        system.attach(seen)
        first()
        second()  # before the loop could be told that the first one is over
        watchdog.over(1.0)
        watchdog.over(2.0)
    one, other = seen.of(HandlerBlocked)
    assert (one.held_ms, "in first\n" in one.stack) == (1000, True)
    assert (other.held_ms, "in second\n" in other.stack) == (2000, True)


async def test_the_thread_of_a_watchdog_ends_with_its_system(world: World, kind: Kind) -> None:
    before = threading.active_count()
    async with world.system(watchdog=ThreadWatchdog(NEVER_S)) as system:
        assert threading.active_count() == before + 1
        ref = await system.spawn(kind(echo))
        assert await world.result(ref.ask("alive")) == "alive"
    assert threading.active_count() == before


async def test_a_system_without_a_watchdog_has_no_thread(world: World, kind: Kind) -> None:
    before = threading.active_count()
    async with world.system() as system:
        await system.spawn(kind(ignore))
        assert threading.active_count() == before


@pytest.mark.parametrize("bound_s", [0.0, -1.0])
def test_a_bound_that_everything_exceeds_is_refused(loop_name: str, bound_s: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        ThreadWatchdog(bound_s)
