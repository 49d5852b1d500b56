"""The keyed timers of one actor.

Owns: one running timer a key, its rhythm, and the generation that tells a fired timer from one that was
called off while its message was already waiting. Not here: scheduling (`Loop.call_later`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from swactor._messages import TimerFired

if TYPE_CHECKING:
    from swactor.abc import Cancellable, Clock, Loop


NANOSECOND_S = 1e-9


class _Running:
    __slots__ = ("due_ns", "generation", "handle", "message", "period_ns")

    def __init__(self, generation: int, message: object, due_ns: int, period_ns: int | None) -> None:
        self.generation = generation
        self.message = message
        self.due_ns = due_ns
        self.period_ns = period_ns
        self.handle: Cancellable | None = None


class Timers:
    """Timers of one actor; ``deliver`` puts a `TimerFired` into its mailbox."""

    __slots__ = ("_clock", "_deliver", "_generation", "_loop", "_running")

    def __init__(self, loop: Loop, clock: Clock, deliver: Callable[[TimerFired], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._deliver = deliver
        self._generation = 0
        self._running: dict[object, _Running] = {}

    def start(self, key: object, message: object, *, delay_s: float, period_s: float | None = None) -> None:
        """Start the timer ``key``, replacing a running one. With ``period_s`` it goes on, without drift.

        Raises:
            ValueError: a negative delay, a period below a nanosecond, or either of them without an end.
        """
        if not 0 <= delay_s < inf or not (period_s is None or NANOSECOND_S <= period_s < inf):
            raise ValueError(f"timer {key!r}: delay {delay_s:g} s, period {period_s} s: must lie ahead")
        self.cancel(key)
        self._generation += 1
        now_ns = self._clock.monotonic_ns()
        period_ns = None if period_s is None else round(period_s * 1e9)
        running = _Running(self._generation, message, now_ns + round(delay_s * 1e9), period_ns)
        self._running[key] = running
        self._schedule(key, running, delay_s)

    def _schedule(self, key: object, running: _Running, delay_s: float) -> None:
        fired = TimerFired(key, running.generation, running.message)
        running.handle = self._loop.call_later(delay_s, partial(self._deliver, fired))

    def accept(self, fired: TimerFired) -> bool:
        """Return whether ``fired`` still counts; a periodic timer is then scheduled for its next due time."""
        running = self._running.get(fired.key)
        if running is None or running.generation != fired.generation:
            return False
        if running.period_ns is None:
            del self._running[fired.key]
        else:
            now_ns = self._clock.monotonic_ns()
            # Rounds missed while the actor was busy are skipped, the rhythm is kept.
            rounds = max(1, (now_ns - running.due_ns) // running.period_ns + 1)
            running.due_ns += running.period_ns * rounds
            self._schedule(fired.key, running, max(0, running.due_ns - now_ns) / 1e9)
        return True

    def cancel(self, key: object) -> None:
        """Call the timer off, even when its message already waits in the mailbox."""
        running = self._running.pop(key, None)
        if running is not None and running.handle is not None:
            running.handle.cancel()

    def cancel_all(self) -> None:
        """Call every timer off."""
        for key in list(self._running):
            self.cancel(key)

    def __len__(self) -> int:
        return len(self._running)
