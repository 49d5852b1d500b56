"""How long a stop may take: the grace of what is under way, and a drain of what waits."""

from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorStuck,
    Context,
    ExitKind,
    ExitReason,
)

from .conftest import (
    TIMELESS_LOOPS,
    Kind,
    Seen,
    World,
    echo,
    is_handling,
    spawn_gated,
    statistics_of,
)
from .hanging import Stubborn

# -- the grace of what is under way -------------------------------------------------------------------------


async def test_a_handler_that_ends_within_the_grace_is_not_disturbed(world: World) -> None:
    opened = anyio.Event()
    log: list[str] = []
    reasons: list[ExitReason] = []

    class Busy(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> str:
            await opened.wait()
            log.append("handled")
            return "answer"

    async with world.system() as system:
        ref = await system.spawn(Busy())

        async def ask() -> None:
            log.append(str(await ref.ask("work")))

        async def stop() -> None:
            reasons.append(await system.stop_actor(ref, grace_s=3600))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await world.until(lambda: is_handling(system, ref))
            group.start_soon(stop)
            await world.settle()
            opened.set()
    assert log == ["handled", "answer"]
    assert reasons == [ExitReason(ExitKind.STOPPED)]


class Sleeps(Actor[str]):
    """Handles messages for ever; says when it is cancelled, and whether it was stopped."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    async def on_message(self, ctx: Context[str], message: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._log.append("cancelled")

    def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
        self._log.append("on_stop")


async def test_fc_075_a_handler_that_does_not_end_within_the_grace_is_cancelled(world: World) -> None:
    log: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(Sleeps(log))
        ref.tell("sleep")
        await world.until(lambda: is_handling(system, ref))
        reason = await world.result(system.stop_actor(ref, grace_s=0.01))
    assert reason.kind is ExitKind.KILLED
    assert log == ["cancelled"]  # and no on_stop: a killed actor does nothing more


@pytest.mark.parametrize("loop_name", TIMELESS_LOOPS)
async def test_fc_075_an_actor_has_a_grace_when_nobody_gave_it_one(world: World) -> None:
    async with world.system() as system:
        ref = await system.spawn(Sleeps([]))
        ref.tell("sleep")
        await world.until(lambda: is_handling(system, ref))
        before_ns = system.clock.monotonic_ns()
        reason = await world.result(system.stop_actor(ref))
        waited_s = (system.clock.monotonic_ns() - before_ns) / 1e9
    assert reason.kind is ExitKind.KILLED
    assert waited_s == 5.0


async def test_a_second_stop_with_less_grace_shortens_the_first(world: World) -> None:
    reasons: list[ExitReason] = []
    async with world.system() as system:
        ref = await system.spawn(Sleeps([]))
        ref.tell("sleep")
        await world.until(lambda: is_handling(system, ref))

        async def stop(grace_s: float) -> None:
            reasons.append(await system.stop_actor(ref, grace_s=grace_s))

        async with anyio.create_task_group() as group:
            group.start_soon(stop, 100_000.0)
            await world.settle()
            group.start_soon(stop, 0.001)
            await world.until(lambda: len(reasons) == 2)
    assert [reason.kind for reason in reasons] == [ExitKind.KILLED] * 2


async def test_a_stop_hook_that_does_not_end_within_the_grace_is_cancelled(world: World) -> None:
    log: list[str] = []

    class HangsInStop(Actor[str]):
        async def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                log.append("cancelled")

    async with world.system() as system:
        ref = await system.spawn(HangsInStop())
        reason = await world.result(system.stop_actor(ref, grace_s=0.01))
    assert reason.kind is ExitKind.KILLED
    assert log == ["cancelled"]


async def test_fc_078_an_actor_that_ignores_its_cancellation_is_left_behind_and_named(world: World) -> None:
    seen = Seen()
    release = anyio.Event()

    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(Stubborn(release), name="stubborn")
        ref.tell("hold")
        await world.until(lambda: is_handling(system, ref))
        reason = await world.result(system.stop_actor(ref, grace_s=0.001))
        release.set()
        await world.until(lambda: statistics_of(system, ref) is None)
    assert reason.kind is ExitKind.KILLED
    assert [event.actor for event in seen.of(ActorStuck)] == ["/stubborn"]


# -- draining ------------------------------------------------------------------------------------------------


async def test_fc_075_a_drain_handles_all_that_waits_and_nothing_that_comes_later(
    world: World, kind: Kind
) -> None:
    handled: list[Any] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        handled.append(message)
        if message == 0:
            ctx.ref.tell("came while draining")

    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(system, kind, handle, opened)
        for number in range(300):
            ref.tell(number)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: system.stop_actor(ref, drain=True))
            await world.settle()
            opened.set()
        assert system.statistics().dead_letters == 1
    assert handled == list(range(300))


async def test_a_drain_answers_the_asks_that_wait(world: World, kind: Kind) -> None:
    opened = anyio.Event()
    answers: list[object] = []
    async with world.system() as system:
        ref = await spawn_gated(system, kind, echo, opened)

        async def ask(number: int) -> None:
            answers.append(await ref.ask(number))

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(ask, number)
            await world.settle()
            group.start_soon(lambda: system.stop_actor(ref, drain=True))
            await world.settle()
            opened.set()
    assert sorted(answers) == list(range(10))  # type: ignore[type-var]  # they are numbers


async def test_a_stop_at_once_overtakes_a_drain(world: World, kind: Kind) -> None:
    handled: list[int] = []
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(system, kind, lambda ctx, message: handled.append(message), opened)
        for number in range(300):
            ref.tell(number)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: system.stop_actor(ref, drain=True))
            await world.settle()
            group.start_soon(system.stop_actor, ref)
            await world.settle()
            opened.set()
        assert system.statistics().dead_letters == 300
    assert handled == []


async def test_an_idle_actor_drains_at_once(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(echo))
        await world.result(ref.ask("something before"))
        reason = await world.result(system.stop_actor(ref, drain=True))
    assert reason == ExitReason(ExitKind.STOPPED)


@pytest.mark.parametrize("loop_name", TIMELESS_LOOPS)
async def test_a_second_drain_with_more_grace_does_not_prolong_the_first(world: World) -> None:
    async with world.system() as system:
        ref = await system.spawn(Sleeps([]))
        ref.tell("sleep")
        await world.until(lambda: is_handling(system, ref))
        before_ns = system.clock.monotonic_ns()

        async def drain(grace_s: float) -> None:
            await world.result(system.stop_actor(ref, drain=True, grace_s=grace_s))

        async with anyio.create_task_group() as group:
            group.start_soon(drain, 1.0)
            await world.settle()
            group.start_soon(drain, 100.0)
        waited_s = (system.clock.monotonic_ns() - before_ns) / 1e9
    assert waited_s == 2.0  # the time of the drain, then the grace of the stop
