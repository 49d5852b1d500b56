"""What runs behind a callback of the event loop, before the loop looks for events again.

Owns: `Behind`. A wakeup of the run queue that a descriptor's callback causes needs no turn of the loop: that
would be another look at all descriptors before the actors hear of the event.
"""

from collections.abc import Callable


class Behind:
    """The callbacks that run behind one that is under way."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] | None = None

    def add(self, callback: Callable[[], None]) -> bool:
        """Have ``callback`` run behind the one that is under way; false when none is."""
        if self._waiting is None:
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
            for later in waiting:
                later()
