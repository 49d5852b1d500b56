"""The simulated relay and the tunnels that end there, kept in the production session book.

Owns: opening, loss and reopening of tunnels, forwarding from session to session, and which close reason the
book is given for what happened to a tunnel.
Not here: bookkeeping and events (`swactor.relay.SessionBook`), latency (`sim.network`), the relay's own
diagnostics (the relay is a node like others and is booted by its own function).
"""

from collections.abc import Callable

from sim.loop import VirtualLoop
from sim.network import Drop, Network
from sim.streams import Substream
from swactor import Event, NodeId
from swactor.abc import Cancellable, Clock
from swactor.cluster.transport import TunnelStatus
from swactor.relay import Closed, CloseReason, Instant, Opened, RelayConfig, Session, SessionBook

SUBPROTOCOL = "iroh-relay-v2"

HANDSHAKE_BYTES = 400
"""What opening a tunnel costs each way: upgrade request, challenge, answer, acceptance."""

DIAL_TIMEOUT_NS = 1_500_000_000
BACKOFF_FIRST_NS = 10_000_000
BACKOFF_MAX_NS = 16_000_000_000

CLIENT_SILENCE_NS = 20_000_000_000
"""A client that heard nothing for so long, its own ping included, gives its tunnel up."""

PING_BYTES = 9


class SimRelay:
    """One relay process. Emits the book's events through ``emit``, which its node sets when it boots."""

    def __init__(
        self, *, host: str, config: RelayConfig, loop: VirtualLoop, network: Network, clock: Clock
    ) -> None:
        self.host = host
        self.url = config.url_for(config.port)
        self.book = SessionBook(
            sessions_max=config.sessions_max,
            sessions_per_id_max=config.sessions_per_id_max,
            sessions_listed_max=config.sessions_listed_max,
            idle_limit_ms=config.idle_limit_ms,
        )
        self.emit: Callable[[Event], None] = _nobody_listens
        self.is_up = True
        self._idle_limit_ns = config.idle_limit_ms * 1_000_000
        self._loop = loop
        self._network = network
        self._clock = clock
        self._tunnels: dict[int, Tunnel] = {}

    def now(self) -> Instant:
        """Return this moment on the relay's clocks."""
        return Instant(self._clock.monotonic_ns(), self._clock.wall_ms())

    def admit(self, tunnel: "Tunnel") -> Session:
        """Open a session for ``tunnel``, which has proven its key."""
        opened = self.book.open(
            bytes.fromhex(tunnel.node_id), self.now(), subprotocol=SUBPROTOCOL, remote_address=tunnel.address
        )
        self._perform_opened(opened, tunnel)
        return opened.session

    def route(self, session: Session, destination: bytes, n_bytes: int) -> "Tunnel | None":
        """Count a frame that has arrived and return the tunnel it leaves through; None when it is dropped."""
        if not self.is_up or session.session_id not in self._tunnels:
            return None
        session.received(n_bytes, now_ns=self._loop.now_ns)
        target = self.book.route(session, destination)
        if target is None:
            return None
        target.sent(n_bytes)
        return self._tunnels[target.session_id]

    def end(self, session: Session, reason: CloseReason, *, detail: str = "") -> None:
        """End a session; the client hears of it one leg later. Harmless the second time."""
        closed = self.book.close(session, reason, self.now(), detail=detail)
        if closed is None:
            return
        tunnel = self._tunnels.pop(session.session_id)
        self._perform_closed(closed)
        at_ns = self._network.tunnel_leg(self.host, tunnel.host, n_bytes=PING_BYTES, now_ns=self._loop.now_ns)
        if not isinstance(at_ns, Drop):
            self._loop.call_at_ns(at_ns, tunnel.ended_by_relay, session)

    def die(self) -> None:
        """End as a killed process does: only the clients notice, as the kernel ends their connections."""
        self.emit = _nobody_listens
        self.is_up = False
        for session in self.book.open_sessions():
            self.end(session, CloseReason.CRASHED)

    def _perform_opened(self, opened: Opened, tunnel: "Tunnel") -> None:
        session = opened.session
        self._tunnels[session.session_id] = tunnel
        self.emit(opened.event)
        if opened.excess is not None:
            self.end(opened.excess, CloseReason.SUPERSEDED)
        self._loop.call_at_ns(self._loop.now_ns + self._idle_limit_ns, self._check_idle, session)

    def _perform_closed(self, closed: Closed) -> None:
        self.emit(closed.event)

    def _check_idle(self, session: Session) -> None:
        """Ping a silent client; end the session of one that cannot answer."""
        tunnel = self._tunnels.get(session.session_id)
        if tunnel is None:
            return
        now_ns = self._loop.now_ns
        if session.silent_ns(now_ns) >= self._idle_limit_ns:
            round_trip_ns = self._ping(tunnel)
            if round_trip_ns is None:
                self.end(session, CloseReason.IDLE_TIMEOUT)
                return
            session.rtt_ms = round_trip_ns / 1_000_000
            session.sent(PING_BYTES)
            session.received(PING_BYTES, now_ns=now_ns)
        self._loop.call_at_ns(session.heard_ns + self._idle_limit_ns, self._check_idle, session)

    def _ping(self, tunnel: "Tunnel") -> int | None:
        now_ns = self._loop.now_ns
        there_ns = self._network.tunnel_leg(self.host, tunnel.host, n_bytes=PING_BYTES, now_ns=now_ns)
        if isinstance(there_ns, Drop):
            return None
        back_ns = self._network.tunnel_leg(tunnel.host, self.host, n_bytes=PING_BYTES, now_ns=there_ns)
        return None if isinstance(back_ns, Drop) else back_ns - now_ns


class Tunnel:
    """One node's connection to its home relay: opens by itself, and again after each loss, until closed."""

    def __init__(
        self,
        relay: SimRelay,
        *,
        node_id: NodeId,
        host: str,
        address: str,
        loop: VirtualLoop,
        network: Network,
        clock: Clock,
        random: Substream,
        on_connected: Callable[[], None],
    ) -> None:
        self.relay = relay
        self.node_id = node_id
        self.host = host
        self.address = address
        self.session: Session | None = None
        self.status = TunnelStatus.DISCONNECTED
        self.status_changed_at_ms = clock.wall_ms()
        self.tx_bytes = self.rx_bytes = 0
        self.sent_ns: int | None = None
        self.heard_ns: int | None = None
        self.connects = self.failures = self.losses = 0
        self._loop = loop
        self._network = network
        self._clock = clock
        self._random = random
        self._on_connected = on_connected
        self._backoff_ns = BACKOFF_FIRST_NS
        self._alive_ns = 0
        self._attempt = 0
        self._retry: Cancellable | None = None

    def open(self) -> None:
        """Dial the relay, now."""
        self._attempt += 1
        self._retry = None
        self._enter(TunnelStatus.CONNECTING)
        at_ns = self._leg_out(self._loop.now_ns)
        if isinstance(at_ns, Drop):
            self._retry_later(DIAL_TIMEOUT_NS)
        else:
            self._loop.call_at_ns(at_ns, self._reached_relay, self._attempt)

    def close(self) -> None:
        """Say goodbye to the relay and stay closed."""
        self._leave(CloseReason.CLIENT_CLOSED)

    def drop(self) -> None:
        """Be gone without a goodbye, as a killed process is; the kernel still ends the TCP connection."""
        self._leave(CloseReason.CLIENT_GONE)

    def sent(self, n_bytes: int) -> None:
        """Count a frame to the relay."""
        self.tx_bytes += n_bytes
        self.sent_ns = self._loop.now_ns

    def received(self, n_bytes: int) -> None:
        """Count a frame from the relay."""
        self.rx_bytes += n_bytes
        self._alive_ns = self.heard_ns = self._loop.now_ns
        self._network.received(self.host, n_bytes)

    def ended_by_relay(self, session: Session) -> None:
        """Take note that the relay's side is gone; dial again at once."""
        if self.session is session:
            self._lost()

    def _reached_relay(self, attempt: int) -> None:
        if attempt != self._attempt:
            return
        if not self.relay.is_up:
            self._retry_later(0)
            return
        now_ns = self._loop.now_ns
        session = self.relay.admit(self)
        back_ns = self._network.tunnel_leg(self.relay.host, self.host, n_bytes=HANDSHAKE_BYTES, now_ns=now_ns)
        if isinstance(back_ns, Drop):
            self._retry_later(DIAL_TIMEOUT_NS)
        else:
            self._loop.call_at_ns(back_ns, self._connected, attempt, session)

    def _connected(self, attempt: int, session: Session) -> None:
        if attempt != self._attempt:
            return
        self.session = session
        self.connects += 1
        self._backoff_ns = BACKOFF_FIRST_NS
        self._alive_ns = self._loop.now_ns
        self._network.received(self.host, HANDSHAKE_BYTES)
        self._enter(TunnelStatus.CONNECTED)
        self._loop.call_at_ns(self._alive_ns + CLIENT_SILENCE_NS, self._check_silence, session)
        self._on_connected()

    def _check_silence(self, session: Session) -> None:
        """Ping a silent relay; give the tunnel up when it cannot answer."""
        if self.session is not session:
            return
        now_ns = self._loop.now_ns
        if now_ns - self._alive_ns >= CLIENT_SILENCE_NS:
            is_open = self._network.is_open(self.host, self.relay.host)
            if not (is_open and self._network.is_open(self.relay.host, self.host)):
                self._lost()
                return
            self._alive_ns = now_ns
        self._loop.call_at_ns(self._alive_ns + CLIENT_SILENCE_NS, self._check_silence, session)

    def _lost(self) -> None:
        self.session = None
        self.losses += 1
        self._enter(TunnelStatus.DISCONNECTED)
        self._retry_later(0)

    def _retry_later(self, after_ns: int) -> None:
        """Dial again after ``after_ns`` plus the backoff, which doubles; half of it is chance."""
        if self.status is TunnelStatus.CONNECTING:
            self.failures += 1
        self._attempt += 1
        half_ns = self._backoff_ns // 2
        self._backoff_ns = min(2 * self._backoff_ns, BACKOFF_MAX_NS)
        wait_ns = after_ns + half_ns + self._random.below(half_ns + 1)
        self._retry = self._loop.call_at_ns(self._loop.now_ns + wait_ns, self.open)

    def _leave(self, reason: CloseReason) -> None:
        self._attempt += 1
        if self._retry is not None:
            self._retry.cancel()
        session, self.session = self.session, None
        self._enter(TunnelStatus.DISCONNECTED)
        if session is None:
            return
        at_ns = self._leg_out(self._loop.now_ns)
        if not isinstance(at_ns, Drop):
            self._loop.call_at_ns(at_ns, self._end_at_relay, session, reason)

    def _end_at_relay(self, session: Session, reason: CloseReason) -> None:
        self.relay.end(session, reason)

    def _leg_out(self, now_ns: int) -> int | Drop:
        return self._network.tunnel_leg(self.host, self.relay.host, n_bytes=HANDSHAKE_BYTES, now_ns=now_ns)

    def _enter(self, status: TunnelStatus) -> None:
        if status is not self.status:
            self.status = status
            self.status_changed_at_ms = self._clock.wall_ms()


def _nobody_listens(_event: Event) -> None:
    """The relay has no node yet, or no longer."""
