"""Names of things: which node, which actor.

Owns: the two identifier types every layer passes around, and the rule a foreign id must meet.
Not here: how a node id comes about (``swactor.cluster.identity``).
"""

import re
from typing import NewType

import msgspec

NodeId = NewType("NodeId", str)
"""An Ed25519 public key as 64 lower-case hex digits; see `parse_node_id`."""

_NODE_ID = re.compile(r"[0-9a-f]{64}")


def parse_node_id(text: str) -> NodeId:
    """Return ``text`` as a node id.

    Raises:
        ValueError: ``text`` is not 64 lower-case hex digits.
    """
    if _NODE_ID.fullmatch(text) is None:
        raise ValueError(f"a node id is 64 lower-case hex digits, not {text[:80]!r}")
    return NodeId(text)


class ActorId(msgspec.Struct, frozen=True, order=True):
    """One actor of one system: where it hangs in the tree, and which of all that hung there it is.

    ``path`` reads like ``/stage-0/worker``; ``serial`` counts spawns of the system from 1, so two actors
    that had the same path one after the other differ. A restart keeps both.
    """

    path: str
    serial: int

    def __str__(self) -> str:
        return f"{self.path}#{self.serial}"
