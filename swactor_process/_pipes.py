"""Our ends of a child's pipes: read until EOF, write what fits, never wait.

Owns: non-blocking reading and writing on the loop, the bound of the write queue, closing each end once.
Not here: what the bytes mean.
"""

import contextlib
import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import Callable
from typing import Protocol

from swactor.abc import Cancellable, Loop
from swactor_process.spawner import STDIN_WRITES_MAX, WIDE_PIPE_BYTES, WriteDone, WriteOutcome

READ_BYTES = 65_536
"""What one read brings at most, and what pipes hold. One read, then the other children have their turn.

Both become `WIDE_PIPE_BYTES` for a child that fills its pipe, if its bytes are little work.
"""
LINES_A_TURN = 1_024
"""A tenth of what fits into a mailbox, so that an owner that keeps up is told all; they take 0.4 ms."""
REST_BYTES = 4_194_304
"""What is read at most after the exit, in one go."""


class Readables(Protocol):
    """What watches descriptors: the loop, or something that spares it most of the work."""

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable, until cancelled."""
        ...


class PipeReader:
    """Reads a pipe whenever there is something, and says EOF once.

    ``by_line`` is for bytes of which each line is work: about `LINES_A_TURN` lines are passed on in one
    turn of the loop, but for `read_rest`, so that those who do that work have their turns in between. Without
    it, a pipe that the other side has filled is made to hold more, and read in larger pieces; not if
    one read is to bring less than usual (``most_bytes``).
    """

    def __init__(
        self,
        loop: Loop,
        readables: Readables,
        descriptor: int,
        *,
        on_data: Callable[[bytes], None],
        on_eof: Callable[[], None],
        by_line: bool,
        most_bytes: int = READ_BYTES,
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._on_data, self._on_eof = on_data, on_eof
        self._read_bytes = min(READ_BYTES, most_bytes)
        self._by_line = by_line
        self._may_widen = not by_line
        self._paused = False
        self._over = False  # then it stays open until all is closed: the news of an exit may wait for us
        self._held = b""
        """What was read and has to wait for the next turn; nothing more is read before it is passed on."""
        self._turn_is_due = False
        self._loop = loop
        self._readables = readables
        self._watch: Cancellable | None = readables.watch_readable(descriptor, self._read_once)

    def pause(self) -> None:
        """Read and pass on nothing until `resume`; the other side waits once the pipe is full."""
        self._paused = True
        self._unwatch()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self._await_more()

    def read_rest(self) -> None:
        """Read what is there now, up to 4 MiB; a loop that was held up may not have come to it.

        Who keeps the pipe full meanwhile is not followed: one more read, which sees the end if it is there.
        """
        held, self._held = self._held, b""
        left_bytes = self._waiting_bytes()
        if held:
            self._on_data(held)
        while left_bytes >= 0 and (data := self._read()):
            left_bytes -= len(data)
            self._on_data(data)

    def _waiting_bytes(self) -> int:
        if self._descriptor is None:
            return 0
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)))
        return min(int(waiting), REST_BYTES)

    def _read_once(self) -> None:
        if not self._held:
            self._pass_on(self._read())

    def _read(self) -> bytes:
        """Read once; return nothing when there is nothing, and at the end, which is said."""
        if self._descriptor is None or self._over:
            return b""
        try:
            data = os.read(self._descriptor, self._read_bytes)
        except BlockingIOError:
            return b""
        except OSError:  # a pipe end that cannot be read has nothing more to tell
            data = b""
        if not data:
            self._over = True
            self._unwatch()
            self._on_eof()
        elif self._may_widen and len(data) == READ_BYTES:
            self._widen(self._descriptor)
        return data

    def _widen(self, descriptor: int) -> None:
        self._may_widen = False
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or too much in use by this user
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, WIDE_PIPE_BYTES)
            self._read_bytes = WIDE_PIPE_BYTES

    def _pass_on(self, data: bytes) -> None:
        if self._by_line and (lines := data.count(b"\n")) > LINES_A_TURN:
            # About so many lines, as if all were as long: to find the very line takes as long as to tell it.
            end = data.rfind(b"\n", 0, len(data) * LINES_A_TURN // lines) + 1 or data.find(b"\n") + 1
            data, self._held = data[:end], data[end:]
            self._unwatch()
            self._await_more()
        if data:
            self._on_data(data)

    def _await_more(self) -> None:
        """Have the next turn pass on what is held, else wait for the pipe; not while paused or at the end."""
        if self._paused or self._over or self._descriptor is None:
            return
        if not self._held:
            if self._watch is None:
                self._watch = self._readables.watch_readable(self._descriptor, self._read_once)
        elif not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_is_due = False
        if not self._paused:
            held, self._held = self._held, b""
            self._pass_on(held)
            self._await_more()

    def _unwatch(self) -> None:
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.cancel()

    def close(self) -> None:
        """Close our end; nothing is called any more."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._held = b""
            self._unwatch()
            os.close(descriptor)


class PipeWriter:
    """Writes to a pipe as fast as the other side reads.

    A write is refused while ``limit_bytes`` or more are queued: at most one write, of any size, lies above.
    So it is while `STDIN_WRITES_MAX` are.
    """

    def __init__(self, loop: Loop, descriptor: int, *, limit_bytes: int) -> None:
        self._loop = loop
        self._descriptor: int | None = descriptor
        self._is_used = False
        self._limit = limit_bytes
        self._queue: deque[tuple[memoryview, WriteDone]] = deque()
        self._queued_bytes = 0
        self._watch: Cancellable | None = None
        self._closing = False
        self._broken = False

    @property
    def broken(self) -> bool:
        """Whether the other side closed its end."""
        return self._broken

    def write(self, data: bytes, done: WriteDone) -> None:
        """Queue ``data``; ``done`` is called exactly once, maybe before this returns."""
        if self._broken:
            done(WriteOutcome.CHILD_GONE, len(data))
        elif self._descriptor is None or self._closing:
            done(WriteOutcome.STDIN_CLOSED, len(data))
        elif self._queue and (self._queued_bytes >= self._limit or len(self._queue) >= STDIN_WRITES_MAX):
            done(WriteOutcome.BUFFER_FULL, len(data))
        else:
            self._queue.append((memoryview(data), done))
            self._queued_bytes += len(data)
            if self._watch is None:
                self._flush()

    def _flush(self) -> None:
        if not self._is_used and self._descriptor is not None:
            self._is_used = True  # many are never written to
            os.set_blocking(self._descriptor, False)
        while self._queue and self._descriptor is not None:
            data, done = self._queue[0]
            try:
                written = os.write(self._descriptor, data) if data else 0
            except BlockingIOError:
                break
            except OSError:  # EPIPE: the other side is gone
                self._broken = True
                self.close()
                return
            self._queued_bytes -= written
            if written < len(data):
                self._queue[0] = (data[written:], done)
            else:
                self._queue.popleft()
                done(WriteOutcome.WRITTEN, 0)
        if self._descriptor is None:
            return
        if self._queue and self._watch is None:
            self._watch = self._loop.watch_writable(self._descriptor, self._flush)
        elif not self._queue:
            self._unwatch()
            if self._closing:
                self.close()

    def close_when_written(self) -> None:
        """Close behind what is queued; what is written from now on is refused."""
        self._closing = True
        if not self._queue:
            self.close()

    def give_up(self) -> None:
        """Close now if anything is queued, for which nobody is left."""
        if self._queue:
            self.close()

    def close(self) -> None:
        """Close now; what is still queued ends as `WriteOutcome.CHILD_GONE`."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._unwatch()
            os.close(descriptor)
        queue, self._queue = self._queue, deque()
        self._queued_bytes = 0
        for data, done in queue:
            done(WriteOutcome.CHILD_GONE, len(data))

    def _unwatch(self) -> None:
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.cancel()
