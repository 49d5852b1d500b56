"""The blocks of a snapshot body that a node of a cluster fills: ``iroh``, ``swim``, ``registry``.

Owns: their records, in the original's field names. Which layer measures what: ``swactor.cluster``.
Not here: the blocks of any process (``schema.blocks``). The same rules of absence hold.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType


class AddressUsage(Struct, frozen=True, kw_only=True):
    """One address of a peer; ``usage`` is ``active`` or ``inactive``."""

    addr: str
    usage: str


class PeerPath(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one peer is reached."""

    peer_node_id_hex: str
    conn_type: Annotated[str, Meta(description="Direct, Relay, Mixed, None.")]
    conn_type_source: Annotated[str | UnsetType, Meta(description="iroh or derived.")] = UNSET
    latency_ms: int | UnsetType = UNSET
    last_used_ms: int | UnsetType = UNSET
    last_received_ms: int | UnsetType = UNSET
    tx_bytes: int | UnsetType = UNSET
    rx_bytes: int | UnsetType = UNSET
    direct_addresses: tuple[AddressUsage, ...] = ()
    relay_urls: tuple[AddressUsage, ...] = ()


class HistogramValue(Struct, frozen=True, kw_only=True):
    """The value of a metric of type Histogram."""

    count: int
    sum: int | float


class MetricValue(Struct, frozen=True, kw_only=True):
    """``type`` is Counter, Gauge or Histogram."""

    type: str
    value: int | float | HistogramValue


class Metric(Struct, frozen=True, kw_only=True):
    """One metric of the transport library."""

    group: str
    name: str
    value: MetricValue


class CachedConnection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last known connection to one peer."""

    peer_node_id_hex: str
    generation: int
    created_at_ms: int | UnsetType = UNSET
    last_successful_send_at_ms: int | UnsetType = UNSET
    last_failure_at_ms: int | UnsetType = UNSET
    last_failure_reason: str | UnsetType = UNSET
    observed_conn_type_at_last_use: str | UnsetType = UNSET
    is_up: bool | UnsetType = UNSET
    frames_waiting: int | UnsetType = UNSET
    bytes_unacknowledged: int | UnsetType = UNSET


class RelaySession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """This node's tunnel to its home relay; not the peers reached through it."""

    relay_url: str | UnsetType = UNSET
    status: Annotated[str, Meta(description="connected, connecting, disconnected, unknown.")]
    status_source: Annotated[str, Meta(description="iroh or derived.")]
    status_changed_at_ms: int | UnsetType = UNSET
    status_entered_at_ms: int | UnsetType = UNSET
    last_send_at_ms: int | UnsetType = UNSET
    last_recv_at_ms: int | UnsetType = UNSET
    tx_bytes_total: int | UnsetType = UNSET
    rx_bytes_total: int | UnsetType = UNSET


class IrohBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``iroh``: the transport, whichever it is (``transport`` names it when it is not iroh)."""

    home_relay_url: str | UnsetType = UNSET
    peers: tuple[PeerPath, ...] = ()
    metrics: tuple[Metric, ...] = ()
    connection_cache: tuple[CachedConnection, ...] = ()
    api_gaps: Annotated[tuple[str, ...], Meta(description="What the library cannot be asked for.")] = ()
    iroh_version: str | UnsetType = UNSET
    relay_session: RelaySession | UnsetType = UNSET
    transport: str | UnsetType = UNSET
    connections_refused: Annotated[tuple[tuple[str, int], ...], Meta(description="By reason.")] = ()
    inbound_dropped: Annotated[tuple[tuple[str, int], ...], Meta(description="Messages, by reason.")] = ()
    scraped_at_ms: int


class SwimConfig(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the failure detector is set."""

    probe_interval_ticks: int | UnsetType = UNSET
    probe_timeout_ticks: int | UnsetType = UNSET
    suspicion_timeout_ticks: int | UnsetType = UNSET
    indirect_probes_k: int | UnsetType = UNSET
    dead_reprobe_interval_ticks: int | UnsetType = UNSET
    gossip_fanout_lambda: int | UnsetType = UNSET
    max_piggyback: int | UnsetType = UNSET
    probe_mode: str | UnsetType = UNSET
    tick_ms: Annotated[int | UnsetType, Meta(description="Length of one tick.")] = UNSET


class SwimPeer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of the member table."""

    peer_node_id_hex: str
    state: Annotated[str, Meta(description="Alive, Suspect, Dead, Unknown.")]
    incarnation: int
    last_ping_sent_at_ms: int | UnsetType = UNSET
    last_ack_received_at_ms: int | UnsetType = UNSET
    last_ping_received_at_ms: int | UnsetType = UNSET
    suspect_started_at_ms: int | UnsetType = UNSET
    metadata_version_seen: int | UnsetType = UNSET
    boot: int | UnsetType = UNSET
    since_ms: Annotated[int | UnsetType, Meta(description="Wall time of the last change of state.")] = UNSET


class SwimMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the last messages of the failure detector."""

    kind: str
    peer_node_id_hex: str
    at_ms: int
    sequence: int | UnsetType = UNSET


class SwimBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``swim``: the member table as this node sees it."""

    config: SwimConfig
    self_node_id_hex: str
    self_incarnation: int
    self_boot: int | UnsetType = UNSET
    metadata_local_version: int | UnsetType = UNSET
    peers: tuple[SwimPeer, ...] = ()
    recent_messages: tuple[SwimMessage, ...] = ()
    self_health: Annotated[int | UnsetType, Meta(description="0 healthy; timeouts grow with it.")] = UNSET
    anomalies: Annotated[int | UnsetType, Meta(description="Messages that made no sense.")] = UNSET
    scraped_at_ms: int


class RegistryEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name of the cluster."""

    name: str
    actor_addr_hex: str | UnsetType = UNSET
    actor: Annotated[str | UnsetType, Meta(description="Path and serial on the owner.")] = UNSET
    owner_node_id_hex: str
    generation: int
    logical_timestamp: int
    is_tombstone: bool = False


class RegistryBlock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``registry``: the names as this node knows them."""

    entries: tuple[RegistryEntry, ...] = ()
    tombstone_count: int
    clock: int
    scraped_at_ms: int
