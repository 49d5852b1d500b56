"""Records that the sink never takes hold up no others; an outage changes no order."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import anyio
import pytest

from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.ledger import LossPlace
from swactor_diag.delivery.sink import RecordRefusedError, SinkUnavailableError
from swactor_diag.delivery.spool import Spool
from swactor_diag.schema.events import Custom
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig

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


async def emit_each_second(diag: Diagnostics, seconds: int) -> None:
    for number in range(seconds):
        diag.emit(numbered(number))
        await anyio.sleep(1)


def numbers_stored(sink: ScriptedSink) -> set[object]:
    return {event.fields["n"] for event in sink.own_events() if isinstance(event, Custom)}


async def test_a_record_that_alone_fails_is_passed_over(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.script = all_but_one
    spool = DiskSpool(tmp_path)
    async with start_node(spool=spool, config=NO_SNAPSHOTS) as (_, diag):
        await emit_each_second(diag, 600)
        made = numbers_stored(sink)
        assert len(set(range(500)).intersection(made)) == 499
        tries = sum(record.batch_id == STUCK for _, record in sink.attempts)
        assert 3 < tries < 150  # it is tried on, and seldom
        assert arrived(sink) == sorted(arrived(sink))
        sink.recover()
        await anyio.sleep(60)
        assert STUCK in arrived(sink)
        assert held(spool) == []


@dataclass
class Replay:
    """A node that says something every second, and has 100 records of an earlier boot, some of which fail."""

    sink: ScriptedSink
    spool: Spool
    good: set[str]

    def replayed(self) -> set[str]:
        return {batch_id for batch_id in arrived(self.sink) if batch_id.startswith("old")}

    def own(self) -> list[float]:
        """When the node's own records went out."""
        return [at for at, record in self.sink.attempts if not record.batch_id.startswith("old")]


@asynccontextmanager
async def replay(
    start_node: StartNode, sink: ScriptedSink, spool: Spool, *, failing: set[int]
) -> AsyncIterator[Replay]:
    def script(record: Outgoing) -> Answer:
        boot, _, number = record.batch_id.split("-")
        return unavailable(record) if boot == "old" and int(number) in failing else stored_answer(record)

    sink.script = script
    for number in range(100):
        spool.put(old(number))
    async with start_node(spool=spool, config=NO_SNAPSHOTS) as (_, diag), anyio.create_task_group() as node:

        async def say() -> None:
            for number in count():
                diag.emit(numbered(number))
                await anyio.sleep(1)

        node.start_soon(say)
        yield Replay(sink, spool, {old(number).batch_id for number in range(100) if number not in failing})
        node.cancel_scope.cancel()


def old(number: int) -> Outgoing:
    batch_id = f"old-events-{number:06d}"
    return Outgoing(
        kind=RecordKind.EVENTS, run_id="r", node_id="ab" * 32, batch_id=batch_id, body=b"[]", events=1
    )


@pytest.mark.parametrize(
    "failing", [{0, 1}, {50, 51}, set(range(30)), set(range(0, 100, 2)), set(range(70, 100))], ids=len
)
async def test_any_number_of_records_that_fail_hold_up_no_others(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path, failing: set[int]
) -> None:
    async with replay(start_node, sink, DiskSpool(tmp_path), failing=failing) as node:
        await anyio.sleep(1_800)
        assert node.replayed() == node.good
        assert (node.spool.figures().records, node.spool.figures().losses) == (len(failing), ())

        sink.attempts.clear()
        await anyio.sleep(600)
        assert max(later - at for at, later in pairwise(node.own())) < 3
        assert 10 < len(sink.attempts) - len(node.own()) < 60  # they are tried on, and seldom

        sink.recover()
        await anyio.sleep(60)
        assert node.spool.figures().records == 0
        assert len(node.replayed()) == 100


async def test_what_is_refused_behind_records_that_fail_is_set_aside_and_counted(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    async with replay(start_node, sink, DiskSpool(tmp_path), failing={0, 1}) as node:
        fails = sink.script

        def script(record: Outgoing) -> Answer | Awaitable[Answer]:
            if record.batch_id == old(50).batch_id:
                raise RecordRefusedError("not like this", status=400)
            return fails(record)

        sink.script = script
        await anyio.sleep(300)
        assert node.replayed() == node.good - {old(50).batch_id}
    found = DiskSpool(tmp_path)
    assert [(loss.where, loss.records) for loss in found.figures().losses] == [(LossPlace.REFUSED, 1)]
    assert [batch_id for batch_id in held(found) if batch_id.startswith("old")] == [
        old(number).batch_id for number in (0, 1)
    ]


async def test_after_an_outage_records_come_in_the_order_in_which_they_were_made(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    spool = DiskSpool(tmp_path)
    async with start_node(spool=spool, config=NO_SNAPSHOTS) as (_, diag):
        await anyio.sleep(0.5)
        sink.script = unavailable
        await emit_each_second(diag, 600)
    ids = held(DiskSpool(tmp_path))
    assert len(ids) >= 600
    assert ids == sorted(ids)


async def test_the_boot_record_is_not_overtaken(start_node: StartNode, sink: ScriptedSink) -> None:
    sink.script = unavailable
    async with start_node() as (_, diag):
        await emit_each_second(diag, 300)
    assert {record.kind for _, record in sink.attempts} == {RecordKind.BOOT}


async def test_a_boot_record_that_is_never_taken_holds_up_the_others_for_minutes_only(
    start_node: StartNode, sink: ScriptedSink, tmp_path: Path
) -> None:
    def script(record: Outgoing) -> Answer:
        return unavailable(record) if record.kind is RecordKind.BOOT else stored_answer(record)

    sink.script = script
    spool = DiskSpool(tmp_path)
    async with start_node(spool=spool, config=NO_SNAPSHOTS) as (_, diag):
        await emit_each_second(diag, 1_800)
        made = numbers_stored(sink)
        assert set(range(1_790)) <= set(made)
        assert spool.figures().records == 1
        sink.recover()
        await anyio.sleep(60)
        assert len(sink.of_kind(RecordKind.BOOT)) == 1


def held(spool: Spool) -> list[str]:
    """Take all records out of ``spool``."""
    ids: list[str] = []
    while (record := spool.peek()) is not None:
        ids.append(record.batch_id)
        spool.pop(record.batch_id)
    return ids
