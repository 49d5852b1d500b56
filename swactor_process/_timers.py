"""The timers of one child on the event loop.

Owns: that setting one replaces its predecessor, that one which was called off never fires, and the jitter of
a start that is tried again. Not here: what is due when (``session``).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from swactor import Context
from swactor.abc import Cancellable
from swactor_process._effects import Timer


class Timers:
    """Calls ``on_fired`` with each timer that comes due."""

    def __init__(self, ctx: Context[Any], on_fired: Callable[[Timer], None]) -> None:
        self._ctx = ctx
        self._on_fired = on_fired
        self._running: dict[Timer, tuple[int, Cancellable]] = {}
        self._set = 0

    def set(self, timer: Timer, delay_s: float) -> None:
        """Have ``timer`` fire after ``delay_s``."""
        self.cancel(timer)
        if timer is Timer.RETRY:
            # Between half and one and a half, so that many starts refused at once do not return at once.
            delay_s *= 0.5 + self._ctx.random.below(1_000) / 1_000
        self._set += 1
        handle = self._ctx.loop.call_later(delay_s, partial(self._fire, timer, self._set))
        self._running[timer] = (self._set, handle)

    def cancel(self, timer: Timer) -> None:
        """Call ``timer`` off, if it is set."""
        running = self._running.pop(timer, None)
        if running is not None:
            running[1].cancel()

    def _fire(self, timer: Timer, number: int) -> None:
        # A timer may fire although it was called off in the same turn of the loop.
        if timer in self._running and self._running[timer][0] == number:
            del self._running[timer]
            self._on_fired(timer)
