"""The node functions of the pipeline on ports of a test: one process, virtual time, scripted workers."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from examples.pipeline_inference.lines import Answer, Failed, Line, Text
from examples.pipeline_inference.model import answer
from examples.pipeline_inference.node import (
    OrchestratorConfig,
    RunConfig,
    StageConfig,
    run_orchestrator,
    run_stage,
)
from examples.pipeline_inference.worker import Worker
from sim.clock import WorldClock
from sim.loop import VirtualLoop
from sim.streams import SimRandom
from swactor import ActorSystem
from swactor.abc import Loop
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import PeerAddress
from swactor.cluster.transport.memory import MemoryHub
from swactor_diag.delivery.sink import Sink
from swactor_diag.ports import Ports
from swactor_diag.schema.submission import Answer as SinkAnswer
from swactor_diag.schema.submission import ClockStamp, Outgoing, RecordKind
from swactor_process import ProcessSpec, Spawner, SpawnRole
from swactor_process.testing import Exit, Program, Refusal, Say, Script, ScriptedSpawner

STAGES = 3
TOKEN = b"a token of the test"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


class KeepingSink:
    """Takes everything, keeps what kind it was."""

    def __init__(self) -> None:
        self.kinds: list[RecordKind] = []

    async def post(self, record: Outgoing) -> SinkAnswer:
        self.kinds.append(record.kind)
        return SinkAnswer(clock=ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0))

    async def close(self) -> None:
        pass


def quick(spec: ProcessSpec) -> Script:
    """The real worker, as a script that takes a moment for each position."""
    worker = Worker(int(spec.args[0]), int(spec.args[1]))
    return Script(
        begin=(Say(worker.ready(), after_s=0.5),),
        on_line=lambda line: [Say(result, after_s=0.005) for result in worker.handle(line)],
    )


class Pipeline:
    """An orchestrator and its stages, started together; ``said`` is what the orchestrator said."""

    def __init__(self, programs: dict[int, Program] | None = None, *, sink: Sink | None = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.said: list[Line] = []
        self.stage_ends: dict[int, str | None] = {}
        self.stops: list[Callable[[], None]] = []
        self._clock = WorldClock(loop, 1_700_000_000_000)
        self._programs = programs or {}
        self._sink = sink
        self._keys = [NodeKey(bytes([number + 1]) * 32) for number in range(STAGES + 1)]
        self._hub: MemoryHub | None = None

    def ports(self, number: int) -> Ports:
        """Return the ports of node ``number``; 0 is the orchestrator."""

        def spawner(loop: Loop) -> Spawner:
            program = self._programs.get(number - 1, quick)
            return ScriptedSpawner(loop, self._clock, programs={"worker": program})

        assert self._hub is not None
        return Ports(
            clock=self._clock,
            random=SimRandom(1, str(number)),
            spawner=spawner,
            transport=self._hub.transport(self._keys[number].node_id),
            sink=self._sink,
        )

    async def run(self, *prompts: str) -> bool:
        """Run all nodes until the orchestrator has ended; return whether it answered."""
        async with ActorSystem(clock=self._clock) as hub_system:
            self._hub = MemoryHub(hub_system.loop)
            shared = RunConfig(run_id="test", token=TOKEN, stage_count=STAGES)
            async with anyio.create_task_group() as group:
                for index in range(STAGES):
                    group.start_soon(self._stage, shared, index)
                answered = await run_orchestrator(
                    self.ports(0),
                    OrchestratorConfig(run=shared, prompts=prompts, join_timeout_s=20.0),
                    say=self.said.append,
                    on_stop_request=lambda stop: None,
                )
                for stop in self.stops:
                    stop()
            return answered

    async def _stage(self, shared: RunConfig, index: int) -> None:
        joining = RunConfig(
            run_id=shared.run_id,
            token=shared.token,
            stage_count=STAGES,
            seeds=(PeerAddress(self._keys[0].node_id),),
        )
        config = StageConfig(run=joining, index=index, worker=("worker", str(index), str(STAGES)))
        self.stage_ends[index] = await run_stage(
            self.ports(index + 1), config, on_stop_request=self.stops.append
        )


async def test_the_answer_of_the_pipeline_is_that_of_the_model_token_by_token() -> None:
    pipeline = Pipeline()
    assert await pipeline.run("What is a tunnel?", "Why not threads?")
    expected = [answer(prompt, tokens_max=120) for prompt in ("What is a tunnel?", "Why not threads?")]
    assert [line.text for line in pipeline.said if isinstance(line, Answer)] == expected
    assert "".join(line.text for line in pipeline.said if isinstance(line, Text)) == "".join(expected)
    assert pipeline.stage_ends == {0: None, 1: None, 2: None}


async def test_without_a_collector_the_same_nodes_run_and_ship_nothing() -> None:
    assert await Pipeline(sink=None).run("What is a probe?")


async def test_with_a_collector_each_node_ships_boot_events_and_snapshots_and_one_finalizes() -> None:
    sink = KeepingSink()
    assert await Pipeline(sink=sink).run("What is a probe?")
    counts = {kind: sink.kinds.count(kind) for kind in RecordKind}
    assert counts[RecordKind.BOOT] == STAGES + 1
    assert counts[RecordKind.FINALIZE] == 1
    assert counts[RecordKind.EVENTS] > STAGES
    assert counts[RecordKind.SNAPSHOT] > STAGES


def dies_at_once(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(b""), Exit(3, after_s=1.0)))


def refused(spec: ProcessSpec) -> Refusal:
    return Refusal(errno_name="EACCES", role=SpawnRole.PROGRAM)


def talks_nonsense(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(b"this is no JSON\n", after_s=1.0),))


def talks_nonsense_and_dies(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(b"this is no JSON\n"), Exit(1)))


def dies_while_the_next_stage_is_looked_for(spec: ProcessSpec) -> Script:
    ready = Worker(int(spec.args[0]), int(spec.args[1])).ready()
    return Script(begin=(Say(ready), Exit(4, after_s=0.15)))


def never_ready(spec: ProcessSpec) -> Script:
    return Script()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (dies_at_once, "stage-1: worker exited with 3 after 1.0 s, unasked"),
        (refused, "stage-1: worker could not be started"),
        (talks_nonsense, "stage-1: worker said something that is no result"),
        (talks_nonsense_and_dies, "stage-1: worker said something that is no result"),
        (dies_while_the_next_stage_is_looked_for, "stage-1: worker exited with 4"),
        (never_ready, "stage-0, stage-1: not found within 20 s"),
    ],
)
async def test_a_stage_that_cannot_work_ends_the_request_with_its_reason(program: Program, why: str) -> None:
    pipeline = Pipeline({1: program})
    assert not await pipeline.run("What is a probe?")
    (failed,) = [line for line in pipeline.said if isinstance(line, Failed)]
    assert failed.why.startswith(why)
