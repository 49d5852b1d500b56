"""How a life ends: completed or stopped, with ``on_stop``; what becomes of messages that are left over."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Context,
    DeadLetters,
    ExitKind,
    ExitReason,
)

from .conftest import (
    ASYNC,
    SYNC,
    Kind,
    Seen,
    World,
    echo,
    ignore,
    statistics_of,
)

# -- an actor that ends itself -------------------------------------------------------------------------------


async def test_an_actor_completes_with_a_value(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.stop(message)))
        ref.tell({"the": "result"})
        reason = await world.result(system.wait_stopped(ref))
    assert reason == ExitReason(ExitKind.COMPLETED, value={"the": "result"})


async def test_the_message_that_ends_an_actor_is_handled_to_its_end_and_answered(
    world: World, kind: Kind
) -> None:
    log: list[str] = []

    def handle(ctx: Context[Any], message: Any) -> str:
        ctx.stop()
        log.append("after stop")
        return "last words"

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        assert await world.result(ref.ask("end")) == "last words"
        await world.result(system.wait_stopped(ref))
    assert log == ["after stop"]


async def test_no_message_is_handled_after_the_one_that_ends_the_actor(world: World, kind: Kind) -> None:
    got: list[str] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        got.append(message)
        ctx.ref.tell("to itself")
        ctx.stop()

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        for text in ("end", "waits", "waits"):
            ref.tell(text)
        await world.result(system.wait_stopped(ref))
        await world.settle()
        assert system.statistics().dead_letters == 3
    assert got == ["end"]


async def test_what_an_actor_tells_itself_after_it_said_that_it_ends_is_not_handled(
    world: World, kind: Kind
) -> None:
    got: list[str] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        got.append(message)
        ctx.stop()
        ctx.ref.tell("too late")

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("end")
        await world.result(system.wait_stopped(ref))
        await world.settle()
        assert system.statistics().dead_letters == 1
    assert got == ["end"]


async def test_what_comes_while_the_end_of_an_actor_is_on_its_way_is_not_handled(world: World) -> None:
    """The handler is done, the signal is not acted upon yet; a backend may resume the actor's task first."""
    got: list[str] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        got.append(message)
        ctx.loop.call_soon(lambda: ctx.ref.tell("too late"))
        ctx.stop()

    async with world.system() as system:
        for _ in range(20):  # trio resumes tasks in any order
            ref = await system.spawn(ASYNC(handle))
            ref.tell("end")
            await world.result(system.wait_stopped(ref))
        await world.settle()
        assert system.statistics().dead_letters == 20
    assert got == ["end"] * 20


async def test_the_first_reason_to_end_counts(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        ctx.stop("first")
        ctx.stop("second")

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("end")
        assert (await world.result(system.wait_stopped(ref))).value == "first"


async def test_a_handler_that_fails_after_it_asked_to_stop_has_failed(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        ctx.stop("all fine")
        raise RuntimeError("not at all")

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("end")
        reason = await world.result(system.wait_stopped(ref))
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, RuntimeError)


# -- stop at once --------------------------------------------------------------------------------------------


async def test_an_actor_that_is_asked_to_stop_ends_stopped(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))
        assert await world.result(system.stop_actor(ref)) == ExitReason(ExitKind.STOPPED)
        await world.until(lambda: statistics_of(system, ref) is None)


async def test_stopping_an_actor_that_has_ended_says_why_it_had(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.stop("done")))
        ref.tell("end")
        reason = await world.result(system.wait_stopped(ref))
        assert await world.result(system.stop_actor(ref)) == reason
        assert await world.result(system.stop_actor(ref, drain=True)) == reason
        assert await world.result(system.wait_stopped(ref)) == reason


async def test_everybody_who_waits_for_an_end_is_told_the_same(world: World, kind: Kind) -> None:
    reasons: list[ExitReason] = []
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))

        async def wait() -> None:
            reasons.append(await system.wait_stopped(ref))

        async def stop() -> None:
            reasons.append(await system.stop_actor(ref))

        async with anyio.create_task_group() as group:
            for task in (wait, stop, wait, stop):
                group.start_soon(task)
    assert reasons == [ExitReason(ExitKind.STOPPED)] * 4


async def test_who_gives_up_waiting_for_an_end_hurts_neither_the_actor_nor_others_who_wait(
    world: World, kind: Kind
) -> None:
    reasons: list[ExitReason] = []
    async with world.system() as system:
        ref = await system.spawn(kind(echo))

        async def wait() -> None:
            reasons.append(await system.wait_stopped(ref))

        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(wait)
                await world.settle()
                group.start_soon(wait)
                await world.settle()
                impatient.cancel_scope.cancel()
            assert await world.result(ref.ask("alive")) == "alive"
            await world.result(system.stop_actor(ref))
    assert len(reasons) == 1


async def stop(system: ActorSystem, ref: ActorRef[Any]) -> None:
    await system.stop_actor(ref)


async def wait(system: ActorSystem, ref: ActorRef[Any]) -> None:
    await system.wait_stopped(ref)


@pytest.mark.parametrize("end", [stop, wait])
async def test_an_actor_of_another_system_is_neither_stopped_nor_waited_for(
    world: World, end: Callable[[ActorSystem, ActorRef[Any]], Awaitable[None]]
) -> None:
    """The other system may be on another thread."""
    async with world.system() as one, world.system() as other:
        stranger = await other.spawn(SYNC(echo))
        with pytest.raises(TypeError, match="not an actor of this system"):
            await world.result(end(one, stranger))
        assert await world.result(stranger.ask("still there")) == "still there"


# -- on_stop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("complete", ExitKind.COMPLETED),
        ("fail", ExitKind.FAILED),
        (None, ExitKind.STOPPED),
    ],
)
async def test_on_stop_runs_once_and_is_told_why(
    world: World, kind: Kind, message: str | None, expected: ExitKind
) -> None:
    reasons: list[ExitReason] = []

    def handle(ctx: Context[Any], message: str) -> None:
        if message == "fail":
            raise RuntimeError
        ctx.stop()

    async with world.system() as system:
        ref = await system.spawn(kind(handle, stop=lambda ctx, reason: reasons.append(reason)))
        if message is None:
            reason = await world.result(system.stop_actor(ref))
        else:
            ref.tell(message)
            reason = await world.result(system.wait_stopped(ref))
    assert reasons == [reason]
    assert reason.kind is expected


async def test_on_stop_may_tell_and_ask_others(world: World, kind: Kind) -> None:
    got: list[str] = []
    answers: list[object] = []
    async with world.system() as system:
        heir = await system.spawn(kind(lambda ctx, message: got.append(message)))
        oracle = await system.spawn(kind(echo))

        class Leaves(Actor[str]):
            async def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
                heir.tell("my things")
                answers.append(await oracle.ask("goodbye"))

        await world.result(system.stop_actor(await system.spawn(Leaves())))
        await world.until(lambda: got == ["my things"])
        await world.result(
            system.stop_actor(await system.spawn(kind(stop=lambda ctx, reason: heir.tell("mine too"))))
        )
        await world.until(lambda: got == ["my things", "mine too"])
    assert answers == ["goodbye"]


async def test_on_stop_that_fails_makes_a_failure_of_a_normal_end(world: World, kind: Kind) -> None:
    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        raise ZeroDivisionError("while tidying up")

    async with world.system() as system:
        ref = await system.spawn(kind(stop=stop))
        reason = await world.result(system.stop_actor(ref))
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, ZeroDivisionError)


async def test_what_on_stop_tells_itself_is_a_dead_letter(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(stop=lambda ctx, reason: ctx.ref.tell("from the grave")))
        await world.result(system.stop_actor(ref))
        await world.settle()
        assert system.statistics().dead_letters == 1


async def test_who_waits_for_an_end_is_told_after_on_stop(world: World) -> None:
    log: list[str] = []

    class Slow(Actor[str]):
        async def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            log.append("tidy")

    async with world.system() as system:
        ref = await system.spawn(Slow())
        await world.result(system.stop_actor(ref))
        log.append("told")
    assert log == ["tidy", "told"]


# -- dead letters --------------------------------------------------------------------------------------------


async def test_fc_072_messages_left_at_the_end_are_dead_letters_with_actor_and_type(
    world: World, kind: Kind
) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(lambda ctx, message: ctx.stop()), name="short")
        for _ in range(10):
            ref.tell("x")
        await world.result(system.wait_stopped(ref))
        ref.tell(["after the end"])
        assert system.statistics().dead_letters == 10
    events = [(event.actor, event.message_type, event.total) for event in seen.of(DeadLetters)]
    assert events == [("/short", "str", 1), ("/short", "str", 2), ("/short", "str", 4), ("/short", "str", 8)]


async def test_telling_an_actor_that_has_ended_raises_nothing(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))
        await world.result(system.stop_actor(ref))
        ref.tell("late")
        await world.result(ref.send("later"))
        assert system.statistics().dead_letters == 2


async def test_an_ask_that_fails_because_of_the_end_is_no_dead_letter(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))
        await world.result(system.stop_actor(ref))
        with pytest.raises(ActorDeadError):
            await world.result(ref.ask("late"))
        assert system.statistics().dead_letters == 0
