"""The nodes of the pipeline, as functions of their ports: production and simulation call the same ones.

Owns: the order in which a node is put together and taken apart, for both roles.
Not here: where ports come from (`command`, or the simulator), what the actors do (`stage`, `orchestrator`).
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from examples.pipeline_inference.lines import Answer, Failed, Spoken
from examples.pipeline_inference.messages import WIRE, Generate, Interrupt, Shutdown
from examples.pipeline_inference.orchestrator import Orchestrator
from examples.pipeline_inference.stage import ORCHESTRATOR, Stage, StagePlace, stage_name
from swactor import ActorSystem, SwactorError
from swactor.cluster import Cluster, ClusterConfig
from swactor.cluster.transport import PeerAddress
from swactor_diag.identity import identity_from_env, new_boot_id
from swactor_diag.ports import Ports
from swactor_diag.supervisor import Diagnostics, of_cluster
from swactor_process import ProcessSpec

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


class OrchestratorConfig(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the orchestrator is told: what to answer, and how long anything may take."""

    run: RunConfig
    prompts: tuple[str, ...]
    tokens_max: int = 120
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


async def run_stage(ports: Ports, config: StageConfig, *, on_stop_request: OnStopRequest) -> str | None:
    """Be one stage until asked to stop; return None, or why the stage could not go on."""
    async with running_node(ports, config.run, role="stage", index=config.index) as node:
        program, *args = config.worker
        stage = await node.system.spawn(
            Stage(
                StagePlace(config.index, config.run.stage_count),
                ProcessSpec(program=program, args=tuple(args), label=f"worker-{config.index}"),
                spawner=ports.spawner(node.system.loop),
                cluster=node.cluster,
                subprocesses=node.diagnostics.subprocesses,
            ),
            name=stage_name(config.index),
        )
        on_stop_request(lambda: stage.tell(Shutdown()))
        reason = await node.system.wait_stopped(stage)
        if reason.abnormal:
            return str(reason)
        return reason.value if isinstance(reason.value, str) else None


async def run_orchestrator(
    ports: Ports,
    config: OrchestratorConfig,
    *,
    say: Callable[[Spoken | Failed], None],
    on_stop_request: OnStopRequest,
) -> bool:
    """Answer the prompts with the stages of the cluster, finalize the run, return whether all were answered.

    ``say`` hears each prompt, its tokens as they come and its answer; or which part failed and why.
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
        timeout_s = config.join_timeout_s + config.answer_timeout_s
        failure: str | None = None
        try:
            for prompt in config.prompts:
                asked = Generate(prompt, config.tokens_max)
                say(Answer(await orchestrator.ask(asked, timeout_s=timeout_s)))
        except SwactorError as error:
            failure = str(error)
            say(Failed(failure))
        await node.diagnostics.finalize(failure or "answered")
        return failure is None
