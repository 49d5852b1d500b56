"""One connection as a link uses it: what is written when, what was read, how alive it is.

Owns: one write at a time, coalescing what waits in the outbox, acknowledgements, the pulse.
Not here: where connections come from and what happens when one ends (``link``).
"""

from typing import Any

from swactor import ActorRef
from swactor.cluster.outbox import Outbox
from swactor.cluster.session import CloseCode, PulseVerdict, Window, next_pulse_ns, take_pulse
from swactor.cluster.tap import Tap
from swactor.cluster.wire import Frame, FrameDecoder, FrameKind, encode_frame

_BEAT_FRAMES = [encode_frame(FrameKind.BEAT)]


class Carrier:
    """Carries frames once it is open; before that only the hello."""

    __slots__ = (
        "_decoder",
        "_last_write_ns",
        "_outbox",
        "_writing",
        "is_open",
        "last_read_ns",
        "tap",
        "window",
    )

    def __init__(self, tap: Tap, outbox: Outbox) -> None:
        self.tap = tap
        self.is_open = False
        self.window = Window()
        self.last_read_ns = 0
        self._outbox = outbox
        self._decoder = FrameDecoder()
        self._last_write_ns = 0
        self._writing = False

    def greet(self, hello: bytes) -> None:
        """Write the hello; before anything else."""
        self._writing = True
        self.tap.connection.write(hello)

    def open(self, owner: ActorRef[Any], now_ns: int) -> bytes:
        """Both hellos are good: frames may flow. Return what has come already."""
        self.is_open = True
        self.last_read_ns = self._last_write_ns = now_ns
        return self.tap.use(owner)

    def written(self, now_ns: int) -> None:
        """The write in progress was handed over: write what came together meanwhile."""
        self._writing = False
        self.write(now_ns)

    def write(self, now_ns: int, *, beat: bool = False) -> None:
        """Write what waits, in one piece, unless a write is in progress or the window is full."""
        if self._writing or not self.is_open:
            return
        window, outbox = self.window, self._outbox
        frames = outbox.take() if outbox and not window.is_full else []
        if not frames:
            if beat and not window.is_full:
                frames = _BEAT_FRAMES
            elif not (beat or window.owes_ack):
                return
        data = b"".join((window.take_ack(), *frames))
        if data:
            self._last_write_ns = now_ns
            self._writing = True
            window.wrote(len(data), now_ns)
            self.tap.connection.write(data)

    def read(self, data: bytes, now_ns: int) -> list[Frame]:
        """Take in bytes and return the frames they complete, acknowledgements dealt with.

        Raises:
            WireError: they are not what a peer may send.
        """
        self.last_read_ns = now_ns
        self.window.read(len(data))
        frames = self._decoder.feed(data)
        for frame in frames:
            if frame.kind is FrameKind.ACK:
                self.window.acknowledged(frame.id, now_ns)
        return frames

    def pulse(self, now_ns: int) -> PulseVerdict:
        """Say what the connection needs now."""
        return take_pulse(
            now_ns, last_read_ns=self.last_read_ns, last_write_ns=self._last_write_ns, window=self.window
        )

    def next_pulse_ns(self) -> int:
        """Return when the connection may next need something."""
        return next_pulse_ns(
            last_read_ns=self.last_read_ns, last_write_ns=self._last_write_ns, window=self.window
        )

    def retire(self, code: CloseCode, text: str) -> None:
        """End the connection; nothing is heard of it any more."""
        self.tap.retire(code, text)
