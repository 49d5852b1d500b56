"""Two unmodified iroh endpoints that cannot reach each other: whatever they exchange, the relay carries it.

With ``SWACTOR_RELAY_EXCHANGE=full`` (``make relay-exchange``) it is 200 MB and 100,000 small messages in
each version of the protocol, otherwise a hundredth of that.
"""

import os
import sys
from collections.abc import Callable

import pytest

from swactor.relay import CloseInitiator, RelayConfig, RelaySessionClosed, Subprotocol
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayEvents

from .field import Child, Field, child_in

IS_FULL = os.environ.get("SWACTOR_RELAY_EXCHANGE") == "full"
BULK_BYTES = 200_000_000 if IS_FULL else 2_000_000
MESSAGES = 100_000 if IS_FULL else 1_000
MESSAGE_BYTES = 64
WITHIN_S = 1200.0 if IS_FULL else 40.0

TOKEN = "open-sesame"

# One endpoint. The dialling one sends a lot in one piece, then small messages, each in a write of its own,
# and reads the same messages back; the other one checks what comes and sends the messages back.
ENDPOINT = """
import asyncio, hashlib, sys
import iroh
role, url, token, bulk, messages, size = *sys.argv[1:4], *map(int, sys.argv[4:7])
ALPN = b"swactor-relay-test/0"
CHUNK = 65_536

async def bind():
    relays = iroh.RelayMap.empty()
    relays.insert(iroh.RelayConfig(url=url, quic_port=None, auth_token=token))
    return await iroh.Endpoint.bind(iroh.EndpointOptions(
        preset=iroh.preset_minimal(), alpns=[ALPN], relay_mode=iroh.RelayMode.custom(relays)))

def message(number):
    return number.to_bytes(8, "big") * (size // 8)

async def read_all(stream, n_bytes):
    digest, left = hashlib.sha256(), n_bytes
    while left:
        chunk = await stream.read(min(left, 4 * CHUNK))
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()

async def dial(endpoint):
    peer = iroh.EndpointId.from_string((await read_line()))
    connection = await endpoint.connect(iroh.EndpointAddr(peer, url, []), ALPN)
    stream = await connection.open_bi()
    block = bytes(range(256)) * (CHUNK // 256)
    sent = hashlib.sha256()
    for start in range(0, bulk, CHUNK):
        piece = block[: min(CHUNK, bulk - start)]
        sent.update(piece)
        await stream.send().write_all(piece)
    assert await stream.recv().read_exact(64) == sent.hexdigest().encode()
    back = asyncio.create_task(read_all(stream.recv(), messages * size))
    expected = hashlib.sha256()
    for number in range(messages):
        expected.update(message(number))
        await stream.send().write_all(message(number))
    assert await back == expected.hexdigest()
    return connection

async def answer(endpoint):
    accepting = await (await endpoint.accept_next()).accept()
    connection = await accepting.connect()
    stream = await connection.accept_bi()
    await stream.send().write_all((await read_all(stream.recv(), bulk)).encode())
    left = messages * size
    while left:
        chunk = await stream.recv().read(min(left, CHUNK))
        left -= len(chunk)
        await stream.send().write_all(chunk)
    return connection

async def read_line():
    return (await asyncio.to_thread(sys.stdin.readline)).strip()

async def main():
    iroh.iroh_ffi.uniffi_set_event_loop(asyncio.get_running_loop())
    endpoint = await bind()
    await endpoint.online()
    print(endpoint.id(), flush=True)
    connection = await (dial if role == "dial" else answer)(endpoint)
    print("direct paths:", sum(path.is_ip for path in connection.paths()), flush=True)
    await read_line()
    await endpoint.close()

asyncio.run(main())
"""


async def exchange(dialler: Child, answerer: Child) -> None:
    """Have the two meet and exchange everything; neither may have another path than the relay's."""
    await dialler.line(DEADLINE_S)
    dialler.say(await answerer.line(DEADLINE_S))
    for endpoint in (dialler, answerer):
        assert await endpoint.line(WITHIN_S) == "direct paths: 0"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.timeout(WITHIN_S + 60)
@pytest.mark.parametrize("subprotocol", list(Subprotocol))
async def test_endpoints_that_cannot_get_direct_exchange_everything_through_the_relay(
    subprotocol: Subprotocol, new_field: Callable[[int], Field], events: RelayEvents
) -> None:
    field = new_field(2)
    config = RelayConfig(host=field.relay_address, port=0, token=TOKEN, subprotocols=(subprotocol,))
    amounts = tuple(map(str, (BULK_BYTES, MESSAGES, MESSAGE_BYTES)))
    async with (
        RelayServer(config, emit=events.emit) as relay,
        child_in(field.clients[0], ENDPOINT, "dial", relay.url, TOKEN, *amounts) as dialler,
        child_in(field.clients[1], ENDPOINT, "answer", relay.url, TOKEN, *amounts) as answerer,
    ):
        await exchange(dialler, answerer)
        report = relay.report()
        for endpoint in (dialler, answerer):
            endpoint.say("enough")
            assert await endpoint.ended(DEADLINE_S) == 0
        closed = await events.wait(RelaySessionClosed, count=2)

    carried = BULK_BYTES + 2 * MESSAGES * MESSAGE_BYTES
    assert {row.subprotocol for row in report.sessions} == {subprotocol}
    assert report.bytes_rx_total > carried
    assert report.bytes_tx_total > carried
    assert sorted(row.bytes_rx > BULK_BYTES for row in report.sessions) == [False, True]
    assert [event.close_initiator for event in closed] == [CloseInitiator.REMOTE] * 2
    sys.stdout.write(
        f"\n{subprotocol}: {BULK_BYTES:,} bytes and {MESSAGES:,} messages there and back; the relay received "
        f"{report.bytes_rx_total:,} bytes, sent {report.bytes_tx_total:,}, dropped "
        f"{report.frames_queue_dropped_total:,} frames at full queues\n"
    )
