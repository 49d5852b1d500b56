"""Nodes of one process in virtual time: what the tests of the cluster build on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import msgspec
import pytest

from sim.clock import WorldClock
from sim.loop import VirtualLoop
from sim.streams import SimRandom
from swactor import Actor, ActorRef, ActorSystem, Context, Event, Request
from swactor.cluster import Cluster, ClusterConfig, MemberState, SwimConfig
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import PeerAddress
from swactor.cluster.transport.memory import MemoryHub, MemoryTransport

E = TypeVar("E", bound=Event)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run in virtual time: waiting costs nothing."""
    return "asyncio", {"loop_factory": VirtualLoop}


class Item(msgspec.Struct, frozen=True):
    """A message with a payload, and somebody to tell that it came."""

    number: int
    data: bytes = b""
    reply_to: ActorRef["Item"] | None = None


class CountItems(msgspec.Struct, Request[int], frozen=True):
    """Ask how many items came."""


class Fail(msgspec.Struct, Request[None], frozen=True):
    """Ask for an exception."""


class Undeclared(msgspec.Struct, frozen=True):
    """A message that no cluster knows."""


class Collector(Actor[Any]):
    """Keeps what it is told, answers `CountItems`."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.watch: ActorRef[Any] | None = None

    def on_start(self, ctx: Context[Any]) -> None:
        """Monitor, if told to."""
        if self.watch is not None:
            ctx.monitor(self.watch)

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        """Keep or answer."""
        match message:
            case CountItems():
                return len(self.messages)
            case Fail():
                raise RuntimeError("asked to fail")
            case Item(number, _, reply_to):
                self.messages.append(message)
                if reply_to is not None:
                    reply_to.tell(Item(-number))
                return None
            case _:
                self.messages.append(message)
                return None


@dataclass
class Node:
    """One system with its cluster."""

    key: NodeKey
    system: ActorSystem
    transport: MemoryTransport
    cluster: Cluster
    events: list[Event] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        """Keep every event."""
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def state_of(self, other: "Node") -> MemberState:
        """Return what this node believes of another."""
        for member in self.cluster.swim_view().members:
            if member.peer == other.key.node_id:
                return member.state
        return MemberState.UNKNOWN

    async def kill(self) -> None:
        """End without a word, like a machine that is switched off."""
        self.transport.vanish()
        await self.system.shutdown()


class World:
    """Makes nodes that find each other over one hub."""

    def __init__(self, hub_system: ActorSystem, clock: WorldClock) -> None:
        self.clock = clock
        self.hub = MemoryHub(hub_system.loop)
        self.nodes: list[Node] = []
        self._lives = 0

    async def node(
        self,
        number: int,
        *,
        token: bytes = b"the cluster's secret",
        seeds: tuple[int, ...] = (1,),
        **options: Any,
    ) -> Node:
        """Start a node; number 1 is the seed of the others. The same number twice is a later life."""
        self._lives += 1
        key = _key(number)
        random = SimRandom(7, str(number), str(self._lives))
        system = await ActorSystem(clock=self.clock, random=random, name=f"node-{number}").__aenter__()
        transport = self.hub.transport(key.node_id)
        config = ClusterConfig(
            token=token,
            seeds=tuple(PeerAddress(_key(seed).node_id) for seed in seeds),
            messages=(Item, CountItems, Fail),
            swim=SwimConfig(),
            **options,
        )
        node = Node(key, system, transport, Cluster(system, transport, config))
        system.attach(node)
        self.nodes.append(node)
        await node.cluster.start()
        return node

    async def converged(self, count: int) -> list[Node]:
        """Start nodes 1 to ``count`` and wait until each knows all others alive."""
        nodes = [await self.node(number) for number in range(1, count + 1)]
        await self.until(lambda: all(_sees_all(node, nodes) for node in nodes))
        return nodes

    async def until(self, condition: Callable[[], bool], *, within_s: float = 120.0) -> float:
        """Let time pass until ``condition`` holds; return how long that took."""
        start_ns = self.clock.monotonic_ns()
        while not condition():
            took_s = (self.clock.monotonic_ns() - start_ns) / 1e9
            assert took_s < within_s, f"did not happen within {within_s:g} virtual seconds"
            await anyio.sleep(0.05)
        return (self.clock.monotonic_ns() - start_ns) / 1e9

    async def run_for(self, seconds: float) -> None:
        """Let time pass."""
        await anyio.sleep(seconds)

    async def close(self) -> None:
        """End everything, newest first."""
        for node in reversed(self.nodes):
            await node.cluster.stop()
            await node.system.shutdown()


def _key(number: int) -> NodeKey:
    return NodeKey(bytes([number]) * 32)


def _sees_all(node: Node, nodes: list[Node]) -> bool:
    return all(node.state_of(other) is MemberState.ALIVE for other in nodes if other is not node)


@pytest.fixture
async def world(anyio_backend: object) -> AsyncIterator[World]:
    """A hub and a clock in virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock = WorldClock(loop, 1_700_000_000_000)
    async with ActorSystem(clock=clock, random=SimRandom(7, "hub"), name="hub") as system:
        world = World(system, clock)
        yield world
        await world.close()
