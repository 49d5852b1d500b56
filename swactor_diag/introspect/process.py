"""This process: snapshot block ``process``, from ``<pid>/stat``, ``<pid>/fd``, event loop and interpreter.

Emits no events. Without /proc the kernel's figures are absent and ``reasons`` says so.
"""

import gc
import sys
from collections.abc import Callable

import anyio
from msgspec import UNSET, UnsetType

from swactor.abc import Cancellable, Clock, Loop
from swactor_diag.introspect._procfs import (
    ProcReadError,
    ProcRoot,
    ProcStat,
    ProcUnits,
    measured,
    memory_of,
    watch_process,
)
from swactor_diag.schema.blocks import ProcessBlock, PythonFacts

LAG_TICK_S = 0.25
LAG_TICKS_MAX = 40
"""After so many ticks without a look nothing is measured any more, until the next one."""


class LoopLag:
    """How late the event loop is: the lateness of timers that follow one another."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._timer: Cancellable | None = None
        self._due_s = 0.0
        self._ticks_left = 0
        self._worst_s: float | None = None

    def take(self) -> int | UnsetType:
        """Return the worst lateness since the last call in milliseconds, absent when none was measured."""
        worst_s, self._worst_s = self._worst_s, None
        if self._timer is not None and self._loop.time_s() > self._due_s:
            worst_s = max(worst_s or 0.0, self._loop.time_s() - self._due_s)  # it still has not come
        self._ticks_left = LAG_TICKS_MAX
        if self._timer is None:
            self._schedule()
        return UNSET if worst_s is None else round(worst_s * 1000)

    def close(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._due_s = self._loop.time_s() + LAG_TICK_S
        self._timer = self._loop.call_later(LAG_TICK_S, self._tick)

    def _tick(self) -> None:
        self._worst_s = max(self._worst_s or 0.0, self._loop.time_s() - self._due_s)
        self._timer = None
        self._ticks_left -= 1
        if self._ticks_left > 0:
            self._schedule()


class ProcessIntrospector:
    """Memory, descriptors, CPU time and threads of ``pid``, loop lag, and what the interpreter counts."""

    name = "process"
    record = ProcessBlock

    def __init__(
        self,
        *,
        proc: ProcRoot,
        clock: Clock,
        pid: int,
        units: ProcUnits | None = None,
        interpreter: Callable[[], PythonFacts] | None = None,
        lag: LoopLag | None = None,
    ) -> None:
        self._process = watch_process(proc, pid)
        self._clock = clock
        self._pid = pid
        self._units = units or ProcUnits()
        self._interpreter = interpreter
        self._lag = lag

    def observe(self) -> ProcessBlock:
        """Return the current values."""
        reasons: list[str] = []
        stat, units = self._stat(reasons), self._units
        is_hidden = stat is not None and stat.leader_ended
        descriptors = UNSET if is_hidden else self._descriptors(reasons)
        rss_bytes, vm_size_bytes = (UNSET, UNSET) if stat is None else memory_of(stat, units, reasons)
        return ProcessBlock(
            pid=self._pid,
            rss_bytes=rss_bytes,
            vm_size_bytes=vm_size_bytes,
            open_fd_count=descriptors,
            cpu_ms=UNSET if stat is None else measured(units.ms(stat.cpu_ticks), "cpu", reasons),
            threads=UNSET if stat is None else measured(stat.threads, "threads", reasons),
            loop_lag_ms=UNSET if self._lag is None else self._lag.take(),
            python=UNSET if self._interpreter is None else self._interpreter(),
            captured_at_ms=self._clock.wall_ms(),
            reasons=tuple(reasons),
        )

    def close(self) -> None:
        """Hold no file open, measure no more."""
        self._process.close()
        if self._lag is not None:
            self._lag.close()

    def _stat(self, reasons: list[str]) -> ProcStat | None:
        try:
            stat = self._process.stat()
        except ProcReadError as error:
            reasons.append(f"stat: {error.reason}")
            return None
        if stat is None:
            reasons.append("stat: no such file")
        return stat

    def _descriptors(self, reasons: list[str]) -> int | UnsetType:
        try:
            counted = self._process.count_descriptors()
        except ProcReadError as error:
            reasons.append(f"fd: {error.reason}")
            return UNSET
        return UNSET if counted is None else counted


def python_facts() -> PythonFacts:
    """Return what the running interpreter counts; not reproducible, so a simulation leaves it out."""
    generations = gc.get_stats()
    return PythonFacts(
        implementation=sys.implementation.name,
        gc_collections=tuple(generation["collections"] for generation in generations),
        gc_uncollectable=sum(generation["uncollectable"] for generation in generations),
        tasks=_count_tasks(),
    )


def _count_tasks() -> int | UnsetType:
    try:
        return len(anyio.get_running_tasks())
    except anyio.NoEventLoopError:
        return UNSET
