"""One test on real loops, in simulated and in manual time: `until` lets pass whatever time there is."""

import anyio
import pytest

from sim.loop import VirtualLoop
from swactor import Actor, ActorSystem, Context
from swactor.testing import ConditionError, ManualClock, until

from .conftest import system_on


class Countdown(Actor[int]):
    """Counts down, one number every ten milliseconds."""

    def __init__(self) -> None:
        self.reached: list[int] = []

    def on_message(self, ctx: Context[int], message: int) -> object:
        self.reached.append(message)
        if message > 0:
            ctx.send_after(0.01, message - 1)
        return None


async def test_it_returns_once_the_condition_holds(any_clock: ManualClock | None) -> None:
    countdown = Countdown()
    async with system_on(any_clock) as system:
        (await system.spawn(countdown)).tell(3)
        await until(lambda: 0 in countdown.reached, any_clock)
    assert countdown.reached == [3, 2, 1, 0]


async def test_it_says_where_the_condition_stands_that_did_not_hold(any_clock: ManualClock | None) -> None:
    with pytest.raises(
        ConditionError, match=r"the condition \(test_until.py:\d+\) did not hold within 0.02 s"
    ):
        await until(lambda: False, any_clock, timeout_s=0.02)


async def test_the_clock_stops_where_the_condition_came_true() -> None:
    clock, countdown = ManualClock(), Countdown()
    async with system_on(clock) as system:
        (await system.spawn(countdown)).tell(100)
        await until(lambda: 98 in countdown.reached, clock)
        assert clock.monotonic_ns() == 20_000_000


async def test_the_clock_goes_to_the_deadline_and_no_further() -> None:
    clock, countdown = ManualClock(), Countdown()
    async with system_on(clock) as system:
        (await system.spawn(countdown)).tell(100)
        with pytest.raises(ConditionError):
            await until(lambda: 0 in countdown.reached, clock, timeout_s=0.025)
        assert countdown.reached == [100, 99, 98]
        assert clock.monotonic_ns() == 25_000_000


async def test_of_two_that_wait_each_stops_at_its_own_instant() -> None:
    clock, countdown, stops = ManualClock(), Countdown(), list[tuple[int, int]]()

    async def stop_at(number: int) -> None:
        await until(lambda: number in countdown.reached, clock)
        stops.append((number, clock.monotonic_ns() // 1_000_000))

    async with system_on(clock) as system:
        (await system.spawn(countdown)).tell(100)
        async with anyio.create_task_group() as group:
            group.start_soon(stop_at, 97)
            group.start_soon(stop_at, 99)
            group.start_soon(stop_at, 98)
    assert stops == [(99, 10), (98, 20), (97, 30)]


async def test_what_holds_already_needs_neither_turn_nor_time() -> None:
    clock = ManualClock()
    clock.loop().call_later(1.0, lambda: None)
    with anyio.fail_after(1):
        await until(lambda: True)
        await until(lambda: True, clock)
    assert clock.monotonic_ns() == 0


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualLoop})])
async def test_a_simulated_loop_has_its_own_time() -> None:
    countdown = Countdown()
    async with ActorSystem() as system:
        (await system.spawn(countdown)).tell(100)
        await until(lambda: 0 in countdown.reached)
        with pytest.raises(ConditionError):
            await until(lambda: False, timeout_s=2.0)
