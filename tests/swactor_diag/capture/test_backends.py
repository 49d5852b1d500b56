"""The whole tree on every event loop that is supported."""

from typing import Any

import pytest
from msgspec import Struct

from swactor import ActorSystem
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom
from swactor_diag.schema.submission import RecordKind
from swactor_diag.supervisor import Diagnostics

from .conftest import ListSink


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


class Answer42(Struct, frozen=True):
    value: int


class Slow:
    name, record = "slow", Answer42

    async def observe(self) -> Answer42:
        return Answer42(42)


async def test_records_arrive_and_the_end_is_orderly(identity: Identity, sink: ListSink) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, sink=sink, introspectors=[Slow()])
        snapshot = await diag.snapshot()
        await diag.finalize("done")
        diag.emit(Custom(kind="last", fields={}))
    assert snapshot.body.others == {"slow": {"value": 42}}
    assert sink.records[0].kind is RecordKind.BOOT
    assert {record.kind for record in sink.records} == set(RecordKind)
    assert any(b'"kind":"last"' in record.body for record in sink.records)


async def test_a_dead_tree_makes_finalize_end_without_a_bundle(identity: Identity, sink: ListSink) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, sink=sink)
        await diag.stop()
        assert await diag.finalize("done") is None
