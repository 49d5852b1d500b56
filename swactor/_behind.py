"""What runs behind a callback of the event loop, before the loop looks for events again.

Owns: `Behind`. A wakeup of the run queue that a descriptor's callback causes needs no turn of the loop: that
would be another look at all descriptors before the actors hear of the event. Not here: who decides (`wake`).
"""

from collections.abc import Callable

BEHIND_MAX_S = 0.002
"""So long may what runs behind callbacks take, then everything else on the loop gets its chance."""


class Behind:
    """The callbacks that run behind one that is under way."""

    __slots__ = ("_call_soon", "_spent_s", "_time_s", "_waiting")

    def __init__(
        self, *, time_s: Callable[[], float], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._time_s, self._call_soon = time_s, call_soon
        self._waiting: list[Callable[[], None]] | None = None
        self._spent_s = 0.0

    def add(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` run behind the one that is under way; false when none is, or time is up."""
        if self._waiting is None or self._spent_s > BEHIND_MAX_S:
            return False
        self._waiting.append(callback)
        return True

    def run(self, callback: Callable[[], None]) -> None:
        """Run ``callback``, and what was added meanwhile, also when it raises."""
        waiting: list[Callable[[], None]] = []
        self._waiting = waiting
        try:
            callback()
        finally:
            self._waiting = None
            if waiting:
                self._run_all(waiting)

    def _run_all(self, callbacks: list[Callable[[], None]]) -> None:
        began_s = self._time_s()
        try:
            while callbacks:
                callbacks.pop(0)()
        finally:
            for left in callbacks:  # one before has raised
                self._call_soon(left)
            self._spent_s += self._time_s() - began_s
            if self._spent_s > BEHIND_MAX_S:
                self._call_soon(self._begin_anew)

    def _begin_anew(self) -> None:
        self._spent_s = 0.0
