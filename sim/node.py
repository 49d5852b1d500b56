"""One simulated node: the production boot function, its simulated ports, and its end.

Owns: what the ports of a node are, how a node is started, and that a kill mutes everything first:
whatever the dying code still does, nothing of it leaves.
Not here: what a node does (its boot function), when it starts or is killed (`sim.world`, `sim.faults`).
"""

import enum
from collections.abc import Awaitable, Callable, Mapping

import anyio
from msgspec import Struct

from sim.clock import NodeClock
from sim.machine import Machine
from sim.processes import Processes
from sim.reach import Reach
from sim.scenario import NodeSpec
from sim.sink import SimSink
from sim.streams import SimRandom
from sim.transport import SimTransport
from swactor import NodeId
from swactor_diag.identity import MachineFacts
from swactor_diag.ports import Ports

PYTHON_VERSION = "3.11.0"
OS_VERSION = "Linux 6.1.0"
"""What every simulated machine says it runs: the real ones would make bundles differ between machines."""

Boot = Callable[[Ports, Mapping[str, object]], Awaitable[object]]


class NodeState(enum.StrEnum):
    """Where in its life a node is."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """Its boot function returned."""
    FAILED = "failed"
    """Its boot function raised; ``failure`` says what."""
    KILLED = "killed"


class Parts(Struct, frozen=True, kw_only=True):
    """What the world made for one node."""

    clock: NodeClock
    random: SimRandom
    transport: SimTransport
    processes: Processes
    machine: Machine
    reach: Reach
    sink: SimSink
    environ: Mapping[str, str]


class SimNode:
    """One process of the run."""

    def __init__(
        self,
        spec: NodeSpec,
        parts: Parts,
        *,
        boot: Boot,
        config: Mapping[str, object],
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.name = spec.name
        self.role = spec.role
        self.parts = parts
        self.state = NodeState.WAITING
        self.failure = ""
        self.over = anyio.Event()
        self._boot = boot
        self._config = config
        self._on_end = on_end
        self._scope = anyio.CancelScope()

    @property
    def node_id(self) -> NodeId:
        """The id under which everybody knows it."""
        return self.parts.transport.node_id

    async def run(self) -> None:
        """Boot, and stay until the node ends, fails or is killed."""
        if self.state is NodeState.WAITING:
            self.state = NodeState.RUNNING
            try:
                with self._scope:
                    await self._boot(self._ports(), self._config)
                    self._end(NodeState.ENDED)
            except Exception as exc:  # noqa: BLE001 - a node that fails is a finding, not the end of the run
                self.failure = f"{type(exc).__name__}: {exc}"
                self._end(NodeState.FAILED)
        self.over.set()

    def kill(self) -> None:
        """SIGKILL: mute every port, then let the code go. Harmless on a node that is over."""
        if self.state in {NodeState.WAITING, NodeState.RUNNING}:
            self._end(NodeState.KILLED)
            self._scope.cancel()

    async def kill_and_wait(self) -> None:
        """Kill the node, and wait until its code has ended."""
        has_started = self.state is not NodeState.WAITING
        self.kill()
        if has_started:
            await self.over.wait()

    def mute(self) -> None:
        """Let nothing leave the node any more."""
        self.parts.sink.mute()
        self.parts.transport.mute()
        self.parts.processes.die()
        if self._on_end is not None:
            self._on_end()

    def _end(self, state: NodeState) -> None:
        """The process is gone: what it held ends, and nothing leaves it any more."""
        if self.state is not NodeState.KILLED:
            self.state = state
            self.mute()

    def _ports(self) -> Ports:
        parts = self.parts
        return Ports(
            clock=parts.clock,
            random=parts.random,
            # The node's own loop port, not the one that is given: it falls silent when the node is killed.
            spawner=lambda _loop: parts.processes,
            proc=parts.machine,
            links=parts.machine,
            resolver=lambda _loop: parts.reach,
            prober=lambda _loop: parts.reach,
            interpreter=parts.machine.interpreter,
            transport=parts.transport,
            sink=parts.sink,
            environ=parts.environ,
            machine=MachineFacts(
                pid=parts.processes.pid,
                hostname=self.name,
                python_version=PYTHON_VERSION,
                os_version=OS_VERSION,
            ),
        )
