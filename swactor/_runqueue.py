"""Who runs next: one queue of actors that have something to do, drained by one wakeup of the event loop.

Owns: the order of turns, their budget, fairness towards other actors and towards the loop.
Not here: what an actor does in its turn (`Cell.take_turn`).

The run queue is what makes a message cheap: no task, future or context switch per message. The figures
that led to it come from ``benches/runtime.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from swactor._ref import running_cell

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._reply import Ask
    from swactor.abc import Clock, Loop

T = TypeVar("T")

TURN_MESSAGES = 32
"""Messages one actor handles before the next actor gets its turn."""
SHORT_TURN_LEFT = TURN_MESSAGES - 8
"""A turn that could have handled fewer messages more may have been a long one: the clock is looked at."""
DRAIN_BUDGET_NS = 2_000_000
"""How long one drain holds the event loop before everything else on it gets its chance."""
DRAIN_LOOKS = 200
"""Looks at the clock in one drain, at most: in a simulation it stands still meanwhile."""
INLINE_LOOKS = 8
"""The same for what an ask runs inline before it waits like everybody else."""
TURNS_A_LOOK: Final = range(8)
"""Short turns between two looks at the clock; after a long turn there is a look each time."""
BATCH_MESSAGES = 64
"""Messages that a task handles before it looks at the clock."""
FAST_BATCH_MESSAGES = 256
"""The same while messages take less than `FAST_MESSAGE_NS`: the look itself would be felt."""
FAST_MESSAGE_NS = 1_000
HOLD_BATCHES = 16
"""Batches before tasks leave the loop to others, whatever the clock says: in a simulation it stands still."""


class Hold:
    """How long tasks that never have to wait may hold the event loop: as long as a drain of the queue.

    One serves all of them: while one task holds the loop, no other runs.
    """

    __slots__ = ("_batches", "_ends_ns", "_looked_ns", "batch_max")

    def __init__(self) -> None:
        self._batches = 0
        self._ends_ns = 0
        self._looked_ns = 0
        self.batch_max = BATCH_MESSAGES
        """How many messages a task may handle until it calls `ends`."""

    def ends(self, handled: int, now_ns: int) -> bool:
        """Take note of a batch; return whether it was the last before others must have their chance."""
        is_fast = now_ns - self._looked_ns < handled * FAST_MESSAGE_NS
        self.batch_max = FAST_BATCH_MESSAGES if is_fast else BATCH_MESSAGES
        self._looked_ns = now_ns
        if not self._batches:
            self._ends_ns = now_ns + DRAIN_BUDGET_NS
        self._batches += 1
        if self._batches < HOLD_BATCHES and now_ns < self._ends_ns:
            return False
        self._batches = 0
        return True


class RunQueue:
    """Actors in the order in which they became ready; each stands in it at most once.

    Turns run in a context of their own: no handler sees the context variables of whoever sent something.
    """

    __slots__ = (
        "_clock",
        "_context",
        "_inside",
        "_loop",
        "_woken_ns",
        "awake",
        "hold",
        "inline_asks",
        "lag_ns",
        "now_ns",
        "ready",
    )

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._context = copy_context()
        self._context.run(running_cell.set, None)
        self.hold = Hold()
        """What the tasks of asynchronous actors may take."""
        self.ready: deque[Cell] = deque()
        self.awake = False
        """Whether a drain is under way or will come."""
        self.now_ns = clock.monotonic_ns()
        """The time of the last look at the clock, about now while the queue is awake; 0 before the first."""
        self.lag_ns = 0
        """How long the last wakeup took to come."""
        self._woken_ns = 0
        self._inside = False
        """Whether turns are being taken, or a hook is being called: the context is entered once."""
        self.inline_asks = 0
        """How many asks were given a chance to be answered at once."""

    def wake(self) -> None:
        """Have the queue drained behind the callback under way, or soon; only when it is not awake."""
        self.awake = True
        self._woken_ns = self.now_ns = self._clock.monotonic_ns()
        self._loop.call_behind(self._drain)

    def _drain(self) -> None:
        self.now_ns = self._clock.monotonic_ns()
        self.lag_ns = self.now_ns - self._woken_ns
        try:
            self._context.run(self._take_turns, DRAIN_LOOKS)
        finally:
            self.awake = False
            if self.ready:
                self.wake()

    def ask_inline(self, cell: Cell, ask: Ask[Any]) -> bool:
        """Give ``ask`` to ``cell`` and take a few turns right now; return False if the mailbox refuses.

        Within a turn it is given only: turns do not nest.
        """
        if self._inside:
            return cell.accept(ask)
        self.inline_asks += 1
        will_drain = self.awake
        if not will_drain:
            self.awake = True
            self.now_ns = 0  # most asks are answered before anybody wants to know the time
        try:
            accepted = cell.accept(ask)
            self._context.run(self._take_turns, INLINE_LOOKS)
        finally:
            if not will_drain:
                self.awake = False
                if self.ready:
                    self.wake()
                    for left in self.ready:
                        left.note_time(self.now_ns)
        return accepted

    def call(self, hook: Callable[[], T]) -> T:
        """Call ``hook`` in the context of turns, whoever caused it: within a turn or from outside."""
        if self._inside:
            return hook()
        self._inside = True
        try:
            return self._context.run(hook)
        finally:
            self._inside = False

    def _take_turns(self, looks: int) -> None:
        """Take turns until none is left, time is up, or the clock was looked at ``looks`` times."""
        ready = self.ready
        ends_ns = self.now_ns + DRAIN_BUDGET_NS if self.now_ns else 0
        cell: Cell | None = None
        self._inside = True
        try:
            while ready:
                for _ in TURNS_A_LOOK:
                    cell = ready.popleft()
                    if cell.take_turn():
                        break
                    if not ready:
                        return
                looks -= 1
                self.now_ns = now_ns = self._clock.monotonic_ns()
                if not ends_ns:
                    ends_ns = now_ns + DRAIN_BUDGET_NS
                if now_ns >= ends_ns or looks <= 0:
                    return
        except BaseException:  # the turn was left by KeyboardInterrupt or SystemExit
            if cell is not None:
                ready.append(cell)
            raise
        finally:
            self._inside = False
