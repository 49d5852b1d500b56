"""The seam between links and whatever carries their bytes to another node.

Answers: what a transport must do so that a link can rely on it, and what a transport may know about itself.
Owns: the protocols (`Transport`, `Connection`, `ConnectionListener`) and the plain values they exchange.
Not here: frames, admission, heartbeats, reconnection (``swactor.cluster.links``); any real transport.

Rules of the seam, checked by ``swactor.cluster.testing.TRANSPORT_CHECKS`` for every implementation:

- All callbacks arrive on the loop's thread, never from inside the call that caused them.
- A connection is an ordered, reliable byte stream in both directions. Boundaries of writes are not kept.
- At most one write is in progress: after ``write`` the owner waits for ``written`` before it writes again.
  What waits meanwhile is joined by the owner into the next write.
- The reader never waits: a transport hands over bytes as they come, whatever the receiver does with them.
- ``lost`` is the last callback and comes exactly once, whichever side or accident ended the connection.
- Nobody's cancellation loses bytes or connections: a dial that was called off closes what it may still get.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from swactor import NodeId
from swactor.abc import Cancellable

DIAL_TIMEOUT_MS = 5_000
"""How long one dial may take. Reaching it says nothing about the peer: its relay tunnel may be in backoff."""


class PeerAddress(msgspec.Struct, frozen=True, order=True):
    """What is needed to dial a node. The id alone may do where the transport can look up the rest."""

    node_id: NodeId
    relay_url: str | None = None
    direct_addresses: tuple[str, ...] = ()

    @property
    def is_dialable(self) -> bool:
        """Whether it says more than who the node is."""
        return self.relay_url is not None or bool(self.direct_addresses)


class DialResult(StrEnum):
    """How a dial that brought no connection ended."""

    TIMEOUT = "Timeout"
    REFUSED = "Refused"
    NO_ROUTE = "NoRoute"
    ERROR = "Error"


class DialFailed(msgspec.Struct, frozen=True):
    """A dial that brought no connection. ``text`` is the transport's own wording."""

    outcome: DialResult
    text: str = ""


class LossKind(StrEnum):
    """Why a connection ended."""

    CLOSED_HERE = "closed_here"  # this side called ``close``
    CLOSED_BY_PEER = "closed_by_peer"  # the other side did; ``code`` is what it gave
    TIMED_OUT = "timed_out"  # the transport's own idle timeout
    RESET = "reset"  # the wire or the peer's machine broke it
    FLOODED = "flooded"  # too many unread chunks: the transport's own defect, retry is fine
    TRANSPORT_CLOSED = "transport_closed"  # this node's transport was shut down
    ERROR = "error"


class LossReason(msgspec.Struct, frozen=True):
    """Why a connection ended, as far as this side can know."""

    kind: LossKind
    text: str = ""
    code: int | None = None  # the closing side's code, where there was one


class TunnelStatus(StrEnum):
    """State of the tunnel to the home relay."""

    CONNECTED = "connected"
    CONNECTING = "connecting"
    DISCONNECTED = "disconnected"
    UNKNOWN = "unknown"


class FactSource(StrEnum):
    """Who says so: the transport library itself, or we conclude it from other signs."""

    IROH = "iroh"
    DERIVED = "derived"


class ConnType(StrEnum):
    """How a peer is reached. `NONE` is a known peer with no active path."""

    DIRECT = "Direct"
    RELAY = "Relay"
    MIXED = "Mixed"
    NONE = "None"


class TunnelFacts(msgspec.Struct, frozen=True):
    """The tunnel to the home relay right now. ``None`` is "cannot be asked", never zero."""

    relay_url: str
    status: TunnelStatus
    status_source: FactSource
    status_changed_at_ms: int | None = None
    last_send_at_ms: int | None = None
    last_recv_at_ms: int | None = None
    tx_bytes_total: int | None = None
    rx_bytes_total: int | None = None
    status_reason: str | None = None  # the sign that decided ``status``, for people


class AddressUse(msgspec.Struct, frozen=True):
    """One address of a peer and whether packets use it now."""

    addr: str
    active: bool


class PathFacts(msgspec.Struct, frozen=True):
    """How one peer is reached right now. ``None`` is "cannot be asked"."""

    peer: NodeId
    conn_type: ConnType
    conn_type_source: FactSource
    rtt_ms: int | None = None
    last_used_at_ms: int | None = None
    last_received_at_ms: int | None = None
    tx_bytes: int | None = None
    rx_bytes: int | None = None
    direct_addresses: tuple[AddressUse, ...] = ()
    relay_urls: tuple[AddressUse, ...] = ()


class TransportCounter(msgspec.Struct, frozen=True):
    """One counter of the transport, counted since it started."""

    group: str
    name: str
    value: int


class TransportFacts(msgspec.Struct, frozen=True):
    """What a transport knows about itself right now; a value for snapshots, cheap and never waiting.

    ``tunnel`` is ``None`` where there is no relay. ``api_gaps`` names what the library does not offer.
    ``reports_changes`` says that the transport itself emits the events about its tunnel and its paths, at the
    moment they happen; for one that does not, the cluster compares these facts once a second.
    """

    transport: str
    local_address: PeerAddress
    home_relay_url: str | None = None
    tunnel: TunnelFacts | None = None
    peers: tuple[PathFacts, ...] = ()
    counters: tuple[TransportCounter, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    api_gaps: tuple[str, ...] = ()
    reports_changes: bool = False

    @property
    def tunnel_is_down(self) -> bool:
        """Whether there is a relay, and no tunnel to it; False also when that cannot be told."""
        down = {TunnelStatus.CONNECTING, TunnelStatus.DISCONNECTED}
        return self.tunnel is not None and self.tunnel.status in down


class ConnectionListener(Protocol):
    """What hears of one connection. Its methods take note and return; they never raise and never wait."""

    def received(self, data: bytes) -> None:
        """The next bytes of the stream, cut anywhere; never empty."""
        ...

    def written(self) -> None:
        """The write in progress was handed over; the next one may follow."""
        ...

    def lost(self, reason: LossReason) -> None:
        """The connection has ended; nothing follows."""
        ...


class Connection(Protocol):
    """An ordered byte stream to one peer whose node id the transport has proven."""

    @property
    def peer(self) -> NodeId:
        """The other end."""
        ...

    def start(self, listener: ConnectionListener) -> None:
        """Begin to report to ``listener``, including what came before. Called once, before anything else."""
        ...

    def write(self, data: bytes) -> None:
        """Send ``data``; ``listener.written()`` follows unless the connection is lost first.

        Not called again before ``written``. Does nothing on a connection that has ended.
        """
        ...

    def close(self, code: int, reason: str) -> None:
        """End the connection at once; ``listener.lost`` follows, once. The peer learns code and reason.

        What was not handed over yet is dropped. Does nothing the second time.
        """
        ...


class Transport(Protocol):
    """Carries byte streams between nodes. One an `ActorSystem`, owned by its `Cluster`."""

    @property
    def node_id(self) -> NodeId:
        """The id under which peers know this transport."""
        ...

    async def start(self, on_inbound: Callable[[Connection], None]) -> None:
        """Begin to accept. ``on_inbound`` gets each connection a peer opened, to start or close it."""
        ...

    def dial(self, address: PeerAddress, on_done: Callable[[Connection | DialFailed], None]) -> Cancellable:
        """Open a connection to ``address``; ``on_done`` is called exactly once, within `DIAL_TIMEOUT_MS`.

        After ``cancel`` it is not called any more, and a connection that still comes is closed.
        """
        ...

    def facts(self) -> TransportFacts:
        """Return what is known right now."""
        ...

    async def close(self) -> None:
        """End every connection (`LossKind.TRANSPORT_CLOSED`) and stop accepting. Harmless the second time."""
        ...
