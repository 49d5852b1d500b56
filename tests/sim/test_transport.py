"""The simulated transport: streams in order over a bad network, typed ends, tunnels that come back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from sim.clock import WorldClock
from sim.loop import running_virtual_loop
from sim.medium import Medium
from sim.network import Edge, Network
from sim.relay import SimRelay
from sim.streams import SimRandom
from sim.transport import Peers, SimTransport
from swactor import ActorSystem, Event, NodeId
from swactor.cluster.testing import TRANSPORT_CHECKS, Check, TransportPair
from swactor.cluster.transport import (
    Connection,
    ConnType,
    DialFailed,
    DialResult,
    LossKind,
    LossReason,
    PeerAddress,
    TunnelStatus,
)
from swactor.relay import CloseReason, RelayConfig, RelaySessionClosed, RelaySessionOpened

A, B = NodeId("a" * 64), NodeId("b" * 64)
LOSSY = Edge(base_ns=20_000_000, jitter_ns=15_000_000, loss_ppm=50_000)


@dataclass
class Heard:
    """A listener that takes note."""

    data: bytes = b""
    written_count: int = 0
    losses: list[LossReason] = field(default_factory=list)

    def received(self, data: bytes) -> None:
        self.data += data

    def written(self) -> None:
        self.written_count += 1

    def lost(self, reason: LossReason) -> None:
        self.losses.append(reason)


class Lab:
    """One relay, and the transports made so far."""

    def __init__(self, edge: Edge = LOSSY) -> None:
        loop = running_virtual_loop()
        self.random = SimRandom(1)
        self.clock = WorldClock(loop, 1_700_000_000_000)
        self.network = Network(self.random, default=edge, edges={})
        self.medium = Medium(loop, self.network)
        self.peers = Peers()
        self.events: list[Event] = []
        self.relay = SimRelay(
            host="relay", config=RelayConfig(), loop=loop, network=self.network, clock=self.clock
        )
        self.relay.emit = self.events.append

    def make(self, node_id: NodeId) -> SimTransport:
        return SimTransport(
            self.medium,
            self.peers,
            self.relay,
            node_id=node_id,
            host=node_id[:1],
            address="10.0.0.1:40000",
            clock=self.clock,
            random=self.random.below_key("node", node_id),
        )

    async def node(self, node_id: NodeId, inbound: list[Connection] | None = None) -> SimTransport:
        transport = self.make(node_id)
        await transport.start(([] if inbound is None else inbound).append)
        return transport

    async def connected(self) -> tuple["End", "End"]:
        inbound: list[Connection] = []
        near, far = await self.node(A), await self.node(B, inbound)
        connection = await dialed(near, B)
        assert not isinstance(connection, DialFailed)
        return End(near, connection), End(far, inbound[0])

    def reasons(self) -> list[str]:
        return [event.close_reason for event in self.events if isinstance(event, RelaySessionClosed)]


class End:
    """One side of a connection."""

    def __init__(self, transport: SimTransport, connection: Connection) -> None:
        self.transport, self.connection, self.heard = transport, connection, Heard()
        connection.start(self.heard)


def status_of(transport: SimTransport) -> TunnelStatus | None:
    tunnel = transport.facts().tunnel
    return None if tunnel is None else tunnel.status


async def dialed(
    transport: SimTransport, peer: NodeId, relay_url: str | None = None
) -> Connection | DialFailed:
    done: list[Connection | DialFailed] = []
    transport.dial(PeerAddress(peer, relay_url=relay_url), done.append)
    assert not done
    await anyio.sleep(6)
    assert len(done) == 1
    return done[0]


async def test_bytes_arrive_in_order_and_complete_over_a_lossy_network() -> None:
    near, far = await Lab().connected()
    for number in range(200):
        near.connection.write(b"%04d" % number)
        far.connection.write(b"back")

    await anyio.sleep(60)

    assert far.heard.data == b"".join(b"%04d" % number for number in range(200))
    assert near.heard.data == b"back" * 200
    assert near.heard.written_count == 200


async def test_data_waits_out_a_cut_and_arrives_after_it() -> None:
    lab = Lab()
    near, far = await lab.connected()
    lab.network.cut("a", "relay")
    near.connection.write(b"patience")

    await anyio.sleep(10)
    assert far.heard.data == b""
    lab.network.heal("a", "relay")
    await anyio.sleep(10)

    assert far.heard.data == b"patience"
    assert far.heard.losses == near.heard.losses == []


async def test_a_write_that_was_dropped_does_not_let_the_next_one_overtake_it() -> None:
    lab = Lab()
    near, far = await lab.connected()
    lab.network.cut("a", "relay")
    near.connection.write(b"first ")
    lab.network.heal("a", "relay")
    near.connection.write(b"second")

    await anyio.sleep(0.09)  # the second has arrived, the first is not even repeated
    assert far.heard.data == b""
    await anyio.sleep(2)

    assert far.heard.data == b"first second"


async def test_a_close_reaches_both_sides_once_with_its_code() -> None:
    near, far = await Lab().connected()

    near.connection.close(7, "enough")
    near.connection.close(8, "again")
    assert near.heard.losses == []
    await anyio.sleep(5)

    assert near.heard.losses == [LossReason(LossKind.CLOSED_HERE, text="enough", code=7)]
    assert far.heard.losses == [LossReason(LossKind.CLOSED_BY_PEER, text="enough", code=7)]


async def test_a_killed_node_is_silent_and_its_peer_times_out() -> None:
    lab = Lab()
    near, far = await lab.connected()

    near.transport.mute()
    near.connection.write(b"never")
    near.connection.close(0, "never")
    await anyio.sleep(25)
    assert far.heard.losses == []
    await anyio.sleep(15)

    assert far.heard.data == b""
    assert [reason.kind for reason in far.heard.losses] == [LossKind.TIMED_OUT]
    assert near.heard.losses == []
    assert lab.reasons() == ["client_gone"]


async def test_idle_connections_stay() -> None:
    near, far = await Lab().connected()

    await anyio.sleep(3600)

    assert near.heard.losses == far.heard.losses == []


async def test_a_dial_to_nobody_times_out() -> None:
    near = await Lab().node(A)

    failed = await dialed(near, B)

    assert isinstance(failed, DialFailed)
    assert failed.outcome is DialResult.TIMEOUT


async def test_a_dial_through_an_unknown_relay_has_no_route() -> None:
    lab = Lab()
    near = await lab.node(A)
    await lab.node(B)

    failed = await dialed(near, B, "http://elsewhere:1/")

    assert isinstance(failed, DialFailed)
    assert failed.outcome is DialResult.NO_ROUTE


async def test_a_dial_called_off_is_not_answered_and_leaves_nothing_open() -> None:
    lab = Lab(Edge(base_ns=5_000_000))
    inbound: list[Connection] = []
    near, _ = await lab.node(A), await lab.node(B, inbound)
    answers: list[Connection | DialFailed] = []
    dial = near.dial(PeerAddress(B), answers.append)
    await anyio.sleep(0.015)  # the hello is there after 10 ms, its answer back after 20
    heard = Heard()
    inbound[0].start(heard)

    dial.cancel()
    await anyio.sleep(10)

    assert answers == []
    assert [reason.kind for reason in heard.losses] == [LossKind.CLOSED_BY_PEER]


async def test_closing_the_transport_ends_its_connections_and_its_tunnel() -> None:
    lab = Lab()
    near, far = await lab.connected()

    await near.transport.close()
    assert [reason.kind for reason in near.heard.losses] == [LossKind.TRANSPORT_CLOSED]
    await anyio.sleep(5)

    assert [reason.kind for reason in far.heard.losses] == [LossKind.CLOSED_BY_PEER]
    assert lab.reasons() == ["client_closed"]
    assert [path.conn_type for path in near.transport.facts().peers] == [ConnType.NONE]


async def test_a_closed_session_comes_back_and_the_connection_does_not_notice() -> None:
    lab = Lab(Edge(base_ns=5_000_000))
    near, far = await lab.connected()
    session = lab.relay.book.active(bytes.fromhex(A))
    assert session is not None
    lab.relay.end(session, CloseReason.EVICTED)
    near.connection.write(b"still here")
    await anyio.sleep(2)

    assert far.heard.data == b"still here"
    assert near.transport.tunnel.status is TunnelStatus.CONNECTED
    opened = [event for event in lab.events if isinstance(event, RelaySessionOpened)]
    assert len(opened) == 3
    assert lab.reasons() == ["evicted"]


async def test_a_dropped_pair_leaves_both_tunnels_up_and_the_way_back_open() -> None:
    lab = Lab(Edge(base_ns=5_000_000))
    near, far = await lab.connected()
    lab.relay.book.drop_pair(bytes.fromhex(A), bytes.fromhex(B))
    near.connection.write(b"there")
    far.connection.write(b"back")

    await anyio.sleep(10)
    assert (near.heard.data, far.heard.data) == (b"back", b"")
    await anyio.sleep(40)

    assert [reason.kind for reason in far.heard.losses] == [LossKind.TIMED_OUT]
    assert near.transport.tunnel.status is TunnelStatus.CONNECTED
    assert far.transport.tunnel.status is TunnelStatus.CONNECTED


async def test_a_cut_off_client_is_noticed_by_the_relay_and_comes_back() -> None:
    lab = Lab(Edge(base_ns=5_000_000))
    near = await lab.node(A)
    lab.network.cut("a", "relay")
    lab.network.cut("relay", "a")

    await anyio.sleep(60)
    assert lab.reasons() == ["idle_timeout"]
    assert status_of(near) is not TunnelStatus.CONNECTED
    lab.network.heal("a", "relay")
    lab.network.heal("relay", "a")
    await anyio.sleep(40)

    assert status_of(near) is TunnelStatus.CONNECTED


async def test_facts_name_relay_tunnel_and_path() -> None:
    lab = Lab(Edge(base_ns=5_000_000))
    near, _ = await lab.connected()
    near.connection.write(b"x" * 100)
    await anyio.sleep(1)

    facts = near.transport.facts()

    assert facts.home_relay_url == lab.relay.url
    assert facts.tunnel is not None
    assert facts.tunnel.status is TunnelStatus.CONNECTED
    assert [path.peer for path in facts.peers] == [B]
    assert facts.peers[0].rtt_ms == 20
    assert facts.peers[0].tx_bytes == 100


async def test_start_goes_on_without_a_relay() -> None:
    lab = Lab()
    lab.relay.die()

    near = await lab.node(A)

    assert near.tunnel.status is not TunnelStatus.CONNECTED


@asynccontextmanager
async def make_pair() -> AsyncIterator[TransportPair]:
    lab = Lab()
    one, other = lab.make(A), lab.make(B)
    async with ActorSystem() as system:
        yield TransportPair(
            loop=system.loop,
            one=one,
            other=other,
            other_address=lambda: other.facts().local_address,
            stranger=PeerAddress(NodeId("c" * 64)),
        )
    await one.close()
    await other.close()


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_rules_that_links_rely_on(check: Check) -> None:
    await check(make_pair)
