"""A node beside its collector delivers without HTTP, under the same rules."""

import json
from pathlib import Path

import pytest

from swactor import ActorSystem
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.local_sink import LocalSink
from swactor_diag.collector.storage import LocalStorage, MemoryStorage, StorageError, StoragePath
from swactor_diag.delivery.sink import RecordRefusedError, SinkUnavailableError
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

NODE = "a1" * 32
OTHER = "b2" * 32


def record(kind: str, number: int = 1, *, body: bytes = b"{}", node: str = NODE) -> Outgoing:
    return Outgoing(
        kind=RecordKind(kind),
        run_id="run-1",
        node_id=node,
        batch_id=batch_id("b1", RecordKind(kind), number),
        body=body,
    )


def file_at(path: str) -> bytes:
    return Path(path).read_bytes()


async def test_a_finalize_answers_with_the_stored_bundle(tmp_path: Path) -> None:
    async with ActorSystem() as system:
        sink = LocalSink(Ingest(LocalStorage(tmp_path)), clock=system.clock, loop=system.loop)
        await sink.post(record("boot"))

        answer = await sink.post(record("finalize"))

    assert answer.bundle_path is not None
    assert answer.bundle_path.startswith(str(tmp_path / "@bundles" / "run-1@"))
    stored = file_at(answer.bundle_path)
    assert stored.startswith(b"\x1f\x8b")
    assert answer.snapshot_now


async def test_a_finalize_waits_no_longer_than_it_may() -> None:
    async with ActorSystem() as system:
        sink = LocalSink(Ingest(MemoryStorage()), clock=system.clock, loop=system.loop, finalize_wait_s=0.05)
        await sink.post(record("boot", node=OTHER))
        began_ns = system.clock.monotonic_ns()

        answer = await sink.post(record("finalize"))

        assert answer.bundle_path is not None
        assert system.clock.monotonic_ns() - began_ns >= 50_000_000
        assert answer.clock.collector_send_ms >= answer.clock.collector_recv_ms


async def test_refusals_and_failures_are_those_of_any_sink() -> None:
    class Broken(MemoryStorage):
        def append(self, path: StoragePath, data: bytes, *, at: int) -> None:
            raise StorageError("no disk")

    async with ActorSystem() as system:
        sink = LocalSink(Ingest(MemoryStorage()), clock=system.clock, loop=system.loop)
        broken = LocalSink(Ingest(Broken()), clock=system.clock, loop=system.loop)

        with pytest.raises(RecordRefusedError) as refused:
            await sink.post(record("events", body=b"{"))
        await sink.post(record("events", body=json.dumps([1]).encode()))
        with pytest.raises(RecordRefusedError) as conflict:
            await sink.post(record("events", body=json.dumps([2]).encode()))
        with pytest.raises(SinkUnavailableError):
            await broken.post(record("boot"))
        await sink.close()

    assert (refused.value.status, conflict.value.status) == (400, 422)
