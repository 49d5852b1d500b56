"""What people have been bitten by, beyond one child: cancelled starts, crash loops, busy threads."""

import io
import itertools
import logging
import socket
import threading
from collections import Counter
from typing import Any

import anyio

from swactor import (
    Actor,
    ActorSystem,
    Backoff,
    ChildSpec,
    Context,
    ExitKind,
    GetChild,
    Request,
    RestartBudget,
    RestartBudgetSpentError,
    Supervisor,
)
from swactor_process import LinuxSpawner, ProcessExited, ProcessSpec, ProcessStarted, Spawner, spawn_process

from .conftest import ROOT, Node, Owned, Owner, eventually, sh

CANCELLED_AFTER_S = (0.0, 0.0005, 0.001, 0.002, 0.003, 0.008, 0.02)


class Ledger(Actor[Any]):
    """Counts the starts and the exits of each spawn id."""

    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.exits: Counter[str] = Counter()

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        match message:
            case ProcessStarted():
                self.starts[message.spawn_id] += 1
            case ProcessExited():
                self.exits[message.spawn_id] += 1


async def test_fc_004_a_start_that_is_cancelled_at_any_moment_leaves_no_child(node: Node) -> None:
    """The whole system of the owner is cancelled: before the start, within it, before anything was read."""
    ledger = Ledger()
    watching = await node.system.spawn(ledger)

    for attempt in range(200):
        with anyio.move_on_after(CANCELLED_AFTER_S[attempt % len(CANCELLED_AFTER_S)]):
            async with ActorSystem() as system:
                with LinuxSpawner(system.loop) as spawner:
                    launched = (None, 30.0)[attempt % 2]
                    spec = sh("exec sleep 30", guarded=False, start_timeout_s=launched)
                    await system.spawn(Owner(Owned(), spec, spawner, (watching,)))
                    await anyio.sleep_forever()
        await eventually(lambda: node.own_children() == [], timeout_s=1.0)

    await eventually(lambda: ledger.starts == ledger.exits)
    assert set(ledger.starts.values()) == {1}


async def test_fc_016_a_port_of_the_node_can_be_bound_again_while_a_child_lives(node: Node) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.set_inheritable(True)
    port = server.getsockname()[1]
    owned = await node.start(sh("read go"))
    await owned.started()

    server.close()

    socket.create_server(("127.0.0.1", port)).close()
    assert owned.all(ProcessExited) == []


def test_fc_018_nothing_of_ours_runs_between_fork_and_exec() -> None:
    sources = list((ROOT / "swactor_process").glob("*.py"))

    assert len(sources) > 10
    assert [path.name for path in sources if "preexec_fn" in path.read_text(encoding="utf-8")] == []


async def test_fc_018_children_start_while_many_threads_allocate_and_log(node: Node) -> None:
    log = logging.getLogger("tests.busy")
    log.propagate = False
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler(io.StringIO())
    log.addHandler(handler)
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.01):
            log.info("%d", len([bytes(100) for _ in range(100)]))

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            batch = [await node.start(ProcessSpec(program="true", label="short")) for _ in range(50)]
            exits = [await owned.exited() for owned in batch]
            assert {exited.exit_code for exited in exits} == {0}
    finally:
        over.set()
        for thread in threads:
            thread.join()
        log.removeHandler(handler)


class CrashLooping(Actor[Any]):
    """Owns a program that fails at once, and fails with it."""

    def __init__(self, spawner: Spawner, heard: list[tuple[float, Any]]) -> None:
        self._spawner, self._heard = spawner, heard

    def on_start(self, ctx: Context[Any]) -> None:
        spawn_process(ctx, ProcessSpec(program="false", label="crashing"), spawner=self._spawner)

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        self._heard.append((ctx.clock.monotonic_ns() / 1e9, message))
        match message:
            case ProcessExited():
                raise RuntimeError(message.describe())


class Ping(Request[None]):
    pass


class Answering(Actor[Ping]):
    def on_message(self, ctx: Context[Ping], message: Ping) -> None:
        return None


async def test_fc_019_a_crash_loop_is_slowed_and_bounded_and_starves_nobody(node: Node) -> None:
    heard: list[tuple[float, Any]] = []
    backoff = Backoff(first_s=0.02, limit_s=0.1, jitter=0.5)
    supervisor = Supervisor(
        [ChildSpec("crashing", lambda: CrashLooping(node.spawner, heard))],
        budget=RestartBudget(restarts_max=6, period_s=60.0),
        backoff=backoff,
    )
    answering = await node.system.spawn(Answering())
    supervising = await node.system.spawn(supervisor)
    slowest_s = await _slowest_answer_until_stopped(node, answering, supervising)

    reason = await node.system.wait_stopped(supervising)
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, RestartBudgetSpentError)
    starts = [(at_s, message) for at_s, message in heard if isinstance(message, ProcessStarted)]
    exits = [message for _, message in heard if isinstance(message, ProcessExited)]
    assert [start.spawn_id for _, start in starts] == [exited.spawn_id for exited in exits]
    assert len({exited.spawn_id for exited in exits}) == 7
    assert {exited.exit_code for exited in exits} == {1}
    pauses_s = [later[0] - earlier[0] for earlier, later in itertools.pairwise(starts)]
    shortest_s = [backoff.delay_s(attempt, 1.0) for attempt in range(6)]
    assert all(pause_s > 0.9 * least_s for pause_s, least_s in zip(pauses_s, shortest_s, strict=True))
    assert slowest_s < 0.2


async def _slowest_answer_until_stopped(node: Node, answering: Any, supervising: Any) -> float:
    """Ask ``answering`` again and again until ``supervising`` has ended."""
    slowest_s = 0.0
    async with anyio.create_task_group() as tasks:

        async def ask_again_and_again() -> None:
            nonlocal slowest_s
            while True:
                asked_s = anyio.current_time()
                await answering.ask(Ping())
                slowest_s = max(slowest_s, anyio.current_time() - asked_s)
                await anyio.sleep(0.002)

        tasks.start_soon(ask_again_and_again)
        with anyio.fail_after(20):
            await node.system.wait_stopped(supervising)
        tasks.cancel_scope.cancel()
    return slowest_s


class Restarted(Actor[Any]):
    """Owns a child, and fails when it is told to."""

    def __init__(self, spawner: Spawner, heard: list[tuple[bool, Any]]) -> None:
        self._spawner, self._heard = spawner, heard

    def on_start(self, ctx: Context[Any]) -> None:
        self._worker = spawn_process(ctx, sh("exec sleep 30"), spawner=self._spawner)

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        if message == "fail":
            raise RuntimeError(message)
        self._heard.append((message.process == self._worker, message))


async def test_a_restarted_owner_can_tell_its_child_from_that_of_its_former_life(node: Node) -> None:
    """Its mailbox survives the restart, and with it what was told of the child of the old life."""
    heard: list[tuple[bool, Any]] = []
    child = ChildSpec("owner", lambda: Restarted(node.spawner, heard))
    supervising = await node.system.spawn(Supervisor([child], backoff=Backoff(first_s=0.0)))
    owner = await supervising.ask(GetChild("owner"))
    await eventually(lambda: len(heard) == 1)

    owner.tell("fail")

    await eventually(lambda: len(heard) == 3)
    old, new = ([message for is_own, message in heard[1:] if is_own is own] for own in (False, True))
    assert [type(message) for message in old] == [ProcessExited]
    assert [type(message) for message in new] == [ProcessStarted]
    assert old[0].spawn_id == heard[0][1].spawn_id != new[0].spawn_id
