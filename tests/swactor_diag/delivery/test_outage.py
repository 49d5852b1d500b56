"""An outage with a kill in the middle of it: what arrives and what the ledger says are all there was."""

import asyncio
import io
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import anyio
import msgspec

from sim.clock import WorldClock
from sim.loop import VirtualLoop
from sim.streams import SimRandom
from swactor import ActorSystem
from swactor.abc import Clock
from swactor_diag.collector.bundle import build_bundle
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.storage import MemoryStorage
from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.sink import SinkUnavailableError
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom
from swactor_diag.schema.manifest import Manifest
from swactor_diag.schema.reading import Record, read_batch
from swactor_diag.schema.submission import Answer, Outgoing, boot_of
from swactor_diag.supervisor import Diagnostics


class Collector:
    """A real collector's `Ingest`, which can be away; an answer may be lost on the way back."""

    def __init__(self, clock: Clock) -> None:
        self.ingest = Ingest(MemoryStorage())
        self.away = False
        self.answers_lost = 0
        self._clock = clock

    async def post(self, record: Outgoing) -> Answer:
        await anyio.sleep(0.05)
        if self.away:
            raise SinkUnavailableError("away")
        answer = self.ingest.accept(record, self._clock.wall_ms())
        if self.answers_lost:
            self.answers_lost -= 1
            raise SinkUnavailableError("the answer was lost")
        return answer

    async def close(self) -> None:
        pass

    def bundle(self) -> tuple[Manifest, dict[str, list[Record]]]:
        """The contents list of the bundle, and the events in it by the boot that made them."""
        archive = tarfile.open(fileobj=io.BytesIO(build_bundle(self.ingest.staging.storage, "r")))  # noqa: SIM115 - in memory
        files = {member.name: file.read() for member in archive if (file := archive.extractfile(member))}
        manifest = msgspec.json.decode(files["r/MANIFEST.json"], type=Manifest)
        records: dict[str, list[Record]] = {}
        for listed in manifest.files or ():
            if "/events/" in listed.path and isinstance(listed.batch_id, str):
                events = read_batch(files[f"r/{listed.path}"]).records
                records.setdefault(boot_of(listed.batch_id), []).extend(events)
        return manifest, records


async def emit_for(seconds: int, diag: Diagnostics, *, first: int) -> int:
    """Emit five numbered events a second; return the number after the last one."""
    for number in range(first, first + 5 * seconds):
        diag.emit(Custom(kind="made", fields={"n": number}))
        await anyio.sleep(0.2)
    return first + 5 * seconds


def made(records: list[Record]) -> list[object]:
    events = [record.event for record in records]
    return [event.fields["n"] for event in events if isinstance(event, Custom) and event.kind == "made"]


async def test_fc052_ten_minutes_away_with_a_kill_in_between_and_a_small_disk(
    identity: Identity, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock = WorldClock(loop, identity.process_start_unix_ms)
    collector = Collector(clock)

    async def boot(boot_id: str, system: ActorSystem, spool: Path) -> Diagnostics:
        who = msgspec.structs.replace(identity, boot_id=boot_id)
        disk = DiskSpool(spool, bytes_max=60_000)
        return await Diagnostics.start(system, who, sink=collector, spool=disk)

    async with ActorSystem(clock=clock, random=SimRandom(1)) as system:
        diag = await boot("b1", system, tmp_path / "first")
        number = await emit_for(10, diag, first=0)
        collector.away = True
        number = await emit_for(300, diag, first=number)
        emitted_by_first = (await diag.snapshot()).monotonic_seq
        await anyio.sleep(0.1)
        # A kill -9 now leaves this. What the process does from here on, its end included, nobody sees.
        shutil.copytree(tmp_path / "first", tmp_path / "second")

    async with ActorSystem(clock=clock, random=SimRandom(2)) as system:
        diag = await boot("b2", system, tmp_path / "second")
        number = await emit_for(300, diag, first=number)
        collector.away = False
        number = await emit_for(60, diag, first=number)
        collector.answers_lost = 3
        number = await emit_for(60, diag, first=number)
        await diag.finalize("done")

    manifest, records = collector.bundle()
    lost: Counter[str | None] = Counter()
    for row in manifest.drops or ():
        lost[row.boot_id] += row.events or 0
    for boot_id in ("b1", "b2"):
        seqs = [record.monotonic_seq for record in records[boot_id]]
        assert len(seqs) == len(set(seqs))
        emitted = emitted_by_first if boot_id == "b1" else max(seqs)
        assert len(seqs) + lost[boot_id] == emitted
        assert lost[boot_id] > 0
    arrived = made(records["b1"]) + made(records["b2"])
    assert len(arrived) == len(set(arrived))
    assert arrived[-1] == number - 1
    assert len([file for file in manifest.files or () if "boot" in file.path]) == 2
    (node,) = manifest.nodes
    missing = {boot.boot_id: boot.batches_missing for boot in node.boots or ()}
    assert missing["b2"] == sum(row.count for row in manifest.drops or () if row.boot_id == "b2")
