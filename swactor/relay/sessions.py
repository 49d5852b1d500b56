"""The sessions of one relay, as a book: who is connected, who gets whose frames, how each session ended.

Owns: duplicate ids, routing, dropped pairs, counting, and that each opened session is closed exactly once.
Pure: times come in as `Instant`, what the outside must do goes out as `Notice`. The server performs it on
real sockets, the simulator on virtual ones. Not here: bytes of the protocol, queues, timers.
"""

from collections import Counter
from enum import StrEnum

from msgspec import UNSET, Struct

from swactor import SwactorError
from swactor.relay.events import CloseReason, RelaySessionClosed, RelaySessionOpened
from swactor.relay.report import RelayReport
from swactor.relay.session import Instant, Session, closing_event, session_report

DRILLS_MAX = 1024
"""Pairs, or node ids, under one kind of drill."""
REACHED_MAX = 512
"""Keys that are remembered as reached by one session; those beyond are not told when it is gone."""


class TooManyDrillsError(SwactorError):
    """There are as many drills of this kind as there may be; end one first."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"at most {DRILLS_MAX} {kind} at a time")


class Refusal(StrEnum):
    """Why a client was turned away before it had a session."""

    NO_SUBPROTOCOL = "no_subprotocol"
    BAD_HANDSHAKE = "bad_handshake"
    BAD_SIGNATURE = "bad_signature"
    BAD_TOKEN = "bad_token"  # noqa: S105 - the name of a reason, not a token
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    HANDSHAKE_ABANDONED = "handshake_abandoned"
    ID_NOT_ALLOWED = "id_not_allowed"
    ID_REFUSED = "id_refused"
    ADDRESS_LIMIT = "address_limit"
    NO_REQUEST = "no_request"
    RELAY_BUSY = "relay_busy"
    RELAY_FULL = "relay_full"
    RELAY_STOPPING = "relay_stopping"


class NoticeKind(StrEnum):
    """What a session must be told."""

    PARKED = "parked"
    PROMOTED = "promoted"
    PEER_GONE = "peer_gone"


class Notice(Struct, frozen=True):
    """Tell ``session`` something; ``peer`` is the key that is gone, for PEER_GONE."""

    session: Session
    kind: NoticeKind
    peer: bytes = b""


class Opened(Struct, frozen=True):
    """A session was opened: emit ``event``, perform ``notices``, then close ``excess`` as superseded."""

    session: Session
    event: RelaySessionOpened
    notices: tuple[Notice, ...]
    excess: Session | None


class Closed(Struct, frozen=True):
    """A session was closed: emit ``event``, perform ``notices``."""

    event: RelaySessionClosed
    notices: tuple[Notice, ...]


class _Traffic:
    """Summed counts of sessions."""

    def __init__(self) -> None:
        self.bytes_rx = self.bytes_tx = 0
        self.frames_queue_dropped = self.frames_unroutable = self.frames_pair_dropped = 0

    def add(self, session: "Session | _Traffic") -> None:
        self.bytes_rx += session.bytes_rx
        self.bytes_tx += session.bytes_tx
        self.frames_queue_dropped += session.frames_queue_dropped
        self.frames_unroutable += session.frames_unroutable
        self.frames_pair_dropped += session.frames_pair_dropped


class SessionBook:
    """All sessions of one relay process. Not for two threads."""

    def __init__(
        self,
        *,
        sessions_max: int,
        sessions_per_id_max: int,
        sessions_listed_max: int,
        idle_limit_ms: int,
    ) -> None:
        self._sessions_max = sessions_max
        self._sessions_per_id_max = sessions_per_id_max
        self._sessions_listed_max = sessions_listed_max
        self._idle_limit_ms = idle_limit_ms
        self._open: dict[int, Session] = {}
        self._active: dict[bytes, Session] = {}
        self._parked: dict[bytes, list[Session]] = {}
        self._dropped_pairs: set[tuple[bytes, bytes]] = set()
        self._opens = 0
        self._departures = 0
        self._last_session_id = 0
        self._closed_traffic = _Traffic()
        self._closes: Counter[CloseReason] = Counter()
        self._refusals: Counter[Refusal] = Counter()

    # -- life of a session -------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Whether no further session may be opened now."""
        return len(self._open) >= self._sessions_max

    def refuse(self, reason: Refusal) -> None:
        """Count a client that was turned away."""
        self._refusals[reason] += 1

    def number_after(self, session_id: int) -> None:
        """Give numbers above ``session_id`` only: those up to it belong to sessions of a former process."""
        self._last_session_id = session_id

    def open(self, peer: bytes, now: Instant, *, subprotocol: str, remote_address: str) -> Opened:
        """Open a session for the key ``peer``, which becomes the active one of its id.

        The one that was active is parked. With more sessions of one id than allowed, the oldest parked one
        is named as ``excess``; it stays open until the caller closes it.
        """
        self._opens += 1
        self._last_session_id += 1
        session = Session(
            self._last_session_id, peer, opened=now, subprotocol=subprotocol, remote_address=remote_address
        )
        self._open[session.session_id] = session
        previous = self._active.get(peer)
        self._active[peer] = session
        notices: tuple[Notice, ...] = ()
        excess = None
        if previous is not None:
            previous.parked = True
            parked = self._parked.setdefault(peer, [])
            parked.append(previous)
            notices = (Notice(previous, NoticeKind.PARKED),)
            excess = parked[0] if len(parked) >= self._sessions_per_id_max else None
        event = RelaySessionOpened(
            peer_node_id_hex=session.node_id_hex,
            at_ms=now.wall_ms,
            session_id=session.session_id,
            subprotocol=subprotocol,
            remote_address=remote_address,
            superseded_session_id=UNSET if previous is None else previous.session_id,
        )
        return Opened(session, event, notices, excess)

    def close(
        self, session: Session, reason: CloseReason, now: Instant, *, detail: str = ""
    ) -> Closed | None:
        """Close ``session``; the first reason given is the one recorded.

        Returns:
            What follows from it, or None when the session was closed before.
        """
        if self._open.pop(session.session_id, None) is None:
            return None
        self._closed_traffic.add(session)
        self._closes[reason] += 1
        promoted, notices = self._vacate(session)
        event = closing_event(
            session, reason, now, idle_limit_ms=self._idle_limit_ms, detail=detail, promoted=promoted
        )
        return Closed(event, notices)

    def _vacate(self, session: Session) -> tuple[Session | None, tuple[Notice, ...]]:
        """Take a closed session off its id; the most recently parked one follows an active one."""
        peer = session.peer
        parked = self._parked.get(peer, [])
        successor = None
        notices: tuple[Notice, ...] = ()
        if session.parked:
            parked.remove(session)
            self._inherit_reached(self._active[peer], session)
        elif parked:
            successor = self._active[peer] = parked.pop()
            successor.parked = False
            self._inherit_reached(successor, session)
            notices = (Notice(successor, NoticeKind.PROMOTED),)
        else:
            del self._active[peer]
            self._departures += 1
            reached = (self._active.get(key) for key in sorted(session.reached))
            notices = tuple(Notice(other, NoticeKind.PEER_GONE, peer) for other in reached if other)
        if not parked:
            self._parked.pop(peer, None)
        return successor, notices

    # -- routing -----------------------------------------------------------------------------------------

    def route(self, source: Session, destination: bytes) -> Session | None:
        """Return the session that gets a frame from ``source`` to the key ``destination``.

        None, counted, when no session has that id or a drill drops the pair.
        """
        if self._dropped_pairs and (source.peer, destination) in self._dropped_pairs:
            source.frames_pair_dropped += 1
            return None
        target = self._active.get(destination)
        if target is None:
            source.frames_unroutable += 1
            return None
        if destination not in source.reached:
            self._remember_reached(source, target)
        return target

    def _remember_reached(self, source: Session, target: Session) -> None:
        """Note that ``target`` has a route to ``source``; the ids that are gone make room."""
        # Called for every frame to a peer that found no room, so it sweeps only when somebody has left since.
        if len(source.reached) >= REACHED_MAX and source.reached_swept_at != self._departures:
            source.reached_swept_at = self._departures
            source.reached = {key for key in source.reached if key in self._active}
        if len(source.reached) < REACHED_MAX:
            source.reached.add(target.peer)

    def _inherit_reached(self, heir: Session, former: Session) -> None:
        """Have ``heir``, of the same id, tell those that ``former`` had reached."""
        reached = (heir.reached | former.reached).intersection(self._active)
        heir.reached = set(sorted(reached)[:REACHED_MAX])

    def drop_pair(self, source: bytes, destination: bytes) -> None:
        """Drop every frame from ``source`` to ``destination``, until restored; the way back is unaffected.

        Raises:
            TooManyDrillsError: nothing was changed.
        """
        if (source, destination) not in self._dropped_pairs and len(self._dropped_pairs) >= DRILLS_MAX:
            raise TooManyDrillsError("dropped pairs")
        self._dropped_pairs.add((source, destination))

    def restore_pair(self, source: bytes, destination: bytes) -> None:
        """Forward from ``source`` to ``destination`` again; does nothing when the pair is not dropped."""
        self._dropped_pairs.discard((source, destination))

    # -- looking at it -----------------------------------------------------------------------------------

    def find(self, session_id: int) -> Session | None:
        """Return the open session with this number."""
        return self._open.get(session_id)

    def active(self, peer: bytes) -> Session | None:
        """Return the session that gets the traffic of the key ``peer``."""
        return self._active.get(peer)

    def open_sessions(self) -> tuple[Session, ...]:
        """Return every open session, oldest first."""
        return tuple(self._open.values())

    def report(self, now: Instant) -> RelayReport:
        """Return totals and the table of open sessions as of ``now``."""
        total = _Traffic()
        total.add(self._closed_traffic)
        for session in self._open.values():
            total.add(session)
        newest_first = list(reversed(self._open.values()))
        listed = newest_first[: self._sessions_listed_max]
        return RelayReport(
            active_sessions=len(self._open),
            total_opens=self._opens,
            total_closes=self._closes.total(),
            bytes_rx_total=total.bytes_rx,
            bytes_tx_total=total.bytes_tx,
            closes_by_reason=_sorted_counts(self._closes),
            scraped_at_ms=now.wall_ms,
            parked_sessions=sum(map(len, self._parked.values())),
            frames_queue_dropped_total=total.frames_queue_dropped,
            frames_unroutable_total=total.frames_unroutable,
            frames_pair_dropped_total=total.frames_pair_dropped,
            dropped_pairs=tuple(sorted((a.hex(), b.hex()) for a, b in self._dropped_pairs)),
            refusals_by_reason=_sorted_counts(self._refusals),
            sessions=tuple(session_report(session, now) for session in listed),
            sessions_omitted=len(newest_first) - len(listed),
        )


def _sorted_counts(counts: Counter[CloseReason] | Counter[Refusal]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(reason), count) for reason, count in counts.items()))
