"""The end of a supervisor: whom it takes along, in which order, and within which grace."""

from typing import Any

import anyio

from swactor import (
    Actor,
    ChildSpec,
    Context,
    ExitKind,
    ExitReason,
    Supervisor,
)

from .conftest import ASYNC, SYNC, Kind, World, echo, fail
from .supervised import NEVER, Fragile, child_of, down, supervise


async def test_stopping_a_supervisor_stops_children_newest_first_even_one_that_waits_for_its_restart(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, *(fragile.spec(name) for name in "abc"), backoff=NEVER)
        b = await child_of(supervisor, "b")
        b.tell("fail")
        await down(system, b)
        await world.result(system.stop_actor(supervisor))
        assert (await world.result(system.wait_stopped(b))).kind is ExitKind.FAILED
    assert fragile.log == ["start a", "start b", "start c", "stop b", "stop c", "stop a"]


async def test_children_are_stopped_one_after_the_other(world: World) -> None:
    log: list[str] = []

    class Slow(Actor[Any]):
        def __init__(self, name: str) -> None:
            self._name = name

        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            log.append(f"begin {self._name}")
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            log.append(f"end {self._name}")

    async with world.system() as system:
        supervisor = await supervise(
            system, ChildSpec("a", lambda: Slow("a")), ChildSpec("b", lambda: Slow("b"))
        )
        await world.result(system.stop_actor(supervisor))
    assert log == ["begin b", "end b", "begin a", "end a"]


async def test_a_child_has_the_grace_of_its_spec(world: World) -> None:
    reasons: dict[str, ExitReason] = {}

    class Hangs(Actor[Any]):
        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            await anyio.sleep_forever()

    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("hangs", Hangs, shutdown_grace_s=0.001))
        hangs = await child_of(supervisor, "hangs")
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                reasons["hangs"] = await system.wait_stopped(hangs)

            group.start_soon(wait)
            await world.settle()
            reason = await world.result(system.stop_actor(supervisor, grace_s=100_000))
    assert reason.kind is ExitKind.STOPPED
    assert reasons["hangs"].kind is ExitKind.KILLED


async def test_a_supervisor_with_a_thousand_children_down_stops(world: World, kind: Kind) -> None:
    async with world.system() as system:
        specs = [ChildSpec(str(number), lambda: kind(fail)) for number in range(1_000)]
        supervisor = await supervise(system, *specs, backoff=NEVER)
        for spec in specs:
            (await child_of(supervisor, spec.id)).tell("fail")
        while sum(actor.state == "down" for actor in system.statistics().actors) < 1_000:
            await anyio.lowlevel.checkpoint()
        await world.result(system.stop_actor(supervisor))


async def test_nothing_is_restarted_once_the_supervisor_is_stopping(world: World, fragile: Fragile) -> None:
    opened = anyio.Event()

    class SlowToStop(Actor[Any]):
        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            await opened.wait()

    async with world.system() as system:
        supervisor = await supervise(system, fragile.spec("a"), ChildSpec("slow", SlowToStop))
        a = await child_of(supervisor, "a")
        await world.until(lambda: fragile.log == ["start a"])
        async with anyio.create_task_group() as group:
            group.start_soon(system.stop_actor, supervisor)
            await world.settle()
            a.tell("fail")
            await world.settle()
            opened.set()
        assert system.statistics().actors == ()
    assert fragile.log == ["start a", "stop a"]


async def test_a_child_of_either_kind_of_handler_is_supervised_by_a_supervisor_of_its_own(
    world: World,
) -> None:
    async with world.system() as system:
        inner = ChildSpec(
            "inner",
            lambda: Supervisor([ChildSpec("s", lambda: SYNC(echo)), ChildSpec("a", lambda: ASYNC(echo))]),
        )
        outer = await supervise(system, inner)
        for name in "sa":
            leaf = await child_of(await child_of(outer, "inner"), name)
            assert leaf.actor_id.path == f"/Supervisor-1/inner/{name}"
            assert await world.result(leaf.ask("alive")) == "alive"
