"""What a supervisor does about children that end."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
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
    NoSuchChildError,
    RestartBudget,
    RestartBudgetSpentError,
    RestartKind,
    StartChild,
    Strategy,
    Supervisor,
)

SOON = Backoff(first_s=0.0, limit_s=0.0)


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


async def test_a_restarted_child_keeps_its_address_and_its_mailbox_but_not_its_state() -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor([spec(log, "a")], backoff=SOON))
        a = await child(supervisor, "a")
        assert await a.ask("count") == 1
        a.tell("fail")
        assert await a.ask("handled by the next life") == 1
    assert log == ["start a", "stop a", "start a", "stop a"]


@pytest.mark.parametrize(
    ("strategy", "stopped_then_started"),
    [
        (Strategy.ONE_FOR_ONE, ["stop b", "start b"]),
        (Strategy.ONE_FOR_ALL, ["stop b", "stop c", "stop a", "start a", "start b", "start c"]),
        (Strategy.REST_FOR_ONE, ["stop b", "stop c", "start b", "start c"]),
    ],
)
async def test_the_strategy_decides_who_restarts(strategy: Strategy, stopped_then_started: list[str]) -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        children = [spec(log, name) for name in "abc"]
        supervisor = await system.spawn(Supervisor(children, strategy=strategy, backoff=SOON))
        log.clear()
        (await child(supervisor, "b")).tell("fail")
        await until(lambda: len(log) == len(stopped_then_started))
        assert log == stopped_then_started


@pytest.mark.parametrize(
    ("restart", "how", "restarts"),
    [
        (RestartKind.PERMANENT, "stop", True),
        (RestartKind.PERMANENT, "fail", True),
        (RestartKind.TRANSIENT, "stop", False),
        (RestartKind.TRANSIENT, "fail", True),
        (RestartKind.TEMPORARY, "stop", False),
        (RestartKind.TEMPORARY, "fail", False),
    ],
)
async def test_the_restart_kind_decides_whether(restart: RestartKind, how: str, restarts: bool) -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor([spec(log, "a", restart)], backoff=SOON))
        a = await child(supervisor, "a")
        a.tell(how)
        if restarts:
            await until(lambda: log.count("start a") == 2)
        else:
            await system.wait_stopped(a)
            with pytest.raises(NoSuchChildError):
                await child(supervisor, "a")


class Restarts:
    def __init__(self) -> None:
        self.delays: list[int] = []

    def observe(self, event: Event) -> None:
        if isinstance(event, ActorRestarted):
            self.delays.append(event.delay_ms)


async def test_fc_076_a_spent_budget_fails_the_supervisor_and_each_restart_is_an_event() -> None:
    class NeverStarts(Actor[str]):
        def on_start(self, ctx: Context[str]) -> None:
            raise RuntimeError("cannot start")

    restarts = Restarts()
    async with ActorSystem() as system:
        system.attach(restarts)
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec("a", NeverStarts)],
                budget=RestartBudget(restarts_max=4, period_s=60),
                backoff=Backoff(first_s=0.001, limit_s=0.004, jitter=0.0),
            )
        )
        reason = await system.wait_stopped(supervisor)
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, RestartBudgetSpentError)
    assert isinstance(reason.error.__cause__, ExceptionGroup)
    assert len(reason.error.__cause__.exceptions) == 5
    assert restarts.delays == [1, 2, 4, 4]


async def test_a_child_started_later_is_supervised_too_and_its_id_is_unique() -> None:
    log: list[str] = []
    async with ActorSystem() as system:
        supervisor = await system.spawn(Supervisor(backoff=SOON))
        late = await supervisor.ask(StartChild(spec(log, "late")))
        with pytest.raises(ChildExistsError):
            await supervisor.ask(StartChild(spec(log, "late")))
        late.tell("fail")
        await until(lambda: log.count("start late") == 2)


async def test_stopping_a_supervisor_stops_children_newest_first_even_one_that_waits_for_its_restart() -> (
    None
):
    log: list[str] = []
    async with ActorSystem() as system:
        supervisor = await system.spawn(
            Supervisor([spec(log, "a"), spec(log, "b"), spec(log, "c")], backoff=Backoff(first_s=3600.0))
        )
        b = await child(supervisor, "b")
        b.tell("fail")
        await until(lambda: "stop b" in log)
        await system.stop_actor(supervisor)
        assert (await system.wait_stopped(b)).kind is ExitKind.FAILED
    assert log == ["start a", "start b", "start c", "stop b", "stop c", "stop a"]
