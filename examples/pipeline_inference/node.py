"""The nodes of the pipeline, as functions of their ports: production and simulation call the same ones.

Owns: the order in which a node is put together and taken apart, for both roles.
Not here: where ports come from (`command`, or the simulator), what the actors do (`stage`, `orchestrator`).
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import msgspec

from examples.pipeline_inference.errors import PipelineDownError, RequestCancelledError
from examples.pipeline_inference.faults import Fault
from examples.pipeline_inference.lines import Answer, Failed, RequestFailed, Spoken, StageLoading
from examples.pipeline_inference.messages import WIRE, Generate, Interrupt, Shutdown, StageFailed
from examples.pipeline_inference.model.config import GREEDY, Sampling
from examples.pipeline_inference.orchestrator import Orchestrator
from examples.pipeline_inference.requests import UNDER_WAY_MAX
from examples.pipeline_inference.stage import ORCHESTRATOR, SILENCE_MAX_S, Stage, StagePlace, stage_name
from swactor import (
    ActorRef,
    ActorSystem,
    Backoff,
    ChildSpec,
    GetChild,
    RestartBudget,
    RestartKind,
    Supervisor,
    SwactorError,
)
from swactor.cluster import Cluster, ClusterConfig
from swactor.cluster.transport import PeerAddress
from swactor_diag.identity import identity_from_env, new_boot_id
from swactor_diag.ports import Ports
from swactor_diag.supervisor import Diagnostics, of_cluster
from swactor_process import Chunks, ProcessSpec, ReadyOnMessage, WhenFull

RESTARTS = RestartBudget(restarts_max=3, period_s=30.0)
BACKOFF = Backoff(first_s=0.2)
"""A worker that dies once comes back at once; one that cannot live is given up after a second or two."""
STDIN_BUFFER_BYTES = 64 << 20
"""Room for the prompts of all requests that may be under way, as activations of the largest model."""
LAST_WORDS_S = 10.0
"""How long a stage that is gone waits for an orchestrator to tell so."""
ASK_MARGIN_S = 10.0
FAILURES_TOLD_MAX = 3
"""Reasons that go into the finalize record; all of them are events."""

OnStopRequest = Callable[[Callable[[], None]], object]
"""Takes what to call when somebody asks the node to stop: a signal handler, or a simulated operator."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What every node of a run is told; ``seeds`` are the nodes through which it joins."""

    run_id: str
    token: bytes
    stage_count: int
    relay_url: str | None = None
    seeds: tuple[PeerAddress, ...] = ()


class StageConfig(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a stage node is told: its place, and how to start its worker."""

    run: RunConfig
    index: int
    worker: tuple[str, ...]
    ready_timeout_s: float = 20.0
    silence_max_s: float = SILENCE_MAX_S
    fault: Fault | None = None


class OrchestratorConfig(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the orchestrator is told: what to answer, and how long anything may take."""

    run: RunConfig
    prompts: tuple[str, ...]
    tokens_max: int = 120
    parallel: int = 1
    sampling: Sampling = GREEDY
    join_timeout_s: float = 30.0
    answer_timeout_s: float = 120.0


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's process is given, in a file that only its owner may read: it holds secrets."""

    config: StageConfig | OrchestratorConfig
    secret_key: bytes


@dataclass(frozen=True)
class Node:
    """A running node: its actors, its cluster, its flight recorder."""

    system: ActorSystem
    cluster: Cluster
    diagnostics: Diagnostics


@asynccontextmanager
async def running_node(
    ports: Ports, config: RunConfig, *, role: str, index: int | None = None
) -> AsyncIterator[Node]:
    """Put a node together, recorder first so that it sees everything, and take it apart in reverse."""
    if ports.transport is None:
        raise ValueError("a node of the pipeline needs a transport")
    async with ActorSystem(
        clock=ports.clock, random=ports.random, watchdog=ports.watchdog, name=role
    ) as system:
        cluster = Cluster(
            system,
            ports.transport,
            ClusterConfig(token=config.token, seeds=config.seeds, messages=WIRE),
        )
        place = (
            {}
            if index is None
            else {"SWACTOR_DIAG_STAGE_INDEX": str(index), "SWACTOR_DIAG_STAGE_COUNT": str(config.stage_count)}
        )
        identity = identity_from_env(
            {**ports.environ, **place},
            cluster.node_id,
            clock=ports.clock,
            boot_id=new_boot_id(ports.random.stream("boot")),
            role=role,
            run_id=config.run_id,
            machine=ports.machine,
            home_relay_url=config.relay_url,
            iroh_version=dict(ports.transport.facts().versions).get("iroh"),
        )
        diagnostics = await Diagnostics.from_ports(
            system,
            identity,
            ports=ports,
            introspectors=of_cluster(cluster, clock=ports.clock),
        )
        await cluster.start()
        try:
            yield Node(system, cluster, diagnostics)
        finally:
            await cluster.stop()
            await diagnostics.stop()


async def run_stage(
    ports: Ports,
    config: StageConfig,
    *,
    say: Callable[[StageLoading], None],
    on_stop_request: OnStopRequest,
) -> str | None:
    """Be one stage until asked to stop; return None, or why the stage could not go on.

    A stage that fails with its worker is started again by its supervisor, at the same address. One that fails
    too often within a short time ends here.
    """
    async with running_node(ports, config.run, role="stage", index=config.index) as node:
        spawner = ports.spawner(node.system.loop)
        for leftover in spawner.left_behind:
            node.system.emit(leftover)

        def stage() -> Stage:
            return Stage(
                StagePlace(config.index, config.run.stage_count),
                worker_spec(config),
                spawner=spawner,
                cluster=node.cluster,
                subprocesses=node.diagnostics.subprocesses,
                say=say,
                silence_max_s=config.silence_max_s,
                fault=config.fault,
            )

        name = stage_name(config.index)
        child = ChildSpec(name, stage, RestartKind.TRANSIENT)
        supervisor = await node.system.spawn(Supervisor([child], budget=RESTARTS, backoff=BACKOFF))
        ref = await supervisor.ask(GetChild(name))
        on_stop_request(lambda: ref.tell(Shutdown()))
        reason = await node.system.wait_stopped(ref)
        if not reason.abnormal:
            return None
        why = str(reason.error or reason)
        await tell_last_words(node.cluster, StageFailed(name, why, gone=True))
        return why


def worker_spec(config: StageConfig) -> ProcessSpec:
    """Return how the worker of a stage is started and read: frames on both pipes, stderr is for people."""
    program, *args = config.worker
    return ProcessSpec(
        program=program,
        args=tuple(args),
        label=f"worker-{config.index}",
        stdout=Chunks(when_full=WhenFull.PAUSE),
        stdin_buffer_bytes=STDIN_BUFFER_BYTES,
        readiness=ReadyOnMessage(deadline_s=config.ready_timeout_s),
    )


async def tell_last_words(cluster: Cluster, words: StageFailed) -> None:
    """Have the orchestrator know that this stage is gone; a stage may fail before that has joined."""
    try:
        orchestrator = await cluster.resolve(ORCHESTRATOR, timeout_s=LAST_WORDS_S)
    except SwactorError:
        return  # nobody is there to hear them
    orchestrator.tell(words)


async def run_orchestrator(
    ports: Ports,
    config: OrchestratorConfig,
    *,
    say: Callable[[Spoken | Failed], None],
    on_stop_request: OnStopRequest,
) -> bool:
    """Answer the prompts with the stages of the cluster, finalize the run, return whether all were answered.

    ``say`` hears each prompt, its tokens as they come and its answer; or what failed and why.
    """
    async with running_node(ports, config.run, role="orchestrator") as node:
        orchestrator = await node.system.spawn(
            Orchestrator(
                node.cluster,
                stage_count=config.run.stage_count,
                join_timeout_s=config.join_timeout_s,
                say=say,
            ),
            name=ORCHESTRATOR,
        )
        node.cluster.register(ORCHESTRATOR, orchestrator)
        on_stop_request(lambda: orchestrator.tell(Interrupt()))
        failures = await answer_all(orchestrator, config, say=say)
        if failures:
            say(Failed(failures[0] + (f" (and {len(failures) - 1} more)" if len(failures) > 1 else "")))
        await node.diagnostics.finalize("; ".join(failures[:FAILURES_TOLD_MAX]) or "answered")
        return not failures


async def answer_all(
    orchestrator: ActorRef[Generate], config: OrchestratorConfig, *, say: Callable[[Spoken], None]
) -> list[str]:
    """Ask for all answers, ``parallel`` at a time; return why some failed.

    A prompt that fails does not keep the next one from being asked, unless the pipeline is down.
    """
    failures: list[str] = []
    # The orchestrator keeps the time of each request. This is for the case that it does not answer at all.
    rounds = 1 + config.parallel // UNDER_WAY_MAX
    patience_s = config.join_timeout_s + rounds * config.answer_timeout_s + ASK_MARGIN_S
    left = deque(enumerate(config.prompts, start=1))

    async def ask_in_turn() -> None:
        while left:
            number, prompt = left.popleft()
            asked = Generate(
                request_id=f"request-{number}",
                prompt=prompt,
                tokens_max=config.tokens_max,
                timeout_s=config.answer_timeout_s,
                sampling=config.sampling,
            )
            try:
                response = await orchestrator.ask(asked, timeout_s=patience_s)
            except SwactorError as error:
                failures.append(str(error))
                say(RequestFailed(asked.request_id, str(error)))
                if isinstance(error, PipelineDownError | RequestCancelledError):
                    left.clear()
            else:
                say(Answer(response.request_id, response.text))

    async with anyio.create_task_group() as group:
        for _ in range(config.parallel):
            group.start_soon(ask_in_turn)
    return failures
