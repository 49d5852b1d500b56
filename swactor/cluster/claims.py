"""What one node claims about another, which of two claims wins, and which are still worth telling.

Owns: `Claim`, the precedence table, `Rumours` (bounded retelling), the SWIM message that carries claims.
Not here: who is probed and when (``swim``). Pure.

Precedence: the newer life (``boot``) wins; within a life the higher incarnation; at equal incarnation dead
over suspect over alive. Only the member itself raises its incarnation, only its restart raises its boot.
"""

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from swactor import NodeId
from swactor.cluster.events import MemberState
from swactor.cluster.transport import PeerAddress
from swactor.cluster.wire import WireError

CLAIMS_PER_MESSAGE_MAX = 256
"""A message with more claims is not valid; a join response is cut there."""

_ADDRESSES_MAX = 16
_Counter = Annotated[int, Meta(ge=0)]
_NodeText = Annotated[NodeId, Meta(pattern="^[0-9a-f]{64}$")]
_RANK = {MemberState.UNKNOWN: -1, MemberState.ALIVE: 0, MemberState.SUSPECT: 1, MemberState.DEAD: 2}


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """``node`` is in ``state``, as of its own ``incarnation`` of its life ``boot``, and reached like this."""

    node: _NodeText
    boot: _Counter
    incarnation: _Counter
    state: MemberState
    relay_url: Annotated[str, Meta(max_length=512)] | None = None
    direct_addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=_ADDRESSES_MAX)
    ] = ()

    @classmethod
    def about(cls, address: PeerAddress, *, boot: int, incarnation: int, state: MemberState) -> "Claim":
        """Return a claim about the node at ``address``."""
        return cls(
            address.node_id,
            boot,
            incarnation,
            state,
            address.relay_url,
            address.direct_addresses[:_ADDRESSES_MAX],
        )

    @property
    def address(self) -> PeerAddress:
        """How the claim says the node is reached."""
        return PeerAddress(self.node, self.relay_url, self.direct_addresses)


def precedence(boot: int, incarnation: int, state: MemberState) -> tuple[int, int, int]:
    """Return what decides between two claims about one node: the greater one wins, equal is no news."""
    return boot, incarnation, _RANK[state]


class SwimKind(IntEnum):
    """What a SWIM message is for."""

    PING = 1
    ACK = 2
    PING_REQ = 3
    INDIRECT_ACK = 4
    JOIN_REQUEST = 5
    JOIN_RESPONSE = 6

    @property
    def label(self) -> str:
        """The name a snapshot shows: ``ping``, ``join_request``."""
        return _LABELS[self]

    @property
    def message_kind(self) -> str:
        """The name an event shows, in the spelling of the original format."""
        return _MESSAGE_KINDS[self]


_LABELS = {kind: kind.name.lower() for kind in SwimKind}
_MESSAGE_KINDS = {kind: "swactor_dist::" + kind.name.title().replace("_", "") for kind in SwimKind}


class SwimMessage(msgspec.Struct, frozen=True, array_like=True):
    """Every SWIM message. The sender's life and incarnation ride along: to be heard is a claim too."""

    kind: SwimKind
    boot: _Counter
    incarnation: _Counter
    sequence: _Counter = 0
    subject: _NodeText | None = None  # whom a PING_REQ is to reach, whom an INDIRECT_ACK has reached
    claims: Annotated[tuple[Claim, ...], Meta(max_length=CLAIMS_PER_MESSAGE_MAX)] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SwimMessage)


def encode_swim(message: SwimMessage) -> bytes:
    """Return the body of a SWIM frame."""
    return _encoder.encode(message)


def decode_swim(data: bytes) -> SwimMessage:
    """Return the message of a SWIM frame's body.

    Raises:
        WireError: it is none.
    """
    try:
        message = _decoder.decode(data)
    except msgspec.MsgspecError as exc:
        raise WireError(f"not a SWIM message: {exc}") from exc
    if any(claim.state is MemberState.UNKNOWN for claim in message.claims):
        raise WireError("nobody claims that a node is unknown")
    return message


class Rumours:
    """Claims that are still told, the least told first; each a bounded number of times."""

    def __init__(self) -> None:
        self._told: dict[NodeId, tuple[int, Claim]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def add(self, claim: Claim) -> None:
        """Tell ``claim`` from now on; what was told about the same node is dropped."""
        self._told[claim.node] = (0, claim)

    def clear(self) -> None:
        """Tell nothing of all this."""
        self._told.clear()

    def take(self, room: int, *, times_max: int, first: Claim | None = None) -> tuple[Claim, ...]:
        """Return up to ``room`` claims for one message; after ``times_max`` messages a claim is old news.

        ``first`` is put in front whether or not it is news.
        """
        if not self._told:
            return () if first is None else (first,)
        chosen = sorted(self._told.items(), key=lambda item: item[1][0])
        claims = [] if first is None else [first]
        for node, (times, claim) in chosen[: room - len(claims)]:
            if first is not None and node == first.node:
                continue
            claims.append(claim)
            if times + 1 >= times_max:
                del self._told[node]
            else:
                self._told[node] = (times + 1, claim)
        return tuple(claims)
