"""The actor that feeds `Swim` and performs its effects.

Owns: the timer, the events of membership, telling links, registry and router who lives.
Not here: any decision about members (``swim``).
"""

from collections import Counter

import msgspec

from swactor import Actor, ActorRef, Context, NodeId
from swactor.cluster.claims import decode_swim, encode_swim
from swactor.cluster.events import (
    GossipReceived,
    MemberState,
    MessageReceived,
    MessageSent,
    NodeMapUpdate,
    SwimTransition,
)
from swactor.cluster.links import LinksMessage, PeerAt, PeerLives
from swactor.cluster.members import AddressLearned, Effect, Refuted, Send, Transitioned
from swactor.cluster.outbox import Outboxes
from swactor.cluster.registry import BeginLife, MemberChanged, RegistryMessage
from swactor.cluster.routing import Router
from swactor.cluster.swim import Swim
from swactor.cluster.transport import PeerAddress
from swactor.cluster.views import MemberView, RecentMessageView, SwimView
from swactor.cluster.wire import FrameKind, WireError, encode_frame


class SwimRead(msgspec.Struct, frozen=True):
    """A SWIM frame of an admitted peer."""

    peer: NodeId
    body: bytes


class PeerLeft(msgspec.Struct, frozen=True):
    """The peer has said goodbye on its link."""

    peer: NodeId


class Moved(msgspec.Struct, frozen=True):
    """This node is reached at another address from now on."""

    address: PeerAddress


class TunnelSeen(msgspec.Struct, frozen=True):
    """The state of this node's own tunnel, and who is reached without it."""

    is_down: bool
    direct: frozenset[NodeId]


class Wakeup(msgspec.Struct, frozen=True):
    """`Swim.deadline_ns` has come."""


MembershipMessage = SwimRead | PeerLeft | Moved | TunnelSeen | Wakeup

_TIMER = "swim"


class Membership(Actor[MembershipMessage]):
    """See the module."""

    def __init__(
        self,
        swim: Swim,
        *,
        router: Router,
        outboxes: Outboxes,
        links: ActorRef[LinksMessage],
        registry: ActorRef[RegistryMessage],
    ) -> None:
        self.malformed: Counter[NodeId] = Counter()
        self._swim = swim
        self._router = router
        self._outboxes = outboxes
        self._links = links
        self._registry = registry
        self._timer_at_ns = 0

    def on_start(self, ctx: Context[MembershipMessage]) -> None:
        """Contact the seeds."""
        self._perform(ctx, self._swim.start(ctx.clock.monotonic_ns()))
        self._arm(ctx)

    def on_message(self, ctx: Context[MembershipMessage], message: MembershipMessage) -> None:
        """Feed the state machine."""
        now_ns = ctx.clock.monotonic_ns()
        match message:
            case SwimRead(peer, body):
                self._read(ctx, peer, body, now_ns)
            case Wakeup():
                self._timer_at_ns = 0
                self._perform(ctx, self._swim.tick(now_ns))
            case PeerLeft(peer):
                self._perform(ctx, self._swim.left(peer, now_ns))
            case Moved(address):
                self._perform(ctx, self._swim.move(address))
            case TunnelSeen(is_down, direct):
                self._swim.cut_off.look(is_down=is_down, direct=direct, now_ns=now_ns)
        self._arm(ctx)

    def _read(self, ctx: Context[MembershipMessage], peer: NodeId, body: bytes, now_ns: int) -> None:
        try:
            message = decode_swim(body)
        except WireError:
            self.malformed[peer] += 1
            return
        ctx.emit(MessageReceived(peer=peer, kind=message.kind.message_kind, size=len(body)))
        if message.claims:
            ctx.emit(
                GossipReceived(
                    source_peer=peer,
                    payload_kind="swim_piggyback",
                    payload_bytes=len(body),
                    item_count=len(message.claims),
                )
            )
        self._perform(ctx, self._swim.receive(peer, message, now_ns))

    def _perform(self, ctx: Context[MembershipMessage], effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, message):
                    body = encode_swim(message)
                    self._outboxes.of(peer).put_datagram(encode_frame(FrameKind.SWIM, 0, body))
                    ctx.emit(MessageSent(peer=peer, kind=message.kind.message_kind, size=len(body)))
                case Transitioned():
                    self._transitioned(ctx, effect)
                case AddressLearned(address, source):
                    self._links.tell(PeerAt(address))
                    ctx.emit(NodeMapUpdate(peer=address.node_id, from_source=source, accepted=True))
                case Refuted(boot, _):
                    if boot != self._router.targets.boot:
                        self._router.targets.begin_life(boot)
                        self._registry.tell(BeginLife(boot))

    def _transitioned(self, ctx: Context[MembershipMessage], effect: Transitioned) -> None:
        dead = effect.after is MemberState.DEAD
        ctx.emit(
            SwimTransition(
                peer=effect.peer,
                from_=effect.before,
                to=effect.after,
                reason=effect.reason,
                incarnation=effect.incarnation,
                boot=effect.boot,
                self_health=self._swim.health,
            )
        )
        self._links.tell(PeerLives(effect.peer, not dead))
        self._registry.tell(MemberChanged(effect.peer, effect.boot, not dead))
        if dead:
            self._router.node_down(effect.peer, effect.boot)

    def _arm(self, ctx: Context[MembershipMessage]) -> None:
        """Have one timer at the deadline, and leave it alone when it is right already."""
        due_ns = self._swim.deadline_ns
        if self._timer_at_ns and self._timer_at_ns <= due_ns:
            return
        self._timer_at_ns = due_ns
        delay_s = max(0, due_ns - ctx.clock.monotonic_ns()) / 1e9
        ctx.send_after(delay_s, Wakeup(), key=_TIMER)


def swim_view(swim: Swim, *, now_ns: int, wall_ms: int) -> SwimView:
    """Return the current values of ``swim``; its monotonic times become wall clock as of now."""

    def at_ms(then_ns: int | None) -> int | None:
        return None if then_ns is None else wall_ms - (now_ns - then_ns) // 1_000_000

    members = tuple(
        MemberView(
            peer=peer,
            state=member.state,
            boot=member.boot,
            incarnation=member.incarnation,
            since_ms=at_ms(member.since_ns) or 0,
            address=member.address,
            last_ping_sent_at_ms=at_ms(member.last_ping_sent_ns),
            last_ack_received_at_ms=at_ms(member.last_ack_received_ns),
            last_ping_received_at_ms=at_ms(member.last_ping_received_ns),
            suspect_started_at_ms=at_ms(member.since_ns) if member.state is MemberState.SUSPECT else None,
        )
        for peer, member in sorted(swim.members.items())
    )
    return SwimView(
        config=swim.config,
        self_node_id=swim.me,
        self_boot=swim.boot,
        self_incarnation=swim.incarnation,
        self_health=swim.health,
        members=members,
        recent_messages=tuple(
            RecentMessageView(recent.kind, recent.peer, at_ms(recent.at_ns) or 0, recent.sequence)
            for recent in swim.recent
        ),
        anomalies=swim.anomalies,
    )
