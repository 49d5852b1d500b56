"""Very many actors: what they cost is given back, and nothing about them is quadratic."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from swactor import Actor, ActorRef, ActorSystem, Context

ACTORS = 100_000


class Echo(Actor[Any]):
    def on_message(self, ctx: Context[Any], message: Any) -> object:
        return message


class Parent(Actor[Any]):
    """Spawns as many children as it is told, each of which is sent one message."""

    def on_message(self, ctx: Context[Any], message: int) -> list[ActorRef[Any]]:
        children: list[ActorRef[Any]] = [ctx.spawn(Echo()) for _ in range(message)]
        for child in children:
            child.tell("one")
        return children


@pytest.mark.timeout(180)
async def test_a_hundred_thousand_actors_give_their_memory_back() -> None:
    async with ActorSystem() as system:
        await _live_and_die(system, 1_000)  # what is made once, and kept, is there from now on
        gc.collect()
        tracemalloc.start()
        try:
            kept = [b"x" * 1_000 for _ in range(10_000)]  # so that five per cent are not a handful of objects
            before = tracemalloc.get_traced_memory()[0]
            await _live_and_die(system, ACTORS)
            gc.collect()
            after = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert len(kept) == 10_000
        assert after < 1.05 * before
        assert system.statistics().actors == ()


async def _live_and_die(system: ActorSystem, count: int) -> None:
    parent = await system.spawn(Parent())
    refs: Any = await parent.ask(count, timeout_s=120.0)
    for ref in refs[::1_000]:
        assert await ref.ask("still there", timeout_s=120.0) == "still there"
    assert len(system.statistics().actors) == count + 1
    await system.stop_actor(parent)


async def test_stopping_ten_times_as_many_takes_about_ten_times_as_long() -> None:
    took_s = []
    for count in (2_000, 20_000):
        async with ActorSystem() as system:
            parent = await system.spawn(Parent())
            await parent.ask(count, timeout_s=120.0)
            gc.collect()
            began_s = asyncio.get_running_loop().time()
            await system.shutdown()
            took_s.append(asyncio.get_running_loop().time() - began_s)
    assert took_s[1] < 40 * took_s[0]


async def test_fc_079_ten_thousand_short_lives_leave_nothing_behind() -> None:
    async with ActorSystem() as system:
        for number in range(100):
            await _once(system, number)
        gc.collect()
        tasks = len(asyncio.all_tasks())
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(10_000):
                await _once(system, number)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert system.statistics().actors == ()
        assert len(system.names) == 0
        assert len(asyncio.all_tasks()) == tasks
        assert grown < 50_000  # five bytes an actor


async def _once(system: ActorSystem, number: int) -> None:
    ref = await system.spawn(Echo(), name=f"short-{number % 10}")
    assert await ref.ask(number) == number
    await system.stop_actor(ref)
