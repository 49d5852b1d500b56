"""What this node knows of its way to each peer, folded from its own events.

Owns: the ``reachability`` block. Pure: events with their wall times in, rows out.
Not here: the events themselves (``swactor.cluster.events``), when rows are wanted (``snapshotter``).
"""

from collections import deque
from dataclasses import dataclass, field

from swactor import Event
from swactor.cluster.events import (
    DialOutcome,
    DialStarted,
    GossipReceived,
    MessageReceived,
    MessageSent,
    SwimTransition,
)
from swactor_diag.schema.snapshot import SWIM_HISTORY_MAX, Reachability, SwimHistoryEntry

PEERS_MAX = 2048
"""Peers that are remembered; the one first heard of longest ago is forgotten for a new one."""

UNKNOWN_OPINION = "Unknown"


@dataclass(slots=True)
class _Peer:
    inbound_at_ms: int | None = None
    outbound_at_ms: int | None = None
    dial_started_at_ms: int | None = None
    dial_outcome: str | None = None
    dial_duration_ms: int | None = None
    opinion: str = UNKNOWN_OPINION
    opinion_since_ms: int | None = None
    history: deque[SwimHistoryEntry] = field(default_factory=lambda: deque(maxlen=SWIM_HISTORY_MAX))


class ReachabilityLog:
    """Last signs of life per peer."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}

    def note(self, wall_ms: int, event: Event) -> None:
        """Take note of one event; events that say nothing about a peer are ignored."""
        match event:
            case MessageReceived():
                self._peer(event.peer).inbound_at_ms = wall_ms
            case GossipReceived():
                self._peer(event.source_peer).inbound_at_ms = wall_ms
            case MessageSent():
                self._peer(event.peer).outbound_at_ms = wall_ms
            case DialStarted():
                self._peer(event.peer).dial_started_at_ms = wall_ms
            case DialOutcome():
                peer = self._peer(event.peer)
                peer.dial_outcome = _outcome_text(event)
                peer.dial_duration_ms = event.duration_ms
            case SwimTransition():
                self._change_opinion(wall_ms, event)
            case _:
                pass

    def rows(self) -> tuple[Reachability, ...]:
        """Return one row per peer, sorted by peer id."""
        return tuple(_row(node_id, self._peers[node_id]) for node_id in sorted(self._peers))

    def _change_opinion(self, wall_ms: int, event: SwimTransition) -> None:
        peer = self._peer(event.peer)
        peer.opinion = event.to
        peer.opinion_since_ms = wall_ms
        peer.history.append(
            SwimHistoryEntry(from_=event.from_, to=event.to, at_ms=wall_ms, reason=event.reason)
        )

    def _peer(self, node_id: str) -> _Peer:
        peer = self._peers.get(node_id)
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                del self._peers[next(iter(self._peers))]
            peer = self._peers[node_id] = _Peer()
        return peer


def _outcome_text(event: DialOutcome) -> str:
    return event.outcome if isinstance(event.outcome, str) else f'Error("{event.outcome.error}")'


def _row(node_id: str, peer: _Peer) -> Reachability:
    return Reachability(
        peer_node_id_hex=node_id,
        last_inbound_packet_at_ms=peer.inbound_at_ms,
        last_outbound_success_at_ms=peer.outbound_at_ms,
        last_dial_started_at_ms=peer.dial_started_at_ms,
        last_dial_outcome=peer.dial_outcome,
        last_dial_duration_ms=peer.dial_duration_ms,
        current_swim_opinion=peer.opinion,
        current_swim_opinion_since_ms=peer.opinion_since_ms,
        swim_transition_history=tuple(peer.history),
    )
