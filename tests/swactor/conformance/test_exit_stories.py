"""Ends in which more than one thing went wrong: none of it is lost, and in which order it went is told."""

import itertools
import logging
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorRef,
    Backoff,
    ChildFailedError,
    ChildSpec,
    Context,
    Down,
    ExitKind,
    ExitReason,
    LinkedActorFailedError,
    RestartBudget,
    RestartBudgetSpentError,
    Supervisor,
)

from .conftest import Kind, World, depth_of, do, is_handling, spawn_gated, statistics_of
from .hanging import Hangs
from .supervised import SOON, child_of, supervise


def cannot_stop(ctx: Context[Any], reason: ExitReason) -> None:
    """Fail to tidy up."""
    raise OSError("cannot tidy up")


# -- groups of errors ----------------------------------------------------------------------------------------


async def test_a_handler_and_then_on_stop_that_fail_are_both_in_the_reason_in_order(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(do, stop=cannot_stop))
        ref.tell(lambda ctx: 1 / 0)
        reason = await world.result(system.wait_stopped(ref))
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, ExceptionGroup)
    assert [type(error) for error in reason.error.exceptions] == [ZeroDivisionError, OSError]


async def test_a_start_and_then_on_stop_that_fail_are_both_in_the_reason(world: World, kind: Kind) -> None:
    downs: list[Down] = []

    def start(ctx: Context[Any]) -> None:
        raise ZeroDivisionError

    def parent(ctx: Context[Any], message: Any) -> None:
        if isinstance(message, Down):
            downs.append(message)
        else:
            ctx.monitor(ctx.spawn(kind(start=start, stop=cannot_stop)))

    async with world.system() as system:
        (await system.spawn(kind(parent))).tell("spawn")
        await world.until(lambda: len(downs) == 1)
    error = downs[0].reason.error
    assert isinstance(error, ExceptionGroup)
    assert [type(error) for error in error.exceptions] == [ZeroDivisionError, OSError]


async def test_a_single_error_stands_alone_in_the_reason(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(do))
        ref.tell(lambda ctx: 1 / 0)
        assert isinstance((await world.result(system.wait_stopped(ref))).error, ZeroDivisionError)
        ref = await system.spawn(kind(do, stop=cannot_stop))
        assert isinstance((await world.result(system.stop_actor(ref))).error, OSError)


async def test_on_stop_is_told_of_the_first_error_only_and_the_watcher_of_both(
    world: World, kind: Kind
) -> None:
    told: list[ExitReason] = []
    downs: list[Down] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        told.append(reason)
        raise OSError("cannot tidy up")

    def watch(ctx: Context[Any], message: Any) -> None:
        if isinstance(message, Down):
            downs.append(message)
        else:
            ctx.monitor(message)

    async with world.system() as system:
        ref = await system.spawn(kind(do, stop=stop))
        await world.result((await system.spawn(kind(watch))).ask(ref))
        ref.tell(lambda ctx: 1 / 0)
        await world.until(lambda: len(downs) == 1)
    assert isinstance(told[0].error, ZeroDivisionError)
    assert isinstance(downs[0].reason.error, ExceptionGroup)


async def test_a_killed_actor_keeps_the_error_that_it_failed_with_before(world: World) -> None:
    class HangsInStop(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            raise ZeroDivisionError

        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            await anyio.sleep_forever()

    reasons: list[ExitReason] = []
    async with world.system() as system, anyio.create_task_group() as group:
        ref = await system.spawn(HangsInStop())

        async def wait() -> None:
            reasons.append(await system.wait_stopped(ref))

        group.start_soon(wait)
        ref.tell("fail")
        await world.settle()
        await world.result(system.stop_actor(ref, grace_s=0.001))
        await world.until(lambda: len(reasons) == 1)
    assert reasons[0].kind is ExitKind.KILLED
    assert isinstance(reasons[0].error, ZeroDivisionError)


async def test_an_actor_that_was_killed_without_having_failed_has_no_error(world: World) -> None:
    async with world.system() as system:
        ref = await system.spawn(Hangs())
        ref.tell("hang")
        await world.until(lambda: is_handling(system, ref))
        reason = await world.result(system.stop_actor(ref, grace_s=0.001))
    assert reason == ExitReason(ExitKind.KILLED)


async def test_a_parent_that_fails_because_of_such_a_child_names_the_whole_group_as_cause(
    world: World, kind: Kind
) -> None:
    def parent(ctx: Context[Any], message: Any) -> None:
        ctx.spawn(kind(do, stop=cannot_stop)).tell(lambda ctx: 1 / 0)

    async with world.system() as system:
        ref = await system.spawn(kind(parent))
        ref.tell("go")
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, ChildFailedError)
    assert isinstance(reason.error.__cause__, ExceptionGroup)


# -- a spent budget ------------------------------------------------------------------------------------------


async def test_a_spent_budget_is_caused_by_all_failures_within_the_period_in_order(
    world: World, kind: Kind
) -> None:
    lives = 0

    def start(ctx: Context[Any]) -> None:
        nonlocal lives
        lives += 1
        raise RuntimeError(f"life {lives}")

    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(start=start))],
                budget=RestartBudget(restarts_max=3, period_s=3600),
                backoff=SOON,
            )
        )
        reason = await world.result(system.wait_stopped(supervisor))
    assert isinstance(reason.error, RestartBudgetSpentError)
    cause = reason.error.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert [str(error) for error in cause.exceptions] == ["life 1", "life 2", "life 3", "life 4"]


async def test_a_budget_spent_by_one_failure_is_caused_by_just_that(world: World, kind: Kind) -> None:
    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor([ChildSpec("a", lambda: kind(do))], budget=RestartBudget(restarts_max=0))
        )
        (await child_of(supervisor, "a")).tell(lambda ctx: 1 / 0)
        reason = await world.result(system.wait_stopped(supervisor))
    assert isinstance(reason.error, RestartBudgetSpentError)
    assert isinstance(reason.error.__cause__, ZeroDivisionError)


async def test_failures_that_lie_further_back_than_the_period_are_no_cause(world: World, kind: Kind) -> None:
    starts: list[int] = []
    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(do, start=lambda ctx: starts.append(1)))],
                budget=RestartBudget(restarts_max=1, period_s=0.25),
                backoff=SOON,
            )
        )
        a = await child_of(supervisor, "a")
        for text in ("long ago", "one", "two"):

            def fail_with(ctx: Context[Any], text: str = text) -> None:
                raise RuntimeError(text)

            lives = len(starts)
            a.tell(fail_with)
            if text == "long ago":
                await world.until(lambda: len(starts) == 2)
                await world.elapse(system, 0.26)
            elif text == "one":
                await world.until(lambda lives=lives: len(starts) > lives)  # type: ignore[misc]  # bound now
        reason = await world.result(system.wait_stopped(supervisor))
    assert isinstance(reason.error, RestartBudgetSpentError)
    cause = reason.error.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert [str(error) for error in cause.exceptions] == ["one", "two"]


# -- monitors of a life --------------------------------------------------------------------------------------


async def test_a_restarted_actor_watches_nothing_until_it_monitors_again(world: World, kind: Kind) -> None:
    downs: list[Down] = []

    def handle(ctx: Context[Any], message: Any) -> Any:
        return downs.append(message) if isinstance(message, Down) else do(ctx, message)

    async with world.system() as system:
        first, second = await system.spawn(kind(do)), await system.spawn(kind(do))
        a = await child_of(await supervise(system, ChildSpec("a", lambda: kind(handle))), "a")
        await world.result(a.ask(lambda ctx: ctx.monitor(first)))
        a.tell(lambda ctx: 1 / 0)
        await world.result(a.ask(lambda ctx: ctx.monitor(second)))
        await world.result(system.stop_actor(first))
        await world.result(system.stop_actor(second))
        await world.until(lambda: len(downs) == 1)
        await world.settle()
    assert [down.ref for down in downs] == [second]


async def test_a_down_of_what_a_former_life_watched_does_not_reach_the_next(world: World, kind: Kind) -> None:
    downs: list[Down] = []
    lives: list[int] = []

    def handle(ctx: Context[Any], message: Any) -> Any:
        return downs.append(message) if isinstance(message, Down) else do(ctx, message)

    async with world.system() as system:
        target = await system.spawn(kind(do))
        backoff = Backoff(first_s=0.01, limit_s=0.01, jitter=0.0)
        spec = ChildSpec("a", lambda: kind(handle, start=lambda ctx: lives.append(1)))
        a = await child_of(await supervise(system, spec, backoff=backoff), "a")
        await world.result(a.ask(lambda ctx: ctx.monitor(target)))

        def fail_while_it_ends(ctx: Context[Any]) -> None:
            target.tell(lambda ctx: ctx.stop())
            raise ZeroDivisionError

        a.tell(fail_while_it_ends)
        await world.until(lambda: len(lives) == 2)
        assert await world.result(a.ask("alive")) == "alive"
        await world.settle()
    assert downs == []


# -- a drain has an end --------------------------------------------------------------------------------------


async def test_fc_075_a_drain_takes_no_longer_than_its_grace(world: World) -> None:
    handled: list[int] = []
    release = anyio.Event()

    class Slow(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            handled.append(message)
            await release.wait()

    async with world.system() as system:
        ref = await system.spawn(Slow())
        for number in range(10):
            ref.tell(number)
        await world.until(lambda: is_handling(system, ref))
        reason = await world.result(system.stop_actor(ref, grace_s=0.01, drain=True))
        assert system.statistics().dead_letters == 9
    assert handled == [0]
    assert reason.kind is ExitKind.KILLED


async def test_fc_075_a_drain_that_never_comes_to_its_end_is_cut_short_after_the_current_message(
    world: World, kind: Kind
) -> None:
    opened = anyio.Event()
    reasons: list[ExitReason] = []
    async with world.system() as system:
        ref = await spawn_gated(system, kind, do, opened)
        for number in range(5):
            ref.tell(number)

        async def drain() -> None:
            reasons.append(await system.stop_actor(ref, grace_s=0.2, drain=True))

        async with anyio.create_task_group() as group:
            group.start_soon(drain)
            await world.settle()
            await world.elapse(system, 0.201)
            opened.set()
            await world.until(lambda: len(reasons) == 1)
        assert system.statistics().dead_letters == 5
        assert depth_of(system, ref) == 0
    assert reasons == [ExitReason(ExitKind.STOPPED)]


async def test_a_drain_that_comes_to_its_end_in_time_is_not_touched_by_its_limit(
    world: World, kind: Kind
) -> None:
    stopped: list[ExitReason] = []
    async with world.system() as system:
        ref = await system.spawn(kind(do, stop=lambda ctx, reason: stopped.append(reason)))
        ref.tell("work")
        reason = await world.result(system.stop_actor(ref, grace_s=0.05, drain=True))
        await world.elapse(system, 0.06)
        await world.until(lambda: statistics_of(system, ref) is None)
    assert stopped == [reason] == [ExitReason(ExitKind.STOPPED)]


# -- a spawn that is given up --------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(4))
async def test_fc_004_a_spawn_that_is_cancelled_leaves_no_actor_behind(world: World, turns: int) -> None:
    class Slow(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            for _ in range(2):
                await anyio.lowlevel.checkpoint()

        def on_message(self, ctx: Context[Any], message: Any) -> None: ...

    spawned: list[ActorRef[Any]] = []
    async with world.system() as system:

        async def spawn() -> None:
            spawned.append(await system.spawn(Slow(), name="slow"))

        async with anyio.create_task_group() as group:
            group.start_soon(spawn)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await world.settle()
        if not spawned:
            assert system.statistics().actors == ()
            assert system.whereis("slow") is None


async def test_a_failure_that_passes_through_many_is_told_by_its_first_words_and_one_traceback(
    world: World, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    def link(ctx: Context[Any], message: ActorRef[Any] | None) -> None:
        if message is None:
            raise ZeroDivisionError("at the end of the row")
        ctx.link(message)

    async with world.system() as system:
        row = [await system.spawn(kind(link)) for _ in range(60)]
        for one, other in itertools.pairwise(row):
            await world.result(one.ask(other))
        row[-1].tell(None)
        reason = await world.result(system.wait_stopped(row[0]))
    assert isinstance(reason.error, LinkedActorFailedError)
    assert reason.error.why == "failed: ZeroDivisionError: at the end of the row"
    assert causes_of(reason.error) == [LinkedActorFailedError] * 59 + [ZeroDivisionError]
    failures = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert len(failures) == 60
    assert [record.exc_info is not None for record in failures].count(True) == 1


async def test_a_failure_deep_in_a_tree_is_told_at_the_top_by_its_first_words_and_one_traceback(
    world: World, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    def grow(ctx: Context[Any], levels: int) -> None:
        if not levels:
            raise ZeroDivisionError("at the bottom")
        ctx.spawn(kind(grow)).tell(levels - 1)

    async with world.system() as system:
        ref = await system.spawn(kind(grow))
        ref.tell(60)
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, ChildFailedError)
    assert reason.error.why == "failed: ZeroDivisionError: at the bottom"
    assert causes_of(reason.error) == [ChildFailedError] * 60 + [ZeroDivisionError]
    failures = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert len(failures) == 61
    assert [record.exc_info is not None for record in failures].count(True) == 1


def causes_of(error: BaseException | None) -> list[type[BaseException]]:
    """Return the types of an error and of all that it was caused by."""
    types: list[type[BaseException]] = []
    while error is not None:
        types.append(type(error))
        error = error.__cause__
    return types
