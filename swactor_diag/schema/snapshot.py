"""A snapshot: the values of one node at one moment.

Owns: the envelope, the trigger, the reachability block, and the body as a reader sees it.
Not here: the other blocks (``schema.blocks``, ``schema.cluster_blocks``), reading bytes (``schema.reading``).
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from swactor_diag.schema.blocks import (
    ActorsBlock,
    DeliveryBlock,
    HostBlock,
    IntrospectorEntry,
    OpenEnum,
    ProcessBlock,
    RelayServerBlock,
    SubprocessBlock,
)
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.cluster_blocks import IrohBlock, RegistryBlock, SwimBlock
from swactor_diag.schema.network import ProbesBlock, RentalBlock

SWIM_HISTORY_MAX = 32
"""Transitions kept per peer in ``swim_transition_history``; older ones are in the event stream."""


class TriggerKind(OpenEnum):
    """Why a snapshot was taken."""

    PERIODIC = "Periodic"
    TRANSITION = "Transition"
    ON_DEMAND = "OnDemand"
    UNRECOGNIZED = "unrecognized"


class Trigger(Struct, frozen=True, kw_only=True):
    """Why this snapshot was taken; a transition is named by its event, ``seq-<monotonic_seq>``."""

    kind: TriggerKind
    data: str | UnsetType = UNSET


class SwimHistoryEntry(Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One change of opinion about a peer."""

    from_: str
    to: str
    at_ms: int
    reason: str


class Reachability(Struct, frozen=True, kw_only=True):
    """What this node knows of its way to one peer. Every key is always written."""

    peer_node_id_hex: str
    last_inbound_packet_at_ms: int | None = None
    last_inbound_via: str | None = None
    last_outbound_success_at_ms: int | None = None
    last_outbound_via: str | None = None
    last_dial_started_at_ms: int | None = None
    last_dial_outcome: str | None = None
    last_dial_duration_ms: int | None = None
    current_swim_opinion: Annotated[str, Meta(description="Alive, Suspect, Dead, Unknown.")]
    current_swim_opinion_since_ms: int | None = None
    swim_transition_history: tuple[SwimHistoryEntry, ...] = ()
    metadata_version_seen: int | None = None
    metadata_relay_url_seen: str | None = None


class Body(Struct, frozen=True, kw_only=True):
    """What a reader finds. A block that nobody of ours declares is in ``others``, as plain values."""

    reachability: tuple[Reachability, ...] = ()
    iroh: IrohBlock | UnsetType = UNSET
    swim: SwimBlock | UnsetType = UNSET
    registry: RegistryBlock | UnsetType = UNSET
    host: HostBlock | UnsetType = UNSET
    probes: ProbesBlock | UnsetType = UNSET
    vastai: RentalBlock | UnsetType = UNSET
    relay_server: RelayServerBlock | UnsetType = UNSET
    process: ProcessBlock | UnsetType = UNSET
    subprocess: SubprocessBlock | UnsetType = UNSET
    actors: ActorsBlock | UnsetType = UNSET
    delivery: DeliveryBlock | UnsetType = UNSET
    introspectors: tuple[IntrospectorEntry, ...] = ()
    others: dict[str, object] = {}


class SnapshotEnvelope(Struct, frozen=True, kw_only=True):
    """A snapshot. The writer fills ``body`` with one record per introspector, whatever its type."""

    identity: Identity
    run_id: str
    snapshot_id: Annotated[str, Meta(description="<short node id>-<n>, n from 0 in each boot.")]
    wall_ms: int
    monotonic_seq: Annotated[int, Meta(description="Events observed so far.")]
    trigger: Trigger
    body: dict[str, object]
