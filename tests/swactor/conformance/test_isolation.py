"""Context variables: what an asynchronous handler sets is nobody else's business, whoever woke whom.

Synchronous handlers run in one context that all of them share: they are not for setting context variables.
"""

from contextvars import ContextVar
from typing import Any

import anyio

from swactor import Context

from .conftest import ASYNC, Kind, World

request_id: ContextVar[str] = ContextVar("request_id", default="none")


def read(ctx: Context[Any], message: Any) -> str:
    """Answer with what the variable holds here."""
    return request_id.get()


def write(ctx: Context[Any], message: str) -> str:
    """Set the variable."""
    request_id.set(message)
    return message


async def test_what_a_handler_sets_is_not_seen_by_an_actor_that_it_tells(world: World, kind: Kind) -> None:
    seen: list[str] = []
    async with world.system() as system:
        reader = await system.spawn(kind(lambda ctx, message: seen.append(read(ctx, message))))

        def write_and_tell(ctx: Context[Any], message: str) -> None:
            write(ctx, message)
            reader.tell("look")

        writer = await system.spawn(ASYNC(write_and_tell))
        writer.tell("leaks")
        await world.until(lambda: len(seen) == 1)
    assert seen == ["none"]


async def test_what_a_handler_sets_is_not_seen_by_an_actor_whose_turn_is_next(
    world: World, kind: Kind
) -> None:
    seen: list[str] = []
    async with world.system() as system:
        writer = await system.spawn(ASYNC(write))
        reader = await system.spawn(kind(lambda ctx, message: seen.append(read(ctx, message))))
        writer.tell("leaks")
        reader.tell("look")
        await world.until(lambda: len(seen) == 1)
        writer.tell("leaks again")
        await world.settle()
        reader.tell("look again")
        await world.until(lambda: len(seen) == 2)
    assert seen == ["none", "none"]


async def test_what_a_handler_sets_is_not_seen_by_whoever_asked(world: World, kind: Kind) -> None:
    async with world.system() as system:
        writer = await system.spawn(kind(write))
        assert await writer.ask("leaks") == "leaks"
        assert request_id.get() == "none"


async def test_a_child_does_not_see_what_its_parent_had_set(world: World, kind: Kind) -> None:
    seen: list[str] = []

    def spawn(ctx: Context[Any], message: str) -> None:
        write(ctx, message)
        child = ctx.spawn(kind(lambda ctx, message: seen.append(read(ctx, message))))
        child.tell("look")

    async with world.system() as system:
        (await system.spawn(ASYNC(spawn))).tell("leaks")
        await world.until(lambda: len(seen) == 1)
    assert seen == ["none"]


async def test_an_actor_does_not_depend_on_the_variables_of_whoever_woke_it_first(
    world: World, kind: Kind
) -> None:
    seen: list[object] = []
    async with world.system() as system:
        reader = await system.spawn(kind(read))

        async def ask(text: str) -> None:
            request_id.set(text)
            seen.append(await world.result(reader.ask("look")))

        for text in ("first", "second"):
            async with anyio.create_task_group() as group:
                group.start_soon(ask, text)
    assert seen == ["none", "none"]
