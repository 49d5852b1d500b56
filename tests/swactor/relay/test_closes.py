"""Each way a relay session can end, made to happen on real sockets and processes (FC-083)."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import aiohttp
import pytest

from swactor import SystemRandom
from swactor.abc import Random
from swactor.relay import RelayConfig, RelaySessionClosed
from swactor.relay._carrier import Carrier
from swactor.relay.protocol import FrameType
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

from .attack import ATTACKER, Stage, enter

NewClient = Callable[..., RelayClient]
NewRelay = Callable[..., Awaitable[RelayServer]]

# Opens one session, says so, then lives until it is killed.
CHILD = """
import asyncio, sys
from swactor.relay.testing import RelayClient
async def main():
    client = await RelayClient(sys.argv[1], int(sys.argv[2])).open()
    print("ready", flush=True)
    while True:
        await client.receive()
asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def child_client(relay: RelayServer, seed: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, relay.url, str(seed), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def cause(event: RelaySessionClosed) -> tuple[str, str]:
    return event.close_initiator.value, event.close_reason


async def first_close(events: RelayEvents) -> RelaySessionClosed:
    return (await events.wait(RelaySessionClosed))[0]


async def test_a_full_queue_drops_the_newest_and_counts_it(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay(queue_frames_max=4, write_timeout_s=0.3)
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    await flood(a, b, until=lambda: relay.book.report(relay.now()).frames_queue_dropped_total > 0)

    assert relay.book.report(relay.now()).active_sessions == 2


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the kernel's limit cannot be set here")
async def test_what_waits_for_a_client_that_does_not_read_waits_in_the_queue(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    """Not in the kernel, which would take megabytes: there it can neither be dropped nor overtaken."""
    relay = await new_relay(write_timeout_s=60)
    source = await new_client(relay, 1).open()
    _, writer = await enter(relay.url, Stage.PROVEN, receive_buffer_bytes=65_536)
    frame = bytes([FrameType.DATAGRAM_TO]) + ATTACKER + bytes(10_000)

    async with asyncio.timeout(DEADLINE_S):
        while not relay.report().frames_queue_dropped_total:
            await source.send(frame)
            await asyncio.sleep(0)

    taken = {row.peer_node_id_hex: row.bytes_tx for row in relay.report().sessions}[ATTACKER.hex()]
    assert 100_000 < taken < 1_000_000
    writer.transport.abort()


async def flood(source: RelayClient, target: RelayClient, *, until: Callable[[], bool]) -> None:
    """Send to a client that does not read, until ``until``."""
    async with asyncio.timeout(DEADLINE_S):
        while not until():
            await source.send_datagram(target, bytes(60_000))
            await asyncio.sleep(0)  # The relay runs on this loop.


async def test_a_client_that_says_goodbye(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    client = await new_client(relay).open()
    await client.send(b"\x09" + bytes(8))
    await client.receive()

    await client.close()

    closed = await first_close(events)
    assert cause(closed) == ("remote", "client_closed")
    assert (closed.detail, closed.evidence) == ("code 1000 bye", "close_frame")
    assert (closed.bytes_rx, closed.bytes_tx) == (9, 1 + 9 + 9)


async def test_a_client_that_drops_its_tunnel(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    client = await new_client(relay).open()

    await client.drop()

    closed = await first_close(events)
    assert cause(closed) == ("remote", "client_gone")
    assert closed.ambiguous


async def test_a_client_process_that_is_killed(new_relay: NewRelay, events: RelayEvents) -> None:
    relay = await new_relay()
    async with child_client(relay, 3) as process:
        process.send_signal(signal.SIGKILL)

        closed = await first_close(events)

    assert cause(closed) == ("remote", "client_gone")
    assert closed.evidence == "fin"


async def test_a_client_process_that_freezes(new_relay: NewRelay, events: RelayEvents) -> None:
    relay = await new_relay(ping_period_s=0.2, ping_jitter_s=0.0, ping_timeout_s=0.2)
    async with child_client(relay, 3) as process:
        process.send_signal(signal.SIGSTOP)

        closed = await first_close(events)

    assert cause(closed) == ("idle_timeout", "idle_timeout")
    assert closed.idle_limit_ms == 400
    assert isinstance(closed.idle_ms, int)
    assert closed.idle_ms >= 390


async def test_a_client_that_only_answers_pings_is_not_idle(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    """FC-087."""
    relay = await new_relay(ping_period_s=0.1, ping_jitter_s=0.0, ping_timeout_s=0.1)
    client = await new_client(relay).open()

    for _ in range(6):  # Three idle limits.
        ping = await client.receive()
        await client.send(b"\x0a" + ping[1:])

    assert events.of(RelaySessionClosed) == []


async def test_a_connection_that_is_reset(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    client = await new_client(relay).open()

    await client.reset()

    closed = await first_close(events)
    assert cause(closed) == ("transport", "connection_reset")
    assert (closed.evidence, closed.detail) == ("reset", "ConnectionResetError")


async def test_a_client_that_does_not_read(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(write_timeout_s=0.2)
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    await flood(a, b, until=lambda: bool(events.of(RelaySessionClosed)))

    closed = await first_close(events)
    assert (closed.peer_node_id_hex, cause(closed)) == (b.node_id, ("relay", "slow_client"))


async def test_a_client_that_has_its_pings_answered_and_does_not_read(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    """Pings of the websocket itself pass the queue by; their answers do not pile up beyond the socket."""
    relay = await new_relay(write_timeout_s=0.2)
    client = await new_client(relay, 1).open()

    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(DEADLINE_S):
            while not events.of(RelaySessionClosed):
                await client.websocket.ping(bytes(125))

    closed = await first_close(events)
    assert cause(closed) == ("relay", "slow_client")
    assert int(str(closed.detail).split()[0]) < 1_000_000


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (b"\x28", "frame type 40 is not for a client to send"),
        (b"", "empty message"),
        (b"\x09", "PING frame of 1 bytes"),
        (b"\x0d\x00", "frame type 13 is not for a client to send"),
    ],
)
async def test_a_client_that_breaks_the_protocol(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents, message: bytes, detail: str
) -> None:
    relay = await new_relay()
    client, other = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    await client.send(message)

    assert await client.goodbye() == (1002, "protocol_error")
    closed = await first_close(events)
    assert (cause(closed), closed.detail) == (("relay", "protocol_error"), detail)
    await other.send(b"\x09abcdefgh")
    assert await other.receive() == b"\x0aabcdefgh"


async def test_text_and_huge_messages_break_the_protocol(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    talker, shouter = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    await talker.websocket.send_str("hello")
    assert await talker.goodbye() == (1003, "protocol_error")
    await shouter.send(bytes(200_000))

    closed = await events.wait(RelaySessionClosed, count=2)
    assert [cause(event) for event in closed] == [("relay", "protocol_error")] * 2


class FailingReads(RelayServer):
    """Has a defect that shows when a client sends a datagram."""

    def frame_received(self, carrier: Carrier, message: bytes) -> None:
        if message[0] == FrameType.DATAGRAM_TO:
            raise RuntimeError("defect in the reading")
        super().frame_received(carrier, message)


class FailingWrites(RelayServer):
    """Has a defect that shows when it writes to a client that sent a datagram."""

    def frame_received(self, carrier: Carrier, message: bytes) -> None:
        if message[0] == FrameType.DATAGRAM_TO:
            carrier.tell(cast("bytes", None))
        super().frame_received(carrier, message)


class SpentRandom:
    """Has nothing left after the first two tokens: a challenge, and the ping that opens a session."""

    def __init__(self) -> None:
        self._left = 2

    def stream(self, *_key: str) -> "SpentRandom":
        return self

    def below(self, _bound: int) -> int:
        return 0

    def token(self, n_bytes: int) -> bytes:
        if not self._left:
            raise OSError("defect in the timers")
        self._left -= 1
        return bytes(n_bytes)


@pytest.mark.parametrize(
    ("relay_class", "new_random", "detail"),
    [
        (FailingReads, SystemRandom, "RuntimeError('defect in the reading')"),
        (FailingWrites, SystemRandom, "TypeError"),
        (RelayServer, SpentRandom, "OSError('defect in the timers')"),
    ],
    ids=["reading", "writing", "timers"],
)
async def test_a_defect_of_the_relay_ends_the_session_that_it_served(
    relay_class: type[RelayServer], new_random: Callable[[], Random], detail: str, events: RelayEvents
) -> None:
    config = RelayConfig(port=0, ping_period_s=0.2)
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with relay_class(config, emit=events.emit, random=new_random()) as relay:
        client = await RelayClient(relay.url, 1).open()
        await client.send_datagram(client, b"hello")

        closed = await first_close(events)
        await client.goodbye()
        await client.drop()
        assert relay.report().active_sessions == 0

    assert cause(closed) == ("relay", "relay_failure")
    assert str(closed.detail).startswith(detail)


async def test_an_evicted_client_is_told_and_may_come_back(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    client = await new_client(relay).open()
    (row,) = relay.book.report(relay.now()).sessions

    assert relay.close_session(row.session_id)

    assert cause(events.of(RelaySessionClosed)[0]) == ("relay", "evicted")
    assert await client.goodbye() == (1000, "evicted")
    assert not relay.close_session(row.session_id)
    await new_client(relay).open()


async def test_a_goodbye_reaches_a_client_that_keeps_sending(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    await a.send_datagram(b, b"first")
    await b.receive()
    relay.close_session(1)
    assert await b.receive() == b"\x08" + a.key
    await b.send(b"\x09abcdefgh")
    await b.receive()  # Time for the relay to close the socket at once, if it did.
    for _ in range(20):
        await a.send_datagram(b, bytes(1000))

    assert await a.goodbye() == (1000, "evicted")
    for payload in (b"ijklmnop", b"qrstuvwx"):
        await b.send(b"\x09" + payload)
        assert await b.receive() == b"\x0a" + payload, "nothing of an evicted client is forwarded"
    assert len(events.of(RelaySessionClosed)) == 1


async def hold_paused(relay: RelayServer, client: RelayClient, other: RelayClient) -> None:
    relay.pause_id(client.key)
    await client.send(b"\x09abcdefgh")
    for _ in range(3):  # Time for the relay to have it.
        await other.send(b"\x09abcdefgh")
        await other.receive()


async def hold_limited(relay: RelayServer, client: RelayClient, _other: RelayClient) -> None:
    relay.limit_id(client.key, 1)
    await client.send_datagram(client, bytes(60_000))
    await client.send_datagram(client, bytes(60_000))
    while (await client.receive())[0] != FrameType.STATUS:  # From here on it is read in some hours.
        pass


async def hold_stuck(relay: RelayServer, client: RelayClient, other: RelayClient) -> None:
    await flood(other, client, until=lambda: relay.report().frames_queue_dropped_total > 0)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("hold", "reads"),
    [(hold_paused, True), (hold_limited, True), (hold_stuck, False)],
    ids=["paused", "limited", "stuck"],
)
async def test_an_eviction_waits_for_nothing_that_the_session_waits_for(
    events: RelayEvents, hold: Callable[..., Awaitable[None]], *, reads: bool
) -> None:
    """FC-088: neither what is read nor what is written holds an evicted session up."""
    config = RelayConfig(port=0, write_timeout_s=60, goodbye_timeout_s=60, queue_frames_max=4)
    async with RelayServer(config, emit=events.emit) as relay:
        clients = [await RelayClient(relay.url, seed).open() for seed in (1, 2)]
        await hold(relay, *clients)

        assert relay.close_session(1)

        assert cause(await first_close(events)) == ("relay", "evicted")
        if reads:
            assert await clients[0].goodbye() == (1000, "evicted")
        await clients[1].close()
        async with asyncio.timeout(DEADLINE_S):
            await relay.stop()
    for client in clients:
        await client.drop()


async def test_an_eviction_that_races_a_reset_is_one_close(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    client = await new_client(relay).open()
    await client.reset()

    relay.close_session(1)
    await first_close(events)
    await relay.stop()

    assert len(events.of(RelaySessionClosed)) == 1


async def test_a_stop_closes_every_session_before_it_returns(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    clients = [await new_client(relay, seed).open() for seed in (1, 2, 3, 3)]
    handshaking = new_client(relay, 9)
    await handshaking.connect()
    goodbyes = [asyncio.create_task(client.goodbye()) for client in clients]

    async with asyncio.timeout(DEADLINE_S):
        await relay.stop("SIGTERM")

    closed = events.of(RelaySessionClosed)
    assert [(cause(event), event.detail) for event in closed] == [
        (("relay", "relay_shutdown"), "SIGTERM")
    ] * 4
    assert [await goodbye for goodbye in goodbyes] == [(1001, "relay_shutdown")] * 4
    report = relay.book.report(relay.now())
    assert (report.active_sessions, report.closes_by_reason) == (0, (("relay_shutdown", 4),))
    assert report.refusals_by_reason == (("relay_stopping", 1),)
    with pytest.raises(aiohttp.ClientConnectorError):
        await new_client(relay, 4).connect()


async def test_a_stop_does_not_wait_for_a_frozen_client(new_relay: NewRelay, events: RelayEvents) -> None:
    relay = await new_relay()
    async with child_client(relay, 3) as process:
        process.send_signal(signal.SIGSTOP)

        async with asyncio.timeout(3.0):
            await relay.stop()

    assert cause(await first_close(events)) == ("relay", "relay_shutdown")
