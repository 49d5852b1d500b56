"""How a life ends: completed, stopped at once or after draining, killed; ``on_stop``; what is left over."""

import gc
import weakref
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorStuck,
    Context,
    DeadLetters,
    ExitKind,
    ExitReason,
)

from .conftest import (
    ASYNC,
    SYNC,
    TIMELESS_LOOPS,
    Kind,
    Seen,
    World,
    echo,
    ignore,
    is_handling,
    spawn_gated,
    statistics_of,
)


def stop_on_stop(ctx: Context[Any], message: Any) -> Any:
    """Stop when told so, answer everything else."""
    return ctx.stop() if message == "stop" else message


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

    class Stubborn(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            while not release.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await release.wait()
                except BaseException:  # noqa: BLE001 - it swallows its cancellation on purpose
                    continue

    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(Stubborn(), name="stubborn")
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


# -- nothing is kept -----------------------------------------------------------------------------------------


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
    class Heavy:
        """Something that can be watched for being freed."""

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
    class Heavy:
        """Something that can be watched for being freed."""

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
