"""Our ends of a child's pipes: read until EOF, write what fits, never wait.

Owns: non-blocking reading and writing on the loop, the bound of the write queue, closing each end once.
Not here: what the bytes mean.
"""

import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Callable
from typing import Protocol

from swactor.abc import Cancellable, Loop
from swactor_process.spawner import WriteOutcome

READ_BYTES = 65_536
"""What one read brings at most, and what pipes hold. One read, then the other children have their turn."""
WIDE_BYTES = 262_144
"""The same for a child that fills its pipe, if its bytes are little work."""
REST_BYTES = 4_194_304
"""What is read at most after the exit, in one go."""


class Readables(Protocol):
    """What watches descriptors: the loop, or something that spares it most of the work."""

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable, until cancelled."""
        ...


class PipeReader:
    """Reads a pipe whenever there is something, and says EOF once.

    ``wide`` allows for a pipe that holds more and for larger reads, from when the other side has filled it.
    """

    def __init__(
        self,
        readables: Readables,
        descriptor: int,
        *,
        on_data: Callable[[bytes], None],
        on_eof: Callable[[], None],
        wide: bool = False,
    ) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._on_data, self._on_eof = on_data, on_eof
        self._read_bytes = READ_BYTES
        self._may_widen = wide
        self._readables = readables
        self._watch: Cancellable | None = readables.watch_readable(descriptor, self._read_once)

    def pause(self) -> None:
        """Read nothing until `resume`; the other side waits once the pipe is full."""
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.cancel()

    def resume(self) -> None:
        """Read again."""
        if self._watch is None and self._descriptor is not None:
            self._watch = self._readables.watch_readable(self._descriptor, self._read_once)

    def read_rest(self) -> None:
        """Read what is there now, up to 4 MiB; a loop that was held up may not have come to it."""
        rest = REST_BYTES
        while rest > 0 and (taken := self._read()):
            rest -= taken

    def _read_once(self) -> None:
        self._read()

    def _read(self) -> int:
        """Read once; return how many bytes came."""
        if self._descriptor is None:
            return 0
        try:
            data = os.read(self._descriptor, self._read_bytes)
        except BlockingIOError:
            return 0
        except OSError:  # a pipe end that cannot be read has nothing more to tell
            data = b""
        if not data:
            self.close()
            self._on_eof()
            return 0
        if self._may_widen and len(data) == READ_BYTES:
            self._widen(self._descriptor)
        self._on_data(data)
        return len(data)

    def _widen(self, descriptor: int) -> None:
        self._may_widen = False
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or too much in use by this user
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, WIDE_BYTES)
            self._read_bytes = WIDE_BYTES

    def close(self) -> None:
        """Close our end; nothing is called any more."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self.pause()
            os.close(descriptor)


class PipeWriter:
    """Writes to a pipe as fast as the other side reads.

    A write is refused while ``limit_bytes`` or more are queued: at most one write, of any size, lies above.
    """

    def __init__(self, loop: Loop, descriptor: int, *, limit_bytes: int) -> None:
        self._loop = loop
        self._descriptor: int | None = descriptor
        self._is_used = False
        self._limit = limit_bytes
        self._queue: deque[tuple[memoryview, Callable[[WriteOutcome], None]]] = deque()
        self._queued_bytes = 0
        self._watch: Cancellable | None = None
        self._closing = False
        self._broken = False

    @property
    def broken(self) -> bool:
        """Whether the other side closed its end."""
        return self._broken

    def write(self, data: bytes, done: Callable[[WriteOutcome], None]) -> None:
        """Queue ``data``; ``done`` is called exactly once, maybe before this returns."""
        if self._broken:
            done(WriteOutcome.CHILD_GONE)
        elif self._descriptor is None or self._closing:
            done(WriteOutcome.STDIN_CLOSED)
        elif self._queue and self._queued_bytes >= self._limit:
            done(WriteOutcome.BUFFER_FULL)
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
                done(WriteOutcome.WRITTEN)
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

    def close(self) -> None:
        """Close now; what is still queued ends as `WriteOutcome.CHILD_GONE`."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._unwatch()
            os.close(descriptor)
        queue, self._queue = self._queue, deque()
        self._queued_bytes = 0
        for _, done in queue:
            done(WriteOutcome.CHILD_GONE)

    def _unwatch(self) -> None:
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.cancel()
