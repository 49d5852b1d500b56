"""Who runs next: one queue of actors that have something to do, drained by one wakeup of the event loop.

Owns: the order of turns, their budget, fairness towards other actors and towards the loop.
Not here: what an actor does in its turn (`Cell.take_turn`).

The run queue is what makes a message cheap: no task, future or context switch per message. The figures
that led to it come from ``benches/runtime.py``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from swactor._ref import running_cell

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor.abc import Clock, Loop

TURN_MESSAGES = 64
"""Messages one actor handles before the next actor gets its turn."""
DRAIN_BUDGET_NS = 5_000_000
"""How long one drain holds the event loop before everything else on it gets its chance."""
TURNS_A_LOOK = 4
"""Short turns between two looks at the clock; after a full turn there is a look each time."""
INLINE_TURNS = 64
"""Turns that an ask runs inline before it waits like everybody else."""


class RunQueue:
    """Actors in the order in which they became ready; each stands in it at most once."""

    __slots__ = ("_clock", "_draining", "_loop", "_ready", "_woken")

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._ready: deque[Cell] = deque()
        self._woken = False
        self._draining = False

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, cell: Cell) -> None:
        """Give ``cell`` a turn; the caller makes sure that it is not in the queue already."""
        self._ready.append(cell)
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._woken = False
        if not self._draining:
            running_cell.set(None)  # a callback inherits it from whoever woke the queue
            self._run(turns=None)

    def drain_inline(self, *, by_actor: bool) -> None:
        """Run a bounded number of turns right now, unless this is called from within a turn."""
        if self._draining:
            return
        if not by_actor:
            self._run(turns=INLINE_TURNS)
            return
        asker = running_cell.set(None)  # what runs here is not the asking actor
        try:
            self._run(turns=INLINE_TURNS)
        finally:
            running_cell.reset(asker)

    def _run(self, turns: int | None) -> None:
        ready = self._ready
        ends_ns = self._clock.monotonic_ns() + DRAIN_BUDGET_NS
        taken = 0
        self._draining = True
        try:
            while ready:
                cell = ready.popleft()
                again = True
                try:
                    again = cell.take_turn(TURN_MESSAGES)
                finally:
                    if again:  # also when the turn was left by KeyboardInterrupt or SystemExit
                        ready.append(cell)
                taken += 1
                if taken == turns:
                    break
                if (again or taken % TURNS_A_LOOK == 0) and self._clock.monotonic_ns() >= ends_ns:
                    break
        finally:
            self._draining = False
            if ready and not self._woken:
                self._woken = True
                self._loop.call_soon(self._drain)
