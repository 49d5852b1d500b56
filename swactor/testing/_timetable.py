"""What is due when, for a clock that somebody else moves.

Owns: the order of timers: by due time, those of one instant as they were set. Not here: time (`_clock`).
"""

import heapq
from collections.abc import Callable

from swactor.abc import Scheduler

FORGOTTEN_MAX = 64
"""Cancelled timers that may lie around before they are swept out, if they are also the greater part."""


class Timer:
    """A callback with a due time. Implements `swactor.abc.Cancellable`; runs at most once."""

    __slots__ = ("_callback", "_scheduler", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[[], None], scheduler: Scheduler) -> None:
        self.due_ns = due_ns
        self._scheduler = scheduler
        self._callback: Callable[[], None] | None = callback

    @property
    def is_set(self) -> bool:
        """Whether it has neither run nor been called off."""
        return self._callback is not None

    def cancel(self) -> None:
        """Call it off, also when its run is already scheduled."""
        self._callback = None

    def fire(self) -> None:
        """Call back on the next turn of the loop, unless it is called off before."""
        self._scheduler.call_soon(self._run)

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Timetable:
    """Timers in the order in which they come due."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._made = 0
        self._swept_at = FORGOTTEN_MAX

    def add(self, timer: Timer) -> None:
        """Enter ``timer``, behind those of the same instant."""
        if len(self._heap) >= self._swept_at:
            self._heap = [entry for entry in self._heap if entry[2].is_set]
            heapq.heapify(self._heap)
            self._swept_at = 2 * len(self._heap) + FORGOTTEN_MAX
        self._made += 1
        heapq.heappush(self._heap, (timer.due_ns, self._made, timer))

    def next_due_ns(self) -> int | None:
        """When the next timer comes due; None when none is set."""
        while self._heap and not self._heap[0][2].is_set:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ns: int) -> Timer | None:
        """Remove and return the next timer that is due at ``now_ns``; None when none is."""
        due_ns = self.next_due_ns()
        return heapq.heappop(self._heap)[2] if due_ns is not None and due_ns <= now_ns else None
