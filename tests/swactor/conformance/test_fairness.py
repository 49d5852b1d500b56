"""Nobody starves: neither an actor nor the event loop, whatever one actor does without waiting."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from swactor import Actor, ActorRef, Context

from .conftest import REAL_LOOPS, Kind, World, echo

TURNS = 2_000
"""Turns of the loop after which something that has not come will not come."""


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn while others keep it busy, so that no world would come to rest."""
    for _ in range(TURNS):
        if condition():
            return
        await anyio.lowlevel.checkpoint()
    raise AssertionError("starved")


def endless(counts: list[int]) -> Any:
    """Return a handler that passes each message on to whom it names, for ever."""

    def handle(ctx: Context[Any], message: list[ActorRef[Any]]) -> None:
        counts.append(1)
        message[0].tell([*message[1:], message[0]])

    return handle


async def test_a_flood_to_one_actor_does_not_starve_another(world: World, kind: Kind) -> None:
    flooded: list[int] = []
    async with world.system() as system:
        busy = await system.spawn(kind(lambda ctx, message: flooded.append(message)))
        other = await system.spawn(kind(lambda ctx, message: len(flooded)))
        for number in range(9_000):
            busy.tell(number)
        how_far: Any = await world.result(other.ask("how far?"))
        assert how_far < 9_000


async def test_actors_with_long_queues_take_turns(world: World, kind: Kind) -> None:
    order: list[str] = []
    async with world.system() as system:
        refs = {name: await system.spawn(kind(lambda ctx, message: order.append(message))) for name in "abc"}
        for name, ref in refs.items():
            for _ in range(1_000):
                ref.tell(name)
        await world.until(lambda: len(order) == 3_000)
    first_done = min(len(order) - order[::-1].index(name) for name in "abc")
    progress = [order[:first_done].count(name) for name in "abc"]
    assert min(progress) > 500  # when the first one is done, nobody is far behind


async def test_actors_that_tell_each_other_for_ever_let_the_loop_turn(world: World, kind: Kind) -> None:
    counts: list[int] = []
    async with world.system() as system:
        one, two = [await system.spawn(kind(endless(counts))) for _ in range(2)]
        one.tell([two, one])
        for _ in range(5):
            before = len(counts)
            await turns_until(lambda before=before: len(counts) > before)  # type: ignore[misc]  # bound now
        await system.stop_actor(one)


async def test_an_actor_that_tells_itself_for_ever_lets_the_loop_turn_and_can_be_stopped(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        busy = await system.spawn(kind(lambda ctx, message: ctx.ref.tell(message + 1)))
        busy.tell(0)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await system.stop_actor(busy)


async def test_an_asynchronous_actor_that_never_waits_lets_others_run(world: World) -> None:
    class TellsItself(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            ctx.ref.tell(message + 1)

    async with world.system() as system:
        busy = await system.spawn(TellsItself())
        busy.tell(0)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        await system.stop_actor(busy)


async def test_an_ask_is_answered_while_others_tell_each_other_for_ever(world: World, kind: Kind) -> None:
    async with world.system() as system:
        one, two = [await system.spawn(kind(endless([]))) for _ in range(2)]
        other = await system.spawn(kind(echo))
        one.tell([two, one])
        answers: list[object] = []

        async def ask() -> None:
            while len(answers) < 5:
                answers.append(await other.ask(len(answers)))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await turns_until(lambda: len(answers) == 5)
        await system.stop_actor(one)
    assert answers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("loop_name", REAL_LOOPS)
async def test_a_timer_fires_while_others_tell_each_other_for_ever(world: World, kind: Kind) -> None:
    ticks: list[str] = []
    async with world.system() as system:
        one, two = [await system.spawn(kind(endless([]))) for _ in range(2)]
        await system.spawn(
            kind(lambda ctx, message: ticks.append(message), start=lambda ctx: ctx.send_every(0.002, "tick"))
        )
        one.tell([two, one])
        await world.until(lambda: len(ticks) >= 3)
        await system.stop_actor(one)


async def test_a_thousand_actors_all_have_their_turn(world: World, kind: Kind) -> None:
    got: list[int] = []
    async with world.system() as system:
        refs = [await system.spawn(kind(lambda ctx, message: got.append(message))) for _ in range(1_000)]
        for number, ref in enumerate(refs):
            ref.tell(number)
        await world.until(lambda: len(got) == 1_000)
    assert sorted(got) == list(range(1_000))
