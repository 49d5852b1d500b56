"""One connection between two simulated nodes: an ordered, reliable byte stream each way over lossy pieces.

Owns: order, repetition of what was dropped, keep-alives, the idle timeout, how each side hears of the end.
Not here: how connections come about (`sim.transport`), how a piece travels (`sim.medium`).

Both ends are made together by `pair` and know each other; they talk through pieces only.
"""

from collections.abc import Callable
from typing import Protocol

from sim.medium import Medium
from sim.relay import Tunnel
from swactor import NodeId
from swactor.cluster.transport import ConnectionListener, LossKind, LossReason

KEEP_ALIVE_NS = 5_000_000_000
IDLE_TIMEOUT_NS = 30_000_000_000
RESEND_FIRST_NS = 100_000_000
RESEND_MAX_NS = 3_000_000_000
GOODBYES_MAX = 3
CONTROL_BYTES = 30


class Home(Protocol):
    """What one end needs of the transport that it belongs to."""

    is_live: bool
    tunnel: Tunnel

    def ended(self, connection: "SimConnection") -> None:
        """``connection`` is over."""
        ...


class SimConnection:
    """One end. Implements `swactor.cluster.transport.Connection`."""

    def __init__(self, medium: Medium, home: Home, *, peer: NodeId) -> None:
        self._medium = medium
        self._home = home
        self._peer = peer
        self.twin = self  # the other end; only the simulation knows it (set by `pair`)
        self._listener: ConnectionListener | None = None
        self._early: list[Callable[[ConnectionListener], None]] = []
        self._end: LossReason | None = None
        self._goodbye: tuple[int, str] | None = None
        self._sent = self._next = 0
        self._held: dict[int, bytes] = {}
        self.heard_ns = self.spoke_ns = medium.loop.now_ns  # when something last came, and left
        self.latency_ns = 0
        self.tx_bytes = self.rx_bytes = 0

    @property
    def peer(self) -> NodeId:
        """The other node."""
        return self._peer

    @property
    def rtt_ns(self) -> int:
        """The last one-way times of both directions, added."""
        return self.latency_ns + self.twin.latency_ns

    def start(self, listener: ConnectionListener) -> None:
        """Report to ``listener`` from the next turn of the loop on, beginning with what came before."""
        self._medium.loop.call_soon(self._go_live, listener)

    def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._end is not None or not self._home.is_live:
            return
        self.tx_bytes += len(data)
        piece = _Data(self, self._sent, data)
        self._sent += 1
        self._send(piece)
        self._medium.loop.call_soon(self._written)

    def close(self, code: int, reason: str) -> None:
        """End the connection and tell the peer."""
        if self._end is None and self._home.is_live:
            self._goodbye = (code, reason)
            self.end(LossReason(LossKind.CLOSED_HERE, text=reason, code=code))
            self._send(_Goodbye(self, code, reason))

    def shut(self) -> None:
        """End it because the whole transport ends."""
        if self._end is None:
            self._goodbye = (0, "")
            self.end(LossReason(LossKind.TRANSPORT_CLOSED))
            self._send(_Goodbye(self, 0, ""))

    def end(self, reason: LossReason) -> None:
        """Be over on this side for ``reason``, without telling the peer; reported on the next turn."""
        if self._end is None:
            self._end = reason
            self._held.clear()
            self._home.ended(self)
            self._medium.loop.call_soon(self._report_lost, reason)

    # -- this side's reports -------------------------------------------------------------------------------

    def _go_live(self, listener: ConnectionListener) -> None:
        for report in self._early:
            if self._home.is_live:
                report(listener)
        self._early.clear()
        self._listener = listener

    def _written(self) -> None:
        if self._end is None and self._home.is_live and self._listener is not None:
            self._listener.written()

    def _report_lost(self, reason: LossReason) -> None:
        if not self._home.is_live:
            return
        if self._listener is None:
            self._early.append(lambda listener: listener.lost(reason))
        else:
            self._listener.lost(reason)

    def _report_received(self, data: bytes) -> None:
        self.rx_bytes += len(data)
        if self._listener is None:
            self._early.append(lambda listener: listener.received(data))
        else:
            self._listener.received(data)

    # -- what travels ----------------------------------------------------------------------------------------

    def _send(self, piece: "_Data | _KeepAlive | _Goodbye") -> None:
        self.spoke_ns = piece.sent_ns = self._medium.loop.now_ns
        self._medium.carry(self._home.tunnel, self._peer, piece)

    def resend_later(self, piece: "_Data | _Goodbye") -> None:
        """Repeat a dropped piece, less and less often."""
        wait_ns = min(RESEND_FIRST_NS << min(piece.attempts, 10), RESEND_MAX_NS)
        piece.attempts += 1
        self._medium.loop.call_at_ns(self._medium.loop.now_ns + wait_ns, self._resend, piece)

    def _resend(self, piece: "_Data | _Goodbye") -> None:
        if self._home.is_live and (self._end is None or isinstance(piece, _Goodbye)):
            self._send(piece)

    def data_arrived(self, piece: "_Data") -> None:
        """Take ``piece`` from the peer; hand over what is in order now."""
        if not self._heard(piece):
            return
        if piece.number != self._next:
            self._held[piece.number] = piece.data
            return
        self._next += 1
        self._report_received(piece.data)
        while self._end is None and self._next in self._held:
            self._next += 1
            self._report_received(self._held.pop(self._next - 1))

    def keep_alive_arrived(self, piece: "_KeepAlive") -> None:
        """Take note that the peer lives."""
        self._heard(piece)

    def goodbye_arrived(self, piece: "_Goodbye") -> None:
        """End, because the peer did."""
        if self._home.is_live:
            kind = LossKind.CLOSED_BY_PEER if piece.code is not None else LossKind.RESET
            self.end(LossReason(kind, text=piece.reason, code=piece.code))

    def _heard(self, piece: "_Piece") -> bool:
        """Return whether this end still takes pieces; one that is over says so to the peer again."""
        if self._home.is_live and self._end is None:
            self.heard_ns = self._medium.loop.now_ns
            self.latency_ns = self.heard_ns - piece.sent_ns
            return True
        if self._home.is_live and not isinstance(piece, _Goodbye):
            code, reason = self._goodbye or (None, "")
            self._send(_Goodbye(self, code, reason))
        return False

    def tend(self) -> None:
        """Keep the connection alive, or notice that the peer does not."""
        if self._end is not None or not self._home.is_live:
            return
        now_ns = self._medium.loop.now_ns
        if now_ns - self.heard_ns >= IDLE_TIMEOUT_NS:
            self.end(LossReason(LossKind.TIMED_OUT, text="timed out"))
            return
        if now_ns - self.spoke_ns >= KEEP_ALIVE_NS:
            self._send(_KeepAlive(self))
        self._medium.loop.call_at_ns(now_ns + KEEP_ALIVE_NS, self.tend)


class _Piece:
    """Something that one end sends to the other."""

    __slots__ = ("attempts", "n_bytes", "sender", "sent_ns")

    def __init__(self, sender: SimConnection, n_bytes: int) -> None:
        self.sender = sender
        self.n_bytes = n_bytes
        self.sent_ns = 0
        self.attempts = 0


class _Data(_Piece):
    """The ``number``-th write of its sender."""

    __slots__ = ("data", "number")

    def __init__(self, sender: SimConnection, number: int, data: bytes) -> None:
        super().__init__(sender, len(data))
        self.number = number
        self.data = data

    def arrived(self) -> None:
        """Hand it to the other end."""
        self.sender.twin.data_arrived(self)

    def dropped(self) -> None:
        """Repeat it."""
        self.sender.resend_later(self)


class _KeepAlive(_Piece):
    """A sign of life of a connection that has nothing to say."""

    __slots__ = ()

    def __init__(self, sender: SimConnection) -> None:
        super().__init__(sender, CONTROL_BYTES)

    def arrived(self) -> None:
        """Tell the other end."""
        self.sender.twin.keep_alive_arrived(self)

    def dropped(self) -> None:
        """The next one will do."""


class _Goodbye(_Piece):
    """The end of the connection; without a ``code`` it is a reset by an end that knows nothing any more."""

    __slots__ = ("code", "reason")

    def __init__(self, sender: SimConnection, code: int | None, reason: str) -> None:
        super().__init__(sender, CONTROL_BYTES)
        self.code = code
        self.reason = reason

    def arrived(self) -> None:
        """Tell the other end."""
        self.sender.twin.goodbye_arrived(self)

    def dropped(self) -> None:
        """Repeat it a few times; then the peer has to find out by itself."""
        if self.attempts < GOODBYES_MAX:
            self.sender.resend_later(self)


def pair(
    medium: Medium, *, dialer: tuple[Home, NodeId], target: tuple[Home, NodeId]
) -> tuple[SimConnection, SimConnection]:
    """Return both ends of a new connection, the dialer's first. Each side is a transport and its node id."""
    near = SimConnection(medium, dialer[0], peer=target[1])
    far = SimConnection(medium, target[0], peer=dialer[1])
    near.twin, far.twin = far, near
    near.tend()
    far.tend()
    return near, far
