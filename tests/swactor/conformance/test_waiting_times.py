"""How long things take right now, as statistics show it: a handler, a message that waits, a wakeup."""

from typing import Any

import anyio

from swactor import Actor, Context

from .conftest import Kind, World, do, ignore, is_handling, spawn_gated, statistics_of


async def test_statistics_say_how_long_a_message_is_being_handled(world: World) -> None:
    opened = anyio.Event()

    class Busy(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            await opened.wait()

    async with world.system() as system:
        ref = await system.spawn(Busy())
        idle = statistics_of(system, ref)
        assert idle is not None
        assert idle.handling_s is None
        ref.tell("work")
        await world.until(lambda: is_handling(system, ref))
        await world.elapse(system, 0.02)
        busy = statistics_of(system, ref)
        assert busy is not None
        assert busy.handling_s is not None
        assert 0.019 <= busy.handling_s < 10
        opened.set()
        await world.until(lambda: not is_handling(system, ref))
        done = statistics_of(system, ref)
        assert done is not None
        assert done.handling_s is None


async def test_the_time_of_handling_starts_anew_with_each_message(world: World) -> None:
    gates = [anyio.Event(), anyio.Event()]

    class Busy(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            await gates[message].wait()

    async with world.system() as system:
        ref = await system.spawn(Busy())
        ref.tell(0)
        ref.tell(1)
        await world.until(lambda: is_handling(system, ref))
        await world.elapse(system, 0.3)
        gates[0].set()

        def handling_s() -> float:
            actor = statistics_of(system, ref)
            return 1e9 if actor is None or actor.handling_s is None else actor.handling_s

        await world.until(lambda: handling_s() < 0.3)
        gates[1].set()


async def test_statistics_say_how_long_the_oldest_message_waits_at_most(world: World, kind: Kind) -> None:
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(system, kind, ignore, opened)

        def oldest_wait_s() -> float | None:
            actor = statistics_of(system, ref)
            assert actor is not None
            return actor.oldest_wait_s

        assert oldest_wait_s() is None
        ref.tell("first")
        await world.elapse(system, 0.02)
        ref.tell("second")
        waited_s = oldest_wait_s()
        assert waited_s is not None
        assert 0.019 <= waited_s < 10
        opened.set()
        await world.until(lambda: oldest_wait_s() is None)


async def test_the_lag_of_an_idle_system_is_short(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(do))
        for number in range(3):
            await world.result(ref.ask(number))
        ref.tell("wakes the queue")
        await world.settle()
        assert 0.0 <= system.statistics().lag_s < 1.0
