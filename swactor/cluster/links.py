"""All links of a node, and the door that strangers have to pass.

Owns: one `Link` a peer, made on first need; admission of inbound connections (allow-list, then hello).
Not here: what a link does (``link``). Everybody without proof is refused before a frame of it is read, and no
actor is made for it.
"""

from collections import Counter

import msgspec

from swactor import Actor, ActorRef, Context, Down, NodeId, Reply, Request
from swactor.cluster.events import PeerRefused, RefusalReason
from swactor.cluster.handshake import check_hello
from swactor.cluster.link import Link
from swactor.cluster.link_messages import Admitted, Flush, KeepUp, Leave, LinkMessage, UseAddress, Wiring
from swactor.cluster.outbox import Outboxes
from swactor.cluster.session import CloseCode
from swactor.cluster.tap import BytesRead, ConnectionLost, HelloRead, Tap, Written
from swactor.cluster.transport import Connection, PeerAddress
from swactor.cluster.views import ConnectionView

WAITING_MAX = 64
"""So many connections may wait for their hello at once; one more is refused."""

HELLO_TIMEOUT_S = 5.0
FAREWELL_LOOK_S = 0.02
FAREWELL_NS_MAX = 1_000_000_000
"""How often, and for how long, a leaving node looks whether its peers have read all it said."""


class Inbound(msgspec.Struct, frozen=True):
    """A peer has opened a connection."""

    connection: Connection


class Wake(msgspec.Struct, frozen=True):
    """Something waits for a peer that has no link yet."""

    peer: NodeId


class PeerAt(msgspec.Struct, frozen=True):
    """How a peer is dialled from now on."""

    address: PeerAddress


class PeerLives(msgspec.Struct, frozen=True):
    """Whether a peer is a living member."""

    peer: NodeId
    lives: bool


class HelloOverdue(msgspec.Struct, frozen=True):
    """The connection should have greeted by now."""

    tap: Tap


class SayFarewell(msgspec.Struct, Request[None], frozen=True):
    """Leave every peer; answered when all have read what was said, or when they took too long."""


class LookAround(msgspec.Struct, frozen=True):
    """Time to see whether anybody is still there; for the last time at ``until_ns``."""

    until_ns: int


LinksMessage = (
    SayFarewell
    | LookAround
    | Inbound
    | Wake
    | PeerAt
    | PeerLives
    | HelloOverdue
    | HelloRead
    | BytesRead
    | Written
    | ConnectionLost
    | Down
)


class Links(Actor[LinksMessage]):
    """See the module."""

    def __init__(self, wiring: Wiring, outboxes: Outboxes, *, allowed: frozenset[NodeId] | None) -> None:
        self.refused: Counter[RefusalReason] = Counter()
        self._wiring = wiring
        self._outboxes = outboxes
        self._allowed = allowed
        self._me = wiring.router.targets.me
        self._links: dict[NodeId, tuple[ActorRef[LinkMessage], Link]] = {}
        self._addresses: dict[NodeId, PeerAddress] = {}
        self._living: set[NodeId] = set()
        self._waiting: dict[Tap, None] = {}
        self._farewell: Reply[None] | None = None

    def view(self) -> tuple[ConnectionView, ...]:
        """Return what there is to know of every link, sorted by peer."""
        return tuple(link.view() for _, (_, link) in sorted(self._links.items()))

    def on_message(self, ctx: Context[LinksMessage], message: LinksMessage) -> None:
        """Do what the message says."""
        match message:
            case Wake(peer):
                self._link(ctx, peer).tell(Flush())
            case Inbound(connection):
                self._knock(ctx, connection)
            case HelloRead(tap, hello):
                self._open(ctx, tap, hello)
            case HelloOverdue(tap):
                if tap in self._waiting:
                    self._refuse(ctx, tap, RefusalReason.TIMEOUT)
            case ConnectionLost(tap, _):
                self._waiting.pop(tap, None)
                ctx.cancel(tap)
            case PeerAt(address):
                self._addresses[address.node_id] = address
                if address.node_id in self._links:
                    self._links[address.node_id][0].tell(UseAddress(address))
            case PeerLives(peer, lives):
                self._lives(ctx, peer, lives=lives)
            case SayFarewell():
                self._farewell = ctx.defer()
                for link, _ in self._links.values():
                    link.tell(Leave())
                self._look_around(ctx, ctx.clock.monotonic_ns() + FAREWELL_NS_MAX)
            case LookAround(until_ns):
                self._look_around(ctx, until_ns)
            case Down(ref, _):
                self._link_failed(ref)
            case BytesRead() | Written():
                pass  # of a connection that was refused meanwhile

    # --- the door -----------------------------------------------------------------------------------------

    def _knock(self, ctx: Context[LinksMessage], connection: Connection) -> None:
        peer = connection.peer
        allowed = peer != self._me and (self._allowed is None or peer in self._allowed)
        if allowed and len(self._waiting) < WAITING_MAX:
            tap = Tap(connection, ctx.ref)
            self._waiting[tap] = None
            ctx.send_after(HELLO_TIMEOUT_S, HelloOverdue(tap), key=tap)
            return
        reason = RefusalReason.BUSY if allowed else RefusalReason.NOT_ALLOWED
        self._count_refusal(ctx, peer, reason)
        connection.close(CloseCode.REFUSED, reason)

    def _open(self, ctx: Context[LinksMessage], tap: Tap, data: bytes) -> None:
        if tap not in self._waiting:
            return
        hello = check_hello(data, self._wiring.token, sender=tap.peer, receiver=self._me)
        if isinstance(hello, RefusalReason):
            self._refuse(ctx, tap, hello)
            return
        del self._waiting[tap]
        ctx.cancel(tap)
        link = self._link(ctx, tap.peer)
        tap.owner = link
        link.tell(Admitted(tap, hello))

    def _refuse(self, ctx: Context[LinksMessage], tap: Tap, reason: RefusalReason) -> None:
        del self._waiting[tap]
        ctx.cancel(tap)
        self._count_refusal(ctx, tap.peer, reason)
        tap.retire(CloseCode.REFUSED, reason)

    def _count_refusal(self, ctx: Context[LinksMessage], peer: NodeId, reason: RefusalReason) -> None:
        self.refused[reason] += 1
        ctx.emit(PeerRefused(peer=peer, reason=reason, inbound=True))

    def _look_around(self, ctx: Context[LinksMessage], until_ns: int) -> None:
        if self._farewell is None:
            return
        open_ends = any(connection.is_up or connection.frames_waiting for connection in self.view())
        if open_ends and ctx.clock.monotonic_ns() < until_ns:
            ctx.send_after(FAREWELL_LOOK_S, LookAround(until_ns))
        else:
            self._farewell.send(None)

    # --- links --------------------------------------------------------------------------------------------

    def _link(self, ctx: Context[LinksMessage], peer: NodeId) -> ActorRef[LinkMessage]:
        known = self._links.get(peer)
        if known is not None:
            return known[0]
        outbox = self._outboxes.of(peer)
        link = Link(self._wiring, outbox, self._addresses.get(peer, PeerAddress(peer)))
        ref = ctx.spawn(link, name=peer[:16])
        ctx.monitor(ref)
        self._links[peer] = (ref, link)
        outbox.link = ref
        if peer in self._living:
            ref.tell(KeepUp(wanted=True))
        return ref

    def _lives(self, ctx: Context[LinksMessage], peer: NodeId, *, lives: bool) -> None:
        if lives:
            self._living.add(peer)
        else:
            self._living.discard(peer)
        if peer in self._links or lives:
            self._link(ctx, peer).tell(KeepUp(lives))

    def _link_failed(self, ref: ActorRef[LinkMessage]) -> None:
        """A link has failed on its own: forget it; what comes for the peer next makes a new one."""
        for peer, (link, _) in list(self._links.items()):
            if link == ref:
                del self._links[peer]
                outbox = self._outboxes.of(peer)
                outbox.link = None
                outbox.clear()
                self._wiring.router.link_lost(peer, "the link failed")
