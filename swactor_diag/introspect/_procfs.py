"""The kernel's text files below ``/proc``: the seam, the real one, and the parser of ``stat``.

Owns: `ProcRoot` and its Linux implementation, what "gone" and "denied" look like, the fields of a ``stat``.
Not here: what the values mean (each introspector). Only paths that were asked for are read, never all pids.
"""

import errno
import os
from typing import Protocol

from msgspec import Struct

from swactor_diag.introspect._base import IntrospectionError

FILE_BYTES_MAX = 256 * 1024
"""More than any file we read needs; a longer one is cut there."""

_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENOTDIR})


class ProcReadError(Exception):
    """The file is there but was not given to us. Other files of the same process may still be readable."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class ProcRoot(Protocol):
    """Text files of a kernel. Paths are relative: ``123/stat``, ``net/snmp``."""

    def read_text(self, path: str) -> str | None:
        """Return the text, the target of a ``ns/`` link, or None when there is no such file (any more).

        Raises:
            ProcReadError: it exists, but may not be read.
        """
        ...

    def list_dir(self, path: str) -> tuple[str, ...] | None:
        """Return the names in a folder, in order, or None when there is none; raises as ``read_text``."""
        ...


class EmptyProc:
    """A machine without ``/proc``."""

    def read_text(self, path: str) -> str | None:  # noqa: ARG002 - the protocol's parameter
        """There is no file."""
        return None

    def list_dir(self, path: str) -> tuple[str, ...] | None:  # noqa: ARG002 - the protocol's parameter
        """There is no folder."""
        return None


class LinuxProc:
    """The real ``/proc``, or a copy of one below ``root``."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root

    def read_text(self, path: str) -> str | None:
        """See `ProcRoot`. Bytes that are no UTF-8 are replaced."""
        full = f"{self._root}/{path}"
        try:
            if "/ns/" in path:
                return os.readlink(full)  # noqa: PTH115 - os and not pathlib: this runs per child and tick
            descriptor = os.open(full, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _read_all(descriptor).decode("utf-8", "replace")
            finally:
                os.close(descriptor)
        except OSError as error:
            # A process that ends between open and read gives ESRCH, not ENOENT: both are "gone".
            if error.errno in _GONE:
                return None
            raise ProcReadError(path, _reason(error)) from error

    def list_dir(self, path: str) -> tuple[str, ...] | None:
        """See `ProcRoot`."""
        try:
            return tuple(sorted(os.listdir(f"{self._root}/{path}")))  # noqa: PTH208 - as above
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise ProcReadError(path, _reason(error)) from error


class ProcUnits(Struct, frozen=True):
    """In which units a kernel counts."""

    ticks_per_s: int = 100
    page_bytes: int = 4096

    def ms(self, ticks: int) -> int:
        """Return clock ticks as milliseconds."""
        return ticks * 1000 // self.ticks_per_s


class ProcStat(Struct, frozen=True):
    """The fields of ``<pid>/stat`` that we use, in the kernel's units."""

    comm: str
    state: str
    parent_pid: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    vm_size_bytes: int
    rss_pages: int


def kernel_units() -> ProcUnits:
    """Return the units of the kernel this process runs on."""
    return ProcUnits(ticks_per_s=os.sysconf("SC_CLK_TCK"), page_bytes=os.sysconf("SC_PAGE_SIZE"))


def parse_stat(text: str) -> ProcStat:
    """Return the fields of a ``stat`` line.

    A process may call itself ``a) R 1 2 (b``: fields are counted from the last parenthesis.

    Raises:
        IntrospectionError: the line is malformed.
    """
    start, end = text.find("("), text.rfind(")")
    fields = text[end + 1 :].split()
    if start < 0 or end < start or len(fields) < 22:
        raise IntrospectionError(f"malformed stat line: {text[:80]!r}")
    try:
        return ProcStat(
            comm=text[start + 1 : end],
            state=fields[0],
            parent_pid=int(fields[1]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
            vm_size_bytes=int(fields[20]),
            rss_pages=int(fields[21]),
        )
    except ValueError as error:
        raise IntrospectionError(f"malformed stat line: {text[:80]!r}") from error


def _read_all(descriptor: int) -> bytes:
    chunks: list[bytes] = []
    room = FILE_BYTES_MAX
    while room > 0 and (chunk := os.read(descriptor, min(room, 65536))):
        chunks.append(chunk)
        room -= len(chunk)
    return b"".join(chunks)


def _reason(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "OSError")
