"""Processes on systems without ``/proc``, as psutil sees them.

Owns: `PsutilProc`. Imported where it is needed only: on Linux psutil need not be installed, the kernel's own
files (``_linux_proc``) are several times as fast. There are no text files here, so counters of the
network are absent, with that reason.
"""

from contextlib import suppress

import psutil

from swactor_diag.introspect._procfs import EmptyProc, ProcReadError, ProcStat, ProcUnits, WatchedProcess

UNITS = ProcUnits(ticks_per_s=1000, page_bytes=1)
"""In which `PsutilProc` counts."""

_LETTERS = {"running": "R", "sleeping": "S", "disk-sleep": "D", "stopped": "T", "zombie": "Z", "idle": "I"}


class PsutilProc(EmptyProc):
    """No text files, but processes."""

    def watch(self, pid: int) -> WatchedProcess:
        """See `WatchesProcesses`."""
        return _PsutilProcess(pid)


class _PsutilProcess:
    """Makes sure itself that the pid was not used again: psutil knows when the process began."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process: psutil.Process | None = None
        with suppress(psutil.Error):  # it may be gone already
            self._process = psutil.Process(pid)

    def stat(self) -> ProcStat | None:
        """See `WatchedProcess`. One that is ending has no figures but its state."""
        process = self._process
        try:
            if process is None or not process.is_running():
                return None
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
                return ProcStat(
                    comm=process.name(),
                    state=_LETTERS.get(process.status(), "?"),
                    parent_pid=process.ppid(),
                    cpu_ticks=round((times.user + times.system) * UNITS.ticks_per_s),
                    threads=process.num_threads(),
                    start_ticks=None,
                    vm_size_bytes=memory.vms,
                    rss_pages=memory.rss,
                )
        except psutil.ZombieProcess:
            return ProcStat("", "Z", 0, 0, 0, None, 0, 0)
        except psutil.NoSuchProcess:
            return None
        except psutil.AccessDenied as error:
            raise ProcReadError(f"{self._pid}/stat", "EACCES") from error

    def count_descriptors(self) -> int | None:
        """See `WatchedProcess`."""
        try:
            return None if self._process is None else self._process.num_fds()
        except psutil.NoSuchProcess:
            return None
        except psutil.AccessDenied as error:
            raise ProcReadError(f"{self._pid}/fd", "EACCES") from error

    def arguments(self) -> tuple[str, ...]:
        """See `WatchedProcess`."""
        try:
            return () if self._process is None else tuple(self._process.cmdline())
        except psutil.NoSuchProcess:
            return ()
        except psutil.AccessDenied as error:
            raise ProcReadError(f"{self._pid}/cmdline", "EACCES") from error

    def can_look(self) -> bool:
        """See `WatchedProcess`."""
        return True

    def close(self) -> None:
        """See `WatchedProcess`."""
