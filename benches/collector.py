"""How fast a collector takes records beside a bare handler, and how much memory a bundle of 1 GB takes.

    python -m benches.collector ingest     16 connections, 8 KB batches, alternated with aiohttp and one file
    python -m benches.collector bundle     1 GB of staging, fetched once; peak memory of the server

Every server is a process of its own. Rounds are alternated, so that what else the machine does hits both.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.server import CollectorServer
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

CONNECTIONS = 16
BODY = b'["' + b"x" * (8 * 1024 - 4) + b'"]'
POSTS = 3_000
ROUNDS = 5
NODES = 16
STAGED_BYTES = 1024**3


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
    async with CollectorServer(CollectorConfig(root=folder, port=0)) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def start(what: str, folder: Path) -> tuple["subprocess.Popen[str]", str]:
    command = [sys.executable, "-m", "benches.collector", what, "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


async def post_many(url: str, *, boot: str) -> float:
    """Return how many posts a second went through."""
    numbers = iter(range(1, POSTS + 1))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def sender(node: str) -> None:
            for number in numbers:
                headers = {
                    "x-run-id": "bench",
                    "x-node-id": node,
                    "x-batch-id": batch_id(boot, RecordKind.EVENTS, number),
                }
                async with session.post(f"{url}/diag/events", data=BODY, headers=headers) as answer:
                    await answer.read()
                    assert answer.status == 200

        began_s = time.perf_counter()
        await asyncio.gather(*(sender(f"{number:064x}") for number in range(CONNECTIONS)))
        return POSTS / (time.perf_counter() - began_s)


def bench_ingest(folder: Path) -> None:
    servers = {what: start(what, folder) for what in ("serve-bare", "serve-collector")}
    rates: dict[str, list[float]] = {what: [] for what in servers}
    try:
        for round_number in range(ROUNDS):
            for what, (_, url) in servers.items():
                rates[what].append(asyncio.run(post_many(url, boot=f"b{round_number}")))
    finally:
        for process, _ in servers.values():
            process.kill()
            process.wait()
    ratios = [mine / bare for mine, bare in zip(rates["serve-collector"], rates["serve-bare"], strict=True)]
    for what, found in rates.items():
        print(f"{what}: {statistics.median(found):.0f} posts a second")
    print(f"collector / bare: {statistics.median(ratios):.2f} (median of {ROUNDS})")


def stage(folder: Path) -> None:
    staging = Staging(LocalStorage(folder))
    for number in range(STAGED_BYTES // len(BODY)):
        record = Outgoing(
            kind=RecordKind.EVENTS,
            run_id="bench",
            node_id=f"{number % NODES:064x}",
            batch_id=batch_id("b", RecordKind.EVENTS, number // NODES + 1),
            body=BODY,
        )
        staging.append(record, recv_ms=1_700_000_000_000 + number)
    staging.storage.close()


async def fetch(url: str) -> int:
    size = 0
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.get(f"{url}/diag/bundle/bench") as answer,
    ):
        async for chunk in answer.content.iter_any():
            size += len(chunk)
    return size


async def fetch_many(url: str, times: int) -> list[int]:
    return list(await asyncio.gather(*(fetch(url) for _ in range(times))))


def bench_bundle(folder: Path) -> None:
    stage(folder)
    for downloads in (1, 5):
        process, url = start("serve-collector", folder)
        try:
            before_kb = memory_kb(process.pid, "VmRSS")
            began_s = time.perf_counter()
            sizes = asyncio.run(fetch_many(url, downloads))
            took_s = time.perf_counter() - began_s
            peak_kb = memory_kb(process.pid, "VmHWM")
        finally:
            process.kill()
            process.wait()
        print(
            f"{downloads} at once: {sizes[0]} bytes in {took_s:.1f} s, "
            f"peak {peak_kb // 1024} MB, {before_kb // 1024} MB before"
        )


def memory_kb(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["ingest", "bundle", "serve-bare", "serve-collector"])
    parser.add_argument("--folder", type=Path, help="Where to store; else a folder that is removed.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        match given.what:
            case "serve-bare":
                asyncio.run(serve_bare(folder))
            case "serve-collector":
                asyncio.run(serve_collector(folder))
            case "ingest":
                bench_ingest(folder)
            case _:
                bench_bundle(folder)


if __name__ == "__main__":
    main()
