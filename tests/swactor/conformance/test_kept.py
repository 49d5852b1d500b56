"""What an actor leaves behind in memory: nothing, however many there were and whatever they did."""

import gc
import weakref
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorRef,
    AskTimeoutError,
    ChildSpec,
    Context,
    Reply,
    Supervisor,
)

from .conftest import (
    ASYNC,
    SYNC,
    Kind,
    World,
    echo,
    ignore,
    spawn_gated,
)


def stop_on_stop(ctx: Context[Any], message: Any) -> Any:
    """Stop when told so, answer everything else."""
    return ctx.stop() if message == "stop" else message


MESSAGES = 3_000


class Heavy:
    """A message that can be watched for being freed."""


async def test_fc_079_ended_actors_leave_nothing_behind(world: World, kind: Kind) -> None:
    alive: weakref.WeakSet[Actor[Any]] = weakref.WeakSet()
    async with world.system() as system:
        first = await system.spawn(kind(stop_on_stop), name="first")
        first.tell("stop")  # what a system starts for its own use is there from now on
        await world.result(system.wait_stopped(first))
        tasks = world.tasks()
        for number in range(300):
            actor = kind(stop_on_stop)
            alive.add(actor)
            ref = await system.spawn(actor, name=f"short-{number}")
            await world.result(ref.ask("work"))
            ref.tell("stop")
            await world.result(system.wait_stopped(ref))
        del actor, ref
        await world.settle()
        await world.elapse(system, 0.001)  # a loop forgets timers that were called off when time passes
        gc.collect()
        assert system.statistics().actors == ()
        assert len(system.names) == 0
        assert len(alive) == 0
        await world.until(lambda: world.tasks() <= tasks)


async def test_fc_079_an_ended_actor_is_freed_even_when_its_address_is_kept(world: World, kind: Kind) -> None:
    async with world.system() as system:
        actor = kind(stop_on_stop, start=lambda ctx: ctx.send_every(3600, "tick"))
        gone = weakref.ref(actor)
        ref = await system.spawn(actor)
        await world.result(ref.ask("work"))
        await world.result(system.stop_actor(ref))
        del actor
        await world.settle()
        gc.collect()
        assert gone() is None
        assert ref.actor_id.serial == 1


async def test_fc_079_an_actor_that_ended_is_not_kept_alive_by_what_it_watched(world: World) -> None:
    class Watches(Actor[Any]):
        def __init__(self, other: ActorRef[Any]) -> None:
            self._other = other

        def on_start(self, ctx: Context[Any]) -> None:
            ctx.monitor(self._other)

    async with world.system() as system:
        target = await system.spawn(SYNC(echo))
        watcher = Watches(target)
        gone = weakref.ref(watcher)
        await world.result(system.stop_actor(await system.spawn(watcher)))
        del watcher
        await world.settle()
        gc.collect()
        assert gone() is None


async def test_fc_079_the_messages_of_an_ended_actor_are_freed(world: World, kind: Kind) -> None:
    async with world.system() as system:
        opened = anyio.Event()
        ref = await spawn_gated(system, kind, ignore, opened)
        message = Heavy()
        gone = weakref.ref(message)
        ref.tell(message)
        del message
        async with anyio.create_task_group() as group:
            group.start_soon(system.stop_actor, ref)
            await world.settle()
            opened.set()
        await world.settle()
        gc.collect()
        assert gone() is None


async def test_a_message_that_was_handled_is_not_kept_by_an_idle_actor(world: World, kind: Kind) -> None:
    handled: list[bool] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: handled.append(True)))
        message = Heavy()
        gone = weakref.ref(message)
        ref.tell(message)
        del message
        await world.until(lambda: len(handled) == 1)
        await world.settle()
        gc.collect()
        assert gone() is None


async def test_a_supervisor_that_ended_is_freed_even_when_its_address_is_kept(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        supervisor = Supervisor([ChildSpec("a", lambda: kind(ignore))])
        gone = weakref.ref(supervisor)
        ref = await system.spawn(supervisor)
        await world.result(system.stop_actor(ref))
        del supervisor
        await world.settle()
        gc.collect()
        assert gone() is None
        assert ref.actor_id.serial == 1


async def test_a_question_that_was_deferred_too_late_is_not_kept(world: World) -> None:
    replies: list[Reply[Any]] = []

    async def defer_late(ctx: Context[Any], message: Any) -> None:
        await opened.wait()
        replies.append(ctx.defer())

    opened = anyio.Event()
    async with world.system() as system:
        ref = await system.spawn(ASYNC(defer_late))
        message = Heavy()
        gone = weakref.ref(message)
        with pytest.raises(AskTimeoutError):
            await world.result(ref.ask(message, timeout_s=0.001))
        del message
        opened.set()
        await world.until(lambda: len(replies) == 1)
        assert replies[0].done
        replies.pop().send("late")
        await world.settle()
        gc.collect()
        assert gone() is None


async def test_questions_with_a_timeout_each_are_not_kept_until_it_is_over(world: World) -> None:
    alive: weakref.WeakSet[Heavy] = weakref.WeakSet()
    async with world.system() as system:
        ref = await system.spawn(ASYNC(lambda ctx, message: "answer"))
        for number in range(1_000):
            message = Heavy()
            alive.add(message)
            assert await world.result(ref.ask(message, timeout_s=3_600 + number)) == "answer"
        del message
        await world.settle()
        gc.collect()
        assert len(alive) < 100


async def test_a_timer_that_is_set_anew_with_each_message_leaves_nothing_behind(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.send_after(3_600, "quiet", key="idle")))
        await world.result(ref.ask("begin"))
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(MESSAGES):
            await world.result(ref.ask("again"))
        await world.settle()
        await world.elapse(system, 0.001)  # a loop forgets timers that were called off when time passes
        gc.collect()
        assert (
            len(gc.get_objects()) - before < MESSAGES
        )  # trio itself keeps a thousand deadlines that are over
