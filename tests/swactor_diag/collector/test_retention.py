"""What goes is the oldest that nobody needs, and it is written down."""

import asyncio
import os
import socket
from pathlib import Path

import aiohttp

from swactor.testing import ManualClock
from swactor_diag.collector.bundle import build_bundle
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.parts import Parts
from swactor_diag.collector.retention import PINS_FOLDER, StoredRun, decide
from swactor_diag.collector.server import CollectorServer
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage, MemoryStorage
from swactor_diag.schema.submission import Outgoing, RecordKind

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def stored(
    name: str, *, days: float | None, size: int = 10, finalized: bool = False, held: bool = False
) -> StoredRun:
    last_ms = None if days is None else int(NOW_MS - days * DAY_MS)
    return StoredRun(run_id=name, is_finalized=finalized, last_ms=last_ms, size_bytes=size, is_held=held)


def gone(*runs: StoredRun, cap: int = 0, room: int = 0) -> list[str]:
    config = CollectorConfig(keep_unfinalized_days=30, keep_finalized_days=7, disk_bytes_max=cap)
    return [trim.run_id for trim in decide(runs, config, now_ms=NOW_MS, room_bytes=room)]


def test_each_state_has_its_age() -> None:
    assert gone(
        stored("old", days=31),
        stored("young", days=29),
        stored("done", days=8, finalized=True),
        stored("unknown", days=None),
    ) == ["old", "done"]


def test_under_the_cap_the_oldest_go_first_and_no_more_than_needed() -> None:
    """FC-057."""
    runs = [stored("new", days=1), stored("old", days=3), stored("middle", days=2)]

    assert gone(*runs, cap=30) == []
    assert gone(*runs, cap=25) == ["old"]
    assert gone(*runs, cap=25, room=10) == ["old", "middle"]


def test_what_receives_or_is_held_stays_whatever_the_cap() -> None:
    assert gone(stored("receiving", days=0), stored("held", days=50, held=True), cap=1) == []


class Collector:
    """The parts of a collector, with a clock that the test moves."""

    def __init__(self, config: CollectorConfig) -> None:
        self.storage = MemoryStorage()
        self.clock = ManualClock()
        self.parts = Parts(config, self.storage, clock=self.clock, writer="main")

    def add(self, run_id: str, *, at_ms: int, size: int = 1_000) -> None:
        body = b'"%b"' % (b"x" * size)
        record = Outgoing(
            kind=RecordKind.EVENTS, run_id=run_id, node_id="n", batch_id="b-events-1", body=body
        )
        self.parts.ingest.accept(record, at_ms)


async def test_trimming_deletes_and_writes_down_what_is_not_pinned(tmp_path: Path) -> None:
    collector = Collector(CollectorConfig(root=tmp_path, disk_bytes_max=2_500))
    now_ms = collector.clock.wall_ms()
    for age, name in enumerate(["newest", "middle", "oldest"], start=1):
        collector.add(name, at_ms=now_ms - age * 3_600_000)
    collector.storage.write(("@pins", "oldest"), b"")

    done = await collector.parts.trimmer.trim()

    assert [trim.run_id for trim in done] == ["middle"]
    assert collector.parts.ingest.staging.run_ids() == ("newest", "oldest")
    assert collector.parts.trimmer.trims() == done
    assert [run.run_id for run in collector.parts.ingest.runs()] == ["newest", "oldest"]
    assert await collector.parts.trimmer.trim() == []


def _small_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket in which little waits: else the kernel may take a whole bundle that nobody reads."""
    client = socket.socket(*address[:3])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.setblocking(False)
    return client


async def test_of_three_runs_the_one_goes_that_is_neither_downloaded_nor_receiving(tmp_path: Path) -> None:
    """FC-057."""
    clock = ManualClock()
    storage, size = LocalStorage(tmp_path), 16 * 1024 * 1024
    for name, age_ms in (("oldest", 3 * 3_600_000), ("middle", 2 * 3_600_000), ("receiving", 1_000)):
        record = Outgoing(
            kind=RecordKind.EVENTS,
            run_id=name,
            node_id="n",
            batch_id="b-events-1",
            body=b'"%b"' % os.urandom(size // 2).hex().encode(),
        )
        Ingest(storage).accept(record, clock.wall_ms() - age_ms)
        storage.write((PINS_FOLDER, name), b"")
        os.utime(tmp_path / name / "@log" / "main-000001.seg", ((clock.wall_ms() - age_ms) / 1000,) * 2)
    config = CollectorConfig(root=tmp_path, port=0, disk_bytes_max=5 * size // 2, trim_every_s=0.1)

    async with (
        CollectorServer(config, clock=clock) as server,
        aiohttp.ClientSession() as session,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=_small_socket)) as slow,
        slow.get(f"{server.url}/diag/bundle/oldest") as download,
    ):
        start = await download.content.read(10)
        for name in ("oldest", "middle", "receiving"):
            await session.delete(f"{server.url}/diag/runs/{name}/pin")
        trims: list[dict[str, object]] = []
        async with asyncio.timeout(30):
            while not trims:
                async with session.get(f"{server.url}/diag/trims") as answer:
                    trims = await answer.json()
        bundle = start + await download.read()

    assert [(trim["run_id"], trim["finalized"]) for trim in trims] == [("middle", False)]
    assert Staging(storage).run_ids() == ("oldest", "receiving")
    assert bundle == build_bundle(storage, "oldest")


async def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    collector = Collector(CollectorConfig(root=tmp_path, disk_bytes_max=500))
    collector.add("run", at_ms=collector.clock.wall_ms() - 3_600_000)

    plan = await asyncio.to_thread(collector.parts.trimmer.plan)

    assert [trim.run_id for trim in plan] == ["run"]
    assert collector.parts.ingest.staging.run_ids() == ("run",)
    assert collector.parts.trimmer.trims() == []
