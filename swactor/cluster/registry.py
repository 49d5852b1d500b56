"""The actor that feeds `Names` and answers who has a name.

Owns: gossip rounds, waiting resolves, forgetting actors that have ended.
Not here: which entry wins (``names``).
"""

from collections import Counter
from typing import Any

import msgspec

from swactor import Actor, ActorRef, Context, Down, NodeId, Reply, Request
from swactor.cluster.events import GossipReceived, NameConflict
from swactor.cluster.names import Effect, Entry, Names, SendNames, Settled, decode_names, encode_names
from swactor.cluster.outbox import Outboxes
from swactor.cluster.routing import Router
from swactor.cluster.wire import ActorAddress, FrameKind, WireError, encode_frame

GOSSIP_PERIOD_S = 0.5
"""News is told to some members this often until it has been told often enough."""

GOSSIP_FANOUT = 3
COMPARE_PERIOD_S = 10.0
"""This often the whole table is compared with one member's, by digest."""


class Register(msgspec.Struct, frozen=True):
    """Give a name to an actor of this node."""

    name: str
    ref: ActorRef[Any]


class Withdraw(msgspec.Struct, frozen=True):
    """Take a name from an actor of this node."""

    name: str
    ref: ActorRef[Any]


class Resolve(msgspec.Struct, Request[ActorRef[Any]], frozen=True):
    """Answer with the actor that has the name, as soon as one on a living node has."""

    name: str


class NamesRead(msgspec.Struct, frozen=True):
    """A names frame of an admitted peer."""

    peer: NodeId
    body: bytes


class MemberChanged(msgspec.Struct, frozen=True):
    """Life ``boot`` of a peer is a living member, or not any more."""

    peer: NodeId
    boot: int
    lives: bool


class BeginLife(msgspec.Struct, frozen=True):
    """This node's life is known as ``boot`` from now on."""

    boot: int


class Exposed(msgspec.Struct, frozen=True):
    """Peers can reach this local actor from now on."""

    ref: ActorRef[Any]


class GossipRound(msgspec.Struct, frozen=True):
    """Time to tell the news."""


class CompareRound(msgspec.Struct, frozen=True):
    """Time to compare tables."""


RegistryMessage = (
    Register
    | Withdraw
    | Resolve
    | NamesRead
    | MemberChanged
    | BeginLife
    | Exposed
    | GossipRound
    | CompareRound
    | Down
)


class Registry(Actor[RegistryMessage]):
    """See the module."""

    def __init__(self, names: Names, *, router: Router, outboxes: Outboxes) -> None:
        self.malformed: Counter[NodeId] = Counter()
        self._names = names
        self._router = router
        self._outboxes = outboxes
        self._living: dict[NodeId, int] = {}
        self._waiting: dict[str, list[Reply[ActorRef[Any]]]] = {}
        self._round_waits = False

    def on_start(self, ctx: Context[RegistryMessage]) -> None:
        """Begin to compare; telling news begins with the news."""
        ctx.send_every(COMPARE_PERIOD_S, CompareRound())

    def on_message(self, ctx: Context[RegistryMessage], message: RegistryMessage) -> object:
        """Feed the state machine; the reply of `Resolve` is a ref."""
        names = self._names
        match message:
            case GossipRound():
                self._round_waits = False
                self._tell_news(ctx)
            case CompareRound():
                self._compare(ctx)
            case NamesRead(peer, body):
                self._read(ctx, peer, body)
            case Register(name, ref):
                actor_id = ref.actor_id
                self._perform(ctx, names.register(name, path=actor_id.path, serial=actor_id.serial))
                self._tell_news(ctx)
            case Withdraw(name, ref):
                self._perform(ctx, names.withdraw(name, serial=ref.actor_id.serial))
                self._tell_news(ctx)
            case Resolve(name):
                return self._resolve(ctx, name)
            case MemberChanged():
                self._member_changed(ctx, message)
            case BeginLife(boot):
                self._perform(ctx, names.begin_life(boot))
            case Exposed(ref):
                ctx.monitor(ref)
            case Down(ref, _):
                self._ended(ctx, ref)
        if names.has_news and not self._round_waits:
            self._round_waits = True
            ctx.send_after(GOSSIP_PERIOD_S, GossipRound())
        return None

    def _compare(self, ctx: Context[RegistryMessage]) -> None:
        self._perform(ctx, self._names.comparison_for(sorted(self._living)))
        for name, replies in list(self._waiting.items()):
            self._waiting[name] = [reply for reply in replies if not reply.done]
            if not self._waiting[name]:
                del self._waiting[name]

    def _tell_news(self, ctx: Context[RegistryMessage]) -> None:
        peers = sorted(self._living)
        self._perform(ctx, self._names.news_for(peers, fanout=GOSSIP_FANOUT, members=len(peers)))

    def _read(self, ctx: Context[RegistryMessage], peer: NodeId, body: bytes) -> None:
        try:
            message = decode_names(body)
        except WireError:
            self.malformed[peer] += 1
            return
        if message.entries:
            ctx.emit(
                GossipReceived(
                    source_peer=peer,
                    payload_kind="registry",
                    payload_bytes=len(body),
                    item_count=len(message.entries),
                )
            )
        self._perform(ctx, self._names.receive(peer, message))

    def _member_changed(self, ctx: Context[RegistryMessage], change: MemberChanged) -> None:
        if not change.lives:
            self._living.pop(change.peer, None)
            return
        is_new = change.peer not in self._living
        self._living[change.peer] = change.boot
        if is_new:
            self._perform(ctx, self._names.whole_table_for(change.peer))
        for name in list(self._waiting):
            self._answer(name)

    def _ended(self, ctx: Context[RegistryMessage], ref: ActorRef[Any]) -> None:
        """An actor that peers could reach has ended: its names go with it."""
        self._router.targets.forget(ref)
        serial = ref.actor_id.serial
        for name in self._names.held_by(serial):
            self._perform(ctx, self._names.withdraw(name, serial=serial))
        self._tell_news(ctx)

    def _perform(self, ctx: Context[RegistryMessage], effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendNames(peer, message):
                    frame = encode_frame(FrameKind.NAMES, 0, encode_names(message))
                    self._outboxes.of(peer).put(frame)
                case Settled(entry, replaced):
                    self._report_conflict(ctx, entry, replaced)
                    self._answer(entry.name)

    def _report_conflict(self, ctx: Context[RegistryMessage], entry: Entry, replaced: Entry | None) -> None:
        if replaced is None or replaced.is_tombstone or entry.is_tombstone or replaced.owner == entry.owner:
            return
        if self._lives(replaced):
            ctx.emit(NameConflict(name=entry.name, winner=entry.owner, loser=replaced.owner))

    def _resolve(self, ctx: Context[RegistryMessage], name: str) -> ActorRef[Any] | None:
        found = self.find(name)
        if found is None:
            self._waiting.setdefault(name, []).append(ctx.defer())
        return found

    def _answer(self, name: str) -> None:
        if name in self._waiting and (found := self.find(name)) is not None:
            for reply in self._waiting.pop(name):
                reply.send(found)

    def find(self, name: str) -> ActorRef[Any] | None:
        """Return the actor on a living node that has ``name``, or None."""
        entry = self._names.entries.get(name)
        if entry is None or entry.is_tombstone or not self._lives(entry):
            return None
        return self._router.reference(ActorAddress(entry.owner, entry.boot, entry.path, entry.serial))

    def _lives(self, entry: Entry) -> bool:
        return entry.owner == self._names.me or self._living.get(entry.owner) == entry.boot
