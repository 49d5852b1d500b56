"""Snapshots in virtual time: rhythm, triggers, and introspectors that misbehave."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import msgspec
import pytest
from msgspec import UNSET, Struct

from swactor import ActorSystem, Request, SystemClock
from swactor.cluster.events import MemberState, SwimReason, SwimTransition
from swactor_diag.introspect import HUNG_AFTER_S
from swactor_diag.schema.blocks import IntrospectionOutcome, IntrospectorEntry
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.reading import Snapshot
from swactor_diag.schema.snapshot import TriggerKind
from swactor_diag.schema.submission import RecordKind
from swactor_diag.snapshot_writer import BLOCKS_BYTES_MAX
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig

from .conftest import ListSink

StartNode = Callable[..., AbstractAsyncContextManager[tuple[ActorSystem, Diagnostics]]]
QUIET = DiagnosticsConfig(snapshot_period_s=1_000)


@pytest.fixture
def anyio_backend(virtual_time: tuple[str, dict[str, object]]) -> tuple[str, dict[str, object]]:
    return virtual_time


class Weather(Struct, frozen=True):
    celsius: int


class Fine:
    name = "weather"
    record = Weather

    def observe(self) -> Weather:
        return Weather(21)


class Breaks:
    name = "breaks"
    record = Weather

    def observe(self) -> Weather:
        raise OSError("sensor \udcff on fire")


class Nothing:
    name = "nothing"
    record = Weather

    def observe(self) -> Weather | None:
        return None


class WrongType:
    name = "wrong_type"
    record = Weather

    def observe(self) -> object:
        return 21


class Unwritable:
    name = "unwritable"
    record = object

    def observe(self) -> object:
        return object()


class Text(Struct, frozen=True):
    text: str


class Long:
    record = Text

    def __init__(self, name: str, size: int) -> None:
        self.name, self._size = name, size

    def observe(self) -> Text:
        return Text("x" * self._size)


class Says:
    name = "says"
    record = Text

    def __init__(self, text: str) -> None:
        self._text = text

    def observe(self) -> Text:
        return Text(self._text)


class Waits:
    """Answers when it is told to; until then it hangs."""

    name = "waits"
    record = Weather

    def __init__(self) -> None:
        self.asked = self.cancelled = 0
        self.go = asyncio.Event()

    async def observe(self) -> Weather:
        self.asked += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Weather(3)


class ShiftedClock(SystemClock):
    """The machine's clock, put forward by hand."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def shift(self, seconds: float) -> None:
        self._ahead_ns += round(seconds * 1e9)

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self._ahead_ns


def transition(to: MemberState = MemberState.DEAD) -> SwimTransition:
    return SwimTransition(
        peer="aa" * 32,  # type: ignore[arg-type]  # any text names a peer here
        from_=MemberState.ALIVE,
        to=to,
        reason=SwimReason.PROBE_TIMEOUT,
    )


def entry(snapshot: Snapshot, name: str) -> IntrospectorEntry:
    return next(row for row in snapshot.body.introspectors if row.name == name)


async def test_every_five_seconds_without_drift(start_node: StartNode, sink: ListSink) -> None:
    async with start_node(Fine()):
        await anyio.sleep(61)
    taken = sink.snapshots()
    start_ms = taken[0].wall_ms - 5_000
    assert [snapshot.wall_ms - start_ms for snapshot in taken] == [5_000 * n for n in range(1, 13)]
    assert [snapshot.snapshot_id for snapshot in taken] == [f"abababab-{n}" for n in range(12)]
    assert {snapshot.trigger.kind for snapshot in taken if snapshot.trigger} == {TriggerKind.PERIODIC}


async def test_a_transition_brings_one_at_once_that_names_its_event(
    start_node: StartNode, sink: ListSink
) -> None:
    async with start_node(config=QUIET) as (_, diag):
        diag.emit(transition())
        await anyio.sleep(0.1)
        (snapshot,) = sink.snapshots()
    batches = [msgspec.json.decode(batch.body) for batch in sink.of_kind(RecordKind.EVENTS)]
    (event,) = [event for events in batches for event in events if event["type"] == "SwimTransition"]
    assert snapshot.trigger is not None
    assert (snapshot.trigger.kind, snapshot.trigger.data) == (
        TriggerKind.TRANSITION,
        f"seq-{event['monotonic_seq']}",
    )
    assert snapshot.body.reachability[0].current_swim_opinion == "Dead"


async def test_transitions_of_one_moment_share_a_snapshot(start_node: StartNode, sink: ListSink) -> None:
    async with start_node(config=QUIET) as (_, diag):
        for _ in range(100):
            diag.emit(transition())
        await anyio.sleep(0.1)
        assert len(sink.snapshots()) == 1
        diag.emit(transition(MemberState.ALIVE))
        await anyio.sleep(0.1)
        assert len(sink.snapshots()) == 2


async def test_the_identity_is_in_every_snapshot(start_node: StartNode) -> None:
    async with start_node() as (_, diag):
        snapshot = await diag.snapshot()
    assert snapshot.identity.node_id_hex == "ab" * 32
    assert snapshot.run_id == "r"


async def test_whatever_goes_wrong_in_one_costs_that_block(start_node: StartNode) -> None:
    async with start_node(Breaks(), Nothing(), WrongType(), Unwritable(), Fine(), config=QUIET) as (_, diag):
        snapshot = await diag.snapshot()
    assert snapshot.body.others == {"weather": {"celsius": 21}}
    outcomes = {row.name: row.outcome for row in snapshot.body.introspectors}
    assert outcomes["weather"] is IntrospectionOutcome.OK
    assert outcomes["nothing"] is IntrospectionOutcome.NO_DATA
    failed = {name for name, outcome in outcomes.items() if outcome is IntrospectionOutcome.FAILED}
    assert failed == {"breaks", "wrong_type", "unwritable"}
    assert entry(snapshot, "breaks").reason == "OSError: sensor � on fire"


async def test_what_is_no_text_costs_neither_block_nor_snapshot(start_node: StartNode) -> None:
    named = Fine()
    named.name = "caf\udce9"
    async with start_node(named, Says("no text: \udce9"), config=QUIET) as (_, diag):
        snapshot = await diag.snapshot()
    assert snapshot.body.others == {"caf�": {"celsius": 21}, "says": {"text": "no text: �"}}
    assert entry(snapshot, "caf�").outcome is IntrospectionOutcome.OK
    assert entry(snapshot, "says").outcome is IntrospectionOutcome.OK


async def test_blocks_that_are_too_large_for_a_snapshot_cost_themselves(start_node: StartNode) -> None:
    whole, huge = BLOCKS_BYTES_MAX, BLOCKS_BYTES_MAX // 2 + 1
    introspectors = Fine(), Long("a", whole), Long("b", huge), Long("c", 1_000)
    async with start_node(*introspectors, ship=False) as (_, diag):
        snapshot = await diag.snapshot()
    assert set(snapshot.body.others) == {"weather", "b", "c"}
    refused = entry(snapshot, "a")
    assert refused.outcome is IntrospectionOutcome.FAILED
    assert "too many" in str(refused.reason)


async def test_one_that_hangs_costs_its_block_after_the_deadline(start_node: StartNode) -> None:
    async with start_node(Waits(), Fine(), config=QUIET) as (system, diag):
        before_ns = system.clock.monotonic_ns()
        snapshot = await diag.snapshot()
        assert system.clock.monotonic_ns() - before_ns == 1_000_000_000
    assert snapshot.body.others == {"weather": {"celsius": 21}}
    hung = entry(snapshot, "waits")
    assert (hung.outcome, hung.duration_us) == (IntrospectionOutcome.FAILED, UNSET)
    assert hung.reason == "no answer within 1 s"


class HoldsTheLoop(Fine):
    """Time goes by while it observes, and nothing else happens."""

    def __init__(self, hold: Callable[[], None]) -> None:
        self._hold = hold

    def observe(self) -> Weather:
        self._hold()
        return super().observe()


@pytest.mark.parametrize(
    ("held_s", "outcome"), [(0.9, IntrospectionOutcome.OK), (3.0, IntrospectionOutcome.FAILED)]
)
async def test_one_that_holds_the_event_loop_beyond_the_deadline_is_late(
    identity: Identity, held_s: float, outcome: IntrospectionOutcome
) -> None:
    clock = ShiftedClock()
    async with ActorSystem(clock=clock) as system:
        holds = HoldsTheLoop(lambda: clock.shift(held_s))
        diag = await Diagnostics.start(system, identity, introspectors=[holds], config=QUIET)
        snapshot = await diag.snapshot()
    row = entry(snapshot, "weather")
    assert row.outcome is outcome
    assert isinstance(row.duration_us, int)
    assert held_s * 1e6 <= row.duration_us < held_s * 1e6 + 500_000
    if outcome is IntrospectionOutcome.FAILED:
        assert snapshot.body.others == {}
        assert str(row.reason).startswith("answered after 3.0 s")


async def test_one_that_hangs_is_not_asked_again_for_a_while_and_delays_nobody(
    start_node: StartNode, sink: ListSink
) -> None:
    waits = Waits()
    async with start_node(waits, Fine()):
        await anyio.sleep(31)
        assert waits.asked == 1
        assert len(sink.snapshots()) == 6
        waits.go.set()
        await anyio.sleep(5)
    assert sink.snapshots()[1].body.others == {"weather": {"celsius": 21}}
    assert entry(sink.snapshots()[1], "waits").reason == "no answer since round 1"
    assert sink.snapshots()[-1].body.others == {"waits": {"celsius": 3}, "weather": {"celsius": 21}}


async def test_one_that_hangs_is_started_again(
    start_node: StartNode, sink: ListSink, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Waits()
    async with start_node(hanging, Fine()):
        await anyio.sleep(HUNG_AFTER_S + 6)
        hanging.go.set()
        await anyio.sleep(60)
    outcomes = [entry(snapshot, "waits").outcome for snapshot in sink.snapshots()]
    assert outcomes[0] is IntrospectionOutcome.FAILED
    assert outcomes[-1] is IntrospectionOutcome.OK
    assert hanging.cancelled == 1
    assert {entry(snapshot, "weather").outcome for snapshot in sink.snapshots()} == {IntrospectionOutcome.OK}
    assert "has not answered for 30 s" in caplog.text


async def test_a_snapshot_wanted_during_a_round_follows_it(start_node: StartNode, sink: ListSink) -> None:
    async with start_node(Waits(), config=QUIET) as (_, diag):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(diag.snapshot)
            tasks.start_soon(diag.snapshot)
        await anyio.sleep(0.1)
        assert len(sink.snapshots()) == 2


class InABlock(Fine):
    name = "host.weather"


async def test_a_dotted_name_lies_inside_another_block(start_node: StartNode) -> None:
    async with start_node(InABlock(), ship=False) as (_, diag):
        snapshot = await diag.snapshot()
    assert snapshot.raw_body["host"] == {"scraped_at_ms": snapshot.wall_ms, "weather": {"celsius": 21}}


class Forecast(Struct, Request[None], frozen=True):
    """Makes the introspector's actor fail: it raises when it hears one."""


class Deaf(Fine):
    def hear(self, message: object) -> None:
        raise RuntimeError("cannot hear")

    def take_events(self) -> list[object]:
        return []


async def test_an_introspector_actor_that_crashes_is_started_again(
    start_node: StartNode, sink: ListSink, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_node(Deaf(), Breaks()) as (_, diag):
        diag.introspector("weather").tell(Forecast())
        await anyio.sleep(11)
        taken = sink.snapshots()
    assert taken[-1].body.others == {"weather": {"celsius": 21}}
    assert "failed" in caplog.text


async def test_one_that_crashes_for_ever_is_tried_more_and_more_slowly_and_takes_nobody_with_it(
    start_node: StartNode, sink: ListSink, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_node(Deaf(), InABlock()) as (_, diag):
        for _ in range(200):
            diag.introspector("weather").tell(Forecast())
        await anyio.sleep(600)
        taken = sink.snapshots()
    assert len(taken) == 119
    assert all(snapshot.raw_body["host"] for snapshot in taken)
    failures = caplog.text.count("cannot hear")
    assert 20 <= failures <= 100  # each with its traceback


async def test_a_transition_during_a_round_is_what_the_next_one_is_named_for(
    start_node: StartNode, sink: ListSink
) -> None:
    async with start_node(Waits(), config=QUIET) as (_, diag), anyio.create_task_group() as tasks:
        tasks.start_soon(diag.snapshot)
        await anyio.sleep(0.1)
        diag.emit(transition())
        await anyio.sleep(0.1)
        await diag.snapshot()
    assert [snapshot.trigger.kind for snapshot in sink.snapshots() if snapshot.trigger][:2] == [
        TriggerKind.ON_DEMAND,
        TriggerKind.TRANSITION,
    ]


async def test_the_own_figures_are_in_each_snapshot(start_node: StartNode) -> None:
    async with start_node() as (_, diag):
        snapshot = await diag.snapshot()
    assert isinstance(snapshot.body.delivery, Struct)
    assert snapshot.body.delivery.records_made == 1
