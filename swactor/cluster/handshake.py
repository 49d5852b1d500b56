"""Admission: the bytes that come before the first frame, and whether they prove the cluster token.

Answers: is the node at the other end a member of this cluster, which life of it, which protocol version?
Owns: the hello (fixed size), its proof, the verdict. Not here: frames (``wire``), connections (``links``).

A hello is ``magic 4 | version u16 | flags u16 | boot u64 | proof 32``. The proof is HMAC-SHA256 of the
cluster token over everything before it and both node ids, sender first: it cannot be turned round or used by
a third node, since the transport has proven the ids. It is compared in constant time, before any field is
believed.
"""

import hashlib
import hmac
import struct
from typing import NamedTuple

from swactor import NodeId
from swactor.cluster.events import RefusalReason

PROTOCOL_VERSION = 1
TOKEN_BYTES_MIN = 8

_MAGIC = b"SWA1"
_HEAD = struct.Struct(">4sHHQ")
_PROOF_BYTES = 32
HELLO_BYTES = _HEAD.size + _PROOF_BYTES


class Hello(NamedTuple):
    """What a proven hello says."""

    version: int
    boot: int


def make_hello(token: bytes, *, sender: NodeId, receiver: NodeId, boot: int) -> bytes:
    """Return the hello that ``sender`` opens a connection to ``receiver`` with."""
    head = _HEAD.pack(_MAGIC, PROTOCOL_VERSION, 0, boot)
    return head + _proof(token, head, sender, receiver)


def check_hello(data: bytes, token: bytes, *, sender: NodeId, receiver: NodeId) -> Hello | RefusalReason:
    """Return what the first `HELLO_BYTES` bytes of ``sender`` say, or why it is not admitted."""
    head, proof = data[: _HEAD.size], data[_HEAD.size : HELLO_BYTES]
    if not hmac.compare_digest(proof, _proof(token, head, sender, receiver)):
        # the magic is looked at only to tell a stranger from a member with a wrong token
        return RefusalReason.PROOF if head.startswith(_MAGIC) else RefusalReason.NOT_HELLO
    _, version, _, boot = _HEAD.unpack(head)
    return Hello(version, boot) if version == PROTOCOL_VERSION else RefusalReason.VERSION


def _proof(token: bytes, head: bytes, sender: NodeId, receiver: NodeId) -> bytes:
    text = b"swactor hello" + head + bytes.fromhex(sender) + bytes.fromhex(receiver)
    return hmac.new(token, text, hashlib.sha256).digest()
