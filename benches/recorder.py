"""The recorder: what one event costs, what writing records costs, and what a node with all of it pays.

Beside an emitted event stands one append to a list. Whoever keeps the time of an event has to call a function
that reads the clock and appends both, which is four to five appends, five to six with a look at a bound. Both
floors are measured, too. Records are written beside msgspec alone: it gets a snapshot whose parts
are put together already, and events that have their envelope around them already.
"""

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import FunctionType

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Struct, structs

from benches.capture import sleeper_started, sleepers
from benches.report import Row
from benches.turns import Run, Step, Way, compare
from benches.workloads import Bar
from swactor import Actor, ActorSystem, Context, Event, SystemClock
from swactor_diag.delivery.batches import BatchMaker
from swactor_diag.identity import identity_from_env
from swactor_diag.introspect import Observed
from swactor_diag.ports import production_ports
from swactor_diag.recorder import BATCH_EVENTS, EVENTS_WAITING_MAX, Noted, Recorder
from swactor_diag.schema.blocks import IntrospectionOutcome, IntrospectorEntry
from swactor_diag.schema.events import SubprocessExited
from swactor_diag.schema.snapshot import SnapshotEnvelope, Trigger, TriggerKind
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing
from swactor_diag.snapshot_writer import SnapshotWriter
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig

REPEATS = 40
"""Batches, or snapshots, of one slice."""
NOTED = BATCH_EVENTS - 1
"""Events that are noted before they are fetched; one more would be a batch, which somebody is told of."""
CHILDREN = 20
PERIOD_S = DiagnosticsConfig().snapshot_period_s
LONG_SLICES_MAX = 6
"""Slices of a step in which each takes two periods between snapshots."""
TOLD_AT_ONCE = 500
NOW_MS = 1_764_470_000_000
PERIODIC = Trigger(kind=TriggerKind.PERIODIC)

EVENT = SubprocessExited(
    label="worker-1", pid=4711, command="python worker.py", exit_code=3, uptime_ms=90_000
)
IDENTITY = identity_from_env({}, "ab" * 32, clock=SystemClock(), boot_id="bench")


# -- one event ----------------------------------------------------------------------------------------------


def _turn(
    once: Callable[[], object], *, units: int, between: Callable[[], object] = int
) -> Callable[[], Awaitable[float]]:
    """Return a turn that does something again and again, and what one of its ``units`` took at the median."""

    async def turn() -> float:
        took: list[float] = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            once()
            took.append(time.perf_counter() - began)
            between()
        return statistics.median(took) / units  # so little each time that one pause would double the mean

    return turn


def _noted(note: Callable[[Event], object], fetched: Callable[[], object]) -> Callable[[], Awaitable[float]]:
    """Return a turn that notes batch after batch; what is done when one is fetched is not measured."""
    # The interpreter adapts a loop to what it calls, so each way gets a copy of the loop for itself.
    loop = FunctionType(_note_batch.__code__.replace(), globals())
    return _turn(partial(loop, note, range(NOTED)), units=NOTED, between=fetched)


def _note_batch(note: Callable[[Event], object], numbers: range) -> None:
    for _ in numbers:
        note(EVENT)


def _appended() -> Callable[[], Awaitable[float]]:
    events: list[Event] = []
    return _noted(events.append, events.clear)


def _stamped() -> Callable[[], Awaitable[float]]:
    """The least that keeps an event and the time at which it happened: nothing bounds it, nothing hears."""
    events: list[tuple[float, Event]] = []
    read = SystemClock.wall_s

    def note(event: Event) -> None:
        events.append((read(), event))

    return _noted(note, events.clear)


def _bounded() -> Callable[[], Awaitable[float]]:
    """The same, and it sees when there are too many."""
    events: list[tuple[float, Event]] = []
    read = SystemClock.wall_s

    def note(event: Event) -> None:
        events.append((read(), event))
        if len(events) >= BATCH_EVENTS:
            raise AssertionError

    return _noted(note, events.clear)


async def emit(run: Run) -> list[Row]:
    """Take note of one event; then the floors under that, and the way through a system to its observers."""
    recorder = Recorder(clock=SystemClock())
    product = Way("product", "recorder", _noted(recorder.observe, lambda: recorder.take(EVENTS_WAITING_MAX)))
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
            "product", "system.emit", _noted(system.emit, lambda: recorder.take(EVENTS_WAITING_MAX))
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


def _batches_made() -> Callable[[], Awaitable[float]]:
    noted = [Noted(number, NOW_MS, EVENT) for number in range(BATCH_EVENTS)]
    maker = BatchMaker(IDENTITY, boot_id="bench")
    return _turn(lambda: maker.events(noted), units=BATCH_EVENTS)


def _rows_encoded() -> Callable[[], Awaitable[float]]:
    fields = {name: value for name, value in structs.asdict(EVENT).items() if name in _Flat.__struct_fields__}
    rows = [
        _Flat(node_id=IDENTITY.node_id_hex, monotonic_seq=number, wall_ms=NOW_MS, **fields)
        for number in range(BATCH_EVENTS)
    ]
    return _turn(partial(msgspec.json.Encoder().encode, rows), units=BATCH_EVENTS)


async def write(run: Run) -> list[Row]:
    """Write a full batch of events, and a snapshot."""
    ways = (
        Way("product", "batch", _batches_made()),
        Way("msgspec", "msgspec alone", _rows_encoded()),
    )
    rows = await compare(run, ways, section="recorder", title="one event of a batch")
    answers = await _answers()
    ways = (
        Way("product", "snapshot", _snapshots_written(answers)),
        Way("msgspec", "msgspec alone", _encoded(answers), Bar(1.2, at_most=True)),
    )
    return rows + await compare(run, ways, section="recorder", title="one snapshot")


async def _answers() -> list[Observed]:
    """What the introspectors of a node with children say in one snapshot."""
    async with _node(recorded=True) as (_, diag):
        assert diag is not None
        body = (await diag.snapshot()).body
    blocks = {name: getattr(body, name) for name in body.__struct_fields__}
    return [
        Observed(1, IntrospectorEntry(name=name, outcome=IntrospectionOutcome.OK, duration_us=100), block)
        for name, block in blocks.items()
        if isinstance(block, Struct)
    ]


def _snapshots_written(answers: list[Observed]) -> Callable[[], Awaitable[float]]:
    writer = SnapshotWriter(IDENTITY)

    def once() -> None:
        writer.write(answers, wall_ms=NOW_MS, seq=1_234, trigger=PERIODIC, reachability=())

    return _turn(once, units=1)


def _encoded(answers: list[Observed]) -> Callable[[], Awaitable[float]]:
    """The same bytes, from a record that is ready."""
    blocks = {answer.name: answer.block for answer in answers}
    envelope = SnapshotEnvelope(
        identity=IDENTITY,
        run_id=IDENTITY.run_id,
        snapshot_id="abababab-7",
        wall_ms=NOW_MS,
        monotonic_seq=1_234,
        trigger=PERIODIC,
        body={"reachability": (), **blocks, "introspectors": [answer.entry for answer in answers]},
    )
    return _turn(partial(msgspec.json.Encoder().encode, envelope), units=1)


# -- a whole node -------------------------------------------------------------------------------------------


class _Takes:
    """A sink that takes everything at once."""

    async def post(self, record: Outgoing) -> Answer:
        return Answer(clock=ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0))

    async def close(self) -> None:
        pass


@asynccontextmanager
async def _node(
    *, recorded: bool, config: DiagnosticsConfig | None = None
) -> AsyncIterator[tuple[ActorSystem, Diagnostics | None]]:
    """A node with children; with everything that diagnostics do, or with none of it."""
    with sleepers(CHILDREN) as pids:
        async with ActorSystem() as system:
            diag: Diagnostics | None = None
            if recorded:
                ports = replace(production_ports({}), sink=_Takes())
                diag = await Diagnostics.from_ports(system, IDENTITY, ports=ports, config=config)
                for pid in pids:
                    diag.subprocesses.tell(sleeper_started(pid))
            yield system, diag


class _Counts(Actor[int]):
    def on_message(self, ctx: Context[int], message: int) -> None:
        pass


class _Tells:
    """Actors of two systems are told in turns of a millisecond: the machine drifts more slowly than that."""

    def __init__(self, recorded: ActorSystem, plain: ActorSystem) -> None:
        self._systems = recorded, plain
        self._plain_s = 0.0

    async def recorded(self) -> float:
        """Tell both as much as they take during two periods; return the seconds of a message recorded."""
        refs = [await system.spawn(_Counts()) for system in self._systems]
        spent_s, told = [0.0, 0.0], 0
        while sum(spent_s) < 2 * PERIOD_S:
            for at in (0, 1, 1, 0):
                began = time.perf_counter()
                for number in range(TOLD_AT_ONCE):
                    refs[at].tell(number)
                await anyio.lowlevel.checkpoint()
                spent_s[at] += time.perf_counter() - began
            told += 2 * TOLD_AT_ONCE
        for system, ref in zip(self._systems, refs, strict=True):
            await system.stop_actor(ref, drain=True)
        self._plain_s = spent_s[1] / told
        return spent_s[0] / told

    async def plain(self) -> float:
        """Return the seconds of a message that is not recorded, in the same turns."""
        return self._plain_s


async def _one_percent() -> float:
    """What a node may spend in one period."""
    return 0.01 * PERIOD_S


async def node(run: Run) -> list[Row]:
    """Run a node with children, all of it recorded."""
    core = Way("core", "1 % of a core", _one_percent, Bar(1, at_most=True))
    async with _node(recorded=True) as (_, diag):
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
    # A snapshot falls into the turn of one as often as of the other: twice as many make up for that.
    often = DiagnosticsConfig(snapshot_period_s=PERIOD_S / 2)
    async with (
        _node(recorded=True, config=often) as (recorded, _),
        _node(recorded=False) as (plain, _),
    ):
        both = _Tells(recorded, plain)
        tells = (
            Way("product", "recorded", both.recorded),
            Way("plain", "not recorded", both.plain, Bar(1.03, at_most=True)),
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
