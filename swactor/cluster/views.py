"""What a cluster shows of itself right now: frozen values for introspectors.

Owns: the records of a `ClusterView`. Times ending in ``_at_ms`` are wall clock; ``None`` means "not yet".
Not here: events, and how the values come about.
"""

import msgspec

from swactor import NodeId
from swactor.cluster.claims import SwimKind
from swactor.cluster.events import MemberState
from swactor.cluster.members import SwimConfig
from swactor.cluster.names import Entry
from swactor.cluster.transport import PeerAddress, TransportFacts


class MemberView(msgspec.Struct, frozen=True):
    """One other node as seen from here."""

    peer: NodeId
    state: MemberState
    boot: int
    incarnation: int
    since_ms: int
    address: PeerAddress
    last_ping_sent_at_ms: int | None = None
    last_ack_received_at_ms: int | None = None
    last_ping_received_at_ms: int | None = None
    suspect_started_at_ms: int | None = None


class RecentMessageView(msgspec.Struct, frozen=True):
    """One of the last SWIM messages, sent or received."""

    kind: SwimKind
    peer: NodeId
    at_ms: int
    sequence: int


class SwimView(msgspec.Struct, frozen=True):
    """The member table and the pace it is kept at."""

    config: SwimConfig
    self_node_id: NodeId
    self_boot: int
    self_incarnation: int
    self_health: int
    members: tuple[MemberView, ...]
    recent_messages: tuple[RecentMessageView, ...]
    anomalies: int


class NamesView(msgspec.Struct, frozen=True):
    """The name registry, tombstones included, sorted by name."""

    entries: tuple[Entry, ...]
    clock: int

    @property
    def tombstone_count(self) -> int:
        """How many names are known to have belonged to somebody."""
        return sum(entry.is_tombstone for entry in self.entries)


class ConnectionView(msgspec.Struct, frozen=True):
    """The connection to one peer, the one in use or the last one. ``generation`` counts them from 1."""

    peer: NodeId
    is_up: bool
    generation: int
    created_at_ms: int | None = None
    last_successful_send_at_ms: int | None = None
    last_failure_at_ms: int | None = None
    last_failure_reason: str | None = None
    frames_waiting: int = 0
    bytes_unacknowledged: int = 0


class LinksView(msgspec.Struct, frozen=True):
    """How peers are reached: by the links, and by the transport below them."""

    connections: tuple[ConnectionView, ...]
    transport: TransportFacts
    refused: tuple[tuple[str, int], ...]  # why -> how many connections were not admitted
    dropped: tuple[tuple[str, int], ...]  # why -> how many inbound messages reached nobody
