"""The recorder: what one event costs, what writing records costs, and what a node with all of it pays.

Beside an emitted event stands one append to a list. Whoever keeps the time of an event has to call a function
that reads the clock and appends both, which is five to six appends; one look at a bound makes more than six
of it. Both floors are measured, too. Records are written beside msgspec alone: it gets a snapshot in one
piece; events have their envelope around them already.
"""

import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any, cast

import anyio
import anyio.lowlevel
import msgspec
from msgspec import structs

from benches.report import Row
from benches.turns import Run, Step, Way, compare
from benches.workloads import Bar
from swactor import Actor, ActorRef, ActorSystem, Context, Event, SystemClock
from swactor_diag.delivery.batches import BatchMaker
from swactor_diag.identity import identity_from_env
from swactor_diag.ports import production_ports
from swactor_diag.recorder import BATCH_EVENTS, EVENTS_WAITING_MAX, Noted, Recorder
from swactor_diag.schema.blocks import ProcessBlock, Subprocess, SubprocessBlock, SubprocessStatus
from swactor_diag.schema.events import SubprocessExited
from swactor_diag.schema.snapshot import SnapshotEnvelope, Trigger, TriggerKind
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig
from swactor_process import ProcessStarted

BATCHES = 20
"""Full batches of events, of one slice."""
SNAPSHOTS = 200
CHILDREN = 20
PERIOD_S = DiagnosticsConfig().snapshot_period_s
LONG_SLICES_MAX = 6
"""Slices of a step in which each takes a whole period between two snapshots."""
TOLD_AT_ONCE = 500

EVENT = SubprocessExited(
    label="worker-1", pid=4711, command="python worker.py", exit_code=3, uptime_ms=90_000
)
IDENTITY = identity_from_env({}, "ab" * 32, clock=SystemClock(), boot_id="bench")


# -- one event ----------------------------------------------------------------------------------------------


def _timed(note: Callable[[Event], object], fetched: Callable[[], object]) -> Callable[[], Awaitable[float]]:
    """Return a turn that notes batch after batch; what is done when one is fetched is not measured."""
    # The interpreter adapts a loop to what it calls, so each way gets a copy of the loop for itself.
    loop = FunctionType(_note_batch.__code__.replace(), globals())

    async def turn() -> float:
        took: list[float] = []
        for _ in range(BATCHES):
            took.append(loop(note, range(BATCH_EVENTS - 1)))
            fetched()
        return statistics.median(took) / (BATCH_EVENTS - 1)  # a batch takes so little that a pause doubles it

    return turn


def _note_batch(note: Callable[[Event], object], numbers: range) -> float:
    began = time.perf_counter()
    for _ in numbers:
        note(EVENT)
    return time.perf_counter() - began


def _appended() -> Callable[[], Awaitable[float]]:
    events: list[Event] = []
    return _timed(events.append, events.clear)


def _stamped() -> Callable[[], Awaitable[float]]:
    """The least that keeps an event and the time at which it happened: nothing bounds it, nothing hears."""
    events: list[tuple[float, Event]] = []
    read = SystemClock.wall_s

    def note(event: Event) -> None:
        events.append((read(), event))

    return _timed(note, events.clear)


def _bounded() -> Callable[[], Awaitable[float]]:
    """The same, and it sees when there are too many."""
    events: list[tuple[float, Event]] = []
    read = SystemClock.wall_s

    def note(event: Event) -> None:
        events.append((read(), event))
        if len(events) >= BATCH_EVENTS:
            raise AssertionError

    return _timed(note, events.clear)


async def emit(run: Run) -> list[Row]:
    """Take note of one event; then the floors under that, and the way through a system to its observers."""
    recorder = Recorder(clock=SystemClock())
    product = Way("product", "recorder", _timed(recorder.observe, lambda: recorder.take(EVENTS_WAITING_MAX)))
    append = Way("append", "list append", _appended(), Bar(6, at_most=True))
    stamped = Way("stamped", "call, clock, append", _stamped())
    bounded = Way("bounded", "the same, bounded", _bounded())
    bare = replace(append, bar=None)
    rows = await compare(run, (product, append, stamped, bounded), section="recorder", title="one event")
    rows += await compare(run, (stamped, bare), section="recorder", title="call, clock, append")
    rows += await compare(run, (bounded, bare), section="recorder", title="the same, bounded")
    async with ActorSystem() as system:
        recorder = Recorder(clock=SystemClock())
        system.attach(recorder)
        emitted = Way(
            "product", "system.emit", _timed(system.emit, lambda: recorder.take(EVENTS_WAITING_MAX))
        )
        return rows + await compare(run, (emitted, bare), section="recorder", title="system.emit")


# -- records ------------------------------------------------------------------------------------------------


class _Flat(Event, frozen=True, kw_only=True, tag="SubprocessExited"):
    """The record as msgspec would write it at once."""

    node_id: str
    monotonic_seq: int
    wall_ms: int
    label: str
    pid: int
    command: str
    exit_code: int | None = None
    exit_signal: int | None = None
    uptime_ms: int | None = None


async def _make_batches() -> float:
    noted = [Noted(number, 1_764_470_000_000, EVENT) for number in range(BATCH_EVENTS)]
    maker = BatchMaker(IDENTITY, boot_id="bench")
    began = time.perf_counter()
    for _ in range(BATCHES):
        maker.events(noted)
    return (time.perf_counter() - began) / BATCHES / BATCH_EVENTS


async def _encode() -> float:
    fields = {name: value for name, value in structs.asdict(EVENT).items() if name in _Flat.__struct_fields__}
    rows = [
        _Flat(node_id=IDENTITY.node_id_hex, monotonic_seq=number, wall_ms=1_764_470_000_000, **fields)
        for number in range(BATCH_EVENTS)
    ]
    encode = msgspec.json.Encoder().encode
    began = time.perf_counter()
    for _ in range(BATCHES):
        encode(rows)
    return (time.perf_counter() - began) / BATCHES / BATCH_EVENTS


async def write(run: Run) -> list[Row]:
    """Write a full batch of events, and a snapshot."""
    ways = (
        Way("product", "batch", _make_batches),
        Way("msgspec", "msgspec alone", _encode),
    )
    rows = await compare(run, ways, section="recorder", title="one event of a batch")
    ways = (
        Way("product", "snapshot", _write_in_blocks),
        Way("msgspec", "msgspec alone", _write_at_once, Bar(1.2, at_most=True)),
    )
    return rows + await compare(run, ways, section="recorder", title="one snapshot")


CHILD = Subprocess(
    label="worker-1",
    pid=4711,
    spawn_id="b1-s17",
    status=SubprocessStatus.RUNNING,
    spawn_at_ms=1_764_470_000_000,
    rss_bytes=91_000_000,
    vm_size_bytes=410_000_000,
    open_fd_count=12,
    cpu_ms=90_000,
    threads=4,
    state="S",
    cmdline="python -m worker --stage 1 --model tiny --port 0",
)
BLOCKS: dict[str, object] = {
    "subprocess": SubprocessBlock(subprocesses=(CHILD,) * CHILDREN, scraped_at_ms=1_764_470_000_000),
    "process": ProcessBlock(pid=4711, rss_bytes=91_000_000, cpu_ms=90_000, captured_at_ms=1_764_470_000_000),
}


def _envelope(body: dict[str, object]) -> SnapshotEnvelope:
    return SnapshotEnvelope(
        identity=IDENTITY,
        run_id="r",
        snapshot_id="abababab-7",
        wall_ms=1_764_470_000_000,
        monotonic_seq=1_234,
        trigger=Trigger(kind=TriggerKind.PERIODIC),
        body=body,
    )


async def _write_in_blocks() -> float:
    """As introspectors and snapshotter do: each writes its own block, the envelope takes them as they are."""
    encode = msgspec.json.encode
    began = time.perf_counter()
    for _ in range(SNAPSHOTS):
        encode(_envelope({name: msgspec.Raw(encode(block)) for name, block in BLOCKS.items()}))
    return (time.perf_counter() - began) / SNAPSHOTS


async def _write_at_once() -> float:
    encode = msgspec.json.encode
    began = time.perf_counter()
    for _ in range(SNAPSHOTS):
        encode(_envelope(BLOCKS))
    return (time.perf_counter() - began) / SNAPSHOTS


# -- a whole node -------------------------------------------------------------------------------------------


class _Takes:
    """A sink that takes everything at once."""

    async def post(self, record: Outgoing) -> Answer:
        return Answer(clock=ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0))

    async def close(self) -> None:
        pass


@asynccontextmanager
async def _node(*, recorded: bool) -> AsyncIterator[tuple[ActorSystem, Diagnostics | None]]:
    """A node with children; with everything that diagnostics do, or with none of it."""
    with ExitStack() as stack:
        async with ActorSystem() as system:
            diag: Diagnostics | None = None
            pids = []
            for _ in range(CHILDREN):
                child = stack.enter_context(_sleeper())
                stack.callback(child.kill)
                pids.append(child.pid)
            if recorded:
                ports = replace(production_ports({}), sink=_Takes())
                diag = await Diagnostics.from_ports(system, IDENTITY, ports=ports)
                for pid in pids:
                    diag.subprocesses.tell(_started(pid))
            yield system, diag


def _sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def _started(pid: int) -> ProcessStarted:
    return ProcessStarted(
        process=cast("ActorRef[Any]", None),  # nobody talks to it here
        spawn_id=f"s{pid}",
        label=f"worker-{pid}",
        pid=pid,
        parent_pid=os.getpid(),
        start_time=None,
        command=("sleep", "600"),
        started_at_ms=0,
        guarded=True,
    )


class _Counts(Actor[int]):
    def on_message(self, ctx: Context[int], message: int) -> None:
        pass


async def _tell_for_a_period(system: ActorSystem) -> float:
    """Tell an actor as much as it takes during one period; return the seconds a message took."""
    ref = await system.spawn(_Counts())
    began, told = time.perf_counter(), 0
    while time.perf_counter() - began < PERIOD_S:
        for number in range(TOLD_AT_ONCE):
            ref.tell(number)
        told += TOLD_AT_ONCE
        await anyio.lowlevel.checkpoint()
    took = time.perf_counter() - began
    await system.stop_actor(ref)
    return took / told


async def _one_percent() -> float:
    """What a node may spend in one period."""
    return 0.01 * PERIOD_S


async def node(run: Run) -> list[Row]:
    """Run a node with children, all of it recorded."""
    core = Way("core", "1 % of a core", _one_percent, Bar(1, at_most=True))
    async with _node(recorded=True) as (recorded, diag), _node(recorded=False) as (plain, _):
        assert diag is not None

        async def one_period() -> float:
            began = time.process_time()
            await diag.snapshot()
            for _ in range(5):
                await anyio.lowlevel.checkpoint()  # the post of it, and what follows
            return time.process_time() - began

        ways = (Way("product", "snapshot", one_period), core)
        title = f"{CHILDREN} children, each {PERIOD_S:g} s"
        rows = await compare(run, ways, section="node", title=title)
        long = Run(min(run.slices, LONG_SLICES_MAX), run.progress, run.costs)
        tells = (
            Way("product", "recorded", lambda: _tell_for_a_period(recorded)),
            Way("plain", "not recorded", lambda: _tell_for_a_period(plain), Bar(1.03, at_most=True)),
        )
        return rows + await compare(long, tells, section="node", title="one tell")


STEPS: dict[str, tuple[str, Step]] = {
    "emit": ("take note of one event", emit),
    "write": ("write a batch of events, and a snapshot", write),
    "node": (f"a whole node with {CHILDREN} children, recorded or not (a minute)", node),
}
"""What can be measured, by name: what it is, and the step."""
HEADINGS = {
    "recorder": "RECORDER, beside the least that can be done: how many times as long; less is better",
    "node": "NODE, with all that diagnostics do: how many times as much; less is better",
}
