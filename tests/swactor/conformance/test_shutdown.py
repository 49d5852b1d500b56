"""The end of a whole system: in order, bounded, complete, whatever is going on at that moment."""

from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorStuck,
    Backoff,
    ChildSpec,
    Context,
    ExitReason,
    GetChild,
    MailboxPolicy,
    Supervisor,
    SystemStoppingError,
)

from .conftest import Kind, Seen, World, echo, fail, ignore, is_handling
from .hanging import Hangs, Stubborn
from .supervised import down

# -- order and completeness ----------------------------------------------------------------------------------


async def test_a_system_stops_its_actors_newest_first(world: World, kind: Kind) -> None:
    stopped: list[str] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        stopped.append(ctx.actor_id.path)

    async with world.system() as system:
        for name in "abc":
            await system.spawn(kind(stop=stop), name=name)
    assert stopped == ["/c", "/b", "/a"]


async def test_an_older_actor_still_works_while_a_newer_one_stops(world: World, kind: Kind) -> None:
    answers: list[object] = []

    class Leaves(Actor[Any]):
        def __init__(self, older: ActorRef[Any]) -> None:
            self._older = older

        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            answers.append(await self._older.ask("flush"))

    async with world.system() as system:
        older = await system.spawn(kind(echo))
        await system.spawn(Leaves(older))
    assert answers == ["flush"]


async def test_leaving_a_system_by_an_exception_stops_its_actors_and_raises_it(
    world: World, kind: Kind
) -> None:
    stopped: list[str] = []

    async def leave_by_an_exception() -> None:
        async with world.new() as system:
            await system.spawn(kind(stop=lambda ctx, reason: stopped.append("stopped")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave_by_an_exception()
    assert stopped == ["stopped"]


async def test_shutting_down_twice_also_at_the_same_time_stops_once(world: World, kind: Kind) -> None:
    stopped: list[str] = []
    async with world.system() as system:
        await system.spawn(kind(stop=lambda ctx, reason: stopped.append("stopped")))
        async with anyio.create_task_group() as group:
            group.start_soon(system.shutdown)
            group.start_soon(system.shutdown)
        assert stopped == ["stopped"]
        await world.result(system.shutdown())
    assert stopped == ["stopped"]


async def test_a_shutdown_cannot_be_cancelled_half_way(world: World) -> None:
    log: list[str] = []

    class Slow(Actor[Any]):
        def __init__(self, name: str) -> None:
            self._name = name

        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            log.append(self._name)

    async with world.system() as system:
        for name in "abc":
            await system.spawn(Slow(name))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await system.shutdown()
        assert log == ["c", "b", "a"]


async def test_fc_077_no_task_is_left_of_a_system_that_ended(world: World, kind: Kind) -> None:
    async with world.system():
        pass
    before = world.tasks()
    async with world.system(grace_s=0.2) as system:
        for _ in range(10):
            ref = await system.spawn(kind(ignore, start=lambda ctx: ctx.send_every(3600, "tick")))
            ref.tell("work")
        (await system.spawn(Hangs())).tell("hang")
        await world.settle()
        await world.result(system.shutdown())
        assert system.statistics().actors == ()
    await world.until(lambda: world.tasks() <= before)


# -- bounded -------------------------------------------------------------------------------------------------


async def test_a_system_gives_its_actors_the_grace_it_was_given(world: World) -> None:
    system = world.new(grace_s=0.001)
    async with system:
        hangs = await system.spawn(Hangs())
        hangs.tell("hang")
        await world.until(lambda: is_handling(system, hangs))
        began_ns = system.clock.monotonic_ns()
        await world.result(system.shutdown())
        took_s = (system.clock.monotonic_ns() - began_ns) / 1e9
    assert took_s < 1.0


async def test_fc_078_an_actor_that_cannot_be_stopped_is_left_behind_and_the_rest_stops(world: World) -> None:
    seen = Seen()
    stopped: list[str] = []
    release = anyio.Event()

    class Polite(Actor[Any]):
        def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            stopped.append(ctx.actor_id.path)

    async with world.system(grace_s=0.001) as system:
        system.attach(seen)
        await system.spawn(Polite(), name="older")
        stubborn = await system.spawn(Stubborn(release), name="stubborn")
        await system.spawn(Polite(), name="newer")
        stubborn.tell("hold")
        await world.until(lambda: is_handling(system, stubborn))
        await world.result(system.shutdown())
        release.set()
        await world.settle()
    assert stopped == ["/newer", "/older"]
    assert [event.actor for event in seen.of(ActorStuck)] == ["/stubborn"]


async def test_fc_075_a_shutdown_does_not_wait_for_long_queues(world: World, kind: Kind) -> None:
    handled: list[int] = []
    async with world.system() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: handled.append(message)), mailbox=MailboxPolicy(capacity=100_000)
        )
        for number in range(50_000):
            ref.tell(number)
        await world.result(system.shutdown())
        assert system.statistics().dead_letters == 50_000 - len(handled)
    assert len(handled) < 50_000


# -- in the middle of other things ---------------------------------------------------------------------------


async def test_fc_077_nothing_is_spawned_once_shutdown_began(world: World, kind: Kind) -> None:
    refused: list[BaseException] = []

    def spawn_late(ctx: Context[Any], reason: ExitReason) -> None:
        try:
            ctx.spawn(kind(ignore))
        except SystemStoppingError as error:
            refused.append(error)

    async with world.system() as system:
        await system.spawn(kind(stop=spawn_late))
        await world.result(system.shutdown())
        with pytest.raises(SystemStoppingError):
            await world.result(system.spawn(kind(ignore)))
    assert len(refused) == 1


async def test_fc_077_an_actor_that_spawns_with_every_message_leaves_nothing_after_a_shutdown(
    world: World, kind: Kind
) -> None:
    refused: list[BaseException] = []
    started: list[int] = []

    def spawn(ctx: Context[Any], message: int) -> None:
        ctx.ref.tell(message + 1)
        try:
            ctx.spawn(kind(start=lambda ctx: started.append(message)))
        except SystemStoppingError as error:
            refused.append(error)

    async with world.system() as system:
        ref = await system.spawn(kind(spawn))
        ref.tell(0)
        while len(started) < 20:
            await anyio.lowlevel.checkpoint()
        await system.shutdown()
        count = len(started)
        await world.settle()
        assert system.statistics().actors == ()
    assert len(started) == count


async def test_an_actor_of_another_system_may_spawn_nothing_in_one_that_has_ended(
    world: World, kind: Kind
) -> None:
    async with world.system() as ended:
        pass
    errors: list[str] = []

    class Spawns(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            try:
                await ended.spawn(kind(ignore))
            except SystemStoppingError as error:
                errors.append(type(error).__name__)

    async with world.system() as system:
        await world.result((await system.spawn(Spawns())).ask("go"))
    assert errors == ["SystemStoppingError"]


async def test_a_system_that_was_not_started_spawns_nothing(world: World, kind: Kind) -> None:
    system = world.new()
    with pytest.raises(SystemStoppingError):
        await system.spawn(kind(ignore))
    await system.shutdown()  # there is nothing to do


async def test_fc_072_after_a_shutdown_tells_are_dead_letters_and_asks_fail_at_once(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(echo))
    ref.tell("late")
    with pytest.raises(ActorDeadError):
        await world.result(ref.ask("late", timeout_s=3600))
    assert system.statistics().dead_letters == 1


async def test_a_shutdown_ends_actors_that_still_start(world: World) -> None:
    cancelled: list[str] = []

    class NeverStarts(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.append("cancelled")

    errors: list[ActorDeadError] = []
    async with world.system(grace_s=0.001) as system, anyio.create_task_group() as group:

        async def spawn() -> None:
            try:
                await system.spawn(NeverStarts())
            except ActorDeadError as error:
                errors.append(error)

        group.start_soon(spawn)
        await world.until(lambda: len(system.statistics().actors) == 1)
        await world.result(system.shutdown())
    assert cancelled == ["cancelled"]
    assert len(errors) == 1


async def test_a_shutdown_ends_actors_that_wait_for_their_restart(world: World, kind: Kind) -> None:
    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor([ChildSpec("a", lambda: kind(fail))], backoff=Backoff(first_s=1e6, limit_s=1e6))
        )
        a: ActorRef[Any] = await supervisor.ask(GetChild("a"))
        a.tell("fail")
        await down(system, a)
        await world.result(system.shutdown())
        assert system.statistics().actors == ()


async def test_a_shutdown_releases_all_who_ask_send_or_wait_for_an_end(world: World) -> None:
    released: list[str] = []
    async with world.system(grace_s=0.001) as system, anyio.create_task_group() as group:
        hangs = await system.spawn(Hangs(), mailbox=MailboxPolicy(capacity=1))

        async def ask() -> None:
            try:
                await hangs.ask("first", timeout_s=1e6)
            except ActorDeadError:
                released.append("ask")

        async def send() -> None:
            await hangs.send("no room")
            released.append("send")

        async def wait() -> None:
            await system.wait_stopped(hangs)
            released.append("wait")

        group.start_soon(ask)
        await world.until(lambda: is_handling(system, hangs))
        hangs.tell("fills it")
        group.start_soon(send)
        group.start_soon(wait)
        await world.settle()
        assert released == []
        await world.result(system.shutdown())
        await world.until(lambda: len(released) == 3)
    assert sorted(released) == ["ask", "send", "wait"]


async def test_two_systems_on_one_loop_do_not_touch_each_other(world: World, kind: Kind) -> None:
    async with world.system() as lasting:
        stays = await lasting.spawn(kind(echo), name="name")
        async with world.system() as short:
            goes = await short.spawn(kind(echo), name="name")
            assert goes != stays
            assert short.whereis("name") == goes
            assert await world.result(goes.ask("alive")) == "alive"
        assert lasting.whereis("name") == stays
        assert await world.result(stays.ask("alive")) == "alive"
        with pytest.raises(ActorDeadError):
            await world.result(goes.ask("late"))
