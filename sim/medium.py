"""How one piece of a connection crosses the simulated world: node, relay, node.

Owns: the two phases (the relay's book is asked when the piece is at the relay, not when it was sent), the
counting at each end, and silence about what was lost on the way.
Not here: order and repetition (`sim.transport`), latency (`sim.network`), sessions (`sim.relay`).
"""

from typing import Protocol

from sim.loop import VirtualLoop
from sim.network import Drop, Network
from sim.relay import SimRelay, Tunnel
from swactor import NodeId
from swactor.relay import Session

FRAME_OVERHEAD_BYTES = 70
"""Relay frame header and packet protection around the bytes of a stream."""


class Piece(Protocol):
    """Something on its way: told exactly once what became of it, for the simulation's books only."""

    n_bytes: int

    def arrived(self) -> None:
        """It is at the other node."""
        ...

    def dropped(self) -> None:
        """It will never arrive. A real sender would conclude that from silence."""
        ...


class Medium:
    """The way from one node to another through a relay."""

    def __init__(self, loop: VirtualLoop, network: Network) -> None:
        self.loop = loop
        self.network = network

    def carry(self, tunnel: Tunnel, target: NodeId, piece: Piece) -> None:
        """Send ``piece`` through ``tunnel`` to the node ``target``."""
        session = tunnel.session
        if session is None:
            self.loop.call_soon(piece.dropped)
            return
        n_bytes = piece.n_bytes + FRAME_OVERHEAD_BYTES
        tunnel.sent(n_bytes)
        relay = tunnel.relay
        at_ns = self.network.tunnel_leg(tunnel.host, relay.host, n_bytes=n_bytes, now_ns=self.loop.now_ns)
        if isinstance(at_ns, Drop):
            self.loop.call_soon(piece.dropped)
        else:
            self.loop.call_at_ns(at_ns, self._at_relay, relay, session, target, piece)

    def _at_relay(self, relay: SimRelay, session: Session, target: NodeId, piece: Piece) -> None:
        n_bytes = piece.n_bytes + FRAME_OVERHEAD_BYTES
        self.network.received(relay.host, n_bytes)
        tunnel = relay.route(session, bytes.fromhex(target), n_bytes)
        if tunnel is None:
            piece.dropped()
            return
        at_ns = self.network.tunnel_leg(relay.host, tunnel.host, n_bytes=n_bytes, now_ns=self.loop.now_ns)
        if isinstance(at_ns, Drop):
            piece.dropped()
        else:
            self.loop.call_at_ns(at_ns, self._at_node, tunnel, tunnel.session, piece)

    def _at_node(self, tunnel: Tunnel, session: Session | None, piece: Piece) -> None:
        if session is None or tunnel.session is not session:
            piece.dropped()
            return
        tunnel.received(piece.n_bytes + FRAME_OVERHEAD_BYTES)
        piece.arrived()
