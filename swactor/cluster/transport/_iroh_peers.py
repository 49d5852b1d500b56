"""How each peer is reached: its paths, their bytes, and when they last moved. Pure: looks in, events out.

Owns: the connection type of a peer, byte totals over all its connections, which addresses are in use.
Not here: taking a look (``_iroh_watch``). A peer stays listed with `ConnType.NONE` after its last connection.

Times come from comparing totals at each look, so their resolution is the time between looks, and the
library's own keep-alives count as use.
"""

from typing import Final

from msgspec import Struct

from swactor import Event, NodeId
from swactor.cluster.events import IrohConnTypeChanged
from swactor.cluster.transport._base import AddressUse, ConnType, FactSource, PathFacts

PEERS_MAX: Final = 1024
"""Peers remembered; above it the one not connected for the longest time is forgotten."""
ADDRESSES_MAX: Final = 16
"""Addresses remembered per peer and kind; above it the oldest that is not in use is forgotten."""


class PathLook(Struct, frozen=True):
    """One open path of a connection."""

    addr: str
    is_relay: bool
    is_selected: bool
    rtt_ms: int


class ConnectionLook(Struct, frozen=True):
    """One connection: its open paths, and the bytes it has moved since it was opened."""

    paths: tuple[PathLook, ...] = ()
    tx_bytes: int = 0
    rx_bytes: int = 0


class _Peer:
    """What is remembered of one peer."""

    def __init__(self) -> None:
        self.conn_type = ConnType.NONE
        self.rtt_ms: int | None = None
        self.ended_tx = self.ended_rx = 0  # bytes of connections that are over
        self.tx_bytes = self.rx_bytes = 0
        self.last_used_at_ms: int | None = None
        self.last_received_at_ms: int | None = None
        self.direct: dict[str, bool] = {}
        self.relays: dict[str, bool] = {}


class PeerLedger:
    """Remembers the paths to all peers of one endpoint."""

    def __init__(self) -> None:
        self._peers: dict[NodeId, _Peer] = {}

    def observe(self, peer: NodeId, connections: list[ConnectionLook], *, at_ms: int) -> list[Event]:
        """Take note of the open ``connections`` of ``peer`` and return what has happened."""
        known = self._touch(peer)
        paths = [path for connection in connections for path in connection.paths]
        known.rtt_ms = next((path.rtt_ms for path in paths if path.is_selected), None)
        _mark(known.direct, [path.addr for path in paths if not path.is_relay])
        _mark(known.relays, [path.addr for path in paths if path.is_relay])
        tx_bytes = known.ended_tx + sum(connection.tx_bytes for connection in connections)
        rx_bytes = known.ended_rx + sum(connection.rx_bytes for connection in connections)
        if tx_bytes > known.tx_bytes:
            known.last_used_at_ms = at_ms
        if rx_bytes > known.rx_bytes:
            known.last_received_at_ms = at_ms
        known.tx_bytes, known.rx_bytes = tx_bytes, rx_bytes
        old, known.conn_type = known.conn_type, _conn_type(paths)
        if old is known.conn_type:
            return []
        return [IrohConnTypeChanged(peer=peer, old=old, new=known.conn_type)]

    def connection_ended(self, peer: NodeId, last: ConnectionLook) -> None:
        """Keep the final byte totals of a connection; `observe` follows with those still open."""
        known = self._touch(peer)
        known.ended_tx += last.tx_bytes
        known.ended_rx += last.rx_bytes

    def facts(self) -> tuple[PathFacts, ...]:
        """All peers, sorted by id, as of their last look."""
        return tuple(_facts(peer, self._peers[peer]) for peer in sorted(self._peers))

    def _touch(self, peer: NodeId) -> _Peer:
        """The record of ``peer``, newest in order; makes room for it when it is new."""
        known = self._peers.pop(peer, None) or _Peer()
        self._peers[peer] = known
        if len(self._peers) > PEERS_MAX:
            idle = (other for other, record in self._peers.items() if record.conn_type is ConnType.NONE)
            oldest = next(idle, peer)
            if oldest != peer:
                del self._peers[oldest]
        return known


def _conn_type(paths: list[PathLook]) -> ConnType:
    """Direct and relay paths open at once are `MIXED`: the library keeps the relay as a reserve."""
    kinds = {path.is_relay for path in paths}
    if not kinds:
        return ConnType.NONE
    if len(kinds) == 2:
        return ConnType.MIXED
    return ConnType.RELAY if kinds.pop() else ConnType.DIRECT


def _mark(addresses: dict[str, bool], active: list[str]) -> None:
    """Mark ``active`` as in use and the rest as not, and keep the number bounded."""
    for addr in addresses:
        addresses[addr] = False
    for addr in active:
        addresses[addr] = True
    idle = [addr for addr, in_use in addresses.items() if not in_use]
    for addr in idle[: max(0, len(addresses) - ADDRESSES_MAX)]:
        del addresses[addr]


def _facts(peer: NodeId, known: _Peer) -> PathFacts:
    """The record of one peer as a value."""
    return PathFacts(
        peer=peer,
        conn_type=known.conn_type,
        conn_type_source=FactSource.DERIVED,
        rtt_ms=known.rtt_ms,
        last_used_at_ms=known.last_used_at_ms,
        last_received_at_ms=known.last_received_at_ms,
        tx_bytes=known.tx_bytes,
        rx_bytes=known.rx_bytes,
        direct_addresses=tuple(AddressUse(addr, active) for addr, active in known.direct.items()),
        relay_urls=tuple(AddressUse(addr, active) for addr, active in known.relays.items()),
    )
