"""Who a node is: an Ed25519 key pair, whose public half is the node id.

Answers: which node id belongs to a secret key, and how a new key comes about.
Not here: proving it to a peer (the transport does), admission (``handshake``), keeping keys on disk.
"""

from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swactor import NodeId, parse_node_id
from swactor.abc import RandomStream

SECRET_BYTES: Final = 32


class NodeKey:
    """The secret key of a node. Its text form never shows the secret.

    Raises:
        ValueError: the secret is not 32 bytes long.
    """

    __slots__ = ("node_id", "secret")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a node's secret key has {SECRET_BYTES} bytes, not {len(secret)}")
        self.secret: Final = bytes(secret)
        public = Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()
        self.node_id: Final[NodeId] = parse_node_id(public.hex())

    @classmethod
    def generate(cls, random: RandomStream) -> "NodeKey":
        """Return a new key: unpredictable in production, reproducible in a simulation."""
        return cls(random.token(SECRET_BYTES))

    def __repr__(self) -> str:
        return f"NodeKey({self.node_id})"
