"""The journal of a relay: what its successor tells of sessions that were open when it was killed."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from swactor.relay import CloseReason, Instant, RelayConfig, RelaySessionClosed, RelaySessionOpened, Session
from swactor.relay.config import JOURNALED_SESSIONS_MAX
from swactor.relay.journal import FILE_BYTES_MAX, Journal, JournalError
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

IDLE_LIMIT_MS = 25_000

# A relay with a journal; says where it listens and lives until it is killed.
CHILD = """
import asyncio, sys
from pathlib import Path
from swactor.relay import RelayConfig
from swactor.relay.server import RelayServer
def emit(event):
    print(type(event).__name__, event.session_id, flush=True)
async def main():
    config = RelayConfig(port=0, journal_file=Path(sys.argv[1]), journal_period_s=0.05)
    async with RelayServer(config, emit=emit) as relay:
        print(relay.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def at(second: float) -> Instant:
    return Instant(round(second * 1e9), 1_700_000_000_000 + round(second * 1000))


def session(number: int, second: float = 0.0) -> Session:
    return Session(
        number, bytes([number]) * 32, opened=at(second), subprotocol="iroh-relay-v2", remote_address="a:1"
    )


def begun(path: Path, second: float = 0.0) -> Journal:
    journal, _ = Journal.open(path, at(second), idle_limit_ms=IDLE_LIMIT_MS)
    journal.begin(at(second))
    return journal


def left_in(path: Path, second: float = 100.0) -> tuple[RelaySessionClosed, ...]:
    journal, leftover = Journal.open(path, at(second), idle_limit_ms=IDLE_LIMIT_MS)
    journal.close()
    return leftover.crashed


def test_who_was_open_is_told_as_of_the_last_sign_of_life(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    one, two = session(1, 1.0), session(2, 2.0)
    journal.opened(one)
    journal.opened(two)
    one.received(100, now_ns=at(3.0).monotonic_ns)
    one.sent(40)
    journal.checkpoint((one, two), at(5.0))
    journal.closed(two)
    journal.close()

    (event,) = left_in(path, 60.0)

    assert (event.close_initiator, event.close_reason, event.evidence) == ("relay", "crashed", "journal")
    assert (event.session_id, event.peer_node_id_hex) == (1, one.node_id_hex)
    assert (event.opened_at_ms, event.closed_at_ms) == (at(1.0).wall_ms, at(5.0).wall_ms)
    assert (event.duration_ms, event.idle_ms) == (4_000, 2_000)
    assert (event.bytes_rx, event.bytes_tx) == (100, 40)
    assert isinstance(event.ambiguous, str)
    assert isinstance(event.detail, str)
    assert str(at(60.0).wall_ms) in event.detail


def test_what_was_not_told_yet_is_left_once_more_and_then_no_more(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    journal.opened(session(1))
    journal.close()

    assert len(left_in(path)) == len(left_in(path)) == 1
    begun(path).close()
    assert left_in(path) == ()


def test_numbers_go_on_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    journal.opened(session(7))
    journal.closed(session(7))
    journal.close()
    begun(path).close()

    journal, leftover = Journal.open(path, at(9), idle_limit_ms=IDLE_LIMIT_MS)
    journal.close()

    assert leftover.last_session_id == 7


@pytest.mark.parametrize("garbage", [b'{"entry":"open","session_id":3', b"\xff\xfe\n", b'{"entry":"moon"}\n'])
def test_a_line_that_is_no_entry_costs_that_line_only(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    journal.opened(session(1))
    journal.close()
    path.write_bytes(path.read_bytes() + garbage)

    assert [event.session_id for event in left_in(path)] == [1]


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")

    with pytest.raises(JournalError, match=r"thesis\.txt is not the journal of a relay"):
        Journal.open(path, at(0), idle_limit_ms=IDLE_LIMIT_MS)

    assert path.read_text() == "years of work"


def test_two_relays_do_not_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)

    with pytest.raises(JournalError, match="another relay"):
        Journal.open(path, at(1), idle_limit_ms=IDLE_LIMIT_MS)

    journal.close()


def test_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        Journal.open(tmp_path / "none" / "journal", at(0), idle_limit_ms=IDLE_LIMIT_MS)


def test_a_journal_is_written_anew_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    journal.opened(session(1))
    for number in range(1, FILE_BYTES_MAX // 250):  # An opening and a closing take more than that.
        passing = session(1 + number % 200)
        passing.session_id = 1 + number
        journal.opened(passing)
        journal.closed(passing)

    assert path.stat().st_size < FILE_BYTES_MAX
    journal.close()
    assert [event.session_id for event in left_in(path)] == [1]


def test_a_checkpoint_of_everybody_counts_towards_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    crowd = [session(number) for number in range(1, 250)]
    for one in crowd:
        journal.opened(one)
    for second in range(1, FILE_BYTES_MAX // 50_000):  # Each writes down 249 sessions.
        for one in crowd:
            one.sent(1)
        journal.checkpoint(crowd, at(second))

    assert path.stat().st_size < FILE_BYTES_MAX
    journal.close()
    assert len(left_in(path)) == len(crowd)


def test_as_many_as_a_relay_with_a_journal_may_have_fill_half_of_it_at_most(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    longest = 10**18  # Nanoseconds of thirty years, bytes of ten years at 25 Gbit/s.
    for number in range(JOURNALED_SESSIONS_MAX):
        one = session(number % 256, longest / 1e9)
        one.session_id, one.heard_ns, one.rtt_ms = 10**9 + number, longest, 1234.5678901234567
        one.bytes_rx = one.bytes_tx = one.frames_queue_dropped = longest
        journal.opened(one)
    journal.close()

    assert path.stat().st_size <= FILE_BYTES_MAX // 2


def test_what_is_no_file_is_refused_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    with pytest.raises(JournalError, match="fifo is not a regular file"):
        Journal.open(path, at(0), idle_limit_ms=IDLE_LIMIT_MS)

    assert path.is_fifo()


def test_a_full_disk_is_counted_and_made_good_at_the_next_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    one, two = session(1), session(2)
    journal.opened(one)
    (tmp_path / "journal.new").mkdir()  # Nothing can be written anew for now.
    resource_limited(lambda: journal.opened(two), n_bytes=path.stat().st_size)

    journal.checkpoint((one, two), at(1))
    assert journal.errors == 2
    (tmp_path / "journal.new").rmdir()
    journal.checkpoint((one, two), at(2))
    journal.close()

    assert [event.session_id for event in left_in(path)] == [1, 2]


def resource_limited(action: Callable[[], None], *, n_bytes: int) -> None:
    """Call ``action`` while no file may grow beyond ``n_bytes``, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        action()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextlib.asynccontextmanager
async def child_relay(
    journal: Path,
) -> AsyncIterator[tuple[Callable[[], None], Callable[[], Awaitable[str]]]]:
    """Run a relay in a process of its own; yield how to kill it and how to read its next line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(journal), stdout=asyncio.subprocess.PIPE
    )
    output = process.stdout
    assert output is not None

    async def line() -> str:
        async with asyncio.timeout(DEADLINE_S):
            return (await output.readline()).decode().strip()

    try:
        yield process.kill, line
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_relay_killed_with_open_sessions_is_told_of_by_the_next_one(
    tmp_path: Path, events: RelayEvents
) -> None:
    path = tmp_path / "journal"
    async with child_relay(path) as (kill, line):
        url = await line()
        clients = [await RelayClient(url, seed).open() for seed in (1, 2, 3)]
        told = {await line() for _ in clients}
        await clients[0].close()
        told.add(await line())
        kill()
    for client in clients:
        await client.drop()
    assert told == {
        "RelaySessionOpened 1",
        "RelaySessionOpened 2",
        "RelaySessionOpened 3",
        "RelaySessionClosed 1",
    }

    async with RelayServer(RelayConfig(port=0, journal_file=path), emit=events.emit) as relay:
        crashed = events.of(RelaySessionClosed)
        assert {(event.session_id, event.close_reason) for event in crashed} == {
            (2, CloseReason.CRASHED),
            (3, CloseReason.CRASHED),
        }
        report = relay.report()
        assert (report.crashed_sessions, report.total_closes, report.active_sessions) == (2, 0, 0)
        client = await RelayClient(relay.url, 4).open()
        assert events.of(RelaySessionOpened)[0].session_id == 4
        await client.close()
        await events.wait(RelaySessionClosed, count=3)

    async with RelayServer(RelayConfig(port=0, journal_file=path), emit=events.emit):
        assert len(events.of(RelaySessionClosed)) == 3, "an orderly stop leaves nobody behind"


async def test_a_relay_that_cannot_listen_leaves_what_it_found(
    tmp_path: Path, events: RelayEvents, new_relay: Callable[..., Awaitable[RelayServer]]
) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    journal.opened(session(1))
    journal.close()
    port = int((await new_relay()).url.rsplit(":", 1)[1].strip("/"))

    with pytest.raises(OSError, match="in use"):
        await RelayServer(RelayConfig(port=port, journal_file=path), emit=events.emit).start()

    assert events.all == []
    assert len(left_in(path)) == 1


def test_an_entry_is_one_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path)
    journal.opened(session(1))
    journal.close()

    assert [json.loads(line)["entry"] for line in path.read_bytes().splitlines()] == [
        "relay_journal",
        "alive",
        "open",
    ]
