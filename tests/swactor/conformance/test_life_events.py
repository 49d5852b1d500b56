"""Every beginning and every end is an event, and a shutdown says whom it had to leave behind."""

from typing import Any

import anyio
import pytest

from swactor import (
    ActorFailed,
    ActorSpawned,
    ActorStopped,
    ChildSpec,
    Context,
    ShutdownReport,
)

from .conftest import Kind, Seen, World, do, ignore, is_handling
from .hanging import Hangs, Stubborn
from .supervised import child_of, supervise

# -- beginnings and ends -------------------------------------------------------------------------------------


async def test_each_spawn_is_an_event_of_the_actor_and_its_type(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        actor, child = kind(do), kind(ignore)
        ref = await system.spawn(actor, name="parent")
        await world.result(ref.ask(lambda ctx: ctx.spawn(child, name="child")))
    assert [(event.actor, event.actor_type) for event in seen.of(ActorSpawned)] == [
        ("/parent", type(actor).__qualname__),
        ("/parent/child", type(child).__qualname__),
    ]


@pytest.mark.parametrize("how", ["completed", "stopped", "failed", "killed"])
async def test_each_end_is_an_event_that_says_how(world: World, kind: Kind, how: str) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(Hangs() if how == "killed" else kind(do), name="one")
        match how:
            case "completed":
                ref.tell(lambda ctx: ctx.stop("value"))
            case "failed":
                ref.tell(lambda ctx: 1 / 0)
            case "stopped":
                await world.result(system.stop_actor(ref))
            case "killed":
                ref.tell("hang")
                await world.until(lambda: is_handling(system, ref))
                await world.result(system.stop_actor(ref, grace_s=0.001))
        await world.result(system.wait_stopped(ref))
        await world.until(lambda: len(seen.of(ActorStopped)) == 1)
    assert [(event.actor, event.reason) for event in seen.of(ActorStopped)] == [("/one", how)]


async def test_fc_004_each_actor_that_was_spawned_has_exactly_one_end(world: World, kind: Kind) -> None:
    seen = Seen()

    def start(ctx: Context[Any]) -> None:
        raise ZeroDivisionError

    async with world.system() as system:
        system.attach(seen)
        for number in range(10):
            ref = await system.spawn(kind(do), name=f"actor-{number}")
            for name in "ab":
                await world.result(ref.ask(lambda ctx, name=name: ctx.spawn(kind(ignore), name=name)))
            if number % 2:
                ref.tell(lambda ctx: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await world.result(system.spawn(kind(start=start), name="broken"))
    spawned = [event.actor for event in seen.of(ActorSpawned)]
    stopped = [event.actor for event in seen.of(ActorStopped)]
    assert len(spawned) == 31
    assert sorted(spawned) == sorted(stopped)


async def test_the_events_of_one_actor_come_in_the_order_of_its_life(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(do), name="one")
        ref.tell(lambda ctx: 1 / 0)
        await world.result(system.wait_stopped(ref))
    assert [type(event) for event in seen.events] == [ActorSpawned, ActorFailed, ActorStopped]


async def test_children_are_reported_as_ended_before_their_parent(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(do), name="p")
        for name in "ab":
            await world.result(ref.ask(lambda ctx, name=name: ctx.spawn(kind(ignore), name=name)))
    assert [event.actor for event in seen.of(ActorStopped)] == ["/p/b", "/p/a", "/p"]


async def test_a_restart_is_neither_a_spawn_nor_an_end(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        a = await child_of(await supervise(system, ChildSpec("a", lambda: kind(do))), "a")
        a.tell(lambda ctx: 1 / 0)
        await world.result(a.ask("next life"))
        path = a.actor_id.path
        assert [event.actor for event in seen.of(ActorSpawned)].count(path) == 1
        assert [event.actor for event in seen.of(ActorStopped)].count(path) == 0
    assert [event.reason for event in seen.of(ActorStopped) if event.actor == path] == ["stopped"]


# -- the report of a shutdown --------------------------------------------------------------------------------


async def test_a_shutdown_reports_nobody_when_everybody_stopped(world: World, kind: Kind) -> None:
    async with world.system(grace_s=0.001) as system:
        await system.spawn(kind(ignore))
        (await system.spawn(Hangs())).tell("obeys its cancellation")
        await world.settle()
        assert await world.result(system.shutdown()) == ShutdownReport(stuck=())


async def test_fc_078_a_shutdown_reports_who_ignored_its_cancellation(world: World, kind: Kind) -> None:
    release = anyio.Event()
    async with world.system(grace_s=0.001) as system:
        await system.spawn(kind(ignore))
        stubborn = await system.spawn(Stubborn(release))
        stubborn.tell("hold")
        await world.until(lambda: is_handling(system, stubborn))
        report = await world.result(system.shutdown())
        again = await world.result(system.shutdown())
        release.set()
        await world.settle()
    assert report == again == ShutdownReport(stuck=(stubborn.actor_id,))
