"""The session book: duplicate ids, routing, exactly one close, and books that balance."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from msgspec import UNSET

from swactor.relay import (
    CLOSE_RULES,
    Closed,
    CloseReason,
    Instant,
    NoticeKind,
    Opened,
    Refusal,
    Session,
    SessionBook,
    SessionState,
)
from swactor.relay.sessions import REACHED_MAX

A, B, C = (bytes([n]) * 32 for n in (1, 2, 3))


def at(second: float) -> Instant:
    # The wall clock jumps back on purpose: durations must not follow it.
    return Instant(round(second * 1e9), 1_700_000_000_000 - round(second * 1000))


def new_book(
    *, sessions_max: int = 100, sessions_per_id_max: int = 4, sessions_listed_max: int = 50
) -> SessionBook:
    return SessionBook(
        sessions_max=sessions_max,
        sessions_per_id_max=sessions_per_id_max,
        sessions_listed_max=sessions_listed_max,
        idle_limit_ms=25_000,
    )


def open_session(book: SessionBook, peer: bytes, second: float = 0.0) -> Opened:
    return book.open(peer, at(second), subprotocol="iroh-relay-v2", remote_address="127.0.0.1:5000")


def close_session(book: SessionBook, session: Session, second: float = 1.0) -> Closed:
    closed = book.close(session, CloseReason.CLIENT_GONE, at(second))
    assert closed is not None
    return closed


def test_the_closing_record_says_who_why_how_long_and_how_much() -> None:
    book = new_book()
    session = open_session(book, A, 10.0).session
    session.received(100, now_ns=at(12.0).monotonic_ns)
    session.sent(40)
    session.rtt_ms = 1.5

    closed = book.close(session, CloseReason.IDLE_TIMEOUT, at(40.5), detail="no frame for 28.5 s")

    assert closed is not None
    event = closed.event
    assert (event.close_initiator, event.close_reason) == ("idle_timeout", "idle_timeout")
    assert (event.duration_ms, event.idle_ms, event.idle_limit_ms) == (30_500, 28_500, 25_000)
    assert (event.bytes_rx, event.bytes_tx, event.rtt_ms) == (100, 40, 1.5)
    assert (event.opened_at_ms, event.closed_at_ms) == (at(10.0).wall_ms, at(40.5).wall_ms)
    assert event.evidence == "silence"
    assert event.ambiguous == CLOSE_RULES[CloseReason.IDLE_TIMEOUT].ambiguous
    assert event.detail == "no frame for 28.5 s"


def test_a_certain_reason_names_no_ambiguity() -> None:
    book = new_book()

    closed = book.close(open_session(book, A).session, CloseReason.CLIENT_CLOSED, at(1))

    assert closed is not None
    assert closed.event.ambiguous is UNSET


def test_the_first_close_counts_and_later_ones_do_nothing() -> None:
    book = new_book()
    session = open_session(book, A).session
    assert book.close(session, CloseReason.EVICTED, at(1)) is not None

    assert book.close(session, CloseReason.CLIENT_GONE, at(2)) is None

    report = book.report(at(3))
    assert report.closes_by_reason == (("evicted", 1),)
    assert (report.active_sessions, report.total_opens, report.total_closes) == (0, 1, 1)


def test_a_duplicate_id_parks_the_older_session() -> None:
    book = new_book()
    sender = open_session(book, C).session
    first = open_session(book, A)

    second = open_session(book, A)

    assert second.event.superseded_session_id == first.session.session_id
    assert [(n.session, n.kind) for n in second.notices] == [(first.session, NoticeKind.PARKED)]
    assert book.route(sender, A) is second.session
    states = {row.session_id: row.state for row in book.report(at(1)).sessions}
    assert states[first.session.session_id] is SessionState.PARKED
    assert states[second.session.session_id] is SessionState.ACTIVE


def test_the_most_recently_parked_session_is_promoted() -> None:
    book = new_book()
    _oldest, middle, newest = (open_session(book, A).session for _ in range(3))

    closed = close_session(book, newest)

    assert closed.event.promoted_session_id == middle.session_id
    assert [(n.session, n.kind) for n in closed.notices] == [(middle, NoticeKind.PROMOTED)]
    assert book.active(A) is middle


def test_a_parked_session_that_ends_disturbs_nobody() -> None:
    book = new_book()
    parked = open_session(book, A).session
    active = open_session(book, A).session

    closed = close_session(book, parked)

    assert closed.event.parked is True
    assert closed.notices == ()
    assert book.active(A) is active


def test_too_many_sessions_of_one_id_name_the_oldest_parked_one() -> None:
    book = new_book(sessions_per_id_max=2)
    first, second = open_session(book, A), open_session(book, A)
    assert second.excess is None

    third = open_session(book, A)

    assert third.excess is first.session


def test_those_the_peer_had_reached_hear_that_it_is_gone() -> None:
    book = new_book()
    gone, reached, _stranger = (open_session(book, key).session for key in (A, B, C))
    book.route(gone, B)

    closed = close_session(book, gone)

    assert [(n.session, n.kind, n.peer) for n in closed.notices] == [(reached, NoticeKind.PEER_GONE, A)]


def test_what_a_parked_session_had_reached_is_told_when_the_id_is_gone() -> None:
    book = new_book()
    parked, reached = open_session(book, A).session, open_session(book, B).session
    book.route(parked, B)
    active = open_session(book, A).session
    assert close_session(book, parked).notices == ()

    closed = close_session(book, active)

    assert [(n.session, n.kind) for n in closed.notices] == [(reached, NoticeKind.PEER_GONE)]


def test_what_an_active_session_had_reached_is_told_by_its_promoted_successor() -> None:
    book = new_book()
    parked, reached = open_session(book, A).session, open_session(book, B).session
    active = open_session(book, A).session
    book.route(active, B)
    close_session(book, active)

    closed = close_session(book, parked)

    assert [(n.session, n.kind) for n in closed.notices] == [(reached, NoticeKind.PEER_GONE)]


def test_how_many_are_told_is_bounded_and_those_that_left_make_room() -> None:
    book = new_book(sessions_max=3 * REACHED_MAX)
    hub = open_session(book, A).session
    spokes = [open_session(book, n.to_bytes(32, "big")).session for n in range(2 * REACHED_MAX)]
    for spoke in spokes[:REACHED_MAX]:
        book.route(hub, spoke.peer)
    for spoke in spokes[:10]:
        close_session(book, spoke)
    for spoke in spokes[REACHED_MAX:]:
        book.route(hub, spoke.peer)

    told = close_session(book, hub).notices

    assert {notice.session for notice in told} == set(spokes[10 : REACHED_MAX + 10])


class CountedKey(bytes):
    """A key that counts how often any of its kind was looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedKey.looked_up += 1
        return super().__hash__()


def test_a_frame_beyond_those_that_are_remembered_costs_no_look_at_everybody() -> None:
    book = new_book(sessions_max=3 * REACHED_MAX)
    hub = open_session(book, A).session
    spokes = [open_session(book, CountedKey(n.to_bytes(32, "big"))).session for n in range(2 * REACHED_MAX)]
    for spoke in spokes[1:]:
        book.route(hub, spoke.peer)
    close_session(book, spokes[0])  # One departure, of somebody who took no room.
    CountedKey.looked_up = 0

    for _ in range(100):
        book.route(hub, spokes[-1].peer)

    assert CountedKey.looked_up < 100 * 4 + 2 * REACHED_MAX


def test_sessions_of_one_id_do_not_hand_down_more_than_one_may_hold() -> None:
    book = new_book(sessions_max=3 * REACHED_MAX)
    spokes = [open_session(book, n.to_bytes(32, "big")).session for n in range(2 * REACHED_MAX)]
    older, newer = open_session(book, A).session, open_session(book, A).session
    for spoke in spokes[:REACHED_MAX]:
        book.route(older, spoke.peer)
    for spoke in spokes[REACHED_MAX:]:
        book.route(newer, spoke.peer)
    close_session(book, newer)

    assert len(close_session(book, older).notices) == REACHED_MAX


def test_an_unknown_destination_is_counted() -> None:
    book = new_book()
    sender = open_session(book, A).session

    assert book.route(sender, B) is None

    assert book.report(at(1)).frames_unroutable_total == 1


def test_a_dropped_pair_is_one_way_counted_and_restorable() -> None:
    book = new_book()
    a, b = open_session(book, A).session, open_session(book, B).session
    book.drop_pair(A, B)

    assert book.route(a, B) is None
    assert book.route(b, A) is a
    report = book.report(at(1))
    assert report.dropped_pairs == ((A.hex(), B.hex()),)
    assert report.frames_pair_dropped_total == 1

    book.restore_pair(A, B)
    assert book.route(a, B) is b


def test_the_table_is_bounded_newest_first() -> None:
    book = new_book(sessions_listed_max=2)
    sessions = [open_session(book, bytes([n]) * 32).session for n in range(5)]

    report = book.report(at(1))

    assert [row.session_id for row in report.sessions] == [sessions[4].session_id, sessions[3].session_id]
    assert (report.active_sessions, report.sessions_omitted) == (5, 3)


def test_the_book_is_full_at_its_limit_and_counts_refusals() -> None:
    book = new_book(sessions_max=1)
    assert not book.is_full()
    open_session(book, A)

    book.refuse(Refusal.RELAY_FULL)

    assert book.is_full()
    assert book.report(at(0)).refusals_by_reason == (("relay_full", 1),)


@pytest.mark.parametrize("reason", list(CloseReason))
def test_each_reason_is_recorded_with_its_initiator(reason: CloseReason) -> None:
    book = new_book()

    closed = book.close(open_session(book, A).session, reason, at(1))

    assert closed is not None
    assert closed.event.close_initiator is CLOSE_RULES[reason].initiator
    assert closed.event.close_reason == reason.value


class BalancedBooks(RuleBasedStateMachine):
    """Any order of opens, closes, double closes and traffic."""

    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.book = new_book(sessions_per_id_max=3)
        self.second = 0.0
        self.opened: list[int] = []
        self.closed: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self.bytes_rx = 0

    def tick(self) -> float:
        self.second += 1.0
        return self.second

    @rule(target=sessions, key=st.sampled_from([A, B, C]))
    def open(self, key: bytes) -> Session:
        opened = open_session(self.book, key, self.tick())
        self.opened.append(opened.session.session_id)
        if opened.excess is not None:
            assert opened.excess.parked
            self.end(opened.excess, CloseReason.SUPERSEDED)
        return opened.session

    @rule(session=sessions, reason=st.sampled_from(CloseReason))
    def end(self, session: Session, reason: CloseReason) -> None:
        closed = self.book.close(session, reason, at(self.tick()))
        if closed is not None:
            self.closed[session.session_id] += 1
            self.reasons[reason] += 1
            assert closed.event.session_id == session.session_id
            assert all(self.book.find(n.session.session_id) for n in closed.notices)

    @rule(session=sessions, size=st.integers(1, 1000), key=st.sampled_from([A, B, C]))
    def traffic(self, session: Session, size: int, key: bytes) -> None:
        if self.book.find(session.session_id) is None:
            return
        session.received(size, now_ns=at(self.second).monotonic_ns)
        self.bytes_rx += size
        target = self.book.route(session, key)
        assert target is self.book.active(key)

    @invariant()
    def balanced(self) -> None:
        report = self.book.report(at(self.second))
        assert report.total_opens == len(self.opened)
        assert report.total_closes == self.closed.total()
        assert report.active_sessions == report.total_opens - report.total_closes == len(report.sessions)
        assert set(self.closed.values()) <= {1}
        assert dict(report.closes_by_reason) == dict(self.reasons)
        assert report.bytes_rx_total == self.bytes_rx

    @invariant()
    def one_active_session_for_each_connected_id(self) -> None:
        open_now = self.book.open_sessions()
        for key in (A, B, C):
            of_key = [session for session in open_now if session.peer == key]
            active = [session for session in of_key if not session.parked]
            assert len(active) == bool(of_key)
            assert self.book.active(key) is (active[0] if active else None)
            assert len(of_key) <= 3


TestBalancedBooks = BalancedBooks.TestCase
TestBalancedBooks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
