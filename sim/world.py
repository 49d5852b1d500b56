"""The world of one run: hosts, network, relay, collector and nodes, all made from (scenario, seed).

Owns: building the world, its life, `simulate` (one whole run in a loop of its own), and that an error which
nobody caught ends the run instead of vanishing.
Not here: a node (`sim.node`), the network (`sim.network`), the bundle (`sim.bundle`).
"""

import gc
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from sim import faults
from sim.bundle import SimBundle, collect
from sim.clock import NodeClock, WorldClock
from sim.errors import SimulationError
from sim.guards import no_outside_inputs
from sim.loop import NS_PER_S, NodeScheduler, VirtualLoop, running_virtual_loop
from sim.machine import Machine, host_address
from sim.medium import Medium
from sim.network import Edge, Network
from sim.node import Boot, Parts, SimNode
from sim.processes import Processes
from sim.reach import Reach
from sim.relay import SimRelay
from sim.relay_node import relay_boot
from sim.scenario import NodeSpec, Scenario, filled, filled_text, load_named
from sim.sink import SimCollector, SimSink
from sim.streams import SimRandom
from sim.transport import Peers, SimTransport
from swactor import NodeId
from swactor.relay import RelayConfig, relay_node_id
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.storage import MemoryStorage
from swactor_process.testing import Program

CHECK_NS = 100_000_000
"""How often `World.run_until` looks."""


class UncaughtError(SimulationError):
    """A callback or task of the run raised and nobody caught it; the cause is chained."""


class World:
    """One run. Use it as an async context manager on a `VirtualLoop`; nodes start at their time."""

    def __init__(self, scenario: Scenario, *, seed: int, file: str = "scenario") -> None:
        """Make everything; nothing runs yet. ``file`` is what errors call the scenario.

        Raises:
            ScenarioError: a dotted path of the scenario names nothing.
            SimulationError: the caller does not run on a virtual loop.
        """
        self.scenario = scenario
        self.seed = seed
        self.run_id = f"{scenario.name}-{seed}"
        self.loop = running_virtual_loop()
        self.clock = WorldClock(self.loop, scenario.epoch_ms)
        self.random = SimRandom(seed)
        self.network = Network(self.random, default=scenario.network.edge(), edges=_edges(scenario))
        self.storage = MemoryStorage()
        self.collector = SimCollector(
            Ingest(self.storage), loop=self.loop, network=self.network, clock=self.clock
        )
        self.relay = SimRelay(
            host=scenario.relay.name,
            config=RelayConfig(advertised_url=f"http://{scenario.relay.name}:{scenario.relay.port}/"),
            loop=self.loop,
            network=self.network,
            clock=NodeClock(self.loop, self.scenario.epoch_ms, offset_ms=scenario.relay.clock_offset_ms),
        )
        self.applied: list[faults.Applied] = []
        self._medium = Medium(self.loop, self.network)
        self._peers = Peers()
        hosts = (scenario.relay.name, *(spec.name for spec in scenario.node))
        self._addresses = {name: host_address(number) for number, name in enumerate(hosts)}
        self._uncaught: list[BaseException] = []
        self._undo = ExitStack()
        self._tasks: TaskGroup | None = None
        self.nodes = self._make_nodes(file)

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._undo.enter_context(no_outside_inputs())
        self.loop.set_exception_handler(self._note_uncaught)
        self.applied = faults.schedule(self, self.scenario.fault)
        self._tasks = await anyio.create_task_group().__aenter__()
        starts = {spec.name: spec.start_s for spec in self.scenario.node}
        for node in self.nodes.values():
            start_ns = self.loop.now_ns + round(starts.get(node.name, 0.0) * NS_PER_S)
            self.loop.call_at_ns(start_ns, self._start, node)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill every node, newest first, one by one. What they say while they die concerns nobody."""
        self._undo.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        try:
            for node in reversed(self.nodes.values()):
                node.mute()
            for node in reversed(self.nodes.values()):
                await node.kill_and_wait()
            tasks, self._tasks = self._tasks, None  # whoever has not started yet never will
            if tasks is not None:
                await tasks.__aexit__(None, None, None)
        finally:
            self.loop.set_exception_handler(None)
            self._undo.close()

    async def run_for(self, *, seconds: float) -> None:
        """Let ``seconds`` of virtual time pass.

        Raises:
            UncaughtError: something raised meanwhile and nobody caught it.
        """
        await self.loop.sleep_until_ns(self.loop.now_ns + round(seconds * NS_PER_S))
        self._raise_uncaught()

    async def run_until(self, holds: Callable[["World"], bool], *, at_most_s: float) -> None:
        """Let time pass until ``holds``, which is asked every 100 ms.

        Raises:
            SimulationError: it did not hold within ``at_most_s``.
            UncaughtError: something raised meanwhile and nobody caught it.
        """
        end_ns = self.loop.now_ns + round(at_most_s * NS_PER_S)
        while not holds(self):
            if self.loop.now_ns >= end_ns:
                raise SimulationError(f"did not come to hold within {at_most_s} virtual seconds")
            await self.loop.sleep_until_ns(self.loop.now_ns + CHECK_NS)
            self._raise_uncaught()

    def node(self, name: str) -> SimNode:
        """Return the node called ``name``."""
        return self.nodes[name]

    def kill(self, name: str) -> None:
        """SIGKILL a node: nothing leaves it after this."""
        self.nodes[name].kill()

    def bundle(self) -> SimBundle:
        """Return the bundle of what the collector has now."""
        return collect(self)

    def _start(self, node: SimNode) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(node.run, name=node.name)

    def _note_uncaught(self, _loop: object, context: Mapping[str, object]) -> None:
        error = context.get("exception")
        self._uncaught.append(error if isinstance(error, BaseException) else SimulationError(str(context)))

    def _raise_uncaught(self) -> None:
        if self._uncaught:
            first = self._uncaught[0]
            raise UncaughtError(f"nobody caught {type(first).__name__}: {first}") from first

    # -- making ----------------------------------------------------------------------------------------------

    def _make_nodes(self, file: str) -> dict[str, SimNode]:
        relay = self.scenario.relay
        relay_id = relay_node_id(self.relay.url)
        ids = {spec.name: self._node_id(spec.name) for spec in self.scenario.node}
        words = {"run_id": self.run_id, "relay_url": self.relay.url}
        words |= {f"node_id:{name}": node_id for name, node_id in ids.items()}
        programs = _load_programs(self.scenario, file)
        relay_spec = NodeSpec(
            name=relay.name,
            role="relay",
            boot="sim.relay_node:relay_boot",
            clock_offset_ms=relay.clock_offset_ms,
        )
        boots: list[tuple[NodeSpec, Boot]] = [(relay_spec, relay_boot(self.relay, relay_id))]
        for number, spec in enumerate(self.scenario.node):
            boots.append((spec, load_named(spec.boot, file=file, field=f"node[{number}].boot")))
        nodes: dict[str, SimNode] = {}
        for number, (spec, boot) in enumerate(boots):
            parts = self._make_parts(
                number, spec, node_id=ids.get(spec.name, relay_id), programs=programs, words=words
            )
            config = {name: filled(value, words) for name, value in spec.config.items()}
            on_end = self.relay.die if spec is relay_spec else None
            nodes[spec.name] = SimNode(spec, parts, boot=boot, config=config, on_end=on_end)
        return nodes

    def _node_id(self, name: str) -> NodeId:
        return NodeId(self.random.stream("identity", name).token(32).hex())

    def _make_parts(
        self,
        number: int,
        spec: NodeSpec,
        *,
        node_id: NodeId,
        programs: Mapping[str, Program],
        words: Mapping[str, str],
    ) -> Parts:
        clock = NodeClock(self.loop, self.scenario.epoch_ms, offset_ms=spec.clock_offset_ms)
        random = self.random.below_key("node", spec.name)
        processes = Processes(
            self.loop, clock, random.stream("pid"), command=("swactor", spec.role), programs=programs
        )
        machine = Machine(
            number=number,
            clock=clock,
            random=random.below_key("machine"),
            counters=self.network.counters(spec.name),
            running=processes.running,
        )
        transport = SimTransport(
            self._medium,
            self._peers,
            self.relay,
            node_id=node_id,
            host=spec.name,
            address=f"{self._addresses[spec.name]}:{40_000 + number}",
            clock=clock,
            random=random,
        )
        reach = Reach(
            NodeScheduler(self.loop),
            self.network,
            self.relay,
            host=spec.name,
            port=self.scenario.relay.port,
            addresses=self._addresses,
        )
        sink = SimSink(self.collector, host=spec.name, clock=clock)
        environ = {"SWACTOR_DIAG_RUN_ID": self.run_id, "SWACTOR_DIAG_NODE_ROLE": spec.role, **spec.environ}
        return Parts(
            clock=clock,
            random=random,
            transport=transport,
            processes=processes,
            machine=machine,
            reach=reach,
            sink=sink,
            environ={name: filled_text(value, words) for name, value in environ.items()},
        )


def _edges(scenario: Scenario) -> dict[tuple[str, str], Edge]:
    edges: dict[tuple[str, str], Edge] = {}
    for link in scenario.link:
        edges[link.source, link.target] = link.edge()
        if not link.one_way:
            edges[link.target, link.source] = link.edge()
    return edges


def _load_programs(scenario: Scenario, file: str) -> dict[str, Program]:
    return {
        spec.program: load_named(spec.script, file=file, field=f"program[{number}].script")
        for number, spec in enumerate(scenario.program)
    }


def simulate(scenario: Scenario, *, seed: int, file: str = "scenario") -> tuple[SimBundle, int]:
    """Run ``scenario`` to its end on a loop of its own; return its bundle and the virtual nanoseconds.

    Raises:
        SimulationError: the run could not be finished; what failed inside a node is no such error.
    """

    async def run() -> tuple[SimBundle, int]:
        async with World(scenario, seed=seed, file=file) as world:
            await world.run_for(seconds=scenario.duration_s)
            return world.bundle(), world.loop.now_ns

    # A run makes many objects and hardly a cycle: looking for cycles would cost a sixth of its time.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return anyio.run(run, backend="asyncio", backend_options={"loop_factory": VirtualLoop})
    finally:
        if was_collecting:
            gc.enable()
