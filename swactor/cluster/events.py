"""What a cluster reports as having happened: membership, links, messages, names, tunnels.

Owns: the event types of this package, each declared once. Peers are 64-hex node ids.
Not here: values that merely are, such as the member table or the connection cache (`ClusterView`).
"""

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from swactor import Event, NodeId
from swactor.cluster.transport import ConnType, LossKind, TunnelStatus


class MemberState(StrEnum):
    """What this node believes of a member."""

    UNKNOWN = "Unknown"
    ALIVE = "Alive"
    SUSPECT = "Suspect"
    DEAD = "Dead"


class SwimReason(StrEnum):
    """What made this node change its belief."""

    PING_RECEIVED = "ping-received"
    JOIN_REQUEST = "join-request"
    JOIN_RESPONSE = "join-response"
    GOSSIP = "gossip"
    PROBE_TIMEOUT = "probe-timeout"
    SUSPICION_TIMEOUT = "suspicion-timeout"
    LEFT = "left"


class SwimTransition(Event, frozen=True, kw_only=True):
    """The member table changed its opinion of ``peer``."""

    peer: NodeId
    from_: MemberState = msgspec.field(name="from")
    to: MemberState
    reason: SwimReason
    incarnation: int | UnsetType = UNSET
    boot: int | UnsetType = UNSET
    self_health: int | UnsetType = UNSET  # 0 is healthy; more means this node's own lateness is in doubt


class NodeMapUpdate(Event, frozen=True, kw_only=True):
    """An address for ``peer`` was offered; ``accepted`` is whether it is used from now on."""

    peer: NodeId
    from_source: str
    accepted: bool


class DialStarted(Event, frozen=True, kw_only=True):
    """A connection attempt begins. ``attempt`` counts from 1 since the last success."""

    peer: NodeId
    attempt: int
    timeout_ms: int


class DialErrorText(msgspec.Struct, frozen=True):
    """The text of a dial that failed in a way that has no name."""

    error: str = msgspec.field(name="Error")


class DialOutcome(Event, frozen=True, kw_only=True):
    """The connection attempt ended: ``Success``, ``Timeout``, ``Refused``, ``NoRoute`` or an error text."""

    peer: NodeId
    attempt: int
    outcome: str | DialErrorText
    duration_ms: int
    tunnel_down: bool | UnsetType = UNSET  # it failed while this node's own tunnel was down


class ConnectionCacheMiss(Event, frozen=True, kw_only=True):
    """Something is to be sent to ``peer`` and there is no connection; a dial follows."""

    peer: NodeId


class InvalidationReason(StrEnum):
    """Why a connection left the cache, in the words of the original format."""

    SEND_FAILED = "send-failed"
    CONNECTION_CLOSED = "connection-closed"


class ConnectionCacheInvalidated(Event, frozen=True, kw_only=True):
    """The connection of ``generation`` is not used any more."""

    peer: NodeId
    generation: int
    reason: InvalidationReason


class LinkUp(Event, frozen=True, kw_only=True):
    """A connection to ``peer`` passed admission and carries frames from now on."""

    peer: NodeId
    generation: int
    dialled: bool  # whether this side opened it


class LinkLoss(StrEnum):
    """By which rule a link ended, on whichever side."""

    HEARTBEAT = "heartbeat"  # nothing was heard of the other side for too long
    UNACKNOWLEDGED = "unacknowledged"  # the other side speaks but does not receive
    SUPERSEDED = "superseded"  # another connection of the same two nodes took over
    PROTOCOL = "protocol"  # something came that is no frame
    STOPPED = "stopped"  # the cluster of that side stops
    REFUSED = "refused"  # not admitted
    TRANSPORT = "transport"  # no rule of a link; see ``loss_kind``


class LinkLost(Event, frozen=True, kw_only=True):
    """The connection of ``generation`` ended.

    Whether what is in ``bytes_unacknowledged`` was handled is not known. ``loss_kind`` says which side acted.
    """

    peer: NodeId
    generation: int
    cause: LinkLoss
    loss_kind: LossKind
    text: str
    duration_ms: int
    bytes_unacknowledged: int


class RefusalReason(StrEnum):
    """Why a connection was not admitted."""

    NOT_ALLOWED = "not_allowed"  # not on the allow-list; no byte was read
    NOT_HELLO = "not_hello"  # the first bytes are not ours
    VERSION = "version"  # another protocol version
    PROOF = "proof"  # a wrong cluster token
    TIMEOUT = "timeout"  # no complete hello in time
    BUSY = "busy"  # too many connections wait for admission


class PeerRefused(Event, frozen=True, kw_only=True):
    """A connection was closed before any frame was read."""

    peer: NodeId
    reason: RefusalReason
    inbound: bool


class MessageSent(Event, frozen=True, kw_only=True):
    """A message was queued for ``peer``. ``size`` is the bytes of its frame body."""

    peer: NodeId
    kind: str
    size: int


class MessageReceived(Event, frozen=True, kw_only=True):
    """A valid message of ``peer`` was read."""

    peer: NodeId
    kind: str
    size: int


class GossipReceived(Event, frozen=True, kw_only=True):
    """Gossip that was not empty arrived: ``swim_piggyback`` or ``registry``."""

    source_peer: NodeId
    payload_kind: str
    payload_bytes: int
    item_count: int


class NameConflict(Event, frozen=True, kw_only=True):
    """Two living nodes registered one name; ``winner`` keeps it, everywhere."""

    name: str
    winner: NodeId
    loser: NodeId


class RelayChanged(Event, frozen=True, kw_only=True):
    """The home relay of this node is another one, appeared or is gone."""

    old_url: str | None = None
    new_url: str | None = None


class RelaySessionStateChanged(Event, frozen=True, kw_only=True):
    """The tunnel to the home relay changed its status."""

    relay_url: str | None = None
    from_status: TunnelStatus
    to_status: TunnelStatus
    reason: str | None = None


class IrohConnTypeChanged(Event, frozen=True, kw_only=True):
    """``peer`` is reached in another way than before."""

    peer: NodeId
    old: ConnType
    new: ConnType
