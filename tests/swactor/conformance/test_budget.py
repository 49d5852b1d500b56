"""How often a supervisor restarts and how fast: budget, backoff, giving up; nobody else suffers meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from swactor import (
    Actor,
    ActorRef,
    ActorRestarted,
    ActorSystem,
    Backoff,
    ChildFailedError,
    ChildSpec,
    Context,
    ExitKind,
    RestartBudget,
    RestartBudgetSpentError,
    RestartKind,
    Supervisor,
)

from .conftest import Kind, Seen, World, echo, fail
from .supervised import SOON, child_of


def cannot_start(ctx: Context[Any]) -> None:
    """Fail to start."""
    raise RuntimeError("cannot start")


class Draws:
    """Randomness that always draws the same share of what is possible."""

    def __init__(self, share: float) -> None:
        self._share = share

    def stream(self, *key: str) -> "Draws":
        """Return the only stream there is."""
        return self

    def below(self, bound: int) -> int:
        """Return the share of ``bound``."""
        return int(bound * self._share)

    def token(self, n_bytes: int) -> bytes:
        """Return zeros."""
        return bytes(n_bytes)


async def test_fc_076_a_spent_budget_fails_the_supervisor_and_each_restart_is_an_event(
    world: World, kind: Kind
) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(start=cannot_start))],
                budget=RestartBudget(restarts_max=4, period_s=60),
                backoff=Backoff(first_s=0.001, limit_s=0.004, jitter=0.0),
            )
        )
        reason = await world.result(system.wait_stopped(supervisor))
    assert reason.kind is ExitKind.FAILED
    error = reason.error
    assert isinstance(error, RestartBudgetSpentError)
    assert (error.child_id, error.restarts_max, error.period_s) == ("a", 4, 60)
    assert error.__cause__ is not None
    assert [event.delay_ms for event in seen.of(ActorRestarted)] == [1, 2, 4, 4]


async def test_fc_019_a_crash_loop_starves_nobody(world: World, kind: Kind) -> None:
    starts: list[int] = []

    def start(ctx: Context[Any]) -> None:
        starts.append(1)
        raise RuntimeError("cannot start")

    async with world.system() as system:
        other = await system.spawn(kind(echo))
        await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(start=start))],
                budget=RestartBudget(restarts_max=200, period_s=3600),
                backoff=SOON,
            )
        )
        for number in range(20):
            assert await world.result(other.ask(number, timeout_s=0.2)) == number
        await world.until(lambda: len(starts) >= 20)


async def test_a_budget_that_allows_no_restart_fails_at_the_first_failure(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        supervisor = await system.spawn(
            Supervisor([ChildSpec("a", lambda: kind(fail))], budget=RestartBudget(restarts_max=0))
        )
        (await child_of(supervisor, "a")).tell("fail")
        reason = await world.result(system.wait_stopped(supervisor))
    assert isinstance(reason.error, RestartBudgetSpentError)
    assert seen.of(ActorRestarted) == []


async def test_failures_farther_apart_than_the_period_never_spend_the_budget(
    world: World, kind: Kind
) -> None:
    starts: list[int] = []
    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(fail, start=lambda ctx: starts.append(1)))],
                budget=RestartBudget(restarts_max=1, period_s=0.01),
                backoff=SOON,
            )
        )
        a = await child_of(supervisor, "a")
        for life in range(1, 5):
            await world.until(lambda life=life: len(starts) == life)  # type: ignore[misc]  # bound now
            await world.elapse(system, 0.011)
            a.tell("fail")
        await world.until(lambda: len(starts) == 5)


async def test_the_delay_starts_over_after_a_quiet_period(world: World, kind: Kind) -> None:
    seen = Seen()
    starts: list[int] = []
    async with world.system() as system:
        system.attach(seen)
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(fail, start=lambda ctx: starts.append(1)))],
                budget=RestartBudget(restarts_max=100, period_s=0.3),
                backoff=Backoff(first_s=0.002, limit_s=0.016, jitter=0.0),
            )
        )
        a = await child_of(supervisor, "a")
        for _ in range(2):
            lives = len(starts)
            a.tell("fail")
            await world.until(lambda lives=lives: len(starts) > lives)  # type: ignore[misc]  # bound now
        await world.elapse(system, 0.31)
        a.tell("fail")
        await world.until(lambda: len(starts) == 4)
    assert [event.delay_ms for event in seen.of(ActorRestarted)] == [2, 4, 2]


@pytest.mark.parametrize(("share", "delay_ms"), [(0.0, 8), (0.5, 6), (0.999, 4)])
async def test_jitter_takes_a_random_share_off_the_delay(
    world: World, kind: Kind, share: float, delay_ms: int
) -> None:
    seen = Seen()
    async with world.system(random=Draws(share)) as system:
        system.attach(seen)
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", lambda: kind(fail))], backoff=Backoff(first_s=0.008, limit_s=1, jitter=0.5)
            )
        )
        (await child_of(supervisor, "a")).tell("fail")
        await world.until(lambda: len(seen.of(ActorRestarted)) == 1)
    assert [event.delay_ms for event in seen.of(ActorRestarted)] == [delay_ms]


async def test_a_restart_waits_for_its_delay(world: World, kind: Kind) -> None:
    times_ns: list[int] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        times_ns.append(ctx.clock.monotonic_ns())
        raise RuntimeError

    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor(
                [
                    ChildSpec(
                        "a",
                        lambda: kind(handle, start=lambda ctx: times_ns.append(ctx.clock.monotonic_ns())),
                    )
                ],
                backoff=Backoff(first_s=0.02, limit_s=1, jitter=0.0),
            )
        )
        (await child_of(supervisor, "a")).tell("fail")
        await world.until(lambda: len(times_ns) == 3)
    assert times_ns[2] - times_ns[1] >= 19_000_000  # a loop may round a timer to its millisecond


async def test_a_supervisor_that_gave_up_is_restarted_by_its_own_with_all_below_it(
    world: World, kind: Kind
) -> None:
    starts: list[str] = []

    def spec(name: str, handler: Callable[..., Any]) -> ChildSpec:
        return ChildSpec(name, lambda: kind(handler, start=lambda ctx: starts.append(name)))

    def inner() -> Actor[Any]:
        budget = RestartBudget(restarts_max=0)
        return Supervisor([spec("good", echo), spec("bad", fail)], budget=budget)

    async with world.system() as system:
        outer = await system.spawn(Supervisor([ChildSpec("inner", inner)], backoff=SOON))
        middle = await child_of(outer, "inner")
        old = await child_of(middle, "good")
        (await child_of(middle, "bad")).tell("fail")
        await world.until(lambda: len(starts) == 4)
        assert sorted(starts) == ["bad", "bad", "good", "good"]
        assert (await world.result(system.wait_stopped(old))).kind is ExitKind.STOPPED
        assert await child_of(outer, "inner") == middle
        new = await child_of(middle, "good")
        assert new != old
        assert await world.result(new.ask("alive")) == "alive"


async def test_a_supervisor_that_gave_up_below_an_ordinary_actor_fails_that_actor(
    world: World, kind: Kind
) -> None:
    supervisors: list[ActorRef[Any]] = []

    def start(ctx: Context[Any]) -> None:
        supervisors.append(
            ctx.spawn(Supervisor([ChildSpec("a", lambda: kind(fail))], budget=RestartBudget(restarts_max=0)))
        )

    async with world.system() as system:
        parent = await system.spawn(kind(start=start))
        (await child_of(supervisors[0], "a")).tell("fail")
        reason = await world.result(system.wait_stopped(parent))
    assert isinstance(reason.error, ChildFailedError)
    assert isinstance(reason.error.__cause__, RestartBudgetSpentError)


async def test_the_children_of_a_supervisor_that_gives_up_are_stopped_newest_first(
    world: World, kind: Kind
) -> None:
    stopped: list[str] = []

    def spec(name: str) -> ChildSpec:
        return ChildSpec(name, lambda: kind(fail, stop=lambda ctx, reason: stopped.append(name)))

    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor([spec(name) for name in "abc"], budget=RestartBudget(restarts_max=0))
        )
        await world.settle()
        (await child_of(supervisor, "a")).tell("fail")
        await world.result(system.wait_stopped(supervisor))
    assert stopped == ["a", "c", "b"]


async def test_children_that_are_not_restarted_cost_no_budget(world: World, kind: Kind) -> None:
    async with world.system() as system:
        specs = [
            ChildSpec(str(number), lambda: kind(fail), restart=RestartKind.TEMPORARY) for number in range(5)
        ]
        supervisor = await system.spawn(
            Supervisor([*specs, ChildSpec("last", lambda: kind(echo))], budget=RestartBudget(restarts_max=0))
        )
        children = [await child_of(supervisor, spec.id) for spec in specs]
        for child in children:
            child.tell("fail")
        for child in children:
            await world.result(system.wait_stopped(child))
        last = await child_of(supervisor, "last")
        assert await world.result(last.ask("alive")) == "alive"


async def test_a_factory_that_raises_at_a_restart_does_not_leave_the_child_hanging(
    world: World, kind: Kind
) -> None:
    made = 0

    def make() -> Actor[Any]:
        nonlocal made
        made += 1
        if made > 1:
            raise ZeroDivisionError("no second life")
        return kind(fail)

    async with world.system() as system:
        supervisor = await system.spawn(
            Supervisor([ChildSpec("a", make)], budget=RestartBudget(restarts_max=3), backoff=SOON)
        )
        (await child_of(supervisor, "a")).tell("fail")
        reason = await world.result(system.wait_stopped(supervisor))
        assert_no_actor_is_left(system)
    assert reason.kind is ExitKind.FAILED
    assert reason.error is not None
    causes = [reason.error, reason.error.__cause__]
    assert any(isinstance(error, ZeroDivisionError | ExceptionGroup) for error in causes)


def assert_no_actor_is_left(system: ActorSystem) -> None:
    assert [actor.path for actor in system.statistics().actors if actor.state != "ended"] == []
