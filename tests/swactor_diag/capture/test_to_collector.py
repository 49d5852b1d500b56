"""From an emitted event to a file of the bundle, over real HTTP to a real collector, on every event loop."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal

from swactor import ActorSystem, SystemClock, SystemRandom
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.server import CollectorServer
from swactor_diag.delivery.http import HttpSink
from swactor_diag.identity import machine_facts
from swactor_diag.introspect import LinuxProc, kernel_units
from swactor_diag.ports import Ports
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom
from swactor_diag.schema.reading import read_batch, read_identity, read_snapshot
from swactor_diag.supervisor import Diagnostics
from swactor_process import LinuxSpawner


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorServer]:
    """A real collector; it needs asyncio, whatever the node runs on."""
    server = CollectorServer(CollectorConfig(root=tmp_path / "collector", port=0, finalize_wait_s=0.2))
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(server) as up:
        yield up


async def test_a_run_ends_in_a_bundle_that_holds_all_of_it(
    tmp_path: Path, identity: Identity, collector: CollectorServer
) -> None:
    ports = Ports(
        clock=SystemClock(),
        random=SystemRandom(),
        spawner=LinuxSpawner,
        proc=LinuxProc(),
        units=kernel_units(),
        sink=HttpSink(collector.url),
        spool_root=tmp_path / "spool",
        machine=machine_facts(pid=os.getpid()),
    )
    async with ActorSystem(clock=ports.clock, random=ports.random) as system:
        diag = await Diagnostics.from_ports(system, identity, ports=ports)
        for number in range(700):
            diag.emit(Custom(kind="made", fields={"n": number}))
        path = await diag.finalize("done")
    assert path is not None

    with tarfile.open(path) as bundle:
        files = {
            member.name.removeprefix("r/"): file.read()
            for member in bundle.getmembers()
            if (file := bundle.extractfile(member)) is not None
        }
    manifest = msgspec.json.decode(files["MANIFEST.json"])
    assert manifest["finalize_received"] is True
    boot = next(name for name in files if name.endswith("boot.json"))
    assert read_identity(files[boot]) == identity
    records = [r for name in files if "/events/" in name for r in read_batch(files[name]).records]
    made = [r.event.fields["n"] for r in records if isinstance(r.event, Custom) and r.event.kind == "made"]
    assert len(made) == 700
    assert set(made) == set(range(700))
    snapshots = [read_snapshot(files[name]) for name in files if "/snapshots/" in name]
    assert snapshots
    assert all(snapshot.problems == () for snapshot in snapshots)
    assert not list((tmp_path / "spool").rglob("*.bin"))
