"""Names: one living actor each, free again with its end."""

from typing import Any

import anyio
import pytest

from swactor import Actor, ActorDeadError, ActorRef, Context, ExitReason, NameTakenError

from .conftest import Kind, World, echo, ignore


async def test_a_name_belongs_to_one_living_actor(world: World, kind: Kind) -> None:
    async with world.system() as system:
        first = await system.spawn(kind(ignore), name="stage")
        with pytest.raises(NameTakenError) as caught:
            await world.result(system.spawn(kind(ignore), name="stage"))
        assert system.whereis("stage") == first
        await world.result(system.stop_actor(first))
        second = await system.spawn(kind(ignore), name="stage")
        assert system.whereis("stage") == second != first
    assert (caught.value.name, caught.value.holder) == ("stage", first.actor_id)


async def test_an_actor_whose_name_is_taken_is_not_started(world: World, kind: Kind) -> None:
    log: list[str] = []
    async with world.system() as system:
        await system.spawn(kind(ignore), name="taken")
        with pytest.raises(NameTakenError):
            await world.result(system.spawn(kind(start=lambda ctx: log.append("started")), name="taken"))
        await world.settle()
        assert len(system.statistics().actors) == 1
    assert log == []


async def test_an_actor_can_be_found_while_it_still_starts(world: World) -> None:
    opened = anyio.Event()

    class Slow(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            await opened.wait()

        def on_message(self, ctx: Context[Any], message: Any) -> object:
            return message

    async with world.system() as system, anyio.create_task_group() as group:
        group.start_soon(lambda: system.spawn(Slow(), name="slow"))
        await world.until(lambda: system.whereis("slow") is not None)
        ref = system.whereis("slow")
        assert ref is not None
        with pytest.raises(NameTakenError):
            await world.result(system.spawn(Slow(), name="slow"))
        opened.set()
        assert await world.result(ref.ask("found")) == "found"


async def test_nobody_has_a_name_that_was_never_given(world: World, kind: Kind) -> None:
    async with world.system() as system:
        await system.spawn(kind(ignore))
        assert system.whereis("nobody") is None


async def test_an_actor_keeps_its_name_until_it_has_ended(world: World, kind: Kind) -> None:
    holders: list[ActorRef[Any] | None] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        holders.append(ctx.system.whereis("me"))

    async with world.system() as system:
        ref = await system.spawn(kind(stop=stop), name="me")
        await world.result(system.stop_actor(ref))
        assert system.whereis("me") is None
    assert holders == [ref]


async def test_an_actor_may_have_several_names_which_all_go_with_it(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore), name="one")
        system.register("two", ref)
        system.register("two", ref)  # it has it already
        assert system.whereis("one") == system.whereis("two") == ref
        await world.result(system.stop_actor(ref))
        assert system.whereis("one") is system.whereis("two") is None


async def test_a_name_cannot_be_taken_from_a_living_actor(world: World, kind: Kind) -> None:
    async with world.system() as system:
        holder = await system.spawn(kind(ignore), name="name")
        other = await system.spawn(kind(ignore))
        with pytest.raises(NameTakenError):
            system.register("name", other)
        assert system.whereis("name") == holder


async def test_an_actor_that_has_ended_is_given_no_name(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ended = await system.spawn(kind(ignore))
        await world.result(system.stop_actor(ended))
        with pytest.raises(ActorDeadError):
            system.register("name", ended)
        assert system.whereis("name") is None
        ref = await system.spawn(kind(echo), name="name")
        assert system.whereis("name") == ref


async def test_the_name_of_a_child_is_part_of_its_path_only(world: World, kind: Kind) -> None:
    async with world.system() as system:
        await system.spawn(kind(start=lambda ctx: ctx.spawn(kind(ignore), name="child")), name="parent")
        await world.settle()
        assert system.whereis("child") is None
        assert [actor.path for actor in system.statistics().actors] == ["/parent", "/parent/child"]


async def test_a_name_is_given_before_its_actor_starts_so_that_nobody_else_takes_it_meanwhile(
    world: World, kind: Kind
) -> None:
    taken: list[BaseException] = []

    def start(ctx: Context[Any]) -> None:
        assert ctx.system.whereis("stage") == ctx.ref
        try:
            ctx.system.register("stage", ctx.spawn(kind(ignore)))
        except NameTakenError as error:
            taken.append(error)

    async with world.system() as system:
        ref = await world.result(system.spawn(kind(start=start), name="stage"))
        assert system.whereis("stage") == ref
    assert len(taken) == 1


async def test_the_name_of_an_actor_that_cannot_start_is_free_again(world: World, kind: Kind) -> None:
    def start(ctx: Context[Any]) -> None:
        raise OSError("cannot start")

    async with world.system() as system:
        with pytest.raises(OSError, match="cannot start"):
            await world.result(system.spawn(kind(start=start), name="stage"))
        await world.until(lambda: system.whereis("stage") is None)
        await world.result(system.spawn(kind(ignore), name="stage"))


async def test_an_actor_of_another_system_is_given_no_name(world: World, kind: Kind) -> None:
    async with world.system() as one, world.system() as other:
        stranger = await other.spawn(kind(ignore))
        with pytest.raises(TypeError, match="not an actor of this system"):
            one.register("stage", stranger)
        assert one.whereis("stage") is None
