"""The clocks of a simulated run, in integers.

Owns: the world's clock (monotonic, shared, exact) and each node's clock on top of it (its own wall time).
Not here: moving time (`sim.loop`), faults that change a wall clock (they call `NodeClock.set_offset`).
"""

from sim.loop import VirtualLoop

NS_PER_MS = 1_000_000


class WorldClock:
    """Virtual time of the whole run. Implements `swactor.abc.Clock` for whoever is no node."""

    def __init__(self, loop: VirtualLoop, epoch_ms: int) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def monotonic_ns(self) -> int:
        """Virtual nanoseconds since the start of the run."""
        return self._loop.now_ns

    def wall_ms(self) -> int:
        """The true wall time of the run: epoch plus virtual time, whole milliseconds."""
        return self._epoch_ms + self._loop.now_ns // NS_PER_MS


class NodeClock:
    """One node's clock: the world's monotonic time, and a wall clock that is ``offset_ms`` wrong."""

    def __init__(self, loop: VirtualLoop, epoch_ms: int, *, offset_ms: int = 0) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms
        self._believed_epoch_ms = epoch_ms + offset_ms

    def monotonic_ns(self) -> int:
        """Virtual nanoseconds since the start of the run."""
        return self._loop.now_ns

    def wall_ms(self) -> int:
        """What this node believes the time is."""
        return self._believed_epoch_ms + self._loop.now_ns // NS_PER_MS

    def set_offset(self, offset_ms: int) -> None:
        """Let the wall clock be ``offset_ms`` wrong from now on; it may jump either way."""
        self._believed_epoch_ms = self._epoch_ms + offset_ms
