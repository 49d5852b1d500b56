"""The iroh relay protocol as bytes: handshake and frames of ``iroh-relay-v1`` and ``-v2``.

Owns: which bytes a client may send, what each of the relay's messages looks like, and every size limit.
Pure: bytes in, bytes or `ProtocolError` out. Not here: sessions, routing, sockets, deadlines.

Each message is one binary websocket message; its first byte is the `FrameType`.
"""

import hmac
import struct
from collections.abc import Container
from enum import IntEnum

import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from swactor import SwactorError
from swactor.relay.config import Subprotocol

KEY_BYTES = 32
SIGNATURE_BYTES = 64
CHALLENGE_BYTES = 16
PING_BYTES = 8
FRAME_BODY_BYTES_MAX = 65_536
"""What a client accepts after the type byte; one byte more and it drops its tunnel."""
FRAME_BYTES_MAX = 1 + FRAME_BODY_BYTES_MAX
DENIAL_TEXT_BYTES_MAX = 120

# Heads of websocket messages of a server, by the bytes that the length takes (RFC 6455, section 5.2).
_FINAL_BINARY = 0x82
_HEAD_16 = struct.Struct("!BBH")
_HEAD_64 = struct.Struct("!BBQ")

_AUTH_BYTES = 1 + KEY_BYTES + 1 + SIGNATURE_BYTES
_SIGNING_CONTEXT = "iroh-relay handshake v1 challenge signature"


class FrameType(IntEnum):
    """First byte of every message."""

    CHALLENGE = 0
    AUTH = 1
    CONFIRM = 2
    DENY = 3
    DATAGRAM_TO = 4
    BATCH_TO = 5
    DATAGRAM_FROM = 6
    BATCH_FROM = 7
    ENDPOINT_GONE = 8
    PING = 9
    PONG = 10
    HEALTH = 11
    RESTARTING = 12
    STATUS = 13


class Status(IntEnum):
    """What a relay says to a client about its session."""

    HEALTHY = 0
    SAME_ID_CONNECTED = 1
    RATE_LIMITED = 2


class ProtocolError(SwactorError):
    """The client sent bytes that the protocol does not allow. End its session; it cannot be resumed."""


class SignatureError(ProtocolError):
    """The client did not prove that it owns the key it claims."""


def challenge_message(challenge: bytes) -> bytes:
    """Return the relay's first message; ``challenge`` is 16 unpredictable bytes, used once."""
    return bytes([FrameType.CHALLENGE]) + challenge


def signed_digest(challenge: bytes) -> bytes:
    """Return what a client signs to answer ``challenge``."""
    return blake3.blake3(challenge, derive_key_context=_SIGNING_CONTEXT).digest()


def verify_auth(message: bytes, challenge: bytes) -> bytes:
    """Return the public key of the client that sent ``message`` in answer to ``challenge``.

    Raises:
        SignatureError: the signature does not belong to key and challenge, or the key is no key.
        ProtocolError: the message has another shape.
    """
    if len(message) != _AUTH_BYTES or message[0] != FrameType.AUTH or message[33] != SIGNATURE_BYTES:
        raise ProtocolError(f"not an authentication message ({len(message)} bytes)")
    key = message[1:33]
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(message[34:], signed_digest(challenge))
    except (InvalidSignature, ValueError) as error:
        raise SignatureError("signature invalid") from error
    return key


def confirm_message() -> bytes:
    """Return the message that admits a client."""
    return bytes([FrameType.CONFIRM])


def denial_message(reason: str) -> bytes:
    """Return the message that refuses a client; ``reason`` is cut at 120 bytes."""
    # Below 128 bytes the length prefix is a single byte.
    text = reason.encode()[:DENIAL_TEXT_BYTES_MAX].decode(errors="ignore").encode()
    return bytes([FrameType.DENY, len(text)]) + text


# A version 1 relay says its status in words; healthy is the empty text.
_STATUS_TEXTS = {
    Status.HEALTHY: b"",
    Status.SAME_ID_CONNECTED: (
        b"Another endpoint connected with the same endpoint id. No more messages will be received."
    ),
    Status.RATE_LIMITED: b"Too much was sent in too short a time. The relay reads more slowly.",
}

# What a client may send after the handshake: type byte -> (type, least and most bytes of the whole message).
_CLIENT_FRAMES = {
    FrameType.DATAGRAM_TO.value: (FrameType.DATAGRAM_TO, 1 + KEY_BYTES + 1, FRAME_BYTES_MAX),
    FrameType.BATCH_TO.value: (FrameType.BATCH_TO, 1 + KEY_BYTES + 1 + 2, FRAME_BYTES_MAX),
    FrameType.PING.value: (FrameType.PING, 1 + PING_BYTES, 1 + PING_BYTES),
    FrameType.PONG.value: (FrameType.PONG, 1 + PING_BYTES, 1 + PING_BYTES),
}


def client_frame_type(message: bytes) -> FrameType:
    """Return the type of a message that a client sent after the handshake; its size is then right, too.

    One of DATAGRAM_TO, BATCH_TO, PING, PONG.

    Raises:
        ProtocolError: empty, a type that clients do not send, or a size that the type cannot have.
    """
    if not message:
        raise ProtocolError("empty message")
    known = _CLIENT_FRAMES.get(message[0])
    if known is None:
        raise ProtocolError(f"frame type {message[0]} is not for a client to send")
    frame_type, least, most = known
    if not least <= len(message) <= most:
        raise ProtocolError(f"{frame_type.name} frame of {len(message)} bytes")
    return frame_type


def destination(message: bytes) -> bytes:
    """Return the key that a DATAGRAM_TO or BATCH_TO message is addressed to."""
    return message[1:33]


def forwarded(message: bytes, source: bytes) -> bytes:
    """Return a DATAGRAM_TO or BATCH_TO message as its destination gets it: the source in place of the key."""
    # A batch holds many datagrams: rewriting the head forwards them all without a look inside.
    return b"".join((bytes((message[0] + 2,)), source, message[33:]))


def websocket_head(n_bytes: int) -> bytes:
    """Return what precedes a frame of so many bytes to make it a binary websocket message for a client."""
    if n_bytes < 126:
        return bytes((_FINAL_BINARY, n_bytes))
    if n_bytes < 1 << 16:
        return _HEAD_16.pack(_FINAL_BINARY, 126, n_bytes)
    return _HEAD_64.pack(_FINAL_BINARY, 127, n_bytes)


def endpoint_gone_frame(peer: bytes) -> bytes:
    """Return the frame that tells a client: ``peer`` has no session any more."""
    return bytes([FrameType.ENDPOINT_GONE]) + peer


def ping_frame(payload: bytes) -> bytes:
    """Return a ping; ``payload`` is 8 bytes that the pong repeats."""
    return bytes([FrameType.PING]) + payload


def pong_frame(ping: bytes) -> bytes:
    """Return the answer to the PING message ``ping``."""
    return bytes([FrameType.PONG]) + ping[1:]


def status_frame(status: Status, subprotocol: Subprotocol) -> bytes:
    """Return ``status`` in the words of ``subprotocol``; the other version's frame ends a client's tunnel."""
    if subprotocol is Subprotocol.V2:
        return bytes([FrameType.STATUS, status])
    return bytes([FrameType.HEALTH]) + _STATUS_TEXTS[status]


def choose_subprotocol(
    offered: str, spoken: Container[Subprotocol] = tuple(Subprotocol)
) -> Subprotocol | None:
    """Return the newest of the ``spoken`` versions that is ``offered`` (comma-separated), or None."""
    names = {name.strip() for name in offered.split(",")}
    return next((version for version in Subprotocol if version in spoken and version in names), None)


def authorized(authorization: str, token: str) -> bool:
    """Whether an ``Authorization`` header carries the bearer token ``token``; compared in constant time."""
    scheme, _, shown = authorization.partition(" ")
    # A header may hold any byte; aiohttp hands undecodable ones over as surrogates.
    same = hmac.compare_digest(shown.strip().encode(errors="surrogateescape"), token.encode())
    return same and scheme.lower() == "bearer"
