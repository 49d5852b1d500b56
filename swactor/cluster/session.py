"""One connection in use, as pure bookkeeping: flow control, heartbeat, and which of two connections stays.

Owns: `Window` (at most `WRITES_UNACKNOWLEDGED_MAX` writes under way, cumulative acknowledgements),
`take_pulse` (when to send a beat, when to give up), `judge_inbound`, the close codes.
Not here: the connection itself (``links``), frames (``wire``). Times are monotonic nanoseconds.

The window protects the peer: a transport buffers what its application has not read yet, and one of them
breaks the connection when that is some two thousand chunks. So a write counts until the peer's link has
read it.
"""

from collections import deque
from enum import Enum, IntEnum

from swactor.cluster.events import LinkLoss
from swactor.cluster.wire import FrameKind, WireError, encode_frame

WRITES_UNACKNOWLEDGED_MAX = 512
ACK_EVERY_CHUNKS = 128
BEAT_PERIOD_NS = 2_000_000_000
SILENCE_MAX_NS = 6_000_000_000
GREETING_MAX_NS = 8_000_000_000
"""How long a dialler waits for the other hello: longer than a dial, that a held one can be taken up."""


class CloseCode(IntEnum):
    """What a link gives as code when it closes a connection; the peer learns it."""

    STOPPING = 10  # this node leaves the cluster
    REFUSED = 11  # not admitted
    DUPLICATE = 12  # another connection to the same peer stays
    SILENT = 13
    UNACKNOWLEDGED = 14
    PROTOCOL = 15
    FAREWELL = 16  # the peer leaves, and all it said has been read


CAUSES: dict[int, LinkLoss] = {
    CloseCode.STOPPING: LinkLoss.STOPPED,
    CloseCode.REFUSED: LinkLoss.REFUSED,
    CloseCode.DUPLICATE: LinkLoss.SUPERSEDED,
    CloseCode.SILENT: LinkLoss.HEARTBEAT,
    CloseCode.UNACKNOWLEDGED: LinkLoss.UNACKNOWLEDGED,
    CloseCode.PROTOCOL: LinkLoss.PROTOCOL,
    CloseCode.FAREWELL: LinkLoss.STOPPED,
}
"""The rule behind each code, whichever side gave it."""


class Window:
    """How far both directions of one connection have got, in bytes."""

    __slots__ = ("_acknowledged", "_chunks", "_inflight", "_progress_ns", "_received", "_sent", "_told")

    def __init__(self) -> None:
        self._sent = 0
        self._acknowledged = 0
        self._progress_ns = 0
        self._inflight: deque[tuple[int, int]] = deque()  # (bytes sent up to a write, when)
        self._received = 0
        self._told = 0
        self._chunks = 0  # read since the peer was told

    @property
    def is_full(self) -> bool:
        """Whether nothing but an ack may be written."""
        return len(self._inflight) >= WRITES_UNACKNOWLEDGED_MAX

    @property
    def unacknowledged(self) -> int:
        """How many bytes were sent that the peer has not acknowledged."""
        return self._sent - self._acknowledged

    @property
    def waiting_since_ns(self) -> int | None:
        """When the oldest write under way was made, or last got on; None when all is acknowledged."""
        return max(self._inflight[0][1], self._progress_ns) if self._inflight else None

    @property
    def owes_ack(self) -> bool:
        """Whether the peer has sent so much that an ack must not wait for another write."""
        return self._chunks >= ACK_EVERY_CHUNKS

    def wrote(self, size: int, now_ns: int) -> None:
        """Note a write of ``size`` bytes."""
        self._sent += size
        self._inflight.append((self._sent, now_ns))

    def read(self, size: int) -> None:
        """Note that a chunk of ``size`` bytes was read."""
        self._received += size
        self._chunks += 1

    def acknowledged(self, size: int, now_ns: int) -> None:
        """Note that the peer has read ``size`` bytes in all.

        Raises:
            WireError: so many were never sent.
        """
        if size > self._sent:
            raise WireError(f"the peer acknowledges {size} bytes, {self._sent} were sent")
        if size > self._acknowledged:
            self._acknowledged = size
            self._progress_ns = now_ns
        while self._inflight and self._inflight[0][0] <= self._acknowledged:
            self._inflight.popleft()

    def take_ack(self) -> bytes:
        """Return an ack frame for the next write, or nothing when the peer knows it all."""
        if self._received == self._told:
            return b""
        self._told = self._received
        self._chunks = 0
        return encode_frame(FrameKind.ACK, self._received)


class PulseVerdict(Enum):
    """What the pulse of a connection calls for."""

    FINE = "fine"
    BEAT = "beat"  # nothing was written for a while: show that we live
    SILENT = "silent"  # nothing came for too long
    DEAF = "deaf"  # something comes, but what we write is not acknowledged


def take_pulse(now_ns: int, *, last_read_ns: int, last_write_ns: int, window: Window) -> PulseVerdict:
    """Say what a connection needs now. An answer to a write comes with the peer's next write or beat."""
    if now_ns - last_read_ns > SILENCE_MAX_NS:
        return PulseVerdict.SILENT
    waiting_since_ns = window.waiting_since_ns
    if waiting_since_ns is not None and now_ns - waiting_since_ns > SILENCE_MAX_NS:
        return PulseVerdict.DEAF
    if now_ns - last_write_ns >= BEAT_PERIOD_NS:
        return PulseVerdict.BEAT
    return PulseVerdict.FINE


def next_pulse_ns(*, last_read_ns: int, last_write_ns: int, window: Window) -> int:
    """Return when `take_pulse` may next have something to say, if nothing is read or written until then."""
    waiting_since_ns = window.waiting_since_ns
    quiet_since_ns = last_read_ns if waiting_since_ns is None else min(last_read_ns, waiting_since_ns)
    return min(last_write_ns + BEAT_PERIOD_NS, quiet_since_ns + SILENCE_MAX_NS + 1)


class Inbound(Enum):
    """What becomes of an admitted connection that the peer has opened."""

    ADOPT = "adopt"  # it is the link from now on; a dial under way and an older connection go
    HOLD = "hold"  # unanswered, until it is known what becomes of our own


class Own(Enum):
    """What this side has already, when the peer's connection arrives."""

    NOTHING = "nothing"
    DIALLING = "dialling"  # or connected and waiting for the other hello
    FRESH_DIALLED = "fresh_dialled"  # up, dialled by us, younger than a greeting may take
    OTHER = "other"  # up


def judge_inbound(own: Own, *, here_is_lower: bool, same_life: bool) -> Inbound:
    """Say what becomes of the peer's connection. Where both sides dial at once, the lower id's dial wins.

    The higher side therefore always gives way. The lower side cannot tell whether its own dial will succeed,
    so it lets the other one wait. Once a link is up, a connection of the same life that arrives right after
    may be the peer's lost attempt; later, or from another life, it means the peer has lost the link.
    """
    if here_is_lower and own is Own.DIALLING:
        return Inbound.HOLD
    if here_is_lower and own is Own.FRESH_DIALLED and same_life:
        return Inbound.HOLD
    return Inbound.ADOPT
