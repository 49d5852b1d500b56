"""Taking note: numbers, bounds, and what is never dropped."""

import sys
from types import FrameType

import pytest

from swactor.cluster.events import (
    DialErrorText,
    DialOutcome,
    DialStarted,
    GossipReceived,
    MemberState,
    MessageReceived,
    MessageSent,
    SwimReason,
    SwimTransition,
)
from swactor_diag.recorder import BATCH_EVENTS, Noted, Recorder
from swactor_diag.schema.events import Custom, SubprocessExited
from swactor_diag.schema.snapshot import SWIM_HISTORY_MAX

A, B = "aa" * 32, "bb" * 32
ENDED = SubprocessExited(label="w", pid=1, command="")


class TickingClock:
    """Every look at the wall clock is a millisecond later than the one before."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ns(self) -> int:
        return 0

    def wall_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms


class SecondsClock(TickingClock):
    """Also gives the seconds, which the machine counts more finely."""

    def wall_s(self) -> float:
        return self.wall_ms() + 0.123_999


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(clock=TickingClock(), waiting_max=100)


def made(number: int) -> Custom:
    return Custom(kind="made", fields={"n": number})


def dead(peer: str) -> SwimTransition:  # parse_node_id is the cluster's business
    return SwimTransition(
        peer=peer,  # type: ignore[arg-type]  # any text names a peer here
        from_=MemberState.ALIVE,
        to=MemberState.DEAD,
        reason=SwimReason.GOSSIP,
    )


def test_events_are_numbered_from_one_without_gap(recorder: Recorder) -> None:
    for number in range(5):
        recorder.observe(made(number))
    assert [(one.seq, one.wall_ms) for one in recorder.take(3)] == [(1, 1), (2, 2), (3, 3)]
    assert [one.seq for one in recorder.take(9)] == [4, 5]
    assert recorder.take(9) == []
    assert recorder.seq == 5


def test_a_clock_that_counts_finely_is_read_in_whole_milliseconds() -> None:
    recorder = Recorder(clock=SecondsClock(), waiting_max=100)
    recorder.observe(made(1))
    recorder.observe(made(2))
    assert [one.wall_ms for one in recorder.take(9)] == [1_123, 2_123]


def test_what_is_noted_while_somebody_is_told_that_it_is_time_has_its_place(recorder: Recorder) -> None:
    recorder.call_when_due(lambda: recorder.observe(made(-1)))
    recorder.observe(dead(A))
    recorder.observe(made(2))
    assert [one.event for one in recorder.take(9)] == [dead(A), made(-1), made(2)]
    assert recorder.seq == 3


def test_who_takes_note_may_be_interrupted_by_who_fetches(recorder: Recorder) -> None:
    """A signal handler or a finalizer runs between any two steps, here before the line is filled in."""
    fetched: list[Noted] = []

    def interrupt(frame: FrameType, what: str, function: object) -> None:
        if what == "c_return" and getattr(function, "__name__", "") == "pop":
            sys.setprofile(None)
            fetched.extend(recorder.take(9))

    recorder.observe(made(1))
    sys.setprofile(interrupt)
    recorder.observe(made(2))
    recorder.observe(made(3))

    assert [one.event for one in fetched] == [made(1)]
    assert recorder.waiting == 2
    assert [(one.seq, one.event) for one in recorder.take(9)] == [(2, made(2)), (3, made(3))]
    assert recorder.seq == 3


def test_who_fetches_may_be_interrupted_by_who_takes_note(recorder: Recorder) -> None:
    """At each call that it makes, in one fetch after the other."""
    at, calls, fetched = 0, 0, list[Noted]()

    def interrupt(frame: FrameType, what: str, function: object) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            sys.setprofile(None)
            recorder.observe(made(-at))

    while calls >= at:
        at, calls = at + 1, 0
        recorder.observe(made(at))
        sys.setprofile(interrupt)
        fetched += recorder.take(9)
        sys.setprofile(None)

    fetched += recorder.take(9)
    interrupts = at - 1
    assert interrupts > 5
    assert {one.event.fields["n"] for one in fetched if isinstance(one.event, Custom)} == {
        *range(1, at + 1),
        *range(-interrupts, 0),
    }
    assert [one.seq for one in fetched] == list(range(1, len(fetched) + 1))


def test_many_events_are_announced_once_until_they_are_fetched() -> None:
    recorder = Recorder(clock=TickingClock())
    told: list[int] = []
    recorder.call_when_due(lambda: told.append(recorder.waiting))
    for number in range(3 * BATCH_EVENTS):
        recorder.observe(made(number))
    assert told == [BATCH_EVENTS]
    assert [one.seq for one in recorder.take(5_000)] == list(range(1, 3 * BATCH_EVENTS + 1))
    for number in range(BATCH_EVENTS):
        recorder.observe(made(number))
    assert told == [BATCH_EVENTS, BATCH_EVENTS]


def test_fc052_what_waits_is_bounded_and_the_loss_is_counted_by_type(recorder: Recorder) -> None:
    for number in range(1_000):
        recorder.observe(made(number))
        assert recorder.waiting <= 100
    kept = recorder.take(1_000)
    assert len(kept) + recorder.dropped["Custom"] == 1_000
    assert kept[-1].event == made(999)


def test_lifecycle_events_are_never_dropped(recorder: Recorder) -> None:
    for number in range(1_000):
        recorder.observe(ENDED if number % 50 == 0 else made(number))
    kept = [one for one in recorder.take(1_000) if one.event == ENDED]
    assert len(kept) == 20
    assert set(recorder.dropped) == {"Custom"}


def test_a_transition_is_announced_with_its_number(recorder: Recorder) -> None:
    seen: list[int] = []
    recorder.call_on_transition(seen.append)
    recorder.observe(made(1))
    recorder.observe(dead(A))
    assert seen == [2]


def test_reachability_is_folded_from_the_events(recorder: Recorder) -> None:
    recorder.observe(MessageSent(peer=A, kind="ping", size=1))  # type: ignore[arg-type]  # any text
    recorder.observe(MessageReceived(peer=A, kind="ack", size=1))  # type: ignore[arg-type]  # any text
    recorder.observe(DialStarted(peer=B, attempt=1, timeout_ms=5))  # type: ignore[arg-type]  # any text
    failed = DialErrorText(error="no way")
    recorder.observe(DialOutcome(peer=B, attempt=1, outcome=failed, duration_ms=4))  # type: ignore[arg-type]  # any text
    recorder.observe(dead(B))
    first, second = recorder.reachability()
    assert (first.peer_node_id_hex, first.last_outbound_success_at_ms, first.last_inbound_packet_at_ms) == (
        A,
        1,
        2,
    )
    assert (first.current_swim_opinion, first.swim_transition_history) == ("Unknown", ())
    assert (second.last_dial_started_at_ms, second.last_dial_outcome, second.last_dial_duration_ms) == (
        3,
        'Error("no way")',
        4,
    )
    assert (second.current_swim_opinion, second.current_swim_opinion_since_ms) == ("Dead", 5)


def test_reachability_covers_events_that_were_fetched_or_dropped(recorder: Recorder) -> None:
    gossip = GossipReceived(source_peer=A, payload_kind="swim", payload_bytes=1, item_count=1)  # type: ignore[arg-type]  # any text
    recorder.observe(gossip)
    recorder.take(10)
    recorder.observe(MessageSent(peer=B, kind="ping", size=1))  # type: ignore[arg-type]  # any text
    for number in range(300):
        recorder.observe(made(number))
    assert [row.peer_node_id_hex for row in recorder.reachability()] == [A, B]


def test_the_history_of_a_peer_is_bounded(recorder: Recorder) -> None:
    for _ in range(100):
        recorder.observe(dead(A))
    (row,) = recorder.reachability()
    assert len(row.swim_transition_history) == SWIM_HISTORY_MAX


def test_without_shipping_nothing_is_kept_but_the_reachability() -> None:
    recorder = Recorder(clock=TickingClock(), waiting_max=100, retain=False)
    for _ in range(250):
        recorder.observe(dead(A))
    assert recorder.waiting <= 100
    assert recorder.reachability()[0].current_swim_opinion == "Dead"
    assert (recorder.waiting, recorder.seq, dict(recorder.dropped)) == (0, 250, {})
