"""One record that the sink never takes holds up no others; an outage changes no order."""

from pathlib import Path

import anyio

from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.sink import SinkUnavailableError
from swactor_diag.delivery.spool import Spool
from swactor_diag.schema.events import Custom
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind
from swactor_diag.supervisor import DiagnosticsConfig

from .conftest import ScriptedSink, StartNode, stored_answer

NO_SNAPSHOTS = DiagnosticsConfig(snapshot_period_s=10_000)
STUCK = "b1-events-000002"


def numbered(number: int) -> Custom:
    return Custom(kind="made", fields={"n": number})


def all_but_one(record: Outgoing) -> Answer:
    if record.batch_id == STUCK:
        raise SinkUnavailableError("500: a defect that this record hits")
    return stored_answer(record)


def unavailable(record: Outgoing) -> Answer:
    raise SinkUnavailableError("away")


def arrived(sink: ScriptedSink) -> list[str]:
    return [batch.batch_id for batch in sink.of_kind(RecordKind.EVENTS)]


async def test_a_record_that_alone_fails_goes_behind_the_others(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.script = all_but_one
    spool = DiskSpool(tmp_path)
    async with start_node(spool=spool, config=NO_SNAPSHOTS) as (_, diag):
        for number in range(600):
            diag.emit(numbered(number))
            await anyio.sleep(1)
        made = [event.fields["n"] for event in sink.own_events() if isinstance(event, Custom)]
        assert len(set(range(500)).intersection(made)) == 499
        tries = sum(record.batch_id == STUCK for _, record in sink.attempts)
        assert 3 < tries < 150  # it is tried on, and seldom
        assert arrived(sink) == sorted(arrived(sink))
        sink.recover()
        await anyio.sleep(60)
        assert STUCK in arrived(sink)
        assert held(spool) == []


async def test_after_an_outage_records_come_in_the_order_in_which_they_were_made(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    spool = DiskSpool(tmp_path)
    async with start_node(spool=spool, config=NO_SNAPSHOTS) as (_, diag):
        await anyio.sleep(0.5)
        sink.script = unavailable
        for number in range(600):
            diag.emit(numbered(number))
            await anyio.sleep(1)
    ids = held(DiskSpool(tmp_path))
    assert len(ids) >= 600
    assert ids == sorted(ids)


async def test_the_boot_record_is_not_overtaken(start_node: StartNode, sink: ScriptedSink) -> None:
    sink.script = unavailable
    async with start_node() as (_, diag):
        for number in range(300):
            diag.emit(numbered(number))
            await anyio.sleep(1)
    assert {record.kind for _, record in sink.attempts} == {RecordKind.BOOT}


def held(spool: Spool) -> list[str]:
    """Take all records out of ``spool``."""
    ids: list[str] = []
    while (record := spool.peek()) is not None:
        ids.append(record.batch_id)
        spool.pop(record.batch_id)
    return ids
