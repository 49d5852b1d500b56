"""The node functions of the pipeline on ports of a test: one process, virtual time, scripted workers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import cache
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from examples.pipeline_inference.errors import (
    PipelineFullError,
    RequestCancelledError,
    RequestFailedError,
    RequestRefusedError,
    RequestTimeoutError,
    StageFailedError,
)
from examples.pipeline_inference.faults import Fault
from examples.pipeline_inference.lines import Answer, Failed, Line, Prompt, RequestFailed, StageLost, Text
from examples.pipeline_inference.messages import Cancel, Generate, Interrupt, Response
from examples.pipeline_inference.model import catalog
from examples.pipeline_inference.model.config import Cut, ModelName
from examples.pipeline_inference.model.slices import ModelSlice
from examples.pipeline_inference.node import (
    OrchestratorConfig,
    RunConfig,
    StageConfig,
    run_orchestrator,
    run_stage,
    running_node,
)
from examples.pipeline_inference.orchestrator import Orchestrator
from examples.pipeline_inference.requests import UNDER_WAY_MAX, WAITING_MAX
from examples.pipeline_inference.simulated import script_of
from examples.pipeline_inference.stage import ORCHESTRATOR
from examples.pipeline_inference.worker import Worker
from examples.pipeline_inference.worker_protocol import Ready, framed
from sim.clock import WorldClock
from sim.loop import VirtualLoop
from sim.streams import SimRandom
from swactor import ActorRef, ActorSystem
from swactor.abc import Loop
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import PeerAddress
from swactor.cluster.transport.memory import MemoryHub
from swactor_diag.delivery.sink import Sink
from swactor_diag.ports import Ports
from swactor_diag.schema.events import Custom
from swactor_diag.schema.reading import read_batch
from swactor_diag.schema.submission import Answer as SinkAnswer
from swactor_diag.schema.submission import ClockStamp, Outgoing, RecordKind
from swactor_process import ProcessSpec, Spawner, SpawnRole, SubprocessLeftBehind
from swactor_process.testing import Exit, Program, Refusal, Say, Script, ScriptedSpawner

STAGES = 3
TOKEN = b"a token of the test"
LOAD_S, STEP_S = 0.5, 0.005
Ask = Callable[..., Coroutine[Any, Any, Response]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@cache
def model(stage: int, count: int) -> ModelSlice:
    return catalog.load(ModelName.SMALL, Cut(stage, count))


def answer(prompt: str, *, tokens_max: int = 120) -> str:
    return catalog.answer(model(0, 1), prompt, tokens_max=tokens_max)


class KeepingSink:
    """Takes everything, and keeps it."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    @property
    def kinds(self) -> list[RecordKind]:
        return [record.kind for record in self.records]

    async def post(self, record: Outgoing) -> SinkAnswer:
        self.records.append(record)
        return SinkAnswer(clock=ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0))

    async def close(self) -> None:
        pass


def ready(spec: ProcessSpec) -> Ready:
    stage, count = int(spec.args[0]), int(spec.args[1])
    return Ready(ModelName.SMALL, Cut(stage, count).role, model(stage, count).layers.numbers)


def quick(spec: ProcessSpec) -> Script:
    """The real worker, as a script that takes a moment for each position."""
    worker = Worker(model(int(spec.args[0]), int(spec.args[1])))
    return script_of(ready(spec), worker.handle, load_s=LOAD_S, step_s=STEP_S)


class Pipeline:
    """An orchestrator and its stages, started together; ``said`` is what the orchestrator said."""

    def __init__(
        self,
        programs: dict[int, Program] | None = None,
        *,
        sink: Sink | None = None,
        left_behind: tuple[SubprocessLeftBehind, ...] = (),
        fault: tuple[int, Fault] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.said: list[Line] = []
        self.stage_ends: dict[int, str | None] = {}
        self.stops: list[Callable[[], None]] = []
        self.spawners: dict[int, ScriptedSpawner] = {}
        self.now_s = loop.time
        self._clock = WorldClock(loop, 1_700_000_000_000)
        self._programs = programs or {}
        self._sink = sink
        self._left_behind = left_behind
        self._fault = fault
        self._keys = [NodeKey(bytes([number + 1]) * 32) for number in range(STAGES + 1)]
        self._hub: MemoryHub | None = None

    def ports(self, number: int) -> Ports:
        """Return the ports of node ``number``; 0 is the orchestrator."""

        def spawner(loop: Loop) -> Spawner:
            program = self._programs.get(number - 1, quick)
            self.spawners[number - 1] = ScriptedSpawner(
                loop, self._clock, programs={"worker": program}, left_behind=self._left_behind
            )
            return self.spawners[number - 1]

        assert self._hub is not None
        return Ports(
            clock=self._clock,
            random=SimRandom(1, str(number)),
            spawner=spawner,
            transport=self._hub.transport(self._keys[number].node_id),
            sink=self._sink,
        )

    def kill_worker(self, stage: int) -> None:
        """Kill the worker of a stage, from outside."""
        (child,) = self.spawners[stage].living()
        self.spawners[stage].kill(child.pid)

    async def run(self, *prompts: str, parallel: int = 1) -> bool:
        """Run all nodes until the orchestrator has answered; return whether it did."""
        answered = False

        async def orchestrate(shared: RunConfig) -> None:
            nonlocal answered
            answered = await run_orchestrator(
                self.ports(0),
                OrchestratorConfig(run=shared, prompts=prompts, parallel=parallel, join_timeout_s=20.0),
                say=self.said.append,
                on_stop_request=lambda stop: None,
            )

        await self._with_stages(orchestrate)
        return answered

    async def serve(self, act: Callable[[Ask, ActorRef[Any]], Awaitable[None]]) -> None:
        """Run all nodes, and let ``act`` ask and tell the orchestrator."""

        async def orchestrate(shared: RunConfig) -> None:
            async with running_node(self.ports(0), shared, role=ORCHESTRATOR) as node:
                orchestrator = await node.system.spawn(
                    Orchestrator(node.cluster, stage_count=STAGES, join_timeout_s=20.0, say=self.said.append)
                )
                node.cluster.register(ORCHESTRATOR, orchestrator)

                async def ask(
                    request_id: str, prompt: str, *, timeout_s: float = 60.0, tokens_max: int = 120
                ) -> Response:
                    asked = Generate(
                        request_id=request_id, prompt=prompt, tokens_max=tokens_max, timeout_s=timeout_s
                    )
                    return await orchestrator.ask(asked, timeout_s=500.0)

                await act(ask, orchestrator)

        await self._with_stages(orchestrate)

    async def _with_stages(self, orchestrate: Callable[[RunConfig], Awaitable[None]]) -> None:
        async with ActorSystem(clock=self._clock) as hub_system:
            self._hub = MemoryHub(hub_system.loop)
            shared = RunConfig(run_id="test", token=TOKEN, stage_count=STAGES)
            async with anyio.create_task_group() as group:
                for index in range(STAGES):
                    group.start_soon(self._stage, shared, index)
                await orchestrate(shared)
                for stop in self.stops:
                    stop()

    async def _stage(self, shared: RunConfig, index: int) -> None:
        joining = RunConfig(
            run_id=shared.run_id,
            token=shared.token,
            stage_count=STAGES,
            seeds=(PeerAddress(self._keys[0].node_id),),
        )
        config = StageConfig(
            run=joining,
            index=index,
            worker=("worker", str(index), str(STAGES)),
            ready_timeout_s=5.0,
            fault=self._fault[1] if self._fault is not None and self._fault[0] == index else None,
        )
        self.stage_ends[index] = await run_stage(
            self.ports(index + 1), config, say=lambda line: None, on_stop_request=self.stops.append
        )


async def test_the_answer_of_the_pipeline_is_that_of_the_model_token_by_token() -> None:
    pipeline = Pipeline()
    assert await pipeline.run("What is a tunnel?", "Why not threads?")
    expected = [answer(prompt) for prompt in ("What is a tunnel?", "Why not threads?")]
    assert [line.text for line in pipeline.said if isinstance(line, Answer)] == expected
    assert "".join(line.text for line in pipeline.said if isinstance(line, Text)) == "".join(expected)
    assert pipeline.stage_ends == {0: None, 1: None, 2: None}


async def test_requests_under_way_at_the_same_time_do_not_disturb_each_other() -> None:
    prompts = ("What is a tunnel?", "Why not threads?", "Who are you?", "What is a seed?")
    pipeline = Pipeline()
    assert await pipeline.run(*prompts, parallel=4)
    answers = {line.request_id: line.text for line in pipeline.said if isinstance(line, Answer)}
    assert answers == {f"request-{at}": answer(prompt) for at, prompt in enumerate(prompts, start=1)}
    speakers = [line.request_id for line in pipeline.said if isinstance(line, Text)]
    assert len(set(speakers[:8])) > 1, "they should have come side by side"


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


async def test_fc_017_a_stage_reports_what_an_earlier_boot_has_left_behind() -> None:
    sink = KeepingSink()
    left = SubprocessLeftBehind(
        label="worker-0", pid=7, start_time=9, child_alive=True, pids=(7, 8), alive=2, node_pid=5
    )
    assert await Pipeline(sink=sink, left_behind=(left,)).run("What is a probe?")
    batches = [read_batch(record.body) for record in sink.records if record.kind is RecordKind.EVENTS]
    events = [record.event for batch in batches for record in batch.records]
    assert [event for event in events if isinstance(event, SubprocessLeftBehind)] == [left] * STAGES


@pytest.mark.parametrize("stage", range(STAGES))
async def test_a_killed_worker_fails_its_requests_at_once_and_its_successor_serves_the_next_one(
    stage: int,
) -> None:
    pipeline = Pipeline()

    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        assert (await ask("before", "Who are you?")).text == answer("Who are you?")
        killed_s = 0.0

        async def kill_later() -> None:
            nonlocal killed_s
            await anyio.sleep(0.3)
            killed_s = pipeline.now_s()
            pipeline.kill_worker(stage)

        async with anyio.create_task_group() as group:
            group.start_soon(kill_later)
            with pytest.raises(StageFailedError, match=f"stage-{stage}: worker was killed by SIGKILL"):
                await ask("lost", "Tell me a story.")
            assert pipeline.now_s() - killed_s < 2.0
        assert (await ask("after", "Tell me a story.")).text == answer("Tell me a story.")

    await pipeline.serve(act)
    (lost,) = [line for line in pipeline.said if isinstance(line, StageLost)]
    assert (lost.stage, lost.gone) == (f"stage-{stage}", False)
    assert pipeline.stage_ends == {0: None, 1: None, 2: None}


async def test_a_request_ends_with_its_time_and_the_next_one_is_answered() -> None:
    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        await ask("warm", "Hello.")
        with pytest.raises(RequestTimeoutError, match=r"not answered within 0.5 s, \d+ tokens had come"):
            await ask("slow", "Tell me a story.", timeout_s=0.5)
        assert (await ask("next", "Who are you?")).text == answer("Who are you?")

    await Pipeline().serve(act)


async def test_cancelling_a_request_tells_its_asker_and_leaves_the_others_alone() -> None:
    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        await ask("warm", "Hello.")

        async def cancelled() -> None:
            with pytest.raises(RequestCancelledError):
                await ask("one", "Tell me a story.")

        async def cancel_later() -> None:
            await anyio.sleep(0.2)
            orchestrator.tell(Cancel("one"))
            orchestrator.tell(Cancel("no such request"))

        async with anyio.create_task_group() as group:
            group.start_soon(cancelled)
            group.start_soon(cancel_later)
            assert (await ask("two", "Who are you?")).text == answer("Who are you?")

    await Pipeline().serve(act)


async def test_requests_beyond_what_may_wait_are_refused_at_once_and_the_others_are_all_answered() -> None:
    refused, answered = 0, 0

    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        await ask("warm", "Hello.")

        async def one(number: int) -> None:
            nonlocal refused, answered
            try:
                await ask(f"r{number}", "Hello.", tokens_max=2)
            except PipelineFullError:
                refused += 1
            else:
                answered += 1

        async with anyio.create_task_group() as group:
            for number in range(UNDER_WAY_MAX + WAITING_MAX + 7):
                group.start_soon(one, number)

    await Pipeline().serve(act)
    assert (answered, refused) == (UNDER_WAY_MAX + WAITING_MAX, 7)


def gets_stuck(spec: ProcessSpec) -> Script:
    """Ready, and never heard of again."""
    return Script(begin=(Say(framed(ready(spec)), after_s=LOAD_S),))


async def test_a_worker_that_is_stuck_is_given_no_more_than_its_share_and_every_asker_hears_in_time() -> None:
    pipeline = Pipeline({1: gets_stuck})
    asked, timeout_s = 2 * UNDER_WAY_MAX + 1, 5.0
    ended_s: list[float] = []

    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        async def one(number: int) -> None:
            with pytest.raises(RequestTimeoutError, match="not answered within 5 s, 0 tokens had come"):
                await ask(f"r{number}", "Hello.", timeout_s=timeout_s)
            ended_s.append(pipeline.now_s())

        async with anyio.create_task_group() as group:
            for number in range(asked):
                group.start_soon(one, number)
            await anyio.sleep(4.0)
            assert len([line for line in pipeline.said if isinstance(line, Prompt)]) == UNDER_WAY_MAX

    await pipeline.serve(act)
    assert len(ended_s) == asked
    assert ended_s[-1] - ended_s[0] == pytest.approx(2 * timeout_s, abs=0.1)


@pytest.mark.parametrize("stage", range(STAGES))
async def test_a_worker_that_falls_silent_is_named_and_replaced_and_the_next_request_is_answered(
    stage: int,
) -> None:
    lives: Iterator[Program] = iter((gets_stuck, quick))
    sink = KeepingSink()

    def next_life(spec: ProcessSpec) -> Script | Refusal:
        return next(lives)(spec)

    pipeline = Pipeline({stage: next_life}, sink=sink)

    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        with pytest.raises(StageFailedError) as failed:
            await ask("lost", "Hello.")
        assert str(failed.value) == f"stage-{stage}: worker runs, has work, and said nothing for 20 s"
        assert (await ask("next", "Hello.", timeout_s=10.0)).text == answer("Hello.")

    await pipeline.serve(act)
    batches = [read_batch(record.body) for record in sink.records if record.kind is RecordKind.EVENTS]
    events = [record.event for batch in batches for record in batch.records]
    told = [event.fields for event in events if isinstance(event, Custom) and event.kind == "worker_silent"]
    assert told == [{"stage": f"stage-{stage}", "requests": 1, "silent_ms": 20_000}]


async def test_a_worker_that_is_slow_but_goes_on_is_left_in_peace() -> None:
    def slow(spec: ProcessSpec) -> Script:
        worker = Worker(model(int(spec.args[0]), int(spec.args[1])))
        return script_of(ready(spec), worker.handle, load_s=LOAD_S, step_s=15.0)

    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        prompt = "What is a tunnel? " * 20  # several pieces: the last one is reached after more than 20 s
        expected = answer(prompt, tokens_max=3)
        assert (await ask("slow", prompt, timeout_s=400.0, tokens_max=3)).text == expected
        await anyio.sleep(100.0)  # nothing is owed: silence is in order

    pipeline = Pipeline({1: slow})
    await pipeline.serve(act)
    assert [line for line in pipeline.said if isinstance(line, StageLost)] == []


async def test_a_request_that_no_stage_can_work_on_is_refused_and_the_next_one_is_answered() -> None:
    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        with pytest.raises(
            RequestRefusedError, match="stage-0: the prompt has 600 tokens, the model takes 512"
        ):
            await ask("long", "x" * 600)
        assert (await ask("next", "Who are you?")).text == answer("Who are you?")

    await Pipeline().serve(act)


async def test_a_name_that_is_under_way_is_not_given_to_a_second_request() -> None:
    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, "same", "Who are you?")
            await anyio.lowlevel.checkpoint()
            with pytest.raises(RequestRefusedError, match="same is under way already"):
                await ask("same", "Hello.")

    await Pipeline().serve(act)


async def test_an_interrupt_ends_what_is_under_way_and_whatever_is_asked_later() -> None:
    async def act(ask: Ask, orchestrator: ActorRef[Any]) -> None:
        await ask("warm", "Hello.")

        async def interrupt_later() -> None:
            await anyio.sleep(0.2)
            orchestrator.tell(Interrupt())

        async with anyio.create_task_group() as group:
            group.start_soon(interrupt_later)
            for request_id in ("first", "second"):
                with pytest.raises(RequestFailedError, match="interrupted"):
                    await ask(request_id, "Tell me a story.")

    await Pipeline().serve(act)


def dies_at_once(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(b""), Exit(3, after_s=1.0)))


def refused_by_the_system(spec: ProcessSpec) -> Refusal:
    return Refusal(errno_name="EACCES", role=SpawnRole.PROGRAM)


def talks_nonsense(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(b"this is no frame\n", after_s=1.0),))


def talks_nonsense_and_dies(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(b"this is no frame\n"), Exit(1)))


def dies_while_the_next_stage_is_looked_for(spec: ProcessSpec) -> Script:
    return Script(begin=(Say(framed(ready(spec))), Exit(4, after_s=0.15)))


def never_ready(spec: ProcessSpec) -> Script:
    return Script()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (dies_at_once, "stage-1: worker exited with 3 after 1.0 s, unasked"),
        (refused_by_the_system, "stage-1: worker could not be started"),
        (talks_nonsense, "stage-1: worker said something that is no result"),
        (talks_nonsense_and_dies, "stage-1: worker said something that is no result"),
        (dies_while_the_next_stage_is_looked_for, "stage-1: worker exited with 4"),
        (
            never_ready,
            "stage-1: not found within 20 s, worker runs, but was not ready within 5 s; for it wait stage-0",
        ),
    ],
)
async def test_a_stage_whose_workers_never_work_ends_the_run_with_its_reason(
    program: Program, why: str
) -> None:
    pipeline = Pipeline({1: program})
    assert not await pipeline.run("What is a probe?", "What is a seed?")
    (failed,) = [line for line in pipeline.said if isinstance(line, Failed)]
    assert failed.why.startswith(why)
    assert len([line for line in pipeline.said if isinstance(line, RequestFailed)]) == 1


async def test_a_worker_that_dies_twice_and_then_lives_costs_nothing_but_time() -> None:
    lives: Iterator[Program] = iter((dies_at_once, dies_at_once, quick))

    def next_life(spec: ProcessSpec) -> Script | Refusal:
        return next(lives)(spec)

    assert await Pipeline({1: next_life}).run("Who are you?")


async def test_a_stage_that_is_to_stop_while_its_worker_is_refused_does_not_start_again() -> None:
    starts = 0

    def refused_at_the_end(spec: ProcessSpec) -> Script | Refusal:
        nonlocal starts
        starts += 1
        if starts == 1:
            return dies_at_once(spec)
        for stop in pipeline.stops:
            stop()
        return refused_by_the_system(spec)

    pipeline = Pipeline({1: refused_at_the_end})
    assert not await pipeline.run("Hello.")
    assert (starts, pipeline.stage_ends) == (2, {0: None, 1: None, 2: None})


async def test_a_stage_that_never_asks_for_its_worker_is_missed_and_stops_when_asked() -> None:
    pipeline = Pipeline(fault=(2, Fault.NEVER_SPAWNED))
    assert not await pipeline.run("Hello.")
    (failed,) = [line for line in pipeline.said if isinstance(line, Failed)]
    assert failed.why == "stage-2: not found within 20 s; for it wait stage-0, stage-1"
    assert pipeline.stage_ends == {0: None, 1: None, 2: None}
