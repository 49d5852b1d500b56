"""The way of application messages between nodes: from a remote ref into an outbox, from a frame to an actor.

Owns: `LocalTargets` (the only actors that peers can reach), asks under way in both directions, refs inside
messages. Not here: connections (``links``), who is a member (``membership``).

A peer reaches an actor only if it was registered by name or if a reference to it was passed in a message.
What arrives for anybody else is counted and dropped.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, get_origin

import msgspec

from swactor import (
    ActorDeadError,
    ActorId,
    ActorRef,
    ActorSystem,
    AskTimeoutError,
    MailboxFullError,
    NodeId,
    SwactorError,
)
from swactor.abc import Waiter
from swactor.cluster.events import MessageReceived, MessageSent
from swactor.cluster.outbox import FRAMES_MAX, Outboxes
from swactor.cluster.remote import LinkLostError, RemoteHandlerError, RemoteRef, RemoteWatcher
from swactor.cluster.watches import Watched, Watches
from swactor.cluster.wire import (
    ActorAddress,
    DownBody,
    Envelope,
    FailureBody,
    Frame,
    FrameKind,
    MessageCodec,
    ReplyBody,
    WireError,
    decode_body,
    encode_body,
    encode_frame,
)

ASK_TIMEOUT_S_MAX = 3600.0


class LocalTargets:
    """Actors of this node that peers can reach, and the lives under which they may be addressed."""

    def __init__(self, me: NodeId, boot: int, on_new: Callable[[ActorRef[Any]], None]) -> None:
        self.me = me
        self.boot = boot
        self._boots = {boot}
        self._on_new = on_new
        self._by_serial: dict[int, ActorRef[Any]] = {}

    def begin_life(self, boot: int) -> None:
        """This node's life is known as ``boot`` from now on; addresses given before stay good."""
        self.boot = boot
        self._boots.add(boot)

    def expose(self, ref: ActorRef[Any]) -> ActorAddress:
        """Let peers reach ``ref``, a local actor, and return its address."""
        actor_id = ref.actor_id
        if actor_id.serial not in self._by_serial:
            self._by_serial[actor_id.serial] = ref
            self._on_new(ref)
        return ActorAddress(self.me, self.boot, actor_id.path, actor_id.serial)

    def forget(self, ref: ActorRef[Any]) -> None:
        """``ref`` has ended."""
        self._by_serial.pop(ref.actor_id.serial, None)

    def find(self, boot: int, serial: int) -> ActorRef[Any] | None:
        """Return the actor that a peer may mean by this."""
        return self._by_serial.get(serial) if boot in self._boots else None

    def __len__(self) -> int:
        return len(self._by_serial)


class Router:
    """What remote refs and links share: everything about application messages of one node."""

    def __init__(
        self,
        system: ActorSystem,
        *,
        targets: LocalTargets,
        outboxes: Outboxes,
        messages: tuple[type[msgspec.Struct], ...],
    ) -> None:
        self.targets = targets
        self.watches = Watches(self._post)
        self.watched = Watched(self._post)
        self.dropped: Counter[str] = Counter()  # why -> how many inbound messages reached nobody
        self._system = system
        self._outboxes = outboxes
        self._codec = MessageCodec(messages, outgoing_ref=self._outgoing_ref, incoming_ref=self._incoming_ref)
        self._asks: dict[int, tuple[ActorAddress, Waiter[Any]]] = {}
        self._next_ask = 0

    # --- outbound, for remote refs --------------------------------------------------------------------------

    def tell(self, to: ActorAddress, message: object) -> None:
        """Queue ``message``; see `RemoteRef.tell`."""
        kind, body = self._envelope(to, message)
        self._put(to, kind, encode_frame(FrameKind.TELL, 0, body), len(body))

    async def send(self, to: ActorAddress, message: object) -> None:
        """Queue ``message`` as soon as there is room."""
        kind, body = self._envelope(to, message)
        frame = encode_frame(FrameKind.TELL, 0, body)
        outbox = self._outboxes.of(to.node)
        while not outbox.put(frame):
            waiter: Waiter[None] = self._system.loop.waiter()
            outbox.wait_for_room(waiter)
            await waiter.wait()
        self._system.emit(MessageSent(peer=to.node, kind=kind, size=len(body)))

    async def ask(self, to: ActorAddress, message: object, *, timeout_s: float) -> Any:
        """Send ``message`` and return the reply; see `RemoteRef.ask`."""
        if math.isnan(timeout_s):
            raise ValueError("timeout_s is a number of seconds, not nan")
        timeout_ms = int(min(max(timeout_s, 0.0), ASK_TIMEOUT_S_MAX) * 1000)
        kind, body = self._envelope(to, message, timeout_ms=timeout_ms)
        self._next_ask += 1
        ask_id = self._next_ask
        waiter: Waiter[Any] = self._system.loop.waiter()
        self._put(to, kind, encode_frame(FrameKind.ASK, ask_id, body), len(body))
        self._asks[ask_id] = (to, waiter)
        late = AskTimeoutError(ActorId(to.path, to.serial), kind, timeout_s)
        timer = self._system.loop.call_later(timeout_s, lambda: waiter.fail(late))
        try:
            return await waiter.wait()
        finally:
            timer.cancel()
            self._asks.pop(ask_id, None)

    def reference(self, address: ActorAddress) -> ActorRef[Any] | None:
        """Return a ref for ``address``; None when it names an actor of this node that is not reachable."""
        if address.node == self.targets.me:
            return self.targets.find(address.boot, address.serial)
        return RemoteRef(address, self)

    # --- what links and membership report -------------------------------------------------------------------

    def link_up(self, peer: NodeId) -> None:
        """Frames reach ``peer`` again."""
        self.watches.link_up(peer)

    def link_lost(self, peer: NodeId, why: str) -> None:
        """What was under way to and from ``peer`` may be lost."""
        self.watched.link_lost(peer)
        for to, waiter in list(self._asks.values()):
            if to.node == peer:
                waiter.fail(LinkLostError(to, why))

    def node_down(self, peer: NodeId, boot: int) -> None:
        """Life ``boot`` of ``peer`` is declared dead."""
        for to, waiter in list(self._asks.values()):
            if to.node == peer and to.boot <= boot:
                waiter.fail(ActorDeadError(ActorId(to.path, to.serial), "its node was declared dead"))
        self.watches.node_down(peer, boot)

    # --- inbound, for links ---------------------------------------------------------------------------------

    def receive(self, peer: NodeId, frame: Frame) -> None:
        """Handle one application frame of ``peer``. What is not valid is counted and changes nothing."""
        try:
            match frame.kind:
                case FrameKind.TELL | FrameKind.ASK:
                    self._deliver(peer, frame)
                case FrameKind.REPLY:
                    self._answered(peer, frame)
                case FrameKind.FAILURE:
                    self._failed(peer, frame)
                case FrameKind.WATCH:
                    self._watch(peer, frame)
                case FrameKind.UNWATCH:
                    self.watched.remove(peer, frame.id)
                case FrameKind.DOWN:
                    self.watches.down(peer, frame.id, decode_body(DownBody, frame.body))
                case _:
                    self.dropped["malformed"] += 1
        except WireError:
            self.dropped["malformed"] += 1

    def _deliver(self, peer: NodeId, frame: Frame) -> None:
        envelope = decode_body(Envelope, frame.body)
        message = self._codec.decode(envelope.kind, envelope.payload)
        self._system.emit(MessageReceived(peer=peer, kind=envelope.kind, size=len(frame.body)))
        target = self.targets.find(envelope.boot, envelope.serial)
        if frame.kind is FrameKind.ASK:
            if target is None:
                self.dropped["unknown_target"] += 1
                self._reply_failure(peer, frame.id, "ActorDeadError", "no such actor")
            else:
                timeout_s = min(max(envelope.timeout_ms / 1000, 0.001), ASK_TIMEOUT_S_MAX)
                self._system.loop.start_task(
                    self._serve(peer, frame.id, target, message, timeout_s), name=f"ask {envelope.path}"
                )
        elif target is None:
            self.dropped["unknown_target"] += 1
        else:
            try:
                target.tell(message)
            except MailboxFullError:
                self.dropped["mailbox_full"] += 1

    async def _serve(
        self, peer: NodeId, ask_id: int, target: ActorRef[Any], message: object, timeout_s: float
    ) -> None:
        """Ask the local actor on behalf of a peer and send back what comes of it."""
        try:
            value = await target.ask(message, timeout_s=timeout_s)
            body = self._codec.encode_reply(value)
        except Exception as exc:  # noqa: BLE001 - whatever the handler raised is the peer's to know
            self._reply_failure(peer, ask_id, type(exc).__name__, str(exc))
        else:
            self._reply(peer, encode_frame(FrameKind.REPLY, ask_id, body))

    def _reply_failure(self, peer: NodeId, ask_id: int, error: str, text: str) -> None:
        body = encode_body(FailureBody(error, text[:2000]))
        self._reply(peer, encode_frame(FrameKind.FAILURE, ask_id, body))

    def _reply(self, peer: NodeId, frame: bytes) -> None:
        if not self._post(peer, frame):
            self.dropped["reply_outbox_full"] += 1

    def _answered(self, peer: NodeId, frame: Frame) -> None:
        body = decode_body(ReplyBody, frame.body)
        value = self._codec.decode(body.kind, body.payload)
        waiting = self._waiting(peer, frame)
        if waiting is not None:
            waiting[1].set(value)

    def _failed(self, peer: NodeId, frame: Frame) -> None:
        body = decode_body(FailureBody, frame.body)
        waiting = self._waiting(peer, frame)
        if waiting is None:
            return
        to, waiter = waiting
        actor_id = ActorId(to.path, to.serial)
        error: SwactorError
        match body.error:
            case "ActorDeadError":
                error = ActorDeadError(actor_id, body.text)
            case _:
                error = RemoteHandlerError(to, body.error, body.text)
        waiter.fail(error)

    def _waiting(self, peer: NodeId, frame: Frame) -> tuple[ActorAddress, Waiter[Any]] | None:
        waiting = self._asks.get(frame.id)
        if waiting is None or waiting[0].node != peer:
            self.dropped["late_reply"] += 1
            return None
        return waiting

    def _watch(self, peer: NodeId, frame: Frame) -> None:
        address = decode_body(ActorAddress, frame.body)
        target = self.targets.find(address.boot, address.serial)
        if target is None:
            self.watched.report(peer, frame.id, DownBody("stopped", "no such actor"))
        else:
            self.watched.add(RemoteWatcher(self, target, peer, frame.id), target)

    # --- encoding -------------------------------------------------------------------------------------------

    def _envelope(self, to: ActorAddress, message: object, *, timeout_ms: int = 0) -> tuple[str, bytes]:
        kind, payload = self._codec.encode(message)
        envelope = Envelope(to.path, to.serial, to.boot, kind, msgspec.Raw(payload), timeout_ms)
        return kind, encode_body(envelope)

    def _put(self, to: ActorAddress, kind: str, frame: bytes, size: int) -> None:
        if not self._post(to.node, frame):
            raise MailboxFullError(ActorId(to.path, to.serial), FRAMES_MAX)
        self._system.emit(MessageSent(peer=to.node, kind=kind, size=size))

    def _post(self, peer: NodeId, frame: bytes) -> bool:
        return self._outboxes.of(peer).put(frame)

    def _outgoing_ref(self, value: object) -> object:
        """Encode a reference inside a message: a local actor becomes reachable for peers by that."""
        if isinstance(value, RemoteRef):
            return value.address
        if isinstance(value, ActorRef):
            return self.targets.expose(value)
        raise NotImplementedError(f"{type(value).__qualname__} cannot cross")

    def _incoming_ref(self, type_: type, value: object) -> object:
        """Decode a reference inside a message."""
        origin = get_origin(type_) or type_
        if not (isinstance(origin, type) and issubclass(ActorRef, origin)):
            raise NotImplementedError(f"{type_!r} cannot cross")
        address = msgspec.convert(value, ActorAddress)
        # an actor of this node that has ended meanwhile: a ref whose messages are counted as dropped
        return self.reference(address) or RemoteRef(address, self)
