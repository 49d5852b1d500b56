"""Delivery in virtual time, against a sink that does what a test says."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from swactor.cluster.events import MemberState, SwimReason, SwimTransition
from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.shipper import ShipSnapshot
from swactor_diag.delivery.sink import RecordRefusedError, SinkMisconfiguredError, SinkUnavailableError
from swactor_diag.delivery.spool import MemorySpool
from swactor_diag.schema.blocks import DeliveryBlock
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom, Error
from swactor_diag.schema.reading import read_batch
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing, RecordKind
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig

from .conftest import ScriptedSink, StartNode, stored_answer

Script = Callable[[Outgoing], Awaitable[Answer] | Answer]


def numbered(number: int) -> Custom:
    return Custom(kind="made", fields={"n": number})


def dead(peer: str) -> SwimTransition:
    return SwimTransition(
        peer=peer,  # type: ignore[arg-type]  # any text names a peer here
        from_=MemberState.ALIVE,
        to=MemberState.DEAD,
        reason=SwimReason.PROBE_TIMEOUT,
    )


def unavailable(record: Outgoing) -> Answer:
    raise SinkUnavailableError("away")


def numbers(sink: ScriptedSink) -> list[object]:
    return [event.fields["n"] for event in sink.own_events() if isinstance(event, Custom)]


async def delivery_figures(diag: Diagnostics) -> DeliveryBlock:
    block = (await diag.snapshot()).body.delivery
    assert isinstance(block, DeliveryBlock)
    return block


async def test_the_boot_record_goes_first_and_events_follow_within_a_second(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async with start_node() as (_, diag):
        diag.emit(numbered(1))
        await anyio.sleep(1.5)
        assert [record.kind for _, record in sink.attempts][:2] == [RecordKind.BOOT, RecordKind.EVENTS]
        assert numbers(sink) == [1]
    identity = msgspec.json.decode(sink.of_kind(RecordKind.BOOT)[0].body)
    assert identity["node_id_hex"] == "ab" * 32


async def test_a_batch_holds_at_most_512_events(start_node: StartNode, sink: ScriptedSink) -> None:
    async with start_node() as (_, diag):
        for number in range(1_100):
            diag.emit(numbered(number))
        await anyio.sleep(2)
        assert numbers(sink) == list(range(1_100))
    sizes = [len(msgspec.json.decode(batch.body)) for batch in sink.of_kind(RecordKind.EVENTS)]
    assert sizes[:2] == [512, 512]


async def test_a_full_batch_does_not_wait_for_its_second(start_node: StartNode, sink: ScriptedSink) -> None:
    async with start_node() as (_, diag):
        await anyio.sleep(0.1)
        for number in range(600):
            diag.emit(numbered(number))
        await anyio.sleep(0.1)
        assert numbers(sink) == list(range(600))


async def test_a_transition_is_sent_at_once_with_what_led_to_it(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async with start_node() as (_, diag):
        await anyio.sleep(0.1)
        diag.emit(numbered(1))
        for peer in ("aa" * 32, "bb" * 32):
            diag.emit(dead(peer))
        await anyio.sleep(0.1)
        assert numbers(sink) == [1]
        (batch,) = [batch for batch in sink.of_kind(RecordKind.EVENTS) if batch.events > batch.clock_samples]
        kinds = [record.kind for record in read_batch(batch.body).records]
        assert kinds[-3:] == ["Custom", "SwimTransition", "SwimTransition"]


async def test_numbers_have_no_gap_and_start_at_one(start_node: StartNode, sink: ScriptedSink) -> None:
    async with start_node() as (_, diag):
        for number in range(30):
            diag.emit(numbered(number))
            await anyio.sleep(0.3)
    seqs = [record.monotonic_seq for record in sink.events()]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_each_stored_record_gives_a_clock_sample_and_samples_alone_give_none(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async with start_node(config=DiagnosticsConfig(snapshot_period_s=1_000)) as (_, diag):
        diag.emit(numbered(1))
        await anyio.sleep(60)
        samples = [record for record in sink.events() if record.raw.get("kind") == "clock_sample"]
    assert len(samples) == 2  # the boot record's and the batch's; not one of the batch that held the first
    fields = samples[0].raw["fields"]
    assert isinstance(fields, dict)
    assert {"node_send_ms_echoed", "collector_recv_ms", "collector_send_ms"} <= set(fields)


async def test_the_hint_brings_a_snapshot_at_once(start_node: StartNode, sink: ScriptedSink) -> None:
    def hint_once(record: Outgoing) -> Answer:
        stamp = ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0)
        return Answer(clock=stamp, snapshot_now=record.kind is RecordKind.BOOT)

    sink.script = hint_once
    async with start_node():
        await anyio.sleep(0.5)
        (snapshot,) = sink.of_kind(RecordKind.SNAPSHOT)
    assert msgspec.json.decode(snapshot.body)["trigger"] == {"kind": "OnDemand"}


async def test_finalize_sends_a_snapshot_and_all_events_first(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async with start_node() as (_, diag):
        diag.emit(numbered(1))
        assert await diag.finalize("done") == "/bundles/r.tar.gz"
        kinds = [record.kind for _, record in sink.attempts]
        assert kinds[:3] == [RecordKind.BOOT, RecordKind.EVENTS, RecordKind.SNAPSHOT]
        assert RecordKind.FINALIZE in kinds
        assert numbers(sink) == [1]


async def test_finalize_without_a_collector_ends_and_names_no_bundle(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    sink.script = unavailable
    async with start_node() as (_, diag):
        assert await diag.finalize("done") is None


async def test_fc046_a_lost_answer_repeats_the_same_batch(start_node: StartNode, sink: ScriptedSink) -> None:
    lost = 3

    def store_and_drop(record: Outgoing) -> Answer:
        nonlocal lost
        sink.keep(record)
        if record.kind is RecordKind.EVENTS and lost > 0:
            lost -= 1
            raise SinkUnavailableError("connection lost before the answer")
        stamp = ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0)
        return Answer(clock=stamp)

    sink.script = store_and_drop
    async with start_node() as (_, diag):
        diag.emit(numbered(1))
        await anyio.sleep(60)
        assert numbers(sink) == [1]
    ids = [record.batch_id for _, record in sink.attempts if record.kind is RecordKind.EVENTS]
    assert ids.count("b1-events-000001") == 4


async def test_fc047_a_second_boot_repeats_no_id_of_the_first(
    start_node: StartNode, sink: ScriptedSink, identity: Identity
) -> None:
    for boot_id in ("b1", "b2"):
        async with start_node(who=msgspec.structs.replace(identity, boot_id=boot_id)) as (_, diag):
            for number in range(3):
                diag.emit(numbered(number))
                await anyio.sleep(1)
    assert len(sink.of_kind(RecordKind.BOOT)) == 2
    assert numbers(sink).count(0) == 2
    assert sink.repeats == 0


async def test_fc052_an_outage_costs_nothing_and_memory_stays_bounded(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.script = unavailable
    spool = DiskSpool(tmp_path)
    async with start_node(spool=spool) as (_, diag):
        for number in range(600):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        figures = await delivery_figures(diag)
        assert figures.events_waiting <= 2
        assert figures.records_waiting == 0
        assert figures.records_spooled >= 600
        sink.recover()
        await anyio.sleep(60)
        assert numbers(sink) == list(range(600))
        assert spool.figures().records == 0


async def test_fc052_a_full_spool_drops_the_oldest_and_the_figures_add_up(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    sink.script = unavailable
    spool = MemorySpool(records_max=20)
    async with start_node(spool=spool) as (_, diag):
        for number in range(100):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        sink.recover()
        await anyio.sleep(40)
        figures = await delivery_figures(diag)
        dropped = sum(row.count for row in figures.drops if row.where == "spool")
        assert dropped > 0
        waiting = figures.records_waiting + figures.records_spooled
        assert figures.records_made == figures.records_sent + dropped + waiting + figures.records_set_aside
        assert numbers(sink)[-1] == 99


async def test_fc052_fresh_records_are_not_held_up_by_the_spool(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async def slowly(record: Outgoing) -> Answer:
        await anyio.sleep(0.4)
        stamp = ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0)
        return Answer(clock=stamp)

    sink.script = unavailable
    async with start_node() as (_, diag):
        for number in range(200):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        sink.script = slowly
        await anyio.sleep(31)
        diag.emit(numbered(1_000))
        await anyio.sleep(10)
        assert 1_000 in numbers(sink)
        assert 199 not in numbers(sink)


async def test_fc053_the_last_events_are_sent_at_an_orderly_stop(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async with start_node() as (_, diag):
        await anyio.sleep(3)
        diag.emit(numbered(7))
    assert numbers(sink) == [7]


async def test_fc053_the_last_events_are_in_the_spool_when_the_sink_is_away(
    start_node: StartNode, sink: ScriptedSink, *, tmp_path: Path, identity: Identity
) -> None:
    sink.script = unavailable
    async with start_node(spool=DiskSpool(tmp_path)) as (_, diag):
        diag.emit(numbered(7))
    sink.recover()
    second = msgspec.structs.replace(identity, boot_id="b2")
    async with start_node(spool=DiskSpool(tmp_path), who=second):
        await anyio.sleep(5)
    assert numbers(sink) == [7]
    assert sorted(record.batch_id for record in sink.of_kind(RecordKind.BOOT)) == [
        "b1-boot-000001",
        "b2-boot-000001",
    ]
    first_stored = next(iter(sink.stored.values()))
    assert first_stored.batch_id == "b2-boot-000001"


async def test_fc053_a_hard_kill_in_an_outage_costs_one_batch_interval(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.script = unavailable
    async with start_node(spool=DiskSpool(tmp_path)) as (_, diag):
        for number in range(10):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        spool, kept = DiskSpool(tmp_path), b""  # what a process would find that starts after a kill -9 now
        while (record := spool.peek()) is not None:
            kept += record.body
            spool.pop(record.batch_id)
    assert b'{"n":8}' in kept


@pytest.mark.parametrize("at", ["idle", "in a post"])
async def test_fc054_a_sink_that_never_answers_does_not_hold_up_the_stop(
    start_node: StartNode, sink: ScriptedSink, *, never: Script, at: str
) -> None:
    spool = MemorySpool()
    async with start_node(spool=spool) as (_, diag):
        await anyio.sleep(1.5)
        sink.script = never
        diag.emit(numbered(7))
        if at == "in a post":
            await anyio.sleep(2)
        started_s = asyncio.get_running_loop().time()
        await diag.stop()
        assert asyncio.get_running_loop().time() - started_s <= 5.0
    record = spool.peek()
    assert record is not None
    assert b'{"n":7}' in record.body


async def test_fc054_a_sink_that_refuses_connections_ends_the_flush_at_once(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    sink.script = unavailable
    async with start_node() as (_, diag):
        for number in range(50):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        started_s = asyncio.get_running_loop().time()
        await diag.stop()
        assert asyncio.get_running_loop().time() - started_s < 0.1


async def test_fc055_after_a_busy_answer_nothing_is_sent_before_it_asked(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    def busy(record: Outgoing) -> Answer:
        raise SinkUnavailableError("503", retry_after_s=20)

    sink.script = busy
    async with start_node() as (_, diag):
        diag.emit(numbered(1))
        await anyio.sleep(19.9)
        assert len(sink.attempts) == 1


async def test_fc056_a_refused_batch_is_set_aside_and_the_others_flow(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    def refuse_one(record: Outgoing) -> Answer:
        if record.batch_id == "b1-events-000002":
            raise RecordRefusedError("not like this", status=400)
        stamp = ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0)
        return Answer(clock=stamp)

    sink.script = refuse_one
    async with start_node() as (_, diag):
        for number in range(5):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        figures = await delivery_figures(diag)
        assert figures.records_set_aside == 1
        await anyio.sleep(2)
    assert len(numbers(sink)) == 4
    errors = [record.event for record in sink.events() if isinstance(record.event, Error)]
    assert [error.component for error in errors] == ["delivery"]
    ids = [record.batch_id for _, record in sink.attempts]
    assert ids.count("b1-events-000002") == 1


async def test_fc056_a_refusal_after_an_outage_does_not_end_delivery(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    def refuse_first(record: Outgoing) -> Answer:
        if record.batch_id == "b1-events-000001":
            raise RecordRefusedError("not like this", status=400)
        return stored_answer(record)

    async with start_node(config=DiagnosticsConfig(snapshot_period_s=1_000)) as (_, diag):
        await anyio.sleep(0.5)
        sink.script = unavailable
        diag.emit(numbered(1))
        await anyio.sleep(3)
        diag.emit(numbered(2))
        sink.script = refuse_first
        await anyio.sleep(40)
        assert numbers(sink) == [2]


async def test_fc056_a_wrong_token_is_reported_once_and_tried_slowly(
    start_node: StartNode, sink: ScriptedSink, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong_token(record: Outgoing) -> Answer:
        raise SinkMisconfiguredError("a valid token is needed", status=401)

    sink.script = wrong_token
    async with start_node() as (_, diag):
        diag.emit(numbered(1))
        await anyio.sleep(150)
        assert 4 <= len(sink.attempts) <= 11
        sink.recover()
        await anyio.sleep(60)
        assert numbers(sink) == [1]
    errors = [record.event for record in sink.events() if isinstance(record.event, Error)]
    assert len(errors) == 1
    assert "token" in errors[0].message
    assert caplog.text.count("token") == 1  # who starts the node sees it, too: the event may never arrive


async def test_an_event_that_cannot_be_written_costs_itself_only(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    async with start_node() as (_, diag):
        diag.emit(Custom(kind="odd", fields={"n": object()}))
        diag.emit(numbered(1))
        await anyio.sleep(2)
    assert numbers(sink) == [1]
    assert any(isinstance(r.event, Error) and "Custom" in r.event.message for r in sink.events())


async def test_a_shipper_that_crashes_starts_again_and_loses_nothing(
    start_node: StartNode, sink: ScriptedSink, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_node() as (_, diag):
        diag.emit(numbered(1))
        await anyio.sleep(1.5)
        diag.introspector("shipper").tell(ShipSnapshot(None))  # type: ignore[arg-type]  # makes it raise
        diag.emit(numbered(2))
        await anyio.sleep(10)
        assert numbers(sink) == [1, 2]
    assert len(sink.of_kind(RecordKind.BOOT)) == 1
    assert "failed" in caplog.text
