"""Context variables: what an asynchronous handler sets is nobody else's business, whoever woke whom.

Synchronous handlers run in one context that all of them share: they are not for setting context variables.
"""

import socket
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from swactor import Context, ExitReason

from .conftest import ASYNC, REAL_LOOPS, Kind, World

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


async def test_a_hook_does_not_see_the_variables_of_whoever_spawned_or_stopped_its_actor(
    world: World, kind: Kind
) -> None:
    seen: list[str] = []

    def look(ctx: Context[Any], *reason: ExitReason) -> None:
        seen.append(request_id.get())

    async def spawn_and_stop() -> None:
        request_id.set("mine")
        ref = await world.result(system.spawn(kind(start=look, stop=look)))
        await world.result(system.stop_actor(ref))
        assert request_id.get() == "mine"

    async with world.system() as system, anyio.create_task_group() as group:
        group.start_soon(spawn_and_stop)
    assert seen == ["none", "none"]


async def test_the_hooks_of_a_whole_tree_see_the_variables_of_the_system(world: World, kind: Kind) -> None:
    seen: list[str] = []

    def look(ctx: Context[Any], reason: ExitReason) -> None:
        seen.append(request_id.get())

    def spawn(ctx: Context[Any]) -> None:
        ctx.spawn(kind(start=lambda ctx: seen.append(request_id.get()), stop=look))

    async def use_a_system() -> None:
        request_id.set("where it started")
        async with world.system() as system:
            request_id.set("mine")
            await world.result(system.spawn(kind(start=spawn, stop=look)))
            await world.settle()

    async with anyio.create_task_group() as group:
        group.start_soon(use_a_system)
    assert seen == ["where it started"] * 3


@pytest.mark.parametrize("loop_name", [*REAL_LOOPS, "manual"])  # in a simulation are no descriptors
async def test_a_callback_sees_the_variables_of_the_system_whoever_asked_for_it(world: World) -> None:
    ours, theirs = socket.socketpair()
    seen: list[tuple[str, str]] = []

    def watch(ctx: Context[Any], message: str) -> None:
        write(ctx, message)
        loop = ctx.loop

        def note(what: str) -> None:
            seen.append((what, request_id.get()))

        def readable() -> None:
            note("readable")
            watches.pop().cancel()

        def writable() -> None:
            note("writable")
            watches.pop(0).cancel()

        watches = [loop.watch_writable(ours.fileno(), writable), loop.watch_readable(ours.fileno(), readable)]
        loop.call_soon(lambda: note("soon"))
        loop.call_later(0.001, lambda: note("later"))
        loop.call_from_thread(lambda: note("from a thread"))

    with ours, theirs:
        async with world.system() as system:
            watcher = await system.spawn(ASYNC(watch))
            watcher.tell("leaks")
            await world.until(lambda: len(seen) == 4)
            theirs.send(b"x")
            await world.until(lambda: len(seen) == 5)
    assert sorted(seen) == [
        (what, "none") for what in ("from a thread", "later", "readable", "soon", "writable")
    ]
