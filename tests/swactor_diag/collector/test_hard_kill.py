"""What was acknowledged survives the death of the collector, however sudden (FC-043, FC-058).

``SOAK_ROUNDS=200`` makes it the long loop, see ``make soak``.
"""

import asyncio
import hashlib
import io
import json
import os
import signal
import sys
import tarfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

import aiohttp
import pytest

WAIT_S = 180  # the long loop runs beside other things, and yields to them
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "5"))
NODES = [f"{number:02d}" * 32 for number in range(8)]


async def start(root: Path, *options: str) -> tuple[Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "swactor_diag.cli.main", "collector", "--port", "0", "--root", str(root), *options),
        stdout=PIPE,
        stderr=DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("SWACTOR_DIAG_")},
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
    return process, json.loads(line)["url"]


class Acknowledged:
    """What the collector has acknowledged so far, by node and batch."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.goal = 0
        self.reached = asyncio.Event()

    def add(self, name: str, body: bytes) -> None:
        self.bodies[name] = body
        if len(self.bodies) >= self.goal:
            self.reached.set()


async def post_until_dead(
    session: aiohttp.ClientSession, url: str, *, node: str, boot: str, acknowledged: Acknowledged
) -> None:
    for number in range(1, 100_000):
        batch = f"{boot}-events-{number:06d}"
        body = json.dumps([{"batch": batch, "filling": "x" * (number % 4000)}]).encode()
        headers = {"x-run-id": "run-1", "x-node-id": node, "x-batch-id": batch}
        try:
            async with session.post(f"{url}/diag/events", data=body, headers=headers) as answer:
                await answer.read()
                assert answer.status == 200
        except aiohttp.ClientError:
            return
        acknowledged.add(f"{node}/{batch}", body)


@pytest.mark.timeout(WAIT_S + 12 * ROUNDS)
async def test_every_acknowledged_record_is_in_the_bundle_after_kill_9(tmp_path: Path) -> None:
    acknowledged = Acknowledged()
    async with aiohttp.ClientSession() as session:
        for round_number in range(ROUNDS):
            acknowledged.goal = len(acknowledged.bodies) + 40 + 17 * (round_number % 7)
            acknowledged.reached.clear()
            process, url = await start(tmp_path, *(["--fsync"] if round_number % 2 else []))
            posting = [
                asyncio.create_task(
                    post_until_dead(
                        session, url, node=node, boot=f"boot{round_number}", acknowledged=acknowledged
                    )
                )
                for node in NODES
            ]
            await asyncio.wait_for(acknowledged.reached.wait(), WAIT_S)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await asyncio.gather(*posting)
        process, url = await start(tmp_path)
        async with session.get(f"{url}/diag/bundle/run-1") as answer:
            bundle = await answer.read()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0

    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        reader = archive.extractfile("run-1/MANIFEST.json")
        assert reader is not None
        manifest = json.load(reader)
    # What was being written when the collector died is named, and it is never a record.
    reasons = [aside["reason"] for aside in manifest["set_aside"]]
    assert all("torn: " in reason for reason in reasons), reasons
    assert len(manifest["set_aside"]) <= ROUNDS
    labels = {node["label"]: node["node_id_hex"] for node in manifest["nodes"]}
    stored = {
        f"{labels[file['path'].split('/')[0]]}/{file['batch_id']}": file["sha256"]
        for file in manifest["files"]
    }
    assert len(stored) == len(manifest["files"])  # nothing twice
    for name, body in acknowledged.bodies.items():
        assert stored[name] == hashlib.sha256(body).hexdigest()
    known = len(acknowledged.bodies)
    # At most the one record in flight per node and round may be there without its acknowledgement.
    assert known <= len(stored) <= known + ROUNDS * len(NODES)
    counts = f"{known} acknowledged, {len(stored)} stored, none lost, none twice"
    sys.stdout.write(f"\n{ROUNDS} kills: {counts}\n")
