"""Why a stage has no working worker is told by the records alone: never asked to spawn, spawned and ended, or
alive and never ready. Real children; the bundle is made while the node runs, as after its hard kill.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from msgspec import UnsetType

from swactor import Actor, ActorRef, ActorSystem, Context
from swactor_diag.collector.bundle import build_bundle
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.local_sink import LocalSink
from swactor_diag.collector.storage import MemoryStorage
from swactor_diag.ports import production_ports
from swactor_diag.postproc.load import Node, Run, load_run
from swactor_diag.postproc.sections import workers
from swactor_diag.schema.blocks import Subprocess, SubprocessStatus
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom, SubprocessExited, SubprocessSpawned
from swactor_diag.supervisor import Diagnostics
from swactor_process import (
    LinuxSpawner,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    spawn_process,
)

DEADLINE_S = 30
SILENT = "import time; time.sleep(600)"
SPINNING = "while True: pass"
CRASHING = "import sys; print('no device', file=sys.stderr); sys.exit(3)"
WORKING = "print('ready', flush=True); import time; time.sleep(600)"


class Stage(Actor[object]):
    """Starts its worker when it is told to, and says when the worker has said its first word."""

    def __init__(self, program: str, spawner: LinuxSpawner, subprocesses: ActorRef[object]) -> None:
        self._spec = ProcessSpec(program=sys.executable, args=("-c", program), label="worker")
        self._spawner = spawner
        self._subprocesses = subprocesses

    def on_message(self, ctx: Context[object], message: object) -> None:
        match message:
            case "start":
                spawn_process(ctx, self._spec, spawner=self._spawner)
            case "start watched":  # every notification comes to diagnostics from two sides
                watchers = (self._subprocesses,)
                spawn_process(ctx, self._spec, spawner=self._spawner, watchers=watchers)
            case ProcessStarted() | ProcessExited():
                self._subprocesses.tell(message)
            case ProcessOutput(text="ready"):
                ctx.emit(Custom(kind="worker_ready", fields={}))


class Running:
    """A node with a stage, and what a bundle made at some moment of its life says of it."""

    def __init__(self, diag: Diagnostics, stage: ActorRef[object], storage: MemoryStorage) -> None:
        self._diag = diag
        self._storage = storage
        self.stage = stage

    async def told(self, enough: Callable[[Node], bool]) -> Run:
        """The bundle of the first moment at which its node's records satisfy ``enough``."""
        with anyio.fail_after(DEADLINE_S):
            while True:
                await self._diag.snapshot()
                await anyio.sleep(0.02)  # its post is under way
                if not self._storage.list(("r",)):
                    continue
                run = load_run(build_bundle(self._storage, "r"))
                if enough(run.nodes[0]):
                    return run


@asynccontextmanager
async def node(program: str, identity: Identity) -> AsyncIterator[Running]:
    ports, storage = production_ports({}), MemoryStorage()
    async with ActorSystem() as system:
        sink = LocalSink(Ingest(storage), clock=system.clock, loop=system.loop)
        diag = await Diagnostics.from_ports(system, identity, ports=replace(ports, sink=sink))
        spawner = LinuxSpawner(system.loop)
        yield Running(diag, await system.spawn(Stage(program, spawner, diag.subprocesses)), storage)
    spawner.close()


def bucket(node: Node) -> str:
    """Which of the three it is, from nothing but the records."""
    events = [record.event for record in node.records]
    if not any(isinstance(event, SubprocessSpawned) for event in events):
        return "never asked to spawn"
    if any(isinstance(event, SubprocessExited) for event in events):
        return "spawned and ended"
    ready = any(isinstance(event, Custom) and event.kind == "worker_ready" for event in events)
    return "working" if ready else "alive, never ready"


def fate(run: Run) -> str:
    """What the summary says in its section about workers."""
    (row,) = workers.rows(run)
    return row.fate


def children(node: Node) -> list[Subprocess]:
    """The one child, as each snapshot that has it saw it."""
    blocks = [snapshot.body.subprocess for snapshot in node.snapshots]
    return [child for block in blocks if not isinstance(block, UnsetType) for child in block.subprocesses]


def has_run_for(node: Node, cpu_ms: int) -> bool:
    seen = [child.cpu_ms for child in children(node) if not isinstance(child.cpu_ms, UnsetType)]
    return bool(seen) and max(seen) - min(seen) >= cpu_ms


async def test_a_stage_that_was_never_asked_to_spawn(identity: Identity) -> None:
    async with node(SILENT, identity) as running:
        run = await running.told(lambda node: len(node.snapshots) >= 2)
    assert bucket(run.nodes[0]) == "never asked to spawn"
    assert fate(run) == "never asked to spawn"
    assert children(run.nodes[0]) == []


async def test_a_worker_that_ended_at_once(identity: Identity) -> None:
    async with node(CRASHING, identity) as running:
        running.stage.tell("start")
        run = await running.told(lambda node: bucket(node) == "spawned and ended")
    assert fate(run).startswith("exited 3 after")
    events = [record.event for record in run.nodes[0].records]
    (spawned,) = [event for event in events if isinstance(event, SubprocessSpawned)]
    (exited,) = [event for event in events if isinstance(event, SubprocessExited)]
    assert (exited.spawn_id, exited.pid, exited.exit_code) == (spawned.spawn_id, spawned.pid, 3)
    assert (exited.stderr_tail, exited.asked_for) == ("no device\n", False)


@pytest.mark.parametrize(
    ("program", "is_busy"), [(SILENT, False), (SPINNING, True)], ids=["stuck", "thrashing"]
)
async def test_a_worker_that_lives_and_never_says_a_word(
    identity: Identity, *, program: str, is_busy: bool
) -> None:
    async with node(program, identity) as running:
        running.stage.tell("start")
        run = await running.told(lambda node: has_run_for(node, 100) if is_busy else len(children(node)) >= 3)
    assert bucket(run.nodes[0]) == "alive, never ready"
    assert fate(run).startswith("running at last sight")
    last = children(run.nodes[0])[-1]
    assert last.status is SubprocessStatus.RUNNING
    assert isinstance(last.rss_bytes, int)
    assert last.rss_bytes > 0
    assert isinstance(last.cpu_ms, int)


async def test_a_worker_that_works_is_none_of_them(identity: Identity) -> None:
    async with node(WORKING, identity) as running:
        running.stage.tell("start")
        run = await running.told(lambda node: bucket(node) == "working")
    assert fate(run).startswith("running at last sight")


async def test_a_start_and_an_exit_that_are_told_twice_are_one_event_each(identity: Identity) -> None:
    async with node(CRASHING, identity) as running:
        running.stage.tell("start watched")
        run = await running.told(lambda node: bucket(node) == "spawned and ended")
        run = await running.told(lambda node: len(node.snapshots) > len(run.nodes[0].snapshots) + 2)
    events = [record.event for record in run.nodes[0].records]
    assert sum(isinstance(event, SubprocessSpawned) for event in events) == 1
    assert sum(isinstance(event, SubprocessExited) for event in events) == 1
