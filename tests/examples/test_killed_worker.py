"""``kill -9`` of a worker while it answers, in every stage: real processes, endpoints and time.

This process is the orchestrator, so that the asker's error can be seen as what it is; relay, collector,
stages and workers are processes of their own. The bundle then has to tell the same, by its records' times.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import psutil
import pytest

from examples.pipeline_inference.errors import StageFailedError
from examples.pipeline_inference.lines import Text
from examples.pipeline_inference.messages import Generate, Response
from examples.pipeline_inference.model import catalog
from examples.pipeline_inference.model.config import Cut, ModelName
from examples.pipeline_inference.node import Node, NodeFile, RunConfig, StageConfig, running_node
from examples.pipeline_inference.orchestrator import Orchestrator
from examples.pipeline_inference.process import ALPN
from examples.pipeline_inference.stage import ORCHESTRATOR, stage_name
from swactor import ActorRef, SystemClock
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import PeerAddress
from swactor.cluster.transport.iroh import IrohTransport
from swactor_diag.cli.fetch import download
from swactor_diag.ports import production_ports
from swactor_diag.postproc.load import Run, load_run
from swactor_diag.postproc.summary import render
from swactor_diag.schema.reading import Record

ROOT = Path(__file__).parents[2]
CLI = "swactor_diag.cli.main"
WORKER = "examples.pipeline_inference.worker_program"
RUN_ID = "killed-workers"
STAGES = 3
STORY = "Tell me a story."
FAILS_WITHIN_MS = 2_000
"""The bar: from the kill until the asker has its error."""
KILLED_AT_TOKEN = 5

CLOCK = SystemClock()


@contextmanager
def child(*arguments: str, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python with ``arguments``; stop it at the end, in order if it can be."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, cwd=ROOT, env=os.environ | environ
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def url_of(service: subprocess.Popen[bytes]) -> str:
    assert service.stdout is not None
    return str(msgspec.json.decode(service.stdout.readline())["url"])


def worker_of(node: subprocess.Popen[bytes]) -> psutil.Process:
    (found,) = [one for one in psutil.Process(node.pid).children() if WORKER in one.cmdline()]
    return found


class Asking:
    """The orchestrator of this process, and its asker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tokens: dict[str, int] = {}
        self._goes_on: dict[str, anyio.Event] = {}
        self._orchestrator: ActorRef[Any] | None = None

    async def begin(self) -> None:
        self._orchestrator = await self._node.system.spawn(
            Orchestrator(self._node.cluster, stage_count=STAGES, join_timeout_s=40.0, say=self._say)
        )
        self._node.cluster.register(ORCHESTRATOR, self._orchestrator)

    def _say(self, line: object) -> None:
        if isinstance(line, Text):
            self._tokens[line.request_id] = self._tokens.get(line.request_id, 0) + 1
            if self._tokens[line.request_id] == KILLED_AT_TOKEN:
                self._goes_on.setdefault(line.request_id, anyio.Event()).set()

    async def under_way(self, request_id: str) -> None:
        """Wait until some tokens of the answer have come."""
        await self._goes_on.setdefault(request_id, anyio.Event()).wait()

    async def ask(self, request_id: str) -> Response:
        assert self._orchestrator is not None
        asked = Generate(request_id=request_id, prompt=STORY, tokens_max=120, timeout_s=40.0)
        return await self._orchestrator.ask(asked, timeout_s=80.0)


async def kill_and_ask_again(
    asking: Asking, nodes: list[subprocess.Popen[bytes]], stage: int, *, answer: str
) -> int:
    """Kill the worker of a stage under a request; return when that was, by the wall clock."""
    killed_at_ms = 0
    killed_ns = 0

    async def kill() -> None:
        nonlocal killed_at_ms, killed_ns
        await asking.under_way(f"lost-{stage}")
        victim = worker_of(nodes[stage])
        killed_at_ms, killed_ns = CLOCK.wall_ms(), CLOCK.monotonic_ns()
        victim.kill()

    async with anyio.create_task_group() as group:
        group.start_soon(kill)
        with pytest.raises(StageFailedError, match=r"worker was killed by SIGKILL .* not by us") as failed:
            await asking.ask(f"lost-{stage}")
        took_ms = (CLOCK.monotonic_ns() - killed_ns) / 1e6
    assert failed.value.stage == stage_name(stage)
    assert took_ms < FAILS_WITHIN_MS
    assert (await asking.ask(f"next-{stage}")).text == answer
    return killed_at_ms


@pytest.mark.timeout(120)
async def test_its_request_fails_in_time_its_successor_answers_and_the_bundle_tells_all_of_it(
    tmp_path: Path,
) -> None:
    with (
        child(CLI, "collector", "--port", "0", "--root", str(tmp_path / "data"), environ={}) as collector,
        child(CLI, "relay", "--port", "0", environ={}) as relay,
    ):
        collector_url, relay_url = url_of(collector), url_of(relay)
        killed_at_ms = await run(relay_url, {"SWACTOR_DIAG_COLLECTOR_URL": collector_url}, tmp_path)
        bundle = tmp_path / "bundle.tar.gz"
        await anyio.to_thread.run_sync(
            lambda: download(collector_url, RUN_ID, target=bundle, token_file=None)
        )
    found = load_run(bundle)
    for stage in range(STAGES):
        assert_told(found, stage, killed_at_ms[stage])
    summary = render(found)
    for stage in range(STAGES):
        lives = [line for line in summary.splitlines() if f" | worker-{stage} | " in line]
        assert "killed by signal 9 after" in lives[0]
        assert "stopped by us with signal 15" in lives[1]
        assert f"request_id lost-{stage}" in summary
    assert f"send_outcome answered {STAGES}, stage_failed {STAGES}" in summary


async def run(relay_url: str, environ: dict[str, str], folder: Path) -> list[int]:
    """Run the nodes; kill each worker once under a request; return when, by stage."""
    key = NodeKey(bytes([1]) * 32)
    shared = RunConfig(run_id=RUN_ID, token=os.urandom(32), stage_count=STAGES, relay_url=relay_url)
    joining = msgspec.structs.replace(shared, seeds=(PeerAddress(key.node_id, relay_url),))
    # Before the node is there: what takes long on its event loop is noticed, and rightly.
    answer = catalog.answer(catalog.load(ModelName.SMALL, Cut(0, 1)), STORY, tokens_max=120)
    with stages(joining, environ, folder) as nodes:
        transport = IrohTransport(key.secret, relay_url=relay_url, alpn=ALPN, clock=CLOCK)
        ports = production_ports(os.environ | environ, transport=transport)
        async with running_node(ports, shared, role=ORCHESTRATOR) as node:
            asking = Asking(node)
            await asking.begin()
            killed_at_ms = [
                await kill_and_ask_again(asking, nodes, stage, answer=answer) for stage in range(STAGES)
            ]
            await node.diagnostics.finalize("over")
    return killed_at_ms


@contextmanager
def stages(
    config: RunConfig, environ: dict[str, str], folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        nodes = []
        for index in range(STAGES):
            worker = (sys.executable, "-m", WORKER, str(index), str(STAGES))
            stage = StageConfig(run=config, index=index, worker=worker, ready_timeout_s=40.0)
            secret = NodeKey(bytes([2 + index]) * 32).secret
            path = folder / f"stage-{index}.node"
            path.write_bytes(msgspec.msgpack.encode(NodeFile(config=stage, secret_key=secret)))
            nodes.append(
                stack.enter_context(child("examples.pipeline_inference", "node", str(path), environ=environ))
            )
        yield nodes


def assert_told(run: Run, stage: int, killed_at_ms: int) -> None:
    """The records of the stage and of the orchestrator tell the story, each at its time."""
    node = next(node for node in run.nodes if node.label == stage_name(stage))
    first, second = of_kind(node.records, "SubprocessSpawned")
    killed, stopped = of_kind(node.records, "SubprocessExited")
    assert (killed.raw["exit_signal"], killed.raw["external"]) == (9, True)
    assert killed.raw["pid"] == first.raw["pid"] != second.raw["pid"] == stopped.raw["pid"]
    (restarted,) = of_kind(node.records, "ActorRestarted")
    assert str(restarted.raw["actor"]).endswith(f"/{stage_name(stage)}")
    ready = [one for one in of_kind(node.records, "Custom") if one.raw["kind"] == "worker_ready"]
    assert len(ready) == 2

    orchestrator = next(node for node in run.nodes if node.label == ORCHESTRATOR)
    ended = {one.raw["request_id"]: one for one in of_kind(orchestrator.records, "InferenceResponseSent")}
    lost, answered = ended[f"lost-{stage}"], ended[f"next-{stage}"]
    assert (lost.raw["send_outcome"], lost.raw["stage"]) == ("stage_failed", stage_name(stage))
    assert "killed by SIGKILL" in str(lost.raw["why"])
    assert answered.raw["send_outcome"] == "answered"

    assert killed_at_ms <= lost.wall_ms <= killed_at_ms + FAILS_WITHIN_MS
    order = [
        killed_at_ms,
        killed.wall_ms,
        restarted.wall_ms,
        second.wall_ms,
        ready[1].wall_ms,
        answered.wall_ms,
    ]
    assert order == sorted(order)


def of_kind(records: tuple[Record, ...], kind: str) -> list[Record]:
    return [record for record in records if record.kind == kind]
