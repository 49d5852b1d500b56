"""What a relay knows about itself at one moment: totals since its start and a table of its sessions.

Owns: the records of the snapshot block ``relay_server`` and of ``/sessions``. Field names of the original
block stay; the others are additions. Not here: how the values come about (see ``sessions``).
"""

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType


class SessionState(StrEnum):
    """Whether a session gets the traffic of its node id."""

    ACTIVE = "active"
    PARKED = "parked"
    """A newer session of the same id is active: this one may send and receives nothing."""
    UNRECOGNIZED = "unrecognized"
    """Read from a record of a newer version; never written."""

    @classmethod
    def _missing_(cls, value: object) -> "SessionState":  # noqa: ARG003 - any unknown one
        return cls.UNRECOGNIZED


class SessionReport(Struct, frozen=True, kw_only=True):
    """One session that is open now."""

    session_id: int
    peer_node_id_hex: str
    state: SessionState
    subprotocol: str
    remote_address: str
    opened_at_ms: int
    age_ms: int
    idle_ms: Annotated[int, Meta(description="Since the last frame from the peer.")]
    bytes_rx: int
    bytes_tx: int
    frames_rx: int
    frames_tx: int
    frames_queue_dropped: Annotated[int, Meta(description="For this peer, dropped as its queue was full.")]
    frames_unroutable: Annotated[int, Meta(description="From this peer, to an id without a session.")]
    frames_pair_dropped: Annotated[int, Meta(description="From this peer, dropped by a drill.")]
    rtt_ms: Annotated[float, Meta(description="Last answered ping.")] | UnsetType = UNSET


class RelayReport(Struct, frozen=True, kw_only=True):
    """One relay process: totals since its start, and the sessions open now."""

    active_sessions: Annotated[int, Meta(description="Open sessions, parked ones included.")]
    total_opens: int
    total_closes: int
    bytes_rx_total: int
    bytes_tx_total: int
    closes_by_reason: tuple[tuple[str, int], ...]
    scraped_at_ms: int
    parked_sessions: int
    frames_queue_dropped_total: int
    frames_unroutable_total: int
    frames_pair_dropped_total: int
    dropped_pairs: tuple[tuple[str, str], ...]
    """Ordered pairs of node ids between which a drill drops everything."""
    refusals_by_reason: tuple[tuple[str, int], ...]
    refused_ids: tuple[str, ...] = ()
    """Node ids that a drill keeps out."""
    paused_ids: tuple[str, ...] = ()
    """Node ids from whose sessions a drill has the relay read nothing."""
    limited_ids: tuple[tuple[str, int], ...] = ()
    """Node ids that a drill slows down, with the bytes a second that are read of each of their sessions."""
    draining: bool = False
    """New sessions are refused, the open ones are being closed."""
    crashed_sessions: Annotated[
        int, Meta(description="Of a former process, told from its journal; not among opens and closes.")
    ] = 0
    journal_errors: Annotated[int, Meta(description="Writes to the journal that failed.")] = 0
    sessions: tuple[SessionReport, ...]
    """Newest first, bounded."""
    sessions_omitted: Annotated[int, Meta(description="Open sessions beyond the bound of the table.")]
