"""The incident of the field, on purpose: a peer is lost while everybody's tunnel to the relay stays up.

Two real nodes that only the relay connects, the relay and the collector as their commands, and a drill that
drops what the two send each other. Then the bundle has to tell what the one of the incident could not.
"""

import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest
from msgspec import UnsetType

from swactor import Event
from swactor.cluster.events import (
    LinkLoss,
    LinkLost,
    MemberState,
    RelaySessionStateChanged,
    SwimReason,
    SwimTransition,
)
from swactor.cluster.transport import TunnelStatus
from swactor.relay import RelaySessionClosed, RelaySessionOpened
from swactor_diag.postproc.load import Node, Run, load_run
from swactor_diag.postproc.summary import render
from swactor_diag.schema.blocks import RelayServerBlock

from .field import Child, Field, child_in, running

WAIT_S = 30.0
LOST_WITHIN_S = 45.0
E = TypeVar("E", bound=Event)

SWACTOR = (sys.executable, "-m", "swactor_diag.cli.main")
ROLES = ("orchestrator", "stage")
TOKEN, ADMIN_TOKEN = "open-sesame-open", "mind-the-gap-mind"

# A node with its flight recorder. Prints its id, then what becomes of the other node and its link. Asked to
# end, it looks at itself once more, says when it leaves, and leaves.
NODE = """
import asyncio, os, signal, sys
from swactor import ActorSystem, SystemClock
from swactor.cluster import Cluster, ClusterConfig
from swactor.cluster.events import DialOutcome, LinkUp, SwimTransition
from swactor.cluster.transport import PeerAddress
from swactor.cluster.transport.iroh import IrohTransport
from swactor_diag.supervisor import Diagnostics, of_cluster

class Tell:
    def observe(self, event):
        match event:
            case SwimTransition():
                print(event.to, flush=True)
            case LinkUp():
                print("linked", flush=True)
            case DialOutcome(tunnel_down=True):
                print("cut off", flush=True)

async def main():
    role, number, url, token, *seeds = sys.argv[1:]
    transport = IrohTransport(
        bytes([int(number)]) * 32, relay_url=url, relay_token=token, alpn=b"test/1", clock=SystemClock())
    seeds = tuple(PeerAddress(seed, url) for seed in seeds)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with ActorSystem(name=role) as system:
        cluster = Cluster(system, transport, ClusterConfig(token=b"a secret of all nodes", seeds=seeds))
        system.attach(Tell())
        diagnostics = await Diagnostics.from_env(
            system, role=role, transport=transport, token=token,
            introspectors=of_cluster(cluster, clock=system.clock))
        await cluster.start()
        print(cluster.node_id, flush=True)
        await stop.wait()
        await diagnostics.snapshot()
        print("leaving", system.clock.wall_ms(), flush=True)
        await cluster.stop()
        await diagnostics.stop()

asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # The transport's threads must not meet an interpreter that is being torn down.
"""


async def url_of(service: Child) -> str:
    url = json.loads(await service.line(WAIT_S))["url"]
    assert isinstance(url, str)
    return url


async def until(node: Child, word: str) -> str:
    """Read on until a node says this."""
    while not (line := await node.line(LOST_WITHIN_S)).startswith(word):
        pass
    return line


async def drop_both_ways(url: str, one: str, other: str) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        for source, destination in ((one, other), (other, one)):
            async with http.post(f"{url}admin/pairs/{source}/{destination}/drop") as answer:
                assert answer.status == 204


class Scene:
    """A collector, a relay, and two nodes that only the relay connects: each a process, all in one run."""

    def __init__(self, stack: contextlib.AsyncExitStack, field: Field, folder: Path) -> None:
        self.nodes: list[Child] = []
        self.ids: list[str] = []
        self.leaving_ms: list[int] = []
        self._start = stack.enter_async_context
        self._field = field
        self._folder = folder
        self._token = str(self._secret("token", TOKEN))
        self._listen = ("--host", field.relay_address, "--token-file", self._token)

    def _secret(self, name: str, text: str) -> Path:
        file = self._folder / name
        file.write_text(text)
        return file

    async def begin(self) -> None:
        """Start everything; on return both nodes believe that the other one lives."""
        root = str(self._folder / "root")
        collecting = running(*SWACTOR, "collector", *self._listen, "--port", "0", "--root", root)
        self._collector_url = await url_of(await self._start(collecting))
        self._env = {"SWACTOR_DIAG_COLLECTOR_URL": self._collector_url, "SWACTOR_DIAG_RUN_ID": "incident"}
        await self.start_relay(port="0")
        for number, (place, role) in enumerate(zip(self._field.clients, ROLES, strict=True), 1):
            told = (role, str(number), self.url, TOKEN, *self.ids)
            self.nodes.append(await self._start(child_in(place, NODE, *told, env=self._env)))
            self.ids.append(await self.nodes[-1].line(WAIT_S))
        for node in self.nodes:
            await until(node, MemberState.ALIVE)

    async def start_relay(self, *, port: str) -> None:
        admin = str(self._secret("admin", ADMIN_TOKEN))
        tokens = ("--admin-token-file", admin, "--collector-token-file", self._token)
        relaying = running(*SWACTOR, "relay", *self._listen, "--port", port, *tokens, env=self._env)
        self._relay = await self._start(relaying)
        self.url = await url_of(self._relay)

    async def stop_relay(self) -> None:
        self._relay.terminate()
        assert await self._relay.ended(WAIT_S) == 0

    async def end(self) -> Run:
        """Have the nodes leave, then the relay; return the bundle."""
        for node in self.nodes:
            node.terminate()
            self.leaving_ms.append(int((await until(node, "leaving")).split()[1]))
            assert await node.ended(WAIT_S) == 0
        await self.stop_relay()
        bundle = self._folder / "bundle.tar.gz"
        fetch = (*SWACTOR, "bundle", "fetch", self._collector_url, "incident", "-o", str(bundle))
        fetching = await self._start(running(*fetch, "--token-file", self._token))
        assert await fetching.ended(WAIT_S) == 0
        return load_run(bundle)


@pytest.fixture
async def scene(new_field: Callable[[int], Field], tmp_path: Path) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as stack:
        made = Scene(stack, new_field(2), tmp_path)
        await made.begin()
        yield made


def of(node: Node, kind: type[E]) -> list[tuple[int, E]]:
    """Return the events of one kind with their times."""
    return [(record.wall_ms, record.event) for record in node.records if isinstance(record.event, kind)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.timeout(180)
async def test_two_nodes_lose_each_other_while_both_tunnels_stay_connected(scene: Scene) -> None:
    await drop_both_ways(scene.url, *scene.ids)
    for one in scene.nodes:
        await until(one, MemberState.DEAD)
    run = await scene.end()

    nodes = {node.identity.role: node for node in run.nodes if node.identity is not None}
    relay, pair = nodes["relay"], [nodes[role] for role in ROLES]
    ids = {str(node.node_id) for node in pair}
    ends = {event.peer_node_id_hex: event for _, event in of(relay, RelaySessionClosed)}
    failures: set[object] = set()

    for node, leaving_ms in zip(pair, scene.leaving_ms, strict=True):
        (other,) = ids - {node.node_id}
        (dead_at_ms,) = (
            at_ms
            for at_ms, event in of(node, SwimTransition)
            if (event.peer, event.to, event.reason) == (other, MemberState.DEAD, SwimReason.SUSPICION_TIMEOUT)
        )
        # The peer: the one connection there was is gone, and was never made again.
        (lost,) = (event for _, event in of(node, LinkLost))
        assert (lost.peer, lost.generation, lost.cause) == (other, 1, LinkLoss.HEARTBEAT)
        # The tunnel: connected once, and for good, as the node itself and the relay have it.
        tunnel = [event.to_status for _, event in of(node, RelaySessionStateChanged)]
        assert tunnel == [TunnelStatus.CONNECTED]
        session = ends[str(node.node_id)]
        assert (session.close_initiator, leaving_ms <= session.closed_at_ms) == ("remote", True)
        # Both at once, in each snapshot that was taken afterwards.
        after = [one.body.iroh for one in node.snapshots if dead_at_ms <= one.wall_ms < leaving_ms]
        assert len(after) >= 2
        for iroh in after:
            assert not isinstance(iroh, UnsetType)
            assert not isinstance(iroh.relay_session, UnsetType)
            assert (iroh.relay_session.status, iroh.relay_session.relay_url) == ("connected", url_in(relay))
            (path,), (cached,) = iroh.peers, iroh.connection_cache
            assert (path.peer_node_id_hex, path.conn_type) == (other, "None")
            assert [use.usage for use in path.relay_urls] == ["inactive"]
            assert (cached.peer_node_id_hex, cached.generation, cached.is_up) == (other, 1, False)
            failures.add(cached.last_failure_reason)
            counters = {metric.name: metric.value.value for metric in iroh.metrics}
            assert counters["relay_home_change"] == counters["relay_conns_success"] == 1
            assert counters["relay_conns_closed"] == counters["relay_conns_failed"] == 0
    assert "connection-closed" in failures

    (last, *_), opened = relay_reports(relay), of(relay, RelaySessionOpened)
    assert len(opened) == len(ends) == len(of(relay, RelaySessionClosed)) == 2
    assert set(last.dropped_pairs) == set(itertools.permutations(ids))
    assert {row.peer_node_id_hex for row in last.sessions if row.frames_pair_dropped} == ids
    text = render(run)
    for label in (node.label for node in pair):
        assert f"{label} then: path to the other None, tunnel connected" in text


@pytest.mark.timeout(180)
async def test_nodes_whose_relay_is_restarted_do_not_lose_each_other(scene: Scene) -> None:
    """FC-084, with real nodes: their links are gone for longer than it takes to give a silent peer up."""
    port = scene.url.rstrip("/").rpartition(":")[2]
    await scene.stop_relay()
    for node in scene.nodes * 2:
        await until(node, "cut off")
    await scene.start_relay(port=port)
    for node in scene.nodes:
        await until(node, "linked")
    run = await scene.end()

    judged = {SwimReason.PROBE_TIMEOUT, SwimReason.SUSPICION_TIMEOUT}
    for bundled in run.nodes:
        assert [event for _, event in of(bundled, SwimTransition) if event.reason in judged] == []
    assert "cut off) |" in render(run)


def url_in(relay: Node) -> str:
    assert relay.identity is not None
    url = relay.identity.home_relay_url_at_boot
    assert isinstance(url, str)
    return url


def relay_reports(relay: Node) -> list[RelayServerBlock]:
    """Return the reports of while both sessions were open and the drill was on, the last first."""
    reports = [snapshot.body.relay_server for snapshot in reversed(relay.snapshots)]
    return [
        report
        for report in reports
        if not isinstance(report, UnsetType) and report.dropped_pairs and report.active_sessions == 2
    ]
