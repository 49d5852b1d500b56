"""What happens inside of a collector when many ask for the same thing, or the disk fails them."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from swactor.testing import ManualClock
from swactor_diag.collector.commits import GroupCommit
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.parts import Parts
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import Entry, LocalStorage, MemoryStorage, StorageError, StoragePath
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


async def test_who_comes_while_a_flush_runs_shares_the_next_one() -> None:
    running, go = threading.Event(), threading.Event()
    flushes: list[int] = []

    def flush() -> None:
        flushes.append(len(flushes))
        running.set()
        go.wait(10)

    commit = GroupCommit(flush, lambda: None)
    first = asyncio.create_task(commit.flushed())
    await asyncio.to_thread(running.wait, 10)
    others = [asyncio.create_task(commit.flushed()) for _ in range(100)]
    await asyncio.sleep(0)
    assert not first.done()

    go.set()
    await asyncio.gather(first, *others)

    assert len(flushes) == 2


async def test_what_a_failed_flush_did_not_keep_is_stored_when_it_is_sent_again(tmp_path: Path) -> None:
    """FC-043, with ``--fsync``: nobody was told that it is stored, and then it is there once."""

    class FailsOnce(LocalStorage):
        fails = False

        def flush(self) -> None:
            if self.fails:
                self.fails = False
                raise StorageError("input/output error")
            super().flush()

    storage = FailsOnce(tmp_path, fsync=True)
    found = Parts(CollectorConfig(fsync=True), storage, clock=ManualClock(), writer="main")

    async def send(number: int) -> None:
        body = b"[%d]" % number
        batch = f"b-events-{number}"
        found.ingest.accept(
            Outgoing(kind=RecordKind.EVENTS, run_id="run", node_id="n", batch_id=batch, body=body), number
        )
        await found.commit.flushed()

    await send(1)
    storage.fails = True
    results = await asyncio.gather(*(send(number) for number in (2, 3, 4)), return_exceptions=True)
    assert {type(result) for result in results} == {StorageError}
    assert stored(tmp_path) == ["b-events-1"]
    for number in (4, 3, 2, 1):
        await send(number)

    assert sorted(stored(tmp_path)) == [f"b-events-{number}" for number in (1, 2, 3, 4)]


async def test_what_could_not_be_cut_off_is_not_acknowledged_when_it_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FC-043, FC-045: the file system turns read-only after an error, and what was written can be read."""
    found = Parts(
        CollectorConfig(fsync=True), LocalStorage(tmp_path, fsync=True), clock=ManualClock(), writer="main"
    )

    async def send(number: int) -> None:
        await found.know("run")
        body = b"[%d]" % number
        batch = f"b-events-{number}"
        found.ingest.accept(
            Outgoing(kind=RecordKind.EVENTS, run_id="run", node_id="n", batch_id=batch, body=body), number
        )
        await found.commit.flushed()

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    await send(1)
    with monkeypatch.context() as failing:
        failing.setattr(os, "ftruncate", fails)
        with failing.context() as also:
            also.setattr(os, "fsync", fails)
            with pytest.raises(StorageError):
                await send(2)
        for _ in range(2):
            with pytest.raises(StorageError):
                await send(2)
    with pytest.raises(StorageError):  # it is cut off now, and was known when it was sent
        await send(2)
    assert stored(tmp_path) == ["b-events-1"]

    await send(2)

    assert stored(tmp_path) == ["b-events-1", "b-events-2"]


async def test_runs_that_are_read_leave_threads_to_others() -> None:
    """FC-055: after a restart the nodes of many runs come back at once, and others wait for a flush."""
    storage = SlowToRead()
    storage.go.set()
    filled(storage)
    for number in range(50):
        record = Outgoing(
            kind=RecordKind.EVENTS, run_id=f"run-{number}", node_id="n", batch_id="b-events-1", body=b"[]"
        )
        parts(storage).ingest.accept(record, 1)
    storage.go.clear()
    found = parts(storage)
    asking = [asyncio.create_task(found.know(f"run-{number}")) for number in range(50)]
    await asyncio.sleep(0)

    try:
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
    finally:
        storage.go.set()
        await asyncio.gather(*asking)

    assert all(found.ingest.is_known(f"run-{number}") for number in range(50))


def stored(root: Path) -> list[str]:
    """What a collector that has just been started finds there."""
    staging = Staging(LocalStorage(root))
    portions = list(staging.portions(staging.list("run")))
    assert not any(portion.set_aside for portion in portions)
    return [record.batch_id for portion in portions for record in portion.records]
