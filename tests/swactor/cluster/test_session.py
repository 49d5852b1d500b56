"""Flow control and heartbeat of one connection, and the queue before it."""

import pytest

from swactor import NodeId
from swactor.cluster.outbox import DATAGRAMS_MAX, FRAMES_MAX, Outbox
from swactor.cluster.session import (
    ACK_EVERY_CHUNKS,
    BEAT_PERIOD_NS,
    SILENCE_MAX_NS,
    WRITES_UNACKNOWLEDGED_MAX,
    PulseVerdict,
    Window,
    take_pulse,
)
from swactor.cluster.wire import FrameDecoder, FrameKind, WireError

S = 1_000_000_000
PEER = NodeId("1" * 64)


def test_the_window_is_full_after_so_many_unacknowledged_writes() -> None:
    window = Window()
    full = []
    for _ in range(WRITES_UNACKNOWLEDGED_MAX):
        full.append(window.is_full)
        window.wrote(100, 0)
    full.append(window.is_full)

    window.acknowledged(100, 0)

    assert full == [False] * WRITES_UNACKNOWLEDGED_MAX + [True]
    assert not window.is_full
    assert window.unacknowledged == 100 * (WRITES_UNACKNOWLEDGED_MAX - 1)


def test_acks_are_cumulative_and_ride_with_other_writes() -> None:
    window = Window()
    window.read(70)
    window.read(30)

    [ack] = FrameDecoder().feed(window.take_ack())

    assert (ack.kind, ack.id) == (FrameKind.ACK, 100)
    assert window.take_ack() == b""


def test_after_many_chunks_an_ack_does_not_wait_for_another_write() -> None:
    window = Window()
    owed = []
    for _ in range(ACK_EVERY_CHUNKS):
        owed.append(window.owes_ack)
        window.read(1)

    assert owed == [False] * ACK_EVERY_CHUNKS
    assert window.owes_ack


def test_an_ack_of_what_was_never_sent_is_an_error() -> None:
    window = Window()
    window.wrote(10, 0)

    with pytest.raises(WireError):
        window.acknowledged(11, 0)


@pytest.mark.parametrize(
    ("read_ns", "write_ns", "verdict"),
    [
        (0, 0, PulseVerdict.FINE),
        (0, BEAT_PERIOD_NS, PulseVerdict.BEAT),
        (SILENCE_MAX_NS, 0, PulseVerdict.FINE),
        (SILENCE_MAX_NS + 1, 0, PulseVerdict.SILENT),
    ],
)
def test_the_pulse_follows_what_was_read_and_written(
    read_ns: int, write_ns: int, verdict: PulseVerdict
) -> None:
    now_ns = 100 * S

    assert (
        take_pulse(now_ns, last_read_ns=now_ns - read_ns, last_write_ns=now_ns - write_ns, window=Window())
        is verdict
    )


def test_a_peer_that_speaks_but_acknowledges_nothing_is_deaf() -> None:
    window = Window()
    window.wrote(10, 0)

    now_ns = SILENCE_MAX_NS + 1

    assert take_pulse(now_ns, last_read_ns=now_ns, last_write_ns=now_ns, window=window) is PulseVerdict.DEAF


def test_a_long_write_that_gets_on_is_not_deaf() -> None:
    window = Window()
    window.wrote(1_000_000, 0)
    window.acknowledged(500_000, 5 * S)

    assert take_pulse(8 * S, last_read_ns=8 * S, last_write_ns=8 * S, window=window) is PulseVerdict.FINE


def test_many_messages_wake_the_link_once() -> None:
    woken: list[Outbox] = []
    outbox = Outbox(PEER, woken.append)

    for _ in range(5):
        assert outbox.put(b"x")
    assert len(woken) == 1
    assert outbox.take() == [b"x"] * 5
    outbox.put(b"y")

    assert len(woken) == 2


def test_a_full_outbox_refuses_and_keeps_what_it_has() -> None:
    outbox = Outbox(PEER, lambda _: None)
    for number in range(FRAMES_MAX):
        assert outbox.put(b"%d" % number)

    assert not outbox.put(b"one too many")
    assert outbox.take() == [b"%d" % number for number in range(FRAMES_MAX)]


def test_of_many_datagrams_the_newest_are_kept_and_go_first() -> None:
    outbox = Outbox(PEER, lambda _: None)
    outbox.put(b"message")
    for number in range(DATAGRAMS_MAX + 3):
        outbox.put_datagram(b"%d" % number)

    assert outbox.take() == [*(b"%d" % number for number in range(3, DATAGRAMS_MAX + 3)), b"message"]
    assert outbox.dropped == 3
