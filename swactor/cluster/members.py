"""The values of membership: its pace, what is known of one member, and what a state machine may ask for.

Owns: `SwimConfig`, `Member`, `Probe`, the effects that `Swim` returns.
Not here: any decision (``swim``). Pure.
"""

import msgspec

from swactor import NodeId
from swactor.cluster.claims import Claim, SwimKind, SwimMessage
from swactor.cluster.events import MemberState, SwimReason
from swactor.cluster.transport import PeerAddress


class SwimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The pace of membership: for nodes that are hundreds of milliseconds apart, often through a relay.

    The same on all nodes of a cluster, though nothing breaks where it is not.
    """

    probe_period_ms: int = 2_000
    probe_timeout_ms: int = 1_000  # after this, others are asked to ping; within a period
    suspicion_timeout_ms: int = 6_000
    indirect_probes: int = 3
    dead_reprobe_period_ms: int = 10_000
    join_retry_ms: int = 500  # doubles up to dead_reprobe_period_ms while no other member is known
    gossip_lambda: int = 3  # a claim is told lambda * log2(members + 1) times
    piggyback_max: int = 8
    health_max: int = 8  # the most that timeouts are stretched by own lateness
    dead_kept_max: int = 256  # more dead members than this are forgotten, longest dead first


class Send(msgspec.Struct, frozen=True):
    """Effect: send ``message`` to ``peer``."""

    peer: NodeId
    message: SwimMessage


class Transitioned(msgspec.Struct, frozen=True):
    """Effect: the opinion of life ``boot`` of ``peer`` changed."""

    peer: NodeId
    boot: int
    incarnation: int
    before: MemberState
    after: MemberState
    reason: SwimReason


class AddressLearned(msgspec.Struct, frozen=True):
    """Effect: ``address`` is how its node is dialled from now on. Comes before any `Send` that needs it."""

    address: PeerAddress
    from_source: str


class Refuted(msgspec.Struct, frozen=True):
    """Effect: somebody doubted this node; its ``incarnation`` (and ``boot``) are above the doubt now."""

    boot: int
    incarnation: int


Effect = Send | Transitioned | AddressLearned | Refuted


class Member:
    """What is known of one other node. ``boot`` is -1 until it was heard of."""

    __slots__ = (
        "address",
        "address_age",
        "boot",
        "incarnation",
        "last_ack_received_ns",
        "last_ping_received_ns",
        "last_ping_sent_ns",
        "since_ns",
        "state",
        "suspect_until_ns",
    )

    def __init__(self, address: PeerAddress, now_ns: int) -> None:
        self.address = address
        self.address_age = (-1, -1)
        self.boot = -1
        self.incarnation = 0
        self.state = MemberState.UNKNOWN
        self.since_ns = now_ns
        self.suspect_until_ns = 0
        self.last_ping_sent_ns: int | None = None
        self.last_ack_received_ns: int | None = None
        self.last_ping_received_ns: int | None = None

    def claim(self) -> Claim:
        """Return what this node would tell others about the member."""
        return Claim.about(self.address, boot=self.boot, incarnation=self.incarnation, state=self.state)


class Probe(msgspec.Struct, frozen=True):
    """The ping under way. ``ask_others_ns`` is None once others have been asked."""

    target: NodeId
    sequence: int
    ask_others_ns: int | None


class RecentMessage(msgspec.Struct, frozen=True):
    """One of the last messages, for a snapshot."""

    kind: SwimKind
    peer: NodeId
    at_ns: int
    sequence: int
