"""One relay session: what is counted while it is open, its row in a report and its closing record.

Owns: the counts of one session and how they read. Pure.
Not here: which sessions there are (see ``sessions``).
"""

from msgspec import UNSET, Struct

from swactor.relay.events import CLOSE_RULES, CloseReason, RelaySessionClosed
from swactor.relay.report import SessionReport, SessionState

DETAIL_LENGTH_MAX = 200


class Instant(Struct, frozen=True):
    """One moment on both clocks."""

    monotonic_ns: int
    wall_ms: int


class Session:
    """One open session. Made by `SessionBook.open` only; counts are kept here as they are hot."""

    __slots__ = (
        "bytes_rx",
        "bytes_tx",
        "frames_pair_dropped",
        "frames_queue_dropped",
        "frames_rx",
        "frames_tx",
        "frames_unroutable",
        "heard_ns",
        "node_id_hex",
        "opened",
        "parked",
        "peer",
        "reached",
        "reached_swept_at",
        "remote_address",
        "rtt_ms",
        "session_id",
        "subprotocol",
    )

    def __init__(
        self, session_id: int, peer: bytes, *, opened: Instant, subprotocol: str, remote_address: str
    ) -> None:
        self.session_id = session_id
        self.peer = peer
        self.node_id_hex = peer.hex()
        self.opened = opened
        self.subprotocol = subprotocol
        self.remote_address = remote_address
        self.parked = False
        self.heard_ns = opened.monotonic_ns
        self.rtt_ms: float | None = None
        self.reached: set[bytes] = set()
        self.reached_swept_at = 0
        self.bytes_rx = self.frames_rx = self.bytes_tx = self.frames_tx = 0
        self.frames_queue_dropped = self.frames_unroutable = self.frames_pair_dropped = 0

    def received(self, n_bytes: int, *, now_ns: int) -> None:
        """Count one frame from the peer; it also proves that the peer lives."""
        self.bytes_rx += n_bytes
        self.frames_rx += 1
        self.heard_ns = now_ns

    def sent(self, n_bytes: int) -> None:
        """Count one frame written to the peer."""
        self.bytes_tx += n_bytes
        self.frames_tx += 1

    def silent_ns(self, now_ns: int) -> int:
        """Return how long the peer has sent nothing."""
        return now_ns - self.heard_ns


def closing_event(
    session: Session,
    reason: CloseReason,
    now: Instant,
    *,
    idle_limit_ms: int,
    detail: str = "",
    promoted: Session | None = None,
) -> RelaySessionClosed:
    """Return the record of a session that ended ``now``; ``promoted`` is who got its traffic then."""
    rule = CLOSE_RULES[reason]
    return RelaySessionClosed(
        peer_node_id_hex=session.node_id_hex,
        opened_at_ms=session.opened.wall_ms,
        closed_at_ms=now.wall_ms,
        duration_ms=_milliseconds(now.monotonic_ns - session.opened.monotonic_ns),
        close_initiator=rule.initiator,
        close_reason=reason,
        bytes_rx=session.bytes_rx,
        bytes_tx=session.bytes_tx,
        session_id=session.session_id,
        evidence=rule.evidence,
        ambiguous=rule.ambiguous or UNSET,
        detail=detail[:DETAIL_LENGTH_MAX] or UNSET,
        parked=session.parked,
        promoted_session_id=UNSET if promoted is None else promoted.session_id,
        idle_ms=_milliseconds(session.silent_ns(now.monotonic_ns)),
        idle_limit_ms=idle_limit_ms,
        rtt_ms=UNSET if session.rtt_ms is None else session.rtt_ms,
        frames_queue_dropped=session.frames_queue_dropped,
    )


def session_report(session: Session, now: Instant) -> SessionReport:
    """Return the row of an open session."""
    return SessionReport(
        session_id=session.session_id,
        peer_node_id_hex=session.node_id_hex,
        state=SessionState.PARKED if session.parked else SessionState.ACTIVE,
        subprotocol=session.subprotocol,
        remote_address=session.remote_address,
        opened_at_ms=session.opened.wall_ms,
        age_ms=_milliseconds(now.monotonic_ns - session.opened.monotonic_ns),
        idle_ms=_milliseconds(session.silent_ns(now.monotonic_ns)),
        bytes_rx=session.bytes_rx,
        bytes_tx=session.bytes_tx,
        frames_rx=session.frames_rx,
        frames_tx=session.frames_tx,
        frames_queue_dropped=session.frames_queue_dropped,
        frames_unroutable=session.frames_unroutable,
        frames_pair_dropped=session.frames_pair_dropped,
        rtt_ms=UNSET if session.rtt_ms is None else session.rtt_ms,
    )


def _milliseconds(duration_ns: int) -> int:
    return duration_ns // 1_000_000
