"""Kernel start times of children, mostly known without asking.

Owns: `StartTimes`. Not here: what they are good for (with a pid they name a process for ever).

To read ``/proc/PID/stat`` of a child that has just begun waits for the kernel to finish loading its program,
which holds the loop longer than all the rest of a start. But a start time is the kernel's clock at the start,
in ticks of 10 ms: when that clock shows the same tick before and after the start, it is known.
"""

import os
import time
from collections.abc import Callable

from swactor_process._guardian_program import read_stat


def _boot_clock_ns() -> int:
    """Return what start times are taken from; 0 where there is no such clock."""
    clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return 0 if clock is None else time.clock_gettime_ns(clock)


def _read_start_time(pid: int) -> int | None:
    stat = read_stat(pid)
    return None if stat is None else stat.start_time


class StartTimes:
    """Start times in kernel ticks since the machine's boot."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int] = _boot_clock_ns,
        ask: Callable[[int], int | None] = _read_start_time,
    ) -> None:
        self.now_ns = now_ns
        """The clock that start times are taken from; to be read before a child is started."""
        self._ask = ask
        self._ns_per_tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._agrees = False  # whether the kernel counts as we do: seen with the first child

    def of(self, pid: int, began_ns: int) -> int | None:
        """Return the start time of child ``pid``, just started after ``began_ns``; None when unreadable."""
        first, last = began_ns // self._ns_per_tick, self.now_ns() // self._ns_per_tick
        if self._agrees and first == last:
            return first
        start_time = self._ask(pid)
        if start_time is not None:
            self._agrees = first <= start_time <= last
        return start_time
