"""A client that sends any bytes at any point of its way into a relay, beside one that behaves.

For tests with random inputs: `attack` raises when an attacker can do more than end its own session.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from enum import IntEnum
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swactor.relay import CloseReason, RelaySessionClosed
from swactor.relay.protocol import CHALLENGE_BYTES, signed_digest
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

_ENDS = {
    CloseReason.PROTOCOL_ERROR,
    CloseReason.CLIENT_CLOSED,
    CloseReason.CLIENT_GONE,
    CloseReason.CONNECTION_RESET,
}
_KEY = Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32)
ATTACKER = _KEY.public_key().public_bytes_raw()
_UPGRADE = (
    b"GET /relay HTTP/1.1\r\nHost: relay\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Protocol: iroh-relay-v2\r\n\r\n"
)
_PING, _PONG = b"\x09abcdefgh", b"\x0aabcdefgh"


class Stage(IntEnum):
    """How far a client goes before it sends what it likes."""

    CONNECTED = 0
    UPGRADED = 1
    PROVEN = 2


def framed(payload: bytes, *, head: int = 0x82) -> bytes:
    """Return ``payload`` as a websocket message of a client; ``head`` is its first byte."""
    n_bytes = len(payload)
    if n_bytes < 126:
        length = bytes([0x80 | n_bytes])
    elif n_bytes < 1 << 16:
        length = b"\xfe" + n_bytes.to_bytes(2, "big")
    else:
        length = b"\xff" + n_bytes.to_bytes(8, "big")
    return bytes([head]) + length + bytes(4) + payload  # The mask of zeros changes nothing.


async def attack(
    relay: RelayServer, events: RelayEvents, bystander: RelayClient, *, stage: Stage, pieces: Sequence[bytes]
) -> None:
    """Send ``pieces`` from ``stage`` on, then nothing more, and look at what is left."""
    before = len(events.of(RelaySessionClosed))
    async with asyncio.timeout(DEADLINE_S):
        await _assault(relay.url, stage, pieces)
        if stage is Stage.PROVEN:
            closed = (await events.wait(RelaySessionClosed, count=before + 1))[before]
            assert closed.peer_node_id_hex != bystander.node_id
            assert closed.close_reason in _ENDS, closed
        assert await answers(bystander)
    assert relay.report().active_sessions == 1
    assert len(events.of(RelaySessionClosed)) == before + (stage is Stage.PROVEN)


async def answers(client: RelayClient) -> bool:
    """Whether the relay answers a client's ping; what it forwards to it meanwhile is passed over."""
    await client.send(_PING)
    while await client.receive() != _PONG:
        pass
    return True


def _proof(challenge: bytes) -> bytes:
    signature = _KEY.sign(signed_digest(challenge))
    return b"\x01" + ATTACKER + bytes([len(signature)]) + signature


async def enter(
    url: str, stage: Stage, *, receive_buffer_bytes: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and go as far as ``stage``; the kernel keeps so much that is not read, else what it likes."""
    address = urlsplit(url)
    connection = socket.socket()
    connection.setblocking(False)
    if receive_buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    await asyncio.get_running_loop().sock_connect(connection, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=connection)
    if stage >= Stage.UPGRADED:
        writer.write(_UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        challenge = (await reader.readexactly(2 + 1 + CHALLENGE_BYTES))[3:]
    if stage >= Stage.PROVEN:
        writer.write(framed(_proof(challenge)))
        await reader.readexactly(2 + 1)  # It is let in.
    return reader, writer


def enter_over_tls(url: str, tls: ssl.SSLContext, *, receive_buffer_bytes: int) -> ssl.SSLSocket:
    """Go all the way in and return the blocking socket: unlike asyncio's it reads nothing ahead."""
    address = urlsplit(url)
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    bare.settimeout(DEADLINE_S)
    bare.connect((address.hostname, address.port))
    connection = tls.wrap_socket(bare)
    connection.sendall(_UPGRADE)
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    challenge = b""
    while len(challenge) < 3 + CHALLENGE_BYTES:
        challenge += connection.recv(3 + CHALLENGE_BYTES - len(challenge))
    connection.sendall(framed(_proof(challenge[3:])))
    return connection


async def _assault(url: str, stage: Stage, pieces: Sequence[bytes]) -> None:
    reader, writer = await enter(url, stage)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        await reader.read()
    except ConnectionError:
        pass  # The relay has had enough.
    finally:
        writer.close()
