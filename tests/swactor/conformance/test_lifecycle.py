"""How a single actor's life begins and goes on: starting, its hooks, what a failure does, what it leaves."""

import time
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRef,
    Context,
    ExitKind,
    ExitReason,
    SystemStoppingError,
)

from .conftest import ASYNC, SYNC, Kind, Seen, World, echo, fail, ignore, spawn_gated, statistics_of


def boom(ctx: Context[Any]) -> None:
    """Fail to start."""
    raise ZeroDivisionError("cannot start")


# -- start ---------------------------------------------------------------------------------------------------


async def test_start_comes_once_and_before_the_first_message(world: World, kind: Kind) -> None:
    log: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: log.append(message), start=lambda ctx: log.append("start"))
        )
        for text in "ab":
            await world.result(ref.ask(text))
    assert log == ["start", "a", "b"]


async def test_spawn_returns_when_start_is_done(world: World, kind: Kind) -> None:
    log: list[str] = []
    async with world.system() as system:
        await system.spawn(kind(start=lambda ctx: log.append("started")))
        assert log == ["started"]


async def test_what_start_sends_to_itself_is_the_first_message(world: World, kind: Kind) -> None:
    log: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: log.append(message), start=lambda ctx: ctx.ref.tell("own"))
        )
        ref.tell("from outside")
        await world.until(lambda: len(log) == 2)
    assert log == ["own", "from outside"]


async def test_hooks_and_handler_may_be_of_different_kinds(world: World) -> None:
    log: list[str] = []

    class WaitsToStart(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            await anyio.lowlevel.checkpoint()
            log.append("start")

        def on_message(self, ctx: Context[str], message: str) -> object:
            log.append(message)
            return message

        async def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
            await anyio.lowlevel.checkpoint()
            log.append("stop")

    class WaitsToHandle(Actor[str]):
        def on_start(self, ctx: Context[str]) -> None:
            log.append("start")

        async def on_message(self, ctx: Context[str], message: str) -> object:
            await anyio.lowlevel.checkpoint()
            log.append(message)
            return message

        def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
            log.append("stop")

    async with world.system() as system:
        for actor in (WaitsToStart(), WaitsToHandle()):
            ref: ActorRef[str] = await system.spawn(actor)
            assert await world.result(ref.ask("message")) == "message"
            await world.result(system.stop_actor(ref))
    assert log == ["start", "message", "stop"] * 2


async def test_an_actor_is_made_by_a_class_or_a_function_just_as_well(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(lambda: kind(echo))
        assert await world.result(ref.ask("made")) == "made"

        def parent(ctx: Context[Any], message: Any) -> ActorRef[Any]:
            return ctx.spawn(lambda: kind(echo))

        child: Any = await world.result((await system.spawn(kind(parent))).ask("spawn"))
        assert await world.result(child.ask("made too")) == "made too"


async def test_a_factory_that_raises_makes_spawn_fail_and_leaves_nothing(world: World, kind: Kind) -> None:
    def make() -> Actor[Any]:
        raise ZeroDivisionError("no actor today")

    async with world.system() as system:
        with pytest.raises(ZeroDivisionError):
            await system.spawn(make, name="made")
        assert system.statistics().actors == ()
        await system.spawn(kind(ignore), name="made")


async def test_fc_073_a_failing_start_makes_spawn_fail(world: World, kind: Kind) -> None:
    async with world.system() as system:
        with pytest.raises(ZeroDivisionError, match="cannot start"):
            await world.result(system.spawn(kind(start=boom), name="broken"))
        await world.until(lambda: system.whereis("broken") is None)
        await world.until(lambda: system.statistics().actors == ())


async def test_fc_072_messages_sent_before_a_start_that_fails_are_dead_and_asks_fail(world: World) -> None:
    opened = anyio.Event()

    class Broken(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            await opened.wait()
            raise ZeroDivisionError

        def on_message(self, ctx: Context[Any], message: Any) -> None:
            raise AssertionError("it never started")

    errors: list[ActorDeadError] = []
    children: list[ActorRef[Any]] = []
    async with world.system() as system:
        await system.spawn(SYNC(start=lambda ctx: children.append(ctx.spawn(Broken()))))
        child = children[0]

        async def ask() -> None:
            try:
                await child.ask("question", timeout_s=3600)
            except ActorDeadError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            child.tell("told")
            group.start_soon(ask)
            await world.settle()
            opened.set()
        await world.until(lambda: system.statistics().dead_letters == 1)
    assert len(errors) == 1


async def test_on_stop_tidies_up_after_a_start_that_failed_too(world: World, kind: Kind) -> None:
    reasons: list[ExitReason] = []
    async with world.system() as system:
        with pytest.raises(ZeroDivisionError):
            await world.result(
                system.spawn(kind(start=boom, stop=lambda ctx, reason: reasons.append(reason)))
            )
        await world.until(lambda: len(reasons) == 1)
    assert reasons[0].kind is ExitKind.FAILED


async def test_children_of_a_start_that_failed_are_stopped(world: World, kind: Kind) -> None:
    stopped: list[str] = []

    def start(ctx: Context[Any]) -> None:
        ctx.spawn(kind(stop=lambda ctx, reason: stopped.append("child")))
        raise ZeroDivisionError

    async with world.system() as system:
        with pytest.raises(ZeroDivisionError):
            await world.result(system.spawn(kind(start=start)))
        await world.until(lambda: system.statistics().actors == ())
    assert stopped == ["child"]


async def test_an_actor_may_stop_itself_while_it_starts(world: World, kind: Kind) -> None:
    got: list[str] = []

    def start(ctx: Context[Any]) -> None:
        ctx.ref.tell("never handled")
        ctx.stop("done already")

    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message), start=start))
        reason = await world.result(system.wait_stopped(ref))
    assert (reason.kind, reason.value) == (ExitKind.COMPLETED, "done already")
    assert got == []


async def test_a_child_can_be_told_and_asked_as_soon_as_it_is_spawned(world: World, kind: Kind) -> None:
    got: list[str] = []

    class Parent(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> object:
            child = ctx.spawn(kind(keep, start=lambda ctx: got.append("start")))
            child.tell("told")
            return await child.ask("asked")

    def keep(ctx: Context[Any], message: Any) -> Any:
        got.append(message)
        return message

    async with world.system() as system:
        assert await world.result((await system.spawn(Parent())).ask("go")) == "asked"
    assert got == ["start", "told", "asked"]


async def test_an_actor_that_is_stopped_while_it_starts_ends_without_a_message(
    world: World, kind: Kind
) -> None:
    got: list[str] = []
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(system, kind, lambda ctx, message: got.append(message), opened)
        ref.tell("never handled")
        async with anyio.create_task_group() as group:
            group.start_soon(system.stop_actor, ref)
            await world.settle()
            opened.set()
        assert system.statistics().dead_letters == 1
    assert got == []


async def test_a_start_that_does_not_end_within_the_grace_is_cancelled_and_spawn_fails(world: World) -> None:
    class Hangs(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            await anyio.sleep_forever()

    errors: list[ActorDeadError] = []
    async with world.system() as system:

        async def spawn() -> None:
            try:
                await system.spawn(Hangs(), name="hangs")
            except ActorDeadError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(spawn)
            await world.until(lambda: system.whereis("hangs") is not None)
            ref = system.whereis("hangs")
            assert ref is not None
            reason = await world.result(system.stop_actor(ref, grace_s=0.001))
        assert len(errors) == 1
    assert reason.kind is ExitKind.KILLED


# -- names of actors -----------------------------------------------------------------------------------------


async def test_a_path_says_where_an_actor_hangs_and_a_serial_which_one_it_is(
    world: World, kind: Kind
) -> None:
    refs: list[ActorRef[Any]] = []

    def parent(ctx: Context[Any], message: Any) -> None:
        refs.append(ctx.spawn(kind(ignore), name="child"))

    async with world.system() as system:
        for _ in range(2):
            ref = await system.spawn(kind(parent), name="parent")
            await world.result(ref.ask("spawn"))
            await world.result(system.stop_actor(ref))
    assert [child.actor_id.path for child in refs] == ["/parent/child"] * 2
    assert refs[0].actor_id != refs[1].actor_id
    assert refs[0] != refs[1]


async def test_actors_without_a_name_have_different_paths(world: World, kind: Kind) -> None:
    async with world.system() as system:
        refs = [await system.spawn(kind(ignore)) for _ in range(3)]
        assert len({ref.actor_id.path for ref in refs}) == 3


# -- failure -------------------------------------------------------------------------------------------------


async def test_fc_073_an_exception_ends_the_actor_and_everybody_is_told(
    world: World, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(lambda ctx, message: 1 / 0), name="divider")
        with pytest.raises(ZeroDivisionError):
            await world.result(ref.ask("divide"))
        reason = await world.result(system.wait_stopped(ref))
        assert system.whereis("divider") is None
    assert reason.kind is ExitKind.FAILED
    failed = [(event.actor, event.error_type, event.message_type) for event in seen.of(ActorFailed)]
    assert failed == [("/divider", "ZeroDivisionError", "str")]
    logged = [record for record in caplog.records if record.exc_info and record.name == "swactor"]
    assert len(logged) == 1
    assert "/divider" in logged[0].getMessage()
    assert "str" in logged[0].getMessage()


async def test_fc_073_a_failure_by_a_told_message_is_reported_just_as_well(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(fail))
        ref.tell(["a list"])
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, RuntimeError)
    assert [(event.error, event.message_type) for event in seen.of(ActorFailed)] == [
        ("asked to fail", "list")
    ]


async def test_the_message_that_failed_is_the_last_one_and_the_rest_are_dead_letters(
    world: World, kind: Kind
) -> None:
    got: list[str] = []

    def handle(ctx: Context[Any], message: str) -> None:
        got.append(message)
        if message == "bad":
            raise RuntimeError

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        for text in ("good", "bad", "never", "never"):
            ref.tell(text)
        await world.result(system.wait_stopped(ref))
        assert system.statistics().dead_letters == 2
    assert got == ["good", "bad"]


async def test_a_top_level_actor_that_fails_harms_no_other(world: World, kind: Kind) -> None:
    async with world.system() as system:
        other = await system.spawn(kind(echo))
        broken = await system.spawn(kind(fail))
        broken.tell("fail")
        await world.result(system.wait_stopped(broken))
        assert await world.result(other.ask("alive")) == "alive"
        await system.spawn(kind(ignore))


class UnprintableError(Exception):
    """Its own text is broken."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


async def test_fc_073_an_exception_that_cannot_be_printed_ends_its_actor_like_any_other(
    world: World, kind: Kind
) -> None:
    seen = Seen()

    def handle(ctx: Context[Any], message: Any) -> None:
        raise UnprintableError

    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(handle))
        ref.tell("anything")
        waiting = await system.spawn(kind(echo))
        reason = await world.result(system.wait_stopped(ref))
        assert await world.result(waiting.ask("alive")) == "alive"
    assert isinstance(reason.error, UnprintableError)
    assert [event.error_type for event in seen.of(ActorFailed)] == ["UnprintableError"]


async def test_fc_072_an_ask_fails_when_the_exception_that_ended_the_actor_cannot_be_printed(
    world: World, kind: Kind
) -> None:
    errors: list[type[BaseException]] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        raise UnprintableError

    async with world.system() as system:
        ref = await system.spawn(kind(handle))

        async def ask() -> None:
            try:
                await ref.ask("anything", timeout_s=3600)
            except (UnprintableError, ActorDeadError) as error:
                errors.append(type(error))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
        await world.until(lambda: statistics_of(system, ref) is None)
    assert sorted(error.__name__ for error in errors) == ["ActorDeadError", "UnprintableError"]


class BeyondException(BaseException):
    """What a library raises that wants to pass every ``except Exception``."""


async def test_fc_073_an_exception_beyond_exception_ends_its_actor_only(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        raise BeyondException

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        with pytest.raises(ActorDeadError):
            await world.result(ref.ask("anything", timeout_s=3600))
        assert (await world.result(system.wait_stopped(ref))).kind is ExitKind.FAILED
        other = await system.spawn(kind(echo))
        assert await world.result(other.ask("alive")) == "alive"


async def test_fc_073_an_exception_beyond_exception_in_a_hook_ends_its_actor_only(
    world: World, kind: Kind
) -> None:
    def start(ctx: Context[Any]) -> None:
        raise BeyondException

    async with world.system() as system:
        with pytest.raises((BeyondException, ActorDeadError)):
            await world.result(system.spawn(kind(start=start)))
        await world.until(lambda: system.statistics().actors == ())
        other = await system.spawn(kind(echo))
        assert await world.result(other.ask("alive")) == "alive"


async def test_a_cancellation_that_a_synchronous_handler_raises_ends_its_actor_only(world: World) -> None:
    import asyncio

    def handle(ctx: Context[Any], message: Any) -> None:
        raise asyncio.CancelledError

    async with world.system() as system:
        victim = await system.spawn(SYNC(handle))
        with pytest.raises(ActorDeadError):
            await world.result(victim.ask("anything", timeout_s=3600))
        other = await system.spawn(SYNC(echo))
        assert await world.result(other.ask("alive")) == "alive"
        assert (await world.result(system.wait_stopped(victim))).kind is ExitKind.FAILED


async def test_a_system_exit_in_a_handler_reaches_the_program_and_ends_the_actor(world: World) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        raise SystemExit(3)

    async with world.system() as system:
        ref = await system.spawn(SYNC(handle))
        with pytest.raises(SystemExit):
            await ref.ask("leave")
        assert (await world.result(system.wait_stopped(ref))).kind is ExitKind.FAILED


async def test_fc_077_a_stopping_actor_cannot_have_new_children(world: World, kind: Kind) -> None:
    refused: list[BaseException] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        try:
            ctx.spawn(ASYNC(ignore))
        except SystemStoppingError as error:
            refused.append(error)

    async with world.system() as system:
        ref = await system.spawn(kind(stop=stop))
        await world.result(system.stop_actor(ref))
        assert len(refused) == 1
        assert system.statistics().actors == ()


async def test_an_on_stop_whose_grace_is_over_before_it_has_begun_runs_until_it_waits(world: World) -> None:
    log: list[str] = []

    class Tidies(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            """Only so that it waits."""

        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            log.append("on_stop")
            try:
                await anyio.sleep_forever()
            finally:
                log.append("cancelled")

    def stop_a_child(ctx: Context[Any], spinner: ActorRef[Any]) -> None:
        ctx.stop_child(ctx.spawn(Tidies()), grace_s=0.001)
        spinner.tell("hold the loop")

    def hold_the_loop(ctx: Context[Any], message: Any) -> None:
        """Until the grace of the child, which came just before, is over."""
        until_s = time.perf_counter() + 0.005
        while time.perf_counter() < until_s:
            pass

    async with world.system() as system:
        spinner = await system.spawn(SYNC(hold_the_loop))
        for count in range(1, 6):
            (await system.spawn(SYNC(stop_a_child))).tell(spinner)
            await world.until(lambda count=count: log.count("cancelled") == count)  # type: ignore[misc]  # bound now
    assert log == ["on_stop", "cancelled"] * 5
