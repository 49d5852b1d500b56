"""The files of a Linux kernel, and processes whose files stay open.

Owns: `LinuxProc`, the bound on descriptors that it keeps, what to do when a kernel does not say how many
descriptors a process has, what to do with a ``/proc`` of another pid namespace.
Not here: the seam and the parsers (``_procfs``).

To open and close a file below ``/proc`` costs more than to read it. A descriptor that is kept also names the
process for ever: once that is gone it gives nothing, whoever has the pid by then.
"""

import errno
import os
from contextlib import suppress

from swactor_diag.introspect._procfs import (
    FILE_BYTES_MAX,
    CutText,
    ProcessByPath,
    ProcReadError,
    ProcStat,
    ProcUnits,
    WatchedProcess,
    parse_stat,
)

KEPT_MAX = 128
"""Processes whose files are kept open, two each; any more are read by path."""

_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENOTDIR})
"""A process that ends between open and read gives ESRCH, not ENOENT: both are "gone"."""

_STAT_BYTES_MAX = 1024
"""More than the fields up to the resident memory can take; what comes after them is of no interest."""


class LinuxProc:
    """The real ``/proc``, or a copy of one below ``root``."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root
        self.kept = 0
        """Processes whose files are open right now."""
        self.counts_descriptors = _counts_descriptors(root)
        self.foreign_to = self._foreign_to()
        """Our pid, in a pid namespace without a ``/proc`` of its own: by that number there is a stranger."""

    def read_text(self, path: str) -> str | None:
        """See `ProcRoot`. Bytes that are no UTF-8 are replaced."""
        full = f"{self.root}/{path}"
        try:
            if "/ns/" in path:
                return os.readlink(full)  # noqa: PTH115 - os and not pathlib: this runs per child and tick
            descriptor = os.open(full, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = _read_all(descriptor)
                if len(data) > FILE_BYTES_MAX:
                    return CutText(data[:FILE_BYTES_MAX].decode("utf-8", "replace"))
                return data.decode("utf-8", "replace")
            finally:
                os.close(descriptor)
        except OSError as error:
            _raise_unless_gone(path, error)
            return None

    def list_dir(self, path: str) -> tuple[str, ...] | None:
        """See `ProcRoot`."""
        try:
            return tuple(sorted(os.listdir(f"{self.root}/{path}")))  # noqa: PTH208 - as above
        except OSError as error:
            _raise_unless_gone(path, error)
            return None

    def watch(self, pid: int) -> WatchedProcess:
        """See `WatchesProcesses`."""
        if self.foreign_to is None:
            return _KeptProcess(self, str(pid))
        return _KeptProcess(self, "self") if pid == self.foreign_to else _Unnumbered(self, str(pid))

    def _foreign_to(self) -> int | None:
        """``NSpid`` has one number for each namespace from that of this ``/proc`` to ours."""
        with suppress(ProcReadError, ValueError):
            for line in (self.read_text("self/status") or "").splitlines():
                if line.startswith("NSpid:"):
                    numbers = line.split()[1:]
                    return int(numbers[-1]) if len(numbers) > 1 else None
        return None


def kernel_units() -> ProcUnits:
    """Return the units of the kernel this process runs on."""
    return ProcUnits(ticks_per_s=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE"))


class _Unnumbered(ProcessByPath):
    """A process of which nobody knows what number it has here."""

    def stat(self) -> ProcStat | None:
        """See `WatchedProcess`."""
        raise ProcReadError(f"{self._pid}/stat", "/proc is of another pid namespace")


class _KeptProcess(ProcessByPath):
    def __init__(self, proc: LinuxProc, pid: str) -> None:
        super().__init__(proc, pid)
        self._home = proc
        self._stat_path, self._folder_path = f"{pid}/stat", f"{pid}/fd"
        self._stat = self._folder = -1
        self._data = b""
        self._figures: ProcStat | None = None
        """What was read last; a child that has not run since says the same again."""

    def stat(self) -> ProcStat | None:
        """See `WatchedProcess`."""
        if self._stat < 0 and not self._keep():
            return super().stat()
        try:
            data = os.pread(self._stat, _STAT_BYTES_MAX, 0)
        except OSError as error:
            _raise_unless_gone(self._stat_path, error)
            return None
        if data != self._data or self._figures is None:
            self._figures = parse_stat(data.decode("utf-8", "replace"))
            self._data = data
        return self._figures

    def count_descriptors(self) -> int | None:
        """See `WatchedProcess`."""
        if self._stat < 0:
            return super().count_descriptors()
        try:
            if self._folder < 0:
                self._folder = _open(self._home, self._folder_path, os.O_DIRECTORY)
            if self._home.counts_descriptors:
                return os.fstat(self._folder).st_size
            return len(os.listdir(self._folder))  # noqa: PTH208 - pathlib knows no descriptors
        except OSError as error:
            _raise_unless_gone(self._folder_path, error)
            return None

    def close(self) -> None:
        """See `WatchedProcess`."""
        if self._stat >= 0:
            self._home.kept -= 1
        for descriptor in (self._stat, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._stat = self._folder = -1

    def _keep(self) -> bool:
        """Open ``stat``; False when that is not possible now, for whatever reason."""
        if self._home.kept >= KEPT_MAX:
            return False
        try:
            self._stat = _open(self._home, self._stat_path)
        except OSError:
            return False  # to read by path meets the same, and says what it is
        self._home.kept += 1
        return True


def _open(proc: LinuxProc, path: str, flags: int = 0) -> int:
    return os.open(f"{proc.root}/{path}", os.O_RDONLY | os.O_CLOEXEC | flags)


def _counts_descriptors(root: str) -> bool:
    """Whether the size of ``<pid>/fd`` is how many descriptors there are, as since Linux 6.2."""
    try:
        folder = os.open(f"{root}/self/fd", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        # Looking takes descriptors too, and another thread may open some: about as many is good enough here.
        return abs(os.fstat(folder).st_size - len(os.listdir(folder))) <= 2  # noqa: PTH208 - as above
    finally:
        os.close(folder)


def _read_all(descriptor: int) -> bytes:
    """Return what is in the file, and one byte more than is of interest when it goes on."""
    chunks: list[bytes] = []
    room = FILE_BYTES_MAX + 1
    while room > 0 and (chunk := os.read(descriptor, min(room, 65536))):
        chunks.append(chunk)
        room -= len(chunk)
    return b"".join(chunks)


def _raise_unless_gone(path: str, error: OSError) -> None:
    if error.errno not in _GONE:
        raise ProcReadError(path, errno.errorcode.get(error.errno or 0, "OSError")) from error
