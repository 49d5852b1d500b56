"""How fast a collector takes records beside a bare handler, how many nodes it serves, and in how much memory.

    python -m benches.collector ingest     16 connections, 8 KB batches, alternated with aiohttp and one file
    python -m benches.collector nodes      1,000 nodes for a minute, every record looked for in the bundle
    python -m benches.collector bundle     1 GB of staging, fetched once and five times at once; peak memory

Every server is a process of its own. Rounds are alternated, so that what else the machine does hits both.
Without a name all three are run. The exit status is 1 when a bar is missed.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.descriptors import raise_descriptor_limit
from swactor_diag.collector.server import CollectorServer
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage
from swactor_diag.postproc.archive import ArchiveReader
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

CONNECTIONS = 16
BODY = b'["' + b"x" * (8 * 1024 - 4) + b'"]'
POSTS = 3_000
ROUNDS = 7
RATE_BAR = 0.6

NODES = 1_000
BATCH = b'["' + b"x" * (2 * 1024 - 4) + b'"]'
PERIOD_S = 1.0
LOAD_S = 60.0
FLAT_BYTES = 8 * 1024 * 1024
"""What the second half of the load, 60 MB of bodies, may add to the memory."""

STAGED_BYTES = 1024**3
PEAK_BAR_BYTES = 150 * 1024 * 1024
GROWTH_BAR_BYTES = 64 * 1024 * 1024

MIB = 1024 * 1024


# -- the servers -------------------------------------------------------------------------------------------


async def serve_bare(folder: Path) -> None:
    """The least that could be called a collector: append the bytes to one file, say that it is done."""
    file = (folder / "bare").open("ab", buffering=0)

    async def handle(request: web.Request) -> web.Response:
        file.write(await request.read())
        return web.Response(body=b'{"ok":true}', content_type="application/json")

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/diag/events", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def serve_collector(folder: Path) -> None:
    raise_descriptor_limit()
    async with CollectorServer(CollectorConfig(root=folder, port=0)) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


class Server:
    """One of the two in a process of its own."""

    def __init__(self, what: str, folder: Path) -> None:
        command = [sys.executable, "-m", "benches.collector", what, "--folder", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def memory_bytes(self, field: str = "VmRSS") -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- records in --------------------------------------------------------------------------------------------


def headers(node: str, boot: str, number: int, *, run: str = "bench") -> dict[str, str]:
    return {
        "x-run-id": run,
        "x-node-id": node,
        "x-batch-id": batch_id(boot, RecordKind.EVENTS, number),
    }


async def post_many(url: str, *, boot: str, run: str = "bench") -> float:
    """Return how many posts a second went through."""
    numbers = iter(range(1, POSTS + 1))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def sender(node: str) -> None:
            for number in numbers:
                named = headers(node, boot, number, run=run)
                async with session.post(f"{url}/diag/events", data=BODY, headers=named) as answer:
                    await answer.read()
                    assert answer.status == 200

        began_s = time.perf_counter()
        await asyncio.gather(*(sender(f"{number:064x}") for number in range(CONNECTIONS)))
        return POSTS / (time.perf_counter() - began_s)


def bench_ingest(folder: Path) -> bool:
    rates: dict[str, list[float]] = {"serve-bare": [], "serve-collector": []}
    with Server("serve-bare", folder) as bare, Server("serve-collector", folder) as collector:
        servers = {"serve-bare": bare, "serve-collector": collector}
        for round_number in range(ROUNDS):
            for what, server in servers.items():
                rates[what].append(asyncio.run(post_many(server.url, boot=f"b{round_number}")))
        spent_us = {what: server.cpu_s() / ROUNDS / POSTS * 1e6 for what, server in servers.items()}
    ratios = [mine / bare for mine, bare in zip(rates["serve-collector"], rates["serve-bare"], strict=True)]
    for what, found in rates.items():
        print(f"{what}: {statistics.median(found):.0f} posts a second, {spent_us[what]:.0f} us of CPU each")
    ratio = statistics.median(ratios)
    print(f"collector / bare: {ratio:.2f} (median of {ROUNDS}, bar {RATE_BAR})")
    return ratio >= RATE_BAR


# -- many nodes --------------------------------------------------------------------------------------------


class Load:
    """Nodes that each send a batch a second, as far as the collector keeps up."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.acknowledged: list[int] = [0] * NODES
        self.latencies_s: list[float] = []

    async def run(self, lasts_s: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + lasts_s
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(self._node(session, number, until_s) for number in range(NODES)))

    async def _node(self, session: aiohttp.ClientSession, number: int, until_s: float) -> None:
        loop, node = asyncio.get_running_loop(), f"{number:08x}" * 8
        due_s = loop.time() + PERIOD_S * number / NODES
        while due_s < until_s:
            await asyncio.sleep(due_s - loop.time())
            began_s = loop.time()
            named = headers(node, "b", self.acknowledged[number] + 1)
            async with session.post(f"{self._url}/diag/events", data=BATCH, headers=named) as answer:
                await answer.read()
                assert answer.status == 200
            self.acknowledged[number] += 1
            self.latencies_s.append(loop.time() - began_s)
            due_s = max(due_s + PERIOD_S, loop.time())


def bench_nodes(folder: Path) -> bool:
    with Server("serve-collector", folder) as server:
        load = Load(server.url)
        began_s = time.perf_counter()
        asyncio.run(load.run(LOAD_S / 2))
        half_bytes = server.memory_bytes()  # by now every node is known, and has been connected
        asyncio.run(load.run(LOAD_S / 2))
        grown_bytes = server.memory_bytes() - half_bytes
        took_s, cpu_s = time.perf_counter() - began_s, server.cpu_s()
        archive = folder / "nodes.tar.gz"
        asyncio.run(fetch(server.url, archive))
    stored = count_batches(archive)
    wrong = [count for number, count in enumerate(load.acknowledged) if stored[f"node-{number:08x}"] != count]
    late_ms = statistics.quantiles(load.latencies_s, n=100)
    print(
        f"{NODES} nodes: {len(load.latencies_s)} batches in {took_s:.0f} s "
        f"({cpu_s / took_s:.0%} of a core), p50 {late_ms[49] * 1e3:.0f} ms, p99 {late_ms[98] * 1e3:.0f} ms"
    )
    total, found = sum(load.acknowledged), sum(stored.values())
    print(f"{total} acknowledged, {found} in the bundle; nodes with another count: {len(wrong)} (bar 0)")
    print(
        f"memory: {half_bytes / MIB:.1f} MB after half of it, "
        f"{grown_bytes / MIB:+.1f} MB at the end (bar {FLAT_BYTES // MIB:+})"
    )
    return not wrong and grown_bytes <= FLAT_BYTES


def count_batches(archive: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    with archive.open("rb") as file:
        for member in ArchiveReader(file):
            if len(member.path) == 4 and member.path[2] == "events":
                assert member.data == BATCH
                counts[member.path[1]] += 1
    return counts


# -- a large bundle ----------------------------------------------------------------------------------------


def bodies() -> Iterator[bytes]:
    """Yield 8 KB each that compress about as well as batches of events do; no two are equal."""
    chance = random.Random(1)
    fillings = [
        json.dumps([{"peer": f"{chance.getrandbits(32):08x}", "rtt_ms": chance.random()} for _ in range(170)])
        for _ in range(256)  # farther apart than gzip looks back
    ]
    for number in range(STAGED_BYTES // len(BODY)):
        yield f"[{number},{fillings[number % len(fillings)][1:]}".encode()


def stage(folder: Path) -> int:
    staging, staged = Staging(LocalStorage(folder)), 0
    for number, body in enumerate(bodies()):
        record = Outgoing(
            kind=RecordKind.EVENTS,
            run_id="bench",
            node_id=f"{number % CONNECTIONS:064x}",
            batch_id=batch_id("b", RecordKind.EVENTS, number // CONNECTIONS + 1),
            body=body,
        )
        staging.append(record, recv_ms=1_700_000_000_000 + number)
        staged += len(body)
    staging.storage.close()
    return staged


async def fetch(url: str, target: Path | None = None, *, run: str = "bench") -> int:
    size = 0
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"{url}/diag/bundle/{run}") as answer,
    ):
        assert answer.status == 200
        with (target or Path(os.devnull)).open("wb") as file:
            async for chunk in answer.content.iter_any():
                file.write(chunk)
                size += len(chunk)
    return size


async def fetch_many(url: str, times: int) -> list[int]:
    return list(await asyncio.gather(*(fetch(url) for _ in range(times))))


def bench_bundle(folder: Path) -> bool:
    staged = stage(folder)
    is_met = True
    for downloads in (1, 5):
        with Server("serve-collector", folder) as server:
            asyncio.run(post_many(server.url, boot="w", run="warm"))
            asyncio.run(fetch(server.url, run="warm"))  # what is loaded and started once is no growth
            before_bytes = server.memory_bytes()
            began_s = time.perf_counter()
            sizes = asyncio.run(fetch_many(server.url, downloads))
            took_s = time.perf_counter() - began_s
            peak_bytes = server.memory_bytes("VmHWM")
        print(
            f"{staged // MIB} MB staged, {downloads} at once: {sizes[0] // MIB} MB in {took_s:.1f} s, "
            f"peak {peak_bytes // MIB} MB (bar {PEAK_BAR_BYTES // MIB}), "
            f"{(peak_bytes - before_bytes) // MIB} MB more than before (bar {GROWTH_BAR_BYTES // MIB})"
        )
        is_met &= peak_bytes <= PEAK_BAR_BYTES and peak_bytes - before_bytes <= GROWTH_BAR_BYTES
    return is_met


def main() -> int:
    benches = {"ingest": bench_ingest, "nodes": bench_nodes, "bundle": bench_bundle}
    servers = {"serve-bare": serve_bare, "serve-collector": serve_collector}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=[*benches, *servers])
    parser.add_argument("--folder", type=Path, help="Where to store; else a folder that is removed.")
    given = parser.parse_args()
    if given.what in servers:
        asyncio.run(servers[given.what](given.folder))
        return 0
    met = []
    for name in [given.what] if given.what else benches:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (given.folder or Path(temporary)) / name
            folder.mkdir(parents=True)
            met.append(benches[name](folder))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
