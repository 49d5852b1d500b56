"""The production clock and randomness: the only places of the runtime that read the machine.

Owns: `SystemClock`, `SystemRandom`. The simulator brings its own of both.
"""

import os
import time


class SystemClock:
    """The machine's clocks."""

    # No frames of our own: these are read for every drain, and for every event.
    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_s = staticmethod(time.time)

    def wall_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


class _OsRandomStream:
    """Random numbers of the operating system; every draw is unpredictable."""

    def below(self, bound: int) -> int:
        """Return an integer in ``0 <= n < bound``; the bias is below 2**-64 for any bound up to 2**64."""
        return int.from_bytes(os.urandom(16), "little") * bound >> 128

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` random bytes."""
        return os.urandom(n_bytes)


class SystemRandom:
    """The operating system's randomness: all streams are the same well."""

    def __init__(self) -> None:
        self._stream = _OsRandomStream()

    def stream(self, *key: str) -> _OsRandomStream:  # noqa: ARG002 - the key matters to a reproducible Random only
        """Return a stream; the operating system needs no key to keep draws independent."""
        return self._stream
