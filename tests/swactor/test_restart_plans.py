"""Restarts under way: several at once, each with its own delay; what else happens meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRef,
    ActorRestarted,
    ActorSystem,
    Backoff,
    ChildExistsError,
    ChildSpec,
    Context,
    Event,
    ExitKind,
    GetChild,
    RestartBudget,
    RestartBudgetSpentError,
    RestartKind,
    StartChild,
    Strategy,
    Supervisor,
)
from swactor.testing import ManualClock

SOON = Backoff(first_s=0.0, limit_s=0.0)
DOUBLING = Backoff(first_s=1.0, limit_s=64.0, jitter=0.0)
MANY = RestartBudget(restarts_max=100, period_s=3600.0)


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


class Fragile(Actor[str]):
    """Counts messages; ends in the way it is told."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name
        self._count = 0

    def on_start(self, ctx: Context[str]) -> None:
        self._log.append(f"start {self._name}")

    def on_message(self, ctx: Context[str], message: str) -> object:
        if message == "fail":
            raise RuntimeError("asked to fail")
        if message == "stop":
            ctx.stop()
        self._count += 1
        return self._count

    def on_stop(self, ctx: Context[str], reason: object) -> None:
        self._log.append(f"stop {self._name}")


def spec(log: list[str], child_id: str, restart: RestartKind = RestartKind.PERMANENT) -> ChildSpec:
    return ChildSpec(child_id, lambda: Fragile(log, child_id), restart=restart)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def child(supervisor: ActorRef[Any], child_id: str) -> ActorRef[Any]:
    ref: ActorRef[Any] = await supervisor.ask(GetChild(child_id))
    return ref


# -- in virtual time: delays and what happens meanwhile -----------------------------------------------------


class Tree:
    """A supervisor in virtual time; hears when each of its children was restarted."""

    def __init__(self, clock: ManualClock, system: ActorSystem) -> None:
        self.clock = clock
        self.system = system
        self.supervisor: ActorRef[Any]
        self.restarts: list[tuple[str, float]] = []
        """The id of the child and the second of its restart."""
        system.attach(self)

    def observe(self, event: Event) -> None:
        if isinstance(event, ActorRestarted):
            self.restarts.append((event.actor.rpartition("/")[2], self.clock.monotonic_ns() / 1e9))

    async def child(self, child_id: str) -> ActorRef[Any]:
        return await child(self.supervisor, child_id)

    async def fail(self, *ids: str) -> None:
        """Have these children fail, all before the supervisor hears of it."""
        for ref in [await self.child(child_id) for child_id in ids]:
            ref.tell("fail")
        await self.clock.settle()

    def states(self) -> dict[str, str]:
        """The state of each child, by its id."""
        children = self.system.statistics().actors[1:]
        return {actor.path.rpartition("/")[2]: actor.state for actor in children}


@asynccontextmanager
async def tree_of(supervisor: Supervisor) -> AsyncIterator[Tree]:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        tree = Tree(clock, system)
        tree.supervisor = await system.spawn(supervisor)
        yield tree


def family(
    ids: str,
    *,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    budget: RestartBudget = MANY,
    backoff: Backoff = DOUBLING,
    log: list[str] | None = None,
) -> Supervisor:
    """A supervisor of permanent children, one a letter."""
    specs = [spec([] if log is None else log, child_id) for child_id in ids]
    return Supervisor(specs, strategy=strategy, budget=budget, backoff=backoff)


async def test_a_childs_delay_does_not_hold_up_the_others() -> None:
    async with tree_of(family("abc")) as tree:
        await tree.fail("a")
        await tree.clock.advance(0.25)
        await tree.fail("b")
        await tree.clock.advance(0.25)
        await tree.fail("c")
        await tree.clock.advance(10.0)
        assert tree.restarts == [("a", 1.0), ("b", 1.25), ("c", 1.5)]


async def test_each_child_has_its_own_doubling_delays() -> None:
    async with tree_of(family("ab")) as tree:
        for delay_s in (1.0, 2.0, 4.0):
            await tree.fail("a")
            await tree.clock.advance(delay_s)
        await tree.fail("a")
        await tree.fail("b")
        await tree.clock.advance(10.0)
        assert tree.restarts == [("a", 1.0), ("a", 3.0), ("a", 7.0), ("b", 8.0), ("a", 15.0)]


async def test_many_children_that_fail_at_once_come_back_at_once() -> None:
    async with tree_of(family("abcdefgh")) as tree:
        await tree.fail(*"abcdefgh")
        assert set(tree.states().values()) == {"down"}
        await tree.clock.advance(1.0)
        assert tree.restarts == [(child_id, 1.0) for child_id in "abcdefgh"]


async def test_all_children_share_one_budget() -> None:
    async with tree_of(family("abc", budget=RestartBudget(restarts_max=2))) as tree:
        await tree.fail("a", "b", "c")
        reason = await tree.clock.run(tree.system.wait_stopped(tree.supervisor))
        assert isinstance(reason.error, RestartBudgetSpentError)
        assert reason.error.child_id == "c"
        assert isinstance(reason.error.__cause__, ExceptionGroup)
        assert len(reason.error.__cause__.exceptions) == 3
        assert tree.clock.next_due_s is None
        assert tree.restarts == []


async def test_together_the_delay_counts_the_restarts_that_the_same_child_caused() -> None:
    async with tree_of(family("ab", strategy=Strategy.ONE_FOR_ALL)) as tree:
        await tree.fail("b")
        await tree.clock.advance(1.0)
        await tree.fail("b")
        await tree.clock.advance(2.0)
        await tree.fail("a")
        await tree.clock.advance(10.0)
        assert tree.restarts == [(who, at_s) for at_s in (1.0, 3.0, 4.0) for who in "ab"]


async def test_together_one_that_comes_down_meanwhile_waits_for_the_end_of_the_restart() -> None:
    async with tree_of(family("abc", strategy=Strategy.REST_FOR_ONE)) as tree:
        await tree.fail("b")
        await tree.clock.advance(0.5)
        await tree.fail("a")
        await tree.clock.advance(0.5)
        assert tree.restarts == [("b", 1.0), ("c", 1.0)]
        assert set(tree.states().values()) == {"down"}
        await tree.clock.advance(10.0)
        assert tree.restarts[2:] == [("a", 2.0), ("b", 2.0), ("c", 2.0)]


async def test_one_that_is_not_to_come_back_is_let_go_even_while_others_are_restarted() -> None:
    log: list[str] = []
    specs = [spec(log, "once", RestartKind.TEMPORARY), spec(log, "a"), spec(log, "b")]
    async with tree_of(Supervisor(specs, strategy=Strategy.REST_FOR_ONE, backoff=DOUBLING)) as tree:
        await tree.fail("a")
        await tree.fail("once")
        assert tree.states() == {"a": "down", "b": "down"}


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE])
async def test_together_two_that_fail_at_the_same_time_are_restarted_once(strategy: Strategy) -> None:
    log: list[str] = []
    async with tree_of(family("ab", strategy=strategy, backoff=SOON, log=log)) as tree:
        await tree.fail("a", "b")
        await tree.clock.advance(10.0)
        assert tree.restarts == [("a", 0.0), ("b", 0.0)]
    assert log == ["start a", "start b", "stop a", "stop b", "start a", "start b", "stop b", "stop a"]


async def test_together_a_failure_that_was_met_already_is_not_told_again() -> None:
    class StartsOnce(Fragile):
        lives = 0

        def on_start(self, ctx: Context[str]) -> None:
            StartsOnce.lives += 1
            if StartsOnce.lives > 1:
                raise ConnectionError

    supervisor = Supervisor(
        [spec([], "a"), ChildSpec("b", lambda: StartsOnce([], "b"))],
        strategy=Strategy.ONE_FOR_ALL,
        budget=RestartBudget(restarts_max=1),
        backoff=SOON,
    )
    async with tree_of(supervisor) as tree:
        await tree.fail("a", "b")
        reason = await tree.clock.run(tree.system.wait_stopped(tree.supervisor))
    assert reason.error is not None
    story = reason.error.__cause__
    assert isinstance(story, ExceptionGroup)
    assert [type(error) for error in story.exceptions] == [RuntimeError, ConnectionError]


async def test_together_whoever_waits_when_the_budget_is_spent_adds_nothing_to_it() -> None:
    budget = RestartBudget(restarts_max=1)
    async with tree_of(family("abc", strategy=Strategy.REST_FOR_ONE, budget=budget)) as tree:
        for child_id in "cba":
            await tree.fail(child_id)
        reason = await tree.clock.run(tree.system.wait_stopped(tree.supervisor))
        assert isinstance(reason.error, RestartBudgetSpentError)
        assert reason.error.child_id == "b"


# -- stopped for good while it waits ------------------------------------------------------------------------


async def test_one_that_is_stopped_for_good_while_it_waits_is_let_go_with_its_timer() -> None:
    log: list[str] = []
    async with tree_of(family("ab", log=log)) as tree:
        await tree.fail("a", "b")
        await tree.system.stop_actor(await tree.child("a"))
        assert tree.states() == {"b": "down"}
        await tree.supervisor.ask(StartChild(spec(log, "a")))
        await tree.clock.advance(0.5)
        await tree.fail("a")
        await tree.clock.advance(10.0)
        assert tree.restarts == [("b", 1.0), ("a", 1.5)]  # the first delay of a new child, not the second
        await tree.fail("a")
        await tree.system.stop_actor(await tree.child("a"))
        assert tree.clock.next_due_s is None


async def test_a_supervisor_can_stop_a_child_for_good_while_it_waits() -> None:
    class Stops(Supervisor):
        def on_message(self, ctx: Context[Any], message: Any) -> object:
            if not isinstance(message, ActorRef):
                return super().on_message(ctx, message)
            ctx.stop_child(message)
            return None

    async with tree_of(Stops([spec([], "a")], backoff=DOUBLING)) as tree:
        await tree.fail("a")
        tree.supervisor.tell(await tree.child("a"))
        await tree.clock.settle()
        assert tree.states() == {}
        assert tree.clock.next_due_s is None


async def test_together_the_others_come_back_when_one_is_stopped_for_good_meanwhile() -> None:
    async with tree_of(family("abc", strategy=Strategy.ONE_FOR_ALL)) as tree:
        await tree.fail("b")
        await tree.system.stop_actor(await tree.child("b"))
        await tree.clock.advance(1.0)
        assert tree.restarts == [("a", 1.0), ("c", 1.0)]


class Busy(Actor[str]):
    """Handles its first message until the gate opens, also when it is to stop."""

    def __init__(self, gate: anyio.Event) -> None:
        self._gate = gate

    async def on_message(self, ctx: Context[str], message: str) -> None:
        await self._gate.wait()


async def test_together_the_others_come_back_when_one_is_stopped_for_good_before_its_turn_to_stop() -> None:
    gate = anyio.Event()
    specs = [spec([], "a"), spec([], "b"), ChildSpec("busy", lambda: Busy(gate))]
    async with tree_of(Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, backoff=DOUBLING)) as tree:
        (await tree.child("busy")).tell("work")
        await tree.fail("b")
        await tree.system.stop_actor(await tree.child("a"))
        gate.set()
        await tree.clock.advance(1.0)
        assert tree.restarts == [("b", 1.0), ("busy", 1.0)]


async def test_together_nobody_comes_back_who_is_stopped_for_good_just_before() -> None:
    gate = anyio.Event()
    specs = [ChildSpec("busy", lambda: Busy(gate)), spec([], "b")]
    async with tree_of(Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, backoff=SOON)) as tree:
        (await tree.child("busy")).tell("work")
        await tree.fail("b")
        b = await tree.child("b")
        gate.set()
        await anyio.lowlevel.checkpoint()  # the last one is down, and the supervisor is about to hear of it
        await tree.system.stop_actor(b)
        await tree.clock.settle()
        assert tree.states() == {"busy": "running"}


async def test_together_a_restart_is_over_when_everybody_was_stopped_for_good_meanwhile() -> None:
    gate = anyio.Event()
    specs = [ChildSpec("busy", lambda: Busy(gate)), spec([], "b")]
    async with tree_of(Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, backoff=DOUBLING)) as tree:
        busy = await tree.child("busy")
        busy.tell("work")
        await tree.fail("b")
        await tree.system.stop_actor(await tree.child("b"))
        gate.set()
        await tree.system.stop_actor(busy)
        assert tree.clock.next_due_s is None


async def test_together_a_restart_of_nobody_holds_up_nobody() -> None:
    async with tree_of(family("ab", strategy=Strategy.REST_FOR_ONE)) as tree:
        await tree.fail("b")
        await tree.fail("a")
        await tree.clock.advance(0.5)
        await tree.system.stop_actor(await tree.child("b"))
        await tree.clock.advance(10.0)
        assert tree.restarts == [("a", 1.5)]


async def test_a_supervisor_that_stops_while_several_wait_restarts_none_of_them() -> None:
    log: list[str] = []
    async with tree_of(family("abcd", log=log)) as tree:
        await tree.fail("b", "d", "a")
        log.clear()
        reason = await tree.system.stop_actor(tree.supervisor)
        assert reason.kind is ExitKind.STOPPED
        assert tree.clock.next_due_s is None
        await tree.clock.advance(3600.0)
        assert tree.restarts == []
    assert log == ["stop c"]


# -- factories and on_start that raise ----------------------------------------------------------------------


class CannotMakeError(Exception):
    """What the factories of these tests raise."""


class Makes:
    """A factory of `Fragile` that raises whenever it is told to."""

    def __init__(self, error: type[BaseException] = CannotMakeError) -> None:
        self._error = error
        self.raises = False
        self.made = 0

    def __call__(self) -> Fragile:
        if self.raises:
            raise self._error
        self.made += 1
        return Fragile([], "made")


async def test_a_child_that_cannot_be_made_is_its_askers_error_and_nobody_elses() -> None:
    makes = Makes()
    makes.raises = True
    async with tree_of(family("a")) as tree:
        with pytest.raises(CannotMakeError):
            await tree.supervisor.ask(StartChild(ChildSpec("b", makes)))
        cancelled = Makes(asyncio.CancelledError)
        cancelled.raises = True
        with pytest.raises(ActorDeadError):
            await tree.supervisor.ask(StartChild(ChildSpec("b", cancelled)))
        tree.supervisor.tell(StartChild(ChildSpec("b", makes)))
        tree.supervisor.tell(StartChild(spec([], "a")))
        tree.supervisor.tell(GetChild("b"))
        await tree.clock.settle()
        assert tree.states() == {"a": "running"}
        makes.raises = False
        await tree.supervisor.ask(StartChild(ChildSpec("b", makes)))
        assert tree.states() == {"a": "running", "b": "running"}


async def test_a_child_started_later_that_cannot_start_has_failed_like_any_other() -> None:
    class Starts(Fragile):
        lives = 0

        def on_start(self, ctx: Context[str]) -> None:
            Starts.lives += 1
            if Starts.lives < 3:
                raise ConnectionError

    async with tree_of(family("a")) as tree:
        late = await tree.supervisor.ask(StartChild(ChildSpec("b", lambda: Starts([], "b"))))
        late.tell("counts")
        await tree.clock.advance(10.0)
        assert tree.restarts == [("b", 1.0), ("b", 3.0)]
        assert await late.ask("counts too") == 2


async def test_a_factory_that_raises_at_a_restart_is_a_failed_start_of_that_child() -> None:
    makes = Makes()
    async with tree_of(Supervisor([spec([], "a"), ChildSpec("b", makes)], backoff=DOUBLING)) as tree:
        makes.raises = True
        (await tree.child("b")).tell("fail")
        (await tree.child("b")).tell("waits for the next life")
        await tree.clock.advance(2.0)
        makes.raises = False
        await tree.clock.advance(10.0)
        assert tree.restarts == [("b", 1.0), ("b", 3.0)]
        assert makes.made == 2
        assert await (await tree.child("b")).ask("counts") == 2
        assert await (await tree.child("a")).ask("counts") == 1


@pytest.mark.parametrize("error", [CannotMakeError, asyncio.CancelledError])
async def test_a_factory_that_keeps_raising_spends_the_budget_and_is_told_of(
    error: type[BaseException],
) -> None:
    failed: list[str] = []

    class Hears:
        def observe(self, event: Event) -> None:
            if isinstance(event, ActorFailed):
                failed.append(event.error_type)

    makes = Makes(error)
    budget = RestartBudget(restarts_max=2)
    async with tree_of(Supervisor([ChildSpec("b", makes)], budget=budget, backoff=SOON)) as tree:
        tree.system.attach(Hears())
        makes.raises = True
        (await tree.child("b")).tell("fail")
        reason = await tree.clock.run(tree.system.wait_stopped(tree.supervisor))
    assert isinstance(reason.error, RestartBudgetSpentError)
    story = reason.error.__cause__
    assert isinstance(story, BaseExceptionGroup)
    assert [type(each) for each in story.exceptions] == [RuntimeError, error, error]
    assert failed == ["RuntimeError", error.__name__, error.__name__, "RestartBudgetSpentError"]


async def test_a_factory_that_raises_as_its_supervisor_starts_fails_the_start() -> None:
    makes = Makes()
    makes.raises = True
    log: list[str] = []
    async with ActorSystem() as system:
        with pytest.raises(CannotMakeError):
            await system.spawn(Supervisor([spec(log, "a"), ChildSpec("b", makes)]))
    assert log == ["start a", "stop a"]


async def test_two_children_with_one_id_fail_the_start_of_their_supervisor() -> None:
    async with ActorSystem() as system:
        with pytest.raises(ChildExistsError):
            await system.spawn(Supervisor([spec([], "a"), spec([], "a")]))
