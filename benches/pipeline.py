"""What does a pipeline cost? The example's nodes, each a process of its own, beside the model in one process.

The two take turns, prompt by prompt, so that whatever else the machine does hits both. The nodes meet
through a real relay over real endpoints, as in ``make demo``; this process is their orchestrator. What it
computes for comparison runs in a thread, so that its node goes on showing that it lives.

Shown are the memory of each worker; the time of a token here and there, and how much the pipeline adds; then
the tokens a second with several requests under way, beside one process that takes one after the other.

The exit status is 0 whatever the figures are: a benchmark is not a test.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import msgspec
import psutil

if not __package__:  # started as a file: its packages lie beside its folder
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: as each worker has it

from examples.pipeline_inference.lines import Text
from examples.pipeline_inference.messages import Generate, Response
from examples.pipeline_inference.model import catalog
from examples.pipeline_inference.model.config import Cut, ModelName
from examples.pipeline_inference.model.slices import ModelSlice
from examples.pipeline_inference.node import NodeFile, RunConfig, StageConfig, running_node
from examples.pipeline_inference.orchestrator import Orchestrator
from examples.pipeline_inference.process import ALPN
from examples.pipeline_inference.stage import ORCHESTRATOR
from swactor import ActorRef, SystemClock, SystemRandom
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import PeerAddress
from swactor.cluster.transport.iroh import IrohTransport
from swactor_diag.ports import production_ports

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = (
    "What is an actor?",
    "What is a relay?",
    "Tell me a story.",
    "Why did the worker die?",
    "Who are you?",
    "What happens when a node dies?",
)
UNDER_WAY = len(PROMPTS)
LOAD_S = 300.0
ADDED_MS_MAX = 6.0
"""The bar for the small model: what three stages add to a token, at the median."""
THROUGHPUT_MIN = 1.3
"""The bar for Gemma on two cores: tokens a second, beside one process."""


class Pipeline:
    """The orchestrator in this process; notes when each token came."""

    def __init__(self) -> None:
        self.came_s: list[float] = []
        self.orchestrator: ActorRef[Generate] | None = None

    def say(self, line: object) -> None:
        """Note the time of a token."""
        if isinstance(line, Text):
            self.came_s.append(perf_counter())

    async def ask(self, request_id: str, prompt: str, tokens: int) -> Response:
        """Have one prompt answered."""
        assert self.orchestrator is not None
        asked = Generate(request_id=request_id, prompt=prompt, tokens_max=tokens, timeout_s=LOAD_S)
        return await self.orchestrator.ask(asked, timeout_s=2 * LOAD_S)

    async def gaps_ms(self, request_id: str, prompt: str, tokens: int) -> list[float]:
        """Return the times from token to token; the first one has the prompt in it and does not count."""
        self.came_s.clear()
        await self.ask(request_id, prompt, tokens)
        return [(after - before) * 1e3 for before, after in pairwise(self.came_s)]


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python with ``arguments``; stop it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def stages(run: RunConfig, model: ModelName, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the stage nodes of ``run``."""
    random = SystemRandom().stream("bench")
    with ExitStack() as stack:
        processes = []
        for index in range(run.stage_count):
            place = (str(index), str(run.stage_count), "--model", model)
            worker = (sys.executable, "-m", "examples.pipeline_inference.worker_program", *place)
            config = StageConfig(run=run, index=index, worker=worker, ready_timeout_s=LOAD_S)
            path = folder / f"stage-{index}.node"
            path.touch(mode=0o600)
            path.write_bytes(
                msgspec.msgpack.encode(NodeFile(config=config, secret_key=NodeKey.generate(random).secret))
            )
            processes.append(stack.enter_context(child("examples.pipeline_inference", "node", str(path))))
        yield processes


def reference_ms(model: ModelSlice, prompt: str, tokens: int) -> list[float]:
    """Return the times from token to token in this process."""
    came = [perf_counter() for _ in catalog.generate(model, prompt, tokens_max=tokens)]
    return [(after - before) * 1e3 for before, after in pairwise(came)]


def count_all(model: ModelSlice, tokens: int) -> int:
    """Answer all prompts in this process, one after the other; return how many tokens that were."""
    return sum(len(list(catalog.generate(model, prompt, tokens_max=tokens))) for prompt in PROMPTS)


async def per_token(pipeline: Pipeline, whole: ModelSlice, rounds: int, tokens: int) -> None:
    """Show what a token takes here and there, in turns."""
    ours, reference, added = [], [], []
    for number in range(rounds):
        for prompt in PROMPTS:
            alone = statistics.median(await asyncio.to_thread(reference_ms, whole, prompt, tokens))
            there = statistics.median(await pipeline.gaps_ms(f"{number}-{prompt}", prompt, tokens))
            ours.append(there)
            reference.append(alone)
            added.append(there - alone)
    print(f"a token, p50: {statistics.median(reference):.2f} ms in one process", end=", ")
    print(f"{statistics.median(ours):.2f} ms in the pipeline", end=", ")
    print(f"which adds {statistics.median(added):.2f} ms (small model: at most {ADDED_MS_MAX:g})")


async def throughput(pipeline: Pipeline, whole: ModelSlice, rounds: int, tokens: int) -> None:
    """Show the tokens a second with several requests under way, in turns with one process."""
    ratios = []
    for number in range(rounds):
        began = perf_counter()
        alone = await asyncio.to_thread(count_all, whole, tokens)
        alone_rate = alone / (perf_counter() - began)
        began = perf_counter()
        responses = await asyncio.gather(
            *(pipeline.ask(f"many-{number}-{prompt}", prompt, tokens) for prompt in PROMPTS)
        )
        rate = sum(len(response.tokens) for response in responses) / (perf_counter() - began)
        ratios.append(rate / alone_rate)
        print(
            f"{UNDER_WAY} requests: {alone_rate:.1f} tokens/s one after the other, {rate:.1f} in the pipeline"
        )
    print(f"ratio, median: {statistics.median(ratios):.2f} (Gemma on two cores: at least {THROUGHPUT_MIN:g})")


def memory(nodes: list[subprocess.Popen[bytes]], model: ModelName) -> None:
    """Show what each worker holds."""
    for node in nodes:
        for worker in psutil.Process(node.pid).children():
            if "examples.pipeline_inference.worker_program" in worker.cmdline():
                stage = worker.cmdline()[3]
                print(f"worker of stage {stage}: {worker.memory_info().rss / 1e6:.0f} MB resident ({model})")


async def bench(arguments: argparse.Namespace, relay_url: str, folder: Path) -> None:
    """Start everything, measure, show."""
    whole = catalog.load(arguments.model, Cut(0, 1))
    key = NodeKey.generate(SystemRandom().stream("bench"))
    run = RunConfig(run_id="bench", token=os.urandom(32), stage_count=arguments.stages, relay_url=relay_url)
    joining = msgspec.structs.replace(run, seeds=(PeerAddress(key.node_id, relay_url),))
    transport = IrohTransport(key.secret, relay_url=relay_url, alpn=ALPN, clock=SystemClock())
    ports = production_ports({}, pid=os.getpid(), transport=transport)
    pipeline = Pipeline()
    with stages(joining, arguments.model, folder) as nodes:
        async with running_node(ports, run, role=ORCHESTRATOR) as node:
            pipeline.orchestrator = await node.system.spawn(
                Orchestrator(
                    node.cluster, stage_count=arguments.stages, join_timeout_s=LOAD_S, say=pipeline.say
                )
            )
            node.cluster.register(ORCHESTRATOR, pipeline.orchestrator)
            await pipeline.ask("warm", PROMPTS[0], 4)
            memory(nodes, arguments.model)
            await per_token(pipeline, whole, arguments.rounds, arguments.tokens)
            await throughput(pipeline, whole, arguments.rounds, arguments.tokens)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=ModelName, choices=list(ModelName), default=ModelName.SMALL)
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=40)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        child("swactor_diag.cli.main", "relay", "--port", "0") as relay,
    ):
        assert relay.stdout is not None
        url = msgspec.json.decode(relay.stdout.readline())["url"]
        asyncio.run(bench(arguments, url, Path(folder)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
