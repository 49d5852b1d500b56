"""A process that is kept running: when it is started again, when not, and who may command it meanwhile."""

import gc
import signal
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from swactor import (
    ActorDeadError,
    ActorRef,
    ActorSystem,
    AskTimeoutError,
    Backoff,
    ExitKind,
    GetChild,
    Request,
    RestartBudget,
    RestartBudgetSpentError,
    RestartKind,
    Supervisor,
)
from swactor.testing import ManualClock, Probe, Recorder
from swactor_process import (
    InvalidSpecError,
    ProcessExited,
    ProcessFailedError,
    ProcessGivenUp,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    SpawnFailed,
    Stop,
    WriteOutcome,
    WriteStdin,
    process_child,
)
from swactor_process.events import SubprocessGivenUp
from swactor_process.testing import Exit, Refusal, Say, Script, ScriptedSpawner

from .conftest import Node, eventually, is_alive, sh

SPEC = ProcessSpec(program="p", label="worker")
QUICK = Backoff(first_s=1.0, limit_s=100.0, jitter=0.0)
TWICE = RestartBudget(restarts_max=2, period_s=60.0)


class Kept:
    """A scripted process that is kept running in manual time, and its owner."""

    def __init__(self, system: ActorSystem, clock: ManualClock, lives: Iterator[Script | Refusal]) -> None:
        self.system, self.clock = system, clock
        self.spawner = ScriptedSpawner(system.loop, clock, programs={"p": lambda _: next(lives)})
        self.owner: Probe
        self.child: ActorRef[Any]
        self.supervisor: ActorRef[Any]

    @classmethod
    async def start(
        cls, system: ActorSystem, clock: ManualClock, *lives: Script | Refusal, **how: Any
    ) -> "Kept":
        self = cls(system, clock, iter(lives))
        self.owner = await Probe.start(system)
        spec = process_child(
            "worker",
            SPEC,
            spawner=self.spawner,
            owner=self.owner.ref,
            **{"backoff": QUICK, "budget": TWICE, "slow_retry_s": 500.0, **how},
        )
        self.supervisor = await system.spawn(Supervisor([spec], backoff=Backoff(first_s=0.0)))
        self.child = await self.supervisor.ask(GetChild("worker"))
        return self

    async def life(self) -> tuple[str, ProcessExited]:
        """The owner hears of one attempt, now; return its spawn id and its exit."""
        started = await self.owner.expect(ProcessStarted, timeout_s=0.0)
        exited = await self.owner.expect(ProcessExited, timeout_s=0.0)
        assert started.spawn_id == exited.spawn_id
        return started.spawn_id, exited

    async def nothing_for(self, seconds: float) -> None:
        await self.owner.expect_nothing(for_s=seconds)


def ends(code: int, *, after_s: float = 0.0) -> Script:
    return Script(begin=(Exit(code, after_s=after_s),))


STAYS = Script()


async def test_fc_019_a_crash_loop_slows_down_is_given_up_and_is_tried_slowly_until_it_lives() -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        recorder = Recorder(system)
        lives = (*[ends(1)] * 4, ends(1, after_s=60.0), ends(1), STAYS)
        kept = await Kept.start(system, clock, *lives)

        ids = [(await kept.life())[0]]
        for pause_s in (1.0, 2.0):  # twice, each pause twice as long
            await kept.nothing_for(pause_s - 0.1)
            await clock.advance(0.1)
            ids.append((await kept.life())[0])
        given_up = await kept.owner.expect(ProcessGivenUp)
        assert (given_up.child, given_up.label, given_up.retry_s) == (kept.child, "worker", 500.0)
        assert isinstance(given_up.last, ProcessExited)
        assert given_up.last.spawn_id == ids[-1]
        await kept.nothing_for(499.9)
        await clock.advance(0.1)
        ids.append((await kept.life())[0])  # one attempt, then at once given up again
        await kept.owner.expect(ProcessGivenUp)
        await clock.advance(500.0)
        await kept.owner.expect(ProcessStarted)
        await clock.advance(60.0)  # lives as long as failures count: all is forgiven
        ids.append((await kept.owner.expect(ProcessExited)).spawn_id)
        await clock.advance(1.0)
        ids.append((await kept.life())[0])
        await clock.advance(2.0)
        await kept.owner.expect(ProcessStarted)

    assert len(set(ids)) == 6
    assert [event.retry_ms for event in recorder.of(SubprocessGivenUp)] == [500_000, 500_000]


async def test_fc_019_pauses_have_jitter() -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        jittery = Backoff(first_s=10.0, limit_s=10.0, jitter=0.5)
        budget = RestartBudget(restarts_max=30, period_s=1_000.0)
        kept = await Kept.start(system, clock, *[ends(1)] * 20, STAYS, backoff=jittery, budget=budget)
        pauses_s = []
        for _ in range(20):
            await kept.life()
            assert clock.next_due_s is not None
            pauses_s.append(clock.next_due_s)
            await clock.advance(clock.next_due_s)

    assert len(set(pauses_s)) > 15
    assert all(5.0 <= pause_s <= 10.0 for pause_s in pauses_s)


@pytest.mark.parametrize(
    ("restart", "life", "again"),
    [
        (RestartKind.PERMANENT, ends(0), True),
        (RestartKind.PERMANENT, ends(1), True),
        (RestartKind.TRANSIENT, ends(0), False),
        (RestartKind.TRANSIENT, ends(1), True),
        (RestartKind.TRANSIENT, Script(begin=(Exit(signal=9),)), True),
        (RestartKind.TRANSIENT, Refusal(errno_name="ENOENT"), True),
        (RestartKind.TEMPORARY, ends(0), False),
        (RestartKind.TEMPORARY, ends(1), False),
    ],
    ids=[
        "permanent-0",
        "permanent-1",
        "transient-0",
        "transient-1",
        "transient-killed",
        "transient-refused",
        "temporary-0",
        "temporary-1",
    ],
)
async def test_the_restart_kind_says_whether_it_is_started_again(
    restart: RestartKind, life: Script | Refusal, again: bool
) -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = await Kept.start(system, clock, life, STAYS, restart=restart)
        if isinstance(life, Refusal):
            last: object = await kept.owner.expect(SpawnFailed)
        else:
            last = (await kept.life())[1]

        await clock.advance(1.0)

        if again:
            await kept.owner.expect(ProcessStarted)
        else:
            reason = await system.wait_stopped(kept.child)
            assert (reason.kind, reason.value) == (ExitKind.COMPLETED, last)
        await kept.owner.expect_nothing()


@pytest.mark.parametrize("restart", [RestartKind.PERMANENT, RestartKind.TRANSIENT])
async def test_a_stop_that_was_asked_for_starts_a_permanent_one_afresh_and_ends_a_transient_one(
    restart: RestartKind,
) -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = await Kept.start(system, clock, STAYS, STAYS, restart=restart)
        await kept.owner.expect(ProcessStarted)

        result = await clock.run(kept.child.ask(Stop()))

        assert await kept.owner.expect(ProcessExited) == result
        await clock.advance(1.0)
        if restart is RestartKind.PERMANENT:
            await kept.owner.expect(ProcessStarted)
        await kept.owner.expect_nothing()


async def test_without_a_slow_retry_its_supervisor_decides() -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = await Kept.start(
            system, clock, ends(3), STAYS, budget=RestartBudget(restarts_max=0), slow_retry_s=None
        )
        await kept.life()
        given_up = await kept.owner.expect(ProcessGivenUp)

        await clock.settle()

        assert given_up.retry_s is None
        await kept.owner.expect(ProcessStarted)  # its supervisor has restarted it, with a fresh budget
        await system.stop_actor(kept.supervisor)


async def test_a_spent_budget_tells_the_supervisor_how_the_process_ended() -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = Kept(system, clock, iter([ends(3)]))
        owner = await Probe.start(system)
        spec = process_child(
            "worker",
            SPEC,
            spawner=kept.spawner,
            owner=owner.ref,
            budget=RestartBudget(restarts_max=0),
            slow_retry_s=None,
        )
        reason = await system.wait_stopped(await system.spawn(spec.factory()))

    assert isinstance(reason.error, RestartBudgetSpentError)
    assert isinstance(reason.error.__cause__, ProcessFailedError)
    assert "worker exited with 3" in str(reason.error.__cause__)


async def test_one_address_takes_commands_for_whichever_attempt_runs() -> None:
    once = Script(on_line=lambda line: (Say(line + b"\n"), Exit(1)))
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = await Kept.start(system, clock, once, once)
        for word in (b"one", b"two"):
            await kept.owner.expect(ProcessStarted)
            assert await clock.run(kept.child.ask(WriteStdin(word + b"\n"))) is WriteOutcome.WRITTEN
            assert (await kept.owner.expect(ProcessOutput)).line == word
            last = await kept.owner.expect(ProcessExited)
            await clock.settle()
            assert await kept.child.ask(WriteStdin(b"late\n")) is WriteOutcome.CHILD_GONE
            assert await kept.child.ask(Stop()) == last
            await clock.advance(1.0 if word == b"one" else 0.0)


async def test_who_asks_at_the_moment_of_the_end_is_answered() -> None:
    """The process has ended, its actor takes no more, and the one that keeps it has not heard of that yet."""
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = await Kept.start(system, clock, STAYS, STAYS)
        process = (await kept.owner.expect(ProcessStarted)).process
        outcomes: list[object] = []

        async def ask(message: WriteStdin | Stop) -> None:
            outcomes.append(await kept.child.ask(message))

        async with anyio.create_task_group() as tasks:
            process.tell(Stop())
            for _ in range(50):
                tasks.start_soon(ask, WriteStdin(b"x\n"))
                tasks.start_soon(ask, Stop())
                await anyio.lowlevel.checkpoint()
            await clock.settle()

        last = await kept.owner.expect(ProcessExited)
        assert len(outcomes) == 100
        assert outcomes.count(last) == 50


class HeavyWrite(WriteStdin, frozen=True, weakref=True):
    pass


class HeavyStop(Stop, frozen=True, weakref=True):
    pass


async def test_what_is_answered_is_not_kept_because_something_before_it_waits() -> None:
    """Nor is who has given up waiting."""
    clock = ManualClock()
    asked: list[weakref.ref[HeavyWrite | HeavyStop]] = []  # they are equal: no set
    patient = Stop(grace_s=9_000.0, deadline_s=9_000.0)
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        kept = await Kept.start(system, clock, Script(ignores=frozenset({signal.SIGTERM})))
        await kept.owner.expect(ProcessStarted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(kept.child.ask, patient, timeout_s=9_000.0))
            for _ in range(1_000):
                write = HeavyWrite(b"x")
                asked.append(weakref.ref(write))
                assert await clock.run(kept.child.ask(write)) is WriteOutcome.WRITTEN
            for _ in range(1_000):
                stop = HeavyStop(grace_s=9_000.0, deadline_s=9_000.0)
                asked.append(weakref.ref(stop))
                with pytest.raises(AskTimeoutError):
                    await clock.run(kept.child.ask(stop, timeout_s=0.001))
            del write, stop
            gc.collect()
            left = sum(message() is not None for message in asked)
            kept.child.tell(Stop(grace_s=0.0))
            await clock.settle()

    assert left < 10


async def test_stopping_the_child_stops_its_process_for_good(node: Node) -> None:
    owner = await Probe.start(node.system)
    spec = process_child("worker", sh("exec sleep 60"), spawner=node.spawner, owner=owner.ref)
    supervisor = await node.system.spawn(Supervisor([spec]))
    started = await owner.expect(ProcessStarted)
    child = await supervisor.ask(GetChild("worker"))

    await node.system.stop_actor(child)

    exited = await owner.expect(ProcessExited)
    assert (exited.asked_for, exited.pid) == (True, started.pid)
    assert not is_alive(started.pid)
    with pytest.raises(ActorDeadError):
        await child.ask(Stop())


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan"), "300", True])
async def test_a_slow_retry_takes_a_time(node: Node, seconds: Any) -> None:
    owner = await Probe.start(node.system)
    with pytest.raises(InvalidSpecError, match="slow_retry_s"):
        process_child("worker", SPEC, spawner=node.spawner, owner=owner.ref, slow_retry_s=seconds)


class Ping(Request[None]):
    pass


async def test_fc_019_a_real_crash_loop_starves_nobody_and_leaves_nothing(node: Node) -> None:
    """Eight starts within half a second: the node answers, each start has its own pair of notifications."""
    owner, other = await Probe.start(node.system), await Probe.start(node.system)
    other.reply_with(*[None] * 10_000)
    spec = process_child(
        "worker",
        ProcessSpec(program="false", label="worker"),
        spawner=node.spawner,
        owner=owner.ref,
        backoff=Backoff(first_s=0.01, limit_s=0.1),
        budget=RestartBudget(restarts_max=7, period_s=60.0),
    )
    supervisor = await node.system.spawn(Supervisor([spec]))
    slowest_s, ids = 0.0, set()
    for _ in range(8):
        ids.add((await owner.expect(ProcessStarted)).spawn_id)
        assert (await owner.expect(ProcessExited)).exit_code == 1
        asked_s = anyio.current_time()
        await other.ref.ask(Ping())
        slowest_s = max(slowest_s, anyio.current_time() - asked_s)

    given_up = await owner.expect(ProcessGivenUp)

    assert len(ids) == 8
    assert given_up.retry_s is not None
    assert 150.0 <= given_up.retry_s <= 300.0
    assert slowest_s < 0.2
    await node.system.stop_actor(supervisor)
    await eventually(lambda: node.own_children() == [])
