"""Hints of the collector: each is obeyed, and a collector that always hints costs a snapshot a second."""

import anyio
import msgspec

from swactor_diag.schema.submission import Answer, Outgoing, RecordKind
from swactor_diag.supervisor import DiagnosticsConfig

from .conftest import ScriptedSink, StartNode, stored_answer

NO_SNAPSHOTS = DiagnosticsConfig(snapshot_period_s=10_000)


def hinting(record: Outgoing) -> Answer:
    return msgspec.structs.replace(stored_answer(record), snapshot_now=True)


async def test_a_collector_that_always_hints_gets_a_snapshot_a_second(
    start_node: StartNode, sink: ScriptedSink
) -> None:
    sink.script = hinting
    async with start_node(config=NO_SNAPSHOTS):
        await anyio.sleep(20.5)
        assert 20 <= len(sink.of_kind(RecordKind.SNAPSHOT)) <= 22


async def test_a_hint_that_comes_too_early_is_obeyed_later(start_node: StartNode, sink: ScriptedSink) -> None:
    sink.script = lambda record: (
        hinting(record) if record.kind is not RecordKind.EVENTS else stored_answer(record)
    )
    async with start_node(config=NO_SNAPSHOTS):
        await anyio.sleep(0.5)  # the boot record's answer hints, so does that of the snapshot
        assert len(sink.of_kind(RecordKind.SNAPSHOT)) == 1
        sink.recover()
        await anyio.sleep(30)
        assert len(sink.of_kind(RecordKind.SNAPSHOT)) == 2
