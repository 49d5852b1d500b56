"""The link to one peer: at most one connection in use, redialled as long as somebody wants it.

Owns: when to dial, hellos, writing from the outbox, reading frames, heartbeat.
Not here: the dials themselves (``dialler``), what is told of the connection (``link_record``), admission of
strangers (``links``), which connection wins and when to give up (``session``), what frames mean (``routing``,
``membership``, ``registry``).
"""

from enum import Enum, auto
from typing import assert_never

from swactor import Actor, Context, ExitReason
from swactor.cluster.carrier import Carrier
from swactor.cluster.dialler import Dialler
from swactor.cluster.events import ConnectionCacheMiss, LinkLoss, PeerRefused, RefusalReason
from swactor.cluster.handshake import Hello, check_hello, make_hello
from swactor.cluster.link_messages import (
    Admitted,
    Dialled,
    Flush,
    KeepUp,
    Leave,
    LinkMessage,
    Redial,
    Tick,
    UseAddress,
    Wiring,
)
from swactor.cluster.link_record import LinkRecord
from swactor.cluster.outbox import Outbox
from swactor.cluster.session import (
    CAUSES,
    GREETING_MAX_NS,
    CloseCode,
    Inbound,
    Own,
    PulseVerdict,
    judge_inbound,
)
from swactor.cluster.tap import BytesRead, ConnectionLost, HelloRead, Tap, TapMessage, Written
from swactor.cluster.transport import (
    Connection,
    DialFailed,
    DialResult,
    LossKind,
    LossReason,
    PeerAddress,
)
from swactor.cluster.views import ConnectionView
from swactor.cluster.wire import Frame, FrameKind, WireError, encode_frame

TICK_S = 1.0
"""How long after a link has begun to dial, greet or carry it looks at the clock."""
TICK_S_MIN = 0.1
"""No sooner than this does it look again, however soon the carrier may need something."""


class Phase(Enum):
    """What a link has of a connection."""

    IDLE = auto()
    DIALLING = auto()
    GREETING = auto()  # connected, the other hello is awaited
    UP = auto()


class Link(Actor[LinkMessage]):
    """See the module."""

    def __init__(self, wiring: Wiring, outbox: Outbox, address: PeerAddress) -> None:
        self._wiring = wiring
        self._outbox = outbox
        self._me = wiring.router.targets.me
        self._peer = outbox.peer
        self._dialler = Dialler(self._peer, wiring.transport, address)
        self._record = LinkRecord(self._peer)
        self._keep = False
        self._leaving = False
        self._left = False
        self._phase = Phase.IDLE
        self._carrier: Carrier | None = None
        self._held: Admitted | None = None
        self._peer_boot = -1
        self._dialled = False

    def view(self) -> ConnectionView:
        """Return what there is to know of the connection right now."""
        return self._record.view(
            is_up=self._phase is Phase.UP,
            frames_waiting=len(self._outbox),
            bytes_unacknowledged=0 if self._carrier is None else self._carrier.window.unacknowledged,
        )

    def on_message(self, ctx: Context[LinkMessage], message: LinkMessage) -> None:
        """Do what the message says."""
        match message:
            case BytesRead() | Written() | HelloRead() | ConnectionLost():
                self._on_connection(ctx, message)
            case Flush():
                self._flush(ctx)
            case Tick():
                self._tick(ctx)
            case Dialled(number, result):
                if self._dialler.ended(number):
                    self._dialled_result(ctx, result)
            case Admitted():
                self._admitted(ctx, message)
            case UseAddress(address):
                self._dialler.address = address
            case KeepUp(wanted):
                self._keep_up(ctx, wanted=wanted)
            case Leave():
                self._leave(ctx)
            case Redial():
                self._dialler.redial_waits = False
                if self._phase is Phase.IDLE and (self._keep or self._outbox):
                    self._start_dial(ctx)
            case _:
                assert_never(message)

    def on_stop(self, ctx: Context[LinkMessage], reason: ExitReason) -> None:
        """Say goodbye."""
        del reason
        self._drop_held(CloseCode.STOPPING, "stopping")
        if self._phase is Phase.UP:
            self._end(ctx, CloseCode.STOPPING, "stopping", redial=False)
        else:
            self._let_go(CloseCode.STOPPING, "stopping")

    # --- writing and reading ------------------------------------------------------------------------------

    def _on_connection(self, ctx: Context[LinkMessage], message: TapMessage) -> None:
        """Pass on what happens to the connection in use; of a held one only its loss can be heard."""
        carrier, held = self._carrier, self._held
        if held is not None and message.tap is held.tap:
            self._held = None
        if carrier is None or message.tap is not carrier.tap:
            return
        match message:
            case BytesRead(_, data):
                self._read(ctx, carrier, data)
            case Written():
                self._record.sent(ctx.clock.wall_ms())
                carrier.written(ctx.clock.monotonic_ns())
            case HelloRead(_, hello):
                self._greeted(ctx, carrier, hello)
            case ConnectionLost(_, reason):
                self._connection_lost(ctx, carrier, reason)

    def _leave(self, ctx: Context[LinkMessage]) -> None:
        """Send what waits and, last of all, the farewell; the peer closes when it has read that."""
        self._leaving = True
        if self._phase is Phase.UP or self._outbox:
            self._outbox.put(encode_frame(FrameKind.LEAVE))
            self._flush(ctx)

    def _flush(self, ctx: Context[LinkMessage]) -> None:
        if self._carrier is not None:
            self._carrier.write(ctx.clock.monotonic_ns())
        elif self._left:
            self._outbox.clear()
        elif self._phase is Phase.IDLE and not self._dialler.redial_waits:
            ctx.emit(ConnectionCacheMiss(peer=self._peer))
            self._start_dial(ctx)

    def _read(self, ctx: Context[LinkMessage], carrier: Carrier, data: bytes) -> None:
        now_ns = ctx.clock.monotonic_ns()
        try:
            frames = carrier.read(data, now_ns)
        except WireError as exc:
            self._end(ctx, CloseCode.PROTOCOL, str(exc))
            return
        for frame in frames:
            if frame.kind is FrameKind.LEAVE:
                self._end(ctx, CloseCode.FAREWELL, "the peer has left")
                self._wiring.on_left(self._peer)
                return
            self._take_in(frame)
        carrier.write(now_ns)

    def _take_in(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.BEAT | FrameKind.ACK:
                pass
            case FrameKind.SWIM:
                self._wiring.on_swim(self._peer, frame.body)
            case FrameKind.NAMES:
                self._wiring.on_names(self._peer, frame.body)
            case _:
                self._wiring.router.receive(self._peer, frame)

    def _tick(self, ctx: Context[LinkMessage]) -> None:
        """Look at the clock, and choose when to look again: no sooner than there can be anything to do."""
        now_ns, carrier = ctx.clock.monotonic_ns(), self._carrier
        if self._phase is Phase.UP and carrier is not None:
            self._take_pulse(ctx, carrier, now_ns)
        elif self._phase is Phase.GREETING and self._dialler.greeting_is_overdue(now_ns):
            self._give_up_dial(ctx, DialFailed(DialResult.TIMEOUT, "the peer did not greet"))
        if self._phase is Phase.UP and self._carrier is not None:
            delay_s = (self._carrier.next_pulse_ns() - now_ns) / 1e9
            ctx.send_after(max(TICK_S_MIN, delay_s), Tick())
        elif self._phase is not Phase.IDLE:
            ctx.send_after(TICK_S, Tick())

    def _take_pulse(self, ctx: Context[LinkMessage], carrier: Carrier, now_ns: int) -> None:
        match carrier.pulse(now_ns):
            case PulseVerdict.BEAT:
                carrier.write(now_ns, beat=True)
            case PulseVerdict.SILENT:
                silent_s = (now_ns - carrier.last_read_ns) / 1e9
                self._end(ctx, CloseCode.SILENT, f"silent for {silent_s:.1f} s")
            case PulseVerdict.DEAF:
                self._end(ctx, CloseCode.UNACKNOWLEDGED, "what was written is not acknowledged")
            case PulseVerdict.FINE:
                pass

    # --- getting a connection -----------------------------------------------------------------------------

    def _keep_up(self, ctx: Context[LinkMessage], *, wanted: bool) -> None:
        self._keep = wanted
        if wanted and self._phase is Phase.IDLE and not self._dialler.redial_waits:
            self._start_dial(ctx)
        elif not wanted:
            self._dialler.forget_backoff()
            if self._phase is not Phase.UP:
                self._outbox.clear()

    def _start_dial(self, ctx: Context[LinkMessage]) -> None:
        self._phase = Phase.DIALLING
        ctx.send_after(TICK_S, Tick())
        self._dialler.start(ctx)

    def _dialled_result(self, ctx: Context[LinkMessage], result: Connection | DialFailed) -> None:
        if isinstance(result, DialFailed):
            self._give_up_dial(ctx, result)
            return
        self._phase = Phase.GREETING
        self._greet(Tap(result, ctx.ref))

    def _greet(self, tap: Tap) -> Carrier:
        boot = self._wiring.router.targets.boot
        self._carrier = Carrier(tap, self._outbox)
        self._carrier.greet(make_hello(self._wiring.token, sender=self._me, receiver=self._peer, boot=boot))
        return self._carrier

    def _greeted(self, ctx: Context[LinkMessage], carrier: Carrier, data: bytes) -> None:
        hello = check_hello(data, self._wiring.token, sender=self._peer, receiver=self._me)
        if isinstance(hello, RefusalReason):
            ctx.emit(PeerRefused(peer=self._peer, reason=hello, inbound=False))
            self._give_up_dial(ctx, DialFailed(DialResult.REFUSED, f"not admitted here: {hello}"))
            return
        self._dialler.report(ctx, None)
        self._drop_held(CloseCode.DUPLICATE, "another connection stays")  # the peer gave it up itself
        self._use(ctx, carrier, hello, dialled=True)

    def _give_up_dial(self, ctx: Context[LinkMessage], failed: DialFailed) -> None:
        """This attempt has brought nothing: take what the peer offers, or try again later."""
        self._dialler.report(ctx, failed)
        self._record.dial_failed(failed, ctx.clock.wall_ms())
        self._let_go(CloseCode.REFUSED, failed.text)
        self._idle(ctx)

    def _admitted(self, ctx: Context[LinkMessage], offer: Admitted) -> None:
        """The peer's connection has passed the door; see `judge_inbound`."""
        verdict = judge_inbound(
            self._own(ctx),
            here_is_lower=self._me < self._peer,
            same_life=offer.hello.boot == self._peer_boot,
        )
        self._drop_held(CloseCode.DUPLICATE, "a newer connection came")
        if verdict is Inbound.HOLD:
            self._held = offer
            return
        if self._phase is Phase.UP:
            self._end(ctx, CloseCode.DUPLICATE, "the peer has opened a newer connection", redial=False)
        elif self._phase is not Phase.IDLE:
            self._dialler.report(ctx, DialFailed(DialResult.ERROR, "the peer's own connection came first"))
            self._let_go(CloseCode.DUPLICATE, "another connection stays")
        self._adopt(ctx, offer)

    def _adopt(self, ctx: Context[LinkMessage], offer: Admitted) -> None:
        self._use(ctx, self._greet(offer.tap), offer.hello, dialled=False)

    def _drop_held(self, code: CloseCode, text: str) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.tap.retire(code, text)

    def _own(self, ctx: Context[LinkMessage]) -> Own:
        if self._phase is Phase.IDLE:
            return Own.NOTHING
        if self._phase is not Phase.UP:
            return Own.DIALLING
        fresh = self._dialled and self._record.up_for_ns(ctx.clock.monotonic_ns()) < GREETING_MAX_NS
        return Own.FRESH_DIALLED if fresh else Own.OTHER

    def _use(self, ctx: Context[LinkMessage], carrier: Carrier, hello: Hello, *, dialled: bool) -> None:
        """Carry frames over this connection from now on."""
        self._phase, self._dialled, self._peer_boot = Phase.UP, dialled, hello.boot
        self._dialler.linked()
        self._record.up(ctx, dialled=dialled)
        now_ns = ctx.clock.monotonic_ns()
        early = carrier.open(ctx.ref, now_ns)
        ctx.send_after(TICK_S, Tick())
        self._wiring.router.link_up(self._peer)
        if early:
            self._read(ctx, carrier, early)
        else:
            carrier.write(now_ns)

    # --- losing it ----------------------------------------------------------------------------------------

    def _connection_lost(self, ctx: Context[LinkMessage], carrier: Carrier, reason: LossReason) -> None:
        by_peer = reason.kind is LossKind.CLOSED_BY_PEER and reason.code is not None
        cause = CAUSES.get(reason.code or 0, LinkLoss.TRANSPORT) if by_peer else LinkLoss.TRANSPORT
        self._carrier = None
        if self._phase is Phase.GREETING:
            outcome = DialResult.REFUSED if cause is LinkLoss.REFUSED else DialResult.ERROR
            self._give_up_dial(ctx, DialFailed(outcome, reason.text or str(reason.kind)))
            return
        self._lost(ctx, carrier, cause, reason)
        if reason.code == CloseCode.STOPPING and by_peer:
            self._wiring.on_left(self._peer)
        self._idle(ctx)

    def _end(self, ctx: Context[LinkMessage], code: CloseCode, text: str, *, redial: bool = True) -> None:
        """End the connection in use by a rule of this side."""
        carrier = self._carrier
        self._let_go(code, text)
        if carrier is not None:
            self._lost(ctx, carrier, CAUSES[code], LossReason(LossKind.CLOSED_HERE, text, int(code)))
        if redial:
            self._idle(ctx)

    def _let_go(self, code: CloseCode, text: str) -> None:
        """Drop the dial or the connection, whatever there is; nothing is heard of it any more."""
        self._dialler.cancel()
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.retire(code, text)

    def _lost(self, ctx: Context[LinkMessage], carrier: Carrier, cause: LinkLoss, reason: LossReason) -> None:
        self._record.lost(ctx, cause, reason, bytes_unacknowledged=carrier.window.unacknowledged)
        text = f"{cause}: {reason.text}" if reason.text else str(cause)
        self._wiring.router.link_lost(self._peer, text)

    def _idle(self, ctx: Context[LinkMessage]) -> None:
        """There is no connection: take the one on offer, wait and redial, or rest."""
        if self._leaving and self._phase is Phase.UP:
            self._left = True  # the peer has read the farewell, or will not any more
            self._outbox.clear()
        self._phase = Phase.IDLE
        ctx.cancel(Tick())
        offer, self._held = self._held, None
        if offer is not None:
            self._adopt(ctx, offer)
        elif self._keep and (self._outbox or not self._leaving):
            self._dialler.redial_later(ctx)
        else:
            self._outbox.clear()
