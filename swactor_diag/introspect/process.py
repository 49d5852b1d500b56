"""This process: snapshot block ``process``, from ``<pid>/stat``, ``<pid>/fd`` and the interpreter.

Emits no events. Without /proc the kernel's figures are absent and ``reasons`` says so.
"""

import gc
import sys
from collections.abc import Callable

from msgspec import UNSET, UnsetType

from swactor.abc import Clock
from swactor_diag.introspect._procfs import (
    ProcReadError,
    ProcRoot,
    ProcStat,
    ProcUnits,
    watch_process,
)
from swactor_diag.schema.blocks import ProcessBlock, PythonFacts


class ProcessIntrospector:
    """Memory, descriptors, CPU time and threads of ``pid``, and what the interpreter counts."""

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
    ) -> None:
        self._process = watch_process(proc, pid)
        self._clock = clock
        self._pid = pid
        self._units = units or ProcUnits()
        self._interpreter = interpreter

    def observe(self) -> ProcessBlock:
        """Return the current values."""
        reasons: list[str] = []
        stat = self._stat(reasons)
        return ProcessBlock(
            pid=self._pid,
            rss_bytes=UNSET if stat is None else stat.rss_pages * self._units.page_bytes,
            vm_size_bytes=UNSET if stat is None else stat.vm_size_bytes,
            open_fd_count=self._descriptors(reasons),
            cpu_ms=UNSET if stat is None else self._units.ms(stat.cpu_ticks),
            threads=UNSET if stat is None else stat.threads,
            python=UNSET if self._interpreter is None else self._interpreter(),
            captured_at_ms=self._clock.wall_ms(),
            reasons=tuple(reasons),
        )

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
    return PythonFacts(
        implementation=sys.implementation.name,
        gc_collections=tuple(generation["collections"] for generation in gc.get_stats()),
        gc_uncollectable=sum(generation["uncollectable"] for generation in gc.get_stats()),
    )
