"""What happens inside of a collector when many ask for the same thing, or the disk fails them."""

import asyncio
import threading

import pytest

from swactor.testing import ManualClock
from swactor_diag.collector.commits import GroupCommit
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.parts import Parts
from swactor_diag.collector.storage import Entry, MemoryStorage, StorageError, StoragePath
from swactor_diag.schema.submission import Outgoing, RecordKind


class SlowToRead(MemoryStorage):
    """Bodies are read only after ``go``, and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.reads = 0
        self.fails = False

    def read(self, path: StoragePath, start: int = 0, length: int | None = None) -> bytes:
        self.go.wait(10)
        self.reads += 1
        return super().read(path, start, length)

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        if self.fails and len(path) == 2:
            raise StorageError("no disk")
        return super().list(path)


def filled(storage: MemoryStorage) -> Parts:
    """Return the parts of a collector that has just started over a run of ten records."""
    for number in range(1, 11):
        body = b"[%d]" % number
        record = Outgoing(
            kind=RecordKind.EVENTS, run_id="run", node_id="n", batch_id=f"b-events-{number}", body=body
        )
        parts(storage, writer=f"w{number}").ingest.accept(record, number)
    return parts(storage)


def parts(storage: MemoryStorage, *, writer: str = "main") -> Parts:
    return Parts(CollectorConfig(), storage, clock=ManualClock(), writer=writer)


async def test_a_run_is_read_once_however_many_nodes_come_back_at_once() -> None:
    """FC-055 as the collector sees it: after its restart a fleet stands at the door."""
    storage = SlowToRead()
    storage.go.set()
    one = filled(storage)
    await one.know("run")
    reads_of_one, storage.reads = storage.reads, 0
    storage.go.clear()
    many = parts(storage)

    asking = [asyncio.create_task(many.know("run")) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()
    storage.go.set()
    results = await asyncio.gather(*asking, return_exceptions=True)

    assert storage.reads <= reads_of_one
    assert [type(result) for result in results] == [asyncio.CancelledError, *[type(None)] * 49]
    assert many.ingest.is_known("run")


async def test_a_run_that_cannot_be_read_is_tried_again() -> None:
    storage = SlowToRead()
    storage.go.set()
    found = filled(storage)
    storage.fails = True

    for _ in range(2):
        with pytest.raises(StorageError):
            await found.know("run")
    storage.fails = False
    await found.know("run")

    assert found.ingest.is_known("run")


async def test_a_disk_that_can_neither_flush_nor_cut_keeps_nobody_waiting() -> None:
    """FC-045."""

    def broken() -> None:
        raise StorageError("input/output error")

    commit = GroupCommit(broken, broken)

    for _ in range(2):
        with pytest.raises(StorageError):
            await asyncio.wait_for(commit.flushed(), 10)
