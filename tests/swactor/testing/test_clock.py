"""Time moves only when the test says so, and all that belongs to one instant happens before the next."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from swactor import (
    Actor,
    ActorRef,
    AskTimeoutError,
    Backoff,
    ChildSpec,
    Context,
    ExitKind,
    GetChild,
    Reply,
    Supervisor,
)
from swactor.abc import Cancellable
from swactor.testing import ManualClock, NotSettledError, UnfinishedError

from .conftest import system_on


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_wall_ms=5_000)


@dataclass(frozen=True)
class After:
    name: str
    delay_s: float


@dataclass(frozen=True)
class Every:
    name: str
    period_s: float


class Ticking(Actor[Any]):
    """Sets the timers that it is told to and notes when they fire, in milliseconds."""

    def __init__(self, seen: list[tuple[str, int]]) -> None:
        self._seen = seen

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        match message:
            case After(name, delay_s):
                ctx.send_after(delay_s, name)
            case Every(name, period_s):
                ctx.send_every(period_s, name)
            case _:
                self._seen.append((message, ctx.clock.monotonic_ns() // 1_000_000))
        return None


class Patient(Actor[Any]):
    """Waits some turns of the loop before it does something, as a handler that uses other libraries does."""

    def __init__(self, then: Callable[[Context[Any]], None]) -> None:
        self._then = then

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        for _ in range(25):
            await anyio.lowlevel.checkpoint()
        self._then(ctx)
        return None


class Slow(Actor[Any]):
    """Answers every question ten seconds later."""

    def __init__(self) -> None:
        self._asked: list[Reply[Any]] = []

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        if message == "answer":
            self._asked.pop(0).send("at last")
        else:
            self._asked.append(ctx.defer())
            ctx.send_after(10.0, "answer")
        return None


async def test_timers_fire_in_order_each_at_its_own_time(clock: ManualClock) -> None:
    seen: list[tuple[str, int]] = []
    async with system_on(clock) as system:
        ref = await system.spawn(Ticking(seen))
        for name, delay_s in (("late", 2.0), ("early", 0.5), ("beyond", 3.0)):
            ref.tell(After(name, delay_s))
        await clock.advance(2.5)
    assert seen == [("early", 500), ("late", 2_000)]
    assert clock.monotonic_ns() == 2_500_000_000
    assert clock.wall_ms() == 7_500


async def test_timers_of_one_instant_fire_in_the_order_in_which_they_were_set(clock: ManualClock) -> None:
    names = [f"timer-{number}" for number in range(50)]
    seen: list[tuple[str, int]] = []
    async with system_on(clock) as system:
        ref = await system.spawn(Ticking(seen))
        for name in names:
            ref.tell(After(name, 1.0))
        await clock.advance(1.0)
    assert seen == [(name, 1_000) for name in names]


async def test_a_long_step_is_many_short_ones(clock: ManualClock) -> None:
    seen: list[tuple[str, int]] = []
    async with system_on(clock) as system:
        (await system.spawn(Ticking(seen))).tell(Every("tick", 0.25))
        await clock.advance(1.1)
    assert seen == [("tick", 250), ("tick", 500), ("tick", 750), ("tick", 1_000)]


async def test_what_a_handler_does_after_some_turns_still_belongs_to_its_instant(clock: ManualClock) -> None:
    seen: list[tuple[str, int]] = []
    async with system_on(clock) as system:
        ticking: ActorRef[Any] = await system.spawn(Ticking(seen))
        patient: ActorRef[Any] = await system.spawn(Patient(lambda ctx: ticking.tell(After("done", 1.0))))
        patient.tell("go")
        await clock.advance(1.0)
    assert seen == [("done", 1_000)]


async def test_no_time_passes_while_the_loop_settles(clock: ManualClock) -> None:
    done: list[bool] = []
    async with system_on(clock) as system:
        patient: ActorRef[Any] = await system.spawn(Patient(lambda ctx: done.append(True)))
        patient.tell("go")
        await clock.settle()
        assert done == [True]
    assert clock.monotonic_ns() == 0


async def test_callbacks_that_call_back_settle_too(clock: ManualClock) -> None:
    done: list[int] = []
    loop = clock.loop()

    def hop(left: int) -> None:
        if left:
            loop.call_soon(lambda: hop(left - 1))
        else:
            done.append(left)

    loop.call_later(1.0, lambda: hop(200))
    await clock.advance(1.0)
    assert done == [0]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_callbacks_of_other_libraries_have_some_turns(clock: ManualClock) -> None:
    done: list[int] = []

    def hop(left: int) -> None:
        if left:
            asyncio.get_running_loop().call_soon(hop, left - 1)
        else:
            done.append(left)

    clock.loop().call_later(1.0, lambda: hop(8))
    await clock.advance(1.0)
    assert done == [0]


async def test_the_next_due_time_is_known(clock: ManualClock) -> None:
    async with system_on(clock) as system:
        known = [clock.next_due_s]
        (await system.spawn(Ticking([]))).tell(After("a", 3.0))
        for seconds in (0.0, 1.0, 2.0):
            await clock.advance(seconds)
            known.append(clock.next_due_s)
    assert known == [None, 3.0, 2.0, None]


async def test_a_cancelled_timer_neither_fires_nor_counts(clock: ManualClock) -> None:
    fired: list[str] = []
    loop = clock.loop()
    timers = [loop.call_later(1.0, lambda: fired.append("no")) for _ in range(1_000)]
    loop.call_later(2.0, lambda: fired.append("yes"))
    for timer in timers:
        timer.cancel()
    assert clock.next_due_s == 2.0
    await clock.advance(2.0)
    assert fired == ["yes"]


async def test_a_timer_may_call_off_another_of_its_own_instant(clock: ManualClock) -> None:
    fired: list[str] = []
    loop = clock.loop()
    timers: list[Cancellable] = []

    def call_off() -> None:
        timers[0].cancel()

    loop.call_later(1.0, call_off)
    timers.append(loop.call_later(1.0, lambda: fired.append("no")))
    await clock.advance(1.0)
    assert fired == []


async def test_without_a_delay_a_timer_needs_no_time(clock: ManualClock) -> None:
    fired: list[int] = []
    clock.loop().call_later(0.0, lambda: fired.append(clock.monotonic_ns()))
    await clock.settle()
    assert fired == [0]


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
async def test_time_does_not_go_back(clock: ManualClock, seconds: float) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        await clock.advance(seconds)


async def test_an_ask_times_out_in_the_time_of_the_clock(clock: ManualClock) -> None:
    late: list[int] = []

    async def ask(ref: ActorRef[Any]) -> None:
        with pytest.raises(AskTimeoutError):
            await ref.ask("anybody?", timeout_s=9.0)
        late.append(clock.monotonic_ns())

    async with system_on(clock) as system, anyio.create_task_group() as group:
        group.start_soon(ask, await system.spawn(Slow()))
        await clock.advance(8.0)
        assert late == []
        await clock.advance(1.0)
        assert late == [9_000_000_000]


async def test_a_restart_waits_for_its_delay(clock: ManualClock) -> None:
    class Failing(Actor[Any]):
        def on_message(self, ctx: Context[Any], message: Any) -> object:
            raise RuntimeError("asked to")

    def states() -> list[str]:
        return [actor.state for actor in system.statistics().actors]

    async with system_on(clock) as system:
        slow = Backoff(first_s=60.0, limit_s=60.0)
        supervisor = await system.spawn(Supervisor([ChildSpec("a", Failing)], backoff=slow))
        (await supervisor.ask(GetChild("a"))).tell("fail")
        await clock.settle()
        assert states() == ["running", "down"]
        await clock.advance(clock.next_due_s or 0.0)
        assert states() == ["running", "running"]


async def test_systems_may_share_a_clock(clock: ManualClock) -> None:
    seen: list[tuple[str, int]] = []
    async with system_on(clock) as one, system_on(clock) as other:
        (await one.spawn(Ticking(seen))).tell(After("second", 2.0))
        (await other.spawn(Ticking(seen))).tell(After("first", 1.0))
        await clock.advance(2.0)
    assert seen == [("first", 1_000), ("second", 2_000)]


async def test_two_tasks_that_advance_do_so_one_after_the_other(clock: ManualClock) -> None:
    seen: list[tuple[str, int]] = []
    async with system_on(clock) as system:
        (await system.spawn(Ticking(seen))).tell(Every("tick", 1.0))
        async with anyio.create_task_group() as group:
            group.start_soon(clock.advance, 2.0)
            group.start_soon(clock.advance, 2.0)
    assert [at_ms for _, at_ms in seen] == [1_000, 2_000, 3_000, 4_000]


async def test_a_task_that_polls_is_told_of_and_time_stands() -> None:
    async def poll() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    clock = ManualClock(settle_limit_s=0.05)
    async with anyio.create_task_group() as group:
        group.start_soon(poll)
        with pytest.raises(NotSettledError, match="come to rest"):
            await clock.advance(1.0)
        group.cancel_scope.cancel()
    assert clock.monotonic_ns() == 0


async def test_what_needs_time_can_be_awaited_while_it_passes(clock: ManualClock) -> None:
    async with system_on(clock) as system:
        ref = await system.spawn(Slow())
        assert await clock.run(ref.ask("anybody?", timeout_s=60.0)) == "at last"
    assert clock.monotonic_ns() == 10_000_000_000


async def test_what_fails_while_time_passes_raises_its_own_error(clock: ManualClock) -> None:
    async with system_on(clock) as system:
        ref = await system.spawn(Slow())
        with pytest.raises(AskTimeoutError):
            await clock.run(ref.ask("anybody?", timeout_s=5.0))
    assert clock.monotonic_ns() == 5_000_000_000


async def test_what_time_alone_does_not_finish_is_given_up(clock: ManualClock) -> None:
    never = anyio.Event()
    with pytest.raises(UnfinishedError, match="not done after 30 s"):
        await clock.run(never.wait(), timeout_s=30.0)
    assert clock.monotonic_ns() == 30_000_000_000


async def test_an_actor_that_does_not_stop_is_cancelled_after_its_grace(clock: ManualClock) -> None:
    class Endless(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            await anyio.sleep_forever()

    async with system_on(clock) as system:
        ref: ActorRef[Any] = await system.spawn(Endless())
        ref.tell("go")
        await clock.settle()
        reason = await clock.run(system.stop_actor(ref, grace_s=20.0))
    assert reason.kind is ExitKind.KILLED
    assert clock.monotonic_ns() == 20_000_000_000
