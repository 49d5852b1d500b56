"""What a simulated transport knows about itself, in the shape of the production transport's facts.

Owns: the record of every peer (it stays listed after its last connection ended), counters, the wording of the
tunnel's status. Nothing in the values says that they are simulated, but for the version.
Not here: the tunnel (`sim.relay`), connections (`sim.stream`).
"""

from collections.abc import Collection

from sim.relay import Tunnel
from sim.stream import SimConnection
from swactor import NodeId
from swactor.abc import Clock
from swactor.cluster.transport import (
    AddressUse,
    ConnType,
    FactSource,
    PathFacts,
    PeerAddress,
    TransportCounter,
    TransportFacts,
    TunnelFacts,
    TunnelStatus,
)

NS_PER_MS = 1_000_000

API_GAPS = (
    "RemoteInfo.conn_type",
    "RemoteInfo.last_used_ms",
    "RemoteInfo.last_received_ms",
    "TransportAddrInfo.source",
    "RelayTunnel.status",
    "RelayTunnel.last_send_at_ms",
    "RelayTunnel.last_recv_at_ms",
    "RelayTunnel.last_error",
    "RelayTunnel.latency_ms",
)
"""What the production library cannot tell, so that a simulated node lacks it too."""

VERSIONS = (("wheel", "simulated"), ("iroh", "simulated"))


class _Peer:
    """What connections that are over have left behind of one peer."""

    def __init__(self) -> None:
        self.tx_bytes = self.rx_bytes = 0
        self.spoke_ns = self.heard_ns = 0


class FactBook:
    """Remembers the peers of one transport and tells its facts."""

    def __init__(self, node_id: NodeId, tunnel: Tunnel, clock: Clock) -> None:
        self._node_id = node_id
        self._tunnel = tunnel
        self._clock = clock
        self._peers: dict[NodeId, _Peer] = {}
        self._opened = self._closed = 0

    def opened(self, connection: SimConnection) -> None:
        """A connection began."""
        self._opened += 1
        self._peers.setdefault(connection.peer, _Peer())

    def closed(self, connection: SimConnection) -> None:
        """A connection is over: keep its totals."""
        self._closed += 1
        peer = self._peers[connection.peer]
        peer.tx_bytes += connection.tx_bytes
        peer.rx_bytes += connection.rx_bytes
        peer.spoke_ns = max(peer.spoke_ns, connection.spoke_ns)
        peer.heard_ns = max(peer.heard_ns, connection.heard_ns)

    def facts(self, connections: Collection[SimConnection]) -> TransportFacts:
        """Return everything, given the ``connections`` that are open."""
        tunnel = self._tunnel
        relay_url = tunnel.relay.url
        offset_ms = self._clock.wall_ms() - self._clock.monotonic_ns() // NS_PER_MS
        return TransportFacts(
            transport="iroh",
            local_address=PeerAddress(self._node_id, relay_url=relay_url),
            home_relay_url=relay_url if tunnel.connects else None,
            tunnel=TunnelFacts(
                relay_url=relay_url,
                status=tunnel.status,
                status_source=FactSource.DERIVED,
                status_changed_at_ms=tunnel.status_changed_at_ms,
                last_send_at_ms=_moment(tunnel.sent_ns, offset_ms),
                last_recv_at_ms=_moment(tunnel.heard_ns, offset_ms),
                tx_bytes_total=tunnel.tx_bytes,
                rx_bytes_total=tunnel.rx_bytes,
                status_reason=_reason(tunnel),
            ),
            peers=self._paths(connections, offset_ms),
            counters=self._counters(),
            versions=VERSIONS,
            api_gaps=API_GAPS,
        )

    def _paths(self, connections: Collection[SimConnection], offset_ms: int) -> tuple[PathFacts, ...]:
        by_peer: dict[NodeId, list[SimConnection]] = {peer: [] for peer in sorted(self._peers)}
        for connection in connections:
            by_peer[connection.peer].append(connection)
        return tuple(self._path(peer, open_now, offset_ms) for peer, open_now in by_peer.items())

    def _path(self, peer: NodeId, open_now: list[SimConnection], offset_ms: int) -> PathFacts:
        past = self._peers[peer]
        spoke_ns, heard_ns = past.spoke_ns, past.heard_ns
        tx_bytes, rx_bytes = past.tx_bytes, past.rx_bytes
        for connection in open_now:
            spoke_ns, heard_ns = max(spoke_ns, connection.spoke_ns), max(heard_ns, connection.heard_ns)
            tx_bytes += connection.tx_bytes
            rx_bytes += connection.rx_bytes
        return PathFacts(
            peer=peer,
            conn_type=ConnType.RELAY if open_now else ConnType.NONE,
            conn_type_source=FactSource.DERIVED,
            rtt_ms=open_now[-1].rtt_ns // NS_PER_MS if open_now else None,
            last_used_at_ms=offset_ms + spoke_ns // NS_PER_MS,
            last_received_at_ms=offset_ms + heard_ns // NS_PER_MS,
            tx_bytes=tx_bytes,
            rx_bytes=rx_bytes,
            relay_urls=(AddressUse(self._tunnel.relay.url, active=bool(open_now)),),
        )

    def _counters(self) -> tuple[TransportCounter, ...]:
        tunnel = self._tunnel
        values = {
            "num_conns_closed": self._closed,
            "num_conns_opened": self._opened,
            "recv_data_relay": tunnel.rx_bytes,
            "relay_conns_closed": tunnel.losses,
            "relay_conns_failed": tunnel.failures,
            "relay_conns_success": tunnel.connects,
            "relay_home_change": int(tunnel.connects > 0),
            "send_relay": tunnel.tx_bytes,
        }
        return tuple(TransportCounter("socket", name, value) for name, value in values.items())


def _moment(at_ns: int | None, offset_ms: int) -> int | None:
    return None if at_ns is None else offset_ms + at_ns // NS_PER_MS


def _reason(tunnel: Tunnel) -> str:
    """Return the sign that decided the status, in the production transport's words."""
    if tunnel.status is TunnelStatus.CONNECTED:
        return "the tunnel is up"
    if tunnel.losses:
        return f"the tunnel is down ({tunnel.losses} closed since the start)"
    if tunnel.failures:
        return f"the relay does not let us in ({tunnel.failures} attempts failed)"
    return "no answer yet"
