"""The kernel's text files below ``/proc``: the seam, one process that is looked at again and again, ``stat``.

Owns: `ProcRoot`, `WatchedProcess`, what "gone", "denied" and "cut" look like, the fields of a ``stat``.
Not here: the files of a real machine (``_linux_proc``, ``_psutil_proc``), what the values mean (each
introspector). Only paths that were asked for are read, never all pids.
"""

import enum
from typing import Protocol, runtime_checkable

from msgspec import UNSET, Struct, UnsetType

from swactor_diag.introspect._base import IntrospectionError
from swactor_diag.introspect._command_line import split_cmdline

FILE_BYTES_MAX = 256 * 1024
"""More than any file we read needs; a longer one is cut there."""

FIGURE_MAX = 2**63 - 1
"""What is larger was below zero for a moment: the kernel's unsigned numbers wrap."""

_ENDED_STATES = frozenset("ZXx")


class ProcReadError(Exception):
    """The file is there but was not given to us. Other files of the same process may still be readable."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class CutText(str):
    """The beginning of a file that is longer than anybody reads."""

    __slots__ = ()


class ProcRoot(Protocol):
    """Text files of a kernel. Paths are relative: ``123/stat``, ``net/snmp``."""

    def read_text(self, path: str) -> str | None:
        """Return the text, the target of a ``ns/`` link, or None when there is no such file (any more).

        Of a file that is longer than is read it is a `CutText`.

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


class ProcUnits(Struct, frozen=True):
    """In which units a kernel counts."""

    ticks_per_s: int = 100
    page_bytes: int = 4096

    def ms(self, ticks: int) -> int:
        """Return clock ticks as milliseconds."""
        return ticks * 1000 // self.ticks_per_s


class ProcStat(Struct, frozen=True):
    """The fields of ``<pid>/stat`` that we use, in the kernel's units, as read: see `measured`."""

    comm: str
    state: str
    parent_pid: int
    cpu_ticks: int
    threads: int
    start_ticks: int | None
    """None when whoever reads makes sure itself that it is still the same process."""
    vm_size_bytes: int
    rss_pages: int

    @property
    def leader_ended(self) -> bool:
        """Whether the main thread has ended: memory and files are not to be seen through it any more."""
        return self.state in _ENDED_STATES

    @property
    def ended(self) -> bool:
        """Whether no thread works any more. One whose main thread has ended may go on in the others."""
        return self.leader_ended and self.threads <= 1


def measured(value: int, name: str, reasons: list[str]) -> int | UnsetType:
    """Return ``value``, absent with its reason when it cannot have been measured: negative, or wrapped."""
    if 0 <= value <= FIGURE_MAX:
        return value
    reasons.append(f"{name}: {'negative' if value < 0 else 'wrapped'}")
    return UNSET


def memory_of(
    stat: ProcStat, units: ProcUnits, reasons: list[str]
) -> tuple[int | UnsetType, int | UnsetType]:
    """Return resident and virtual bytes; absent, with the reason, when they cannot be seen through it."""
    if stat.leader_ended:
        reasons.append("leader_ended")
        return UNSET, UNSET
    rss_bytes = measured(stat.rss_pages * units.page_bytes, "rss", reasons)
    return rss_bytes, measured(stat.vm_size_bytes, "vm_size", reasons)


class ReadOutcome(enum.Enum):
    """What became of reading a file."""

    WHOLE = enum.auto()
    CUT = enum.auto()
    """It is longer than is read."""
    MISSING = enum.auto()
    """There is none."""
    DENIED = enum.auto()
    """It is there, and was not given to us."""


class Table(Struct, frozen=True):
    """A file of one row a line, as far as it could be read: whole lines only."""

    outcome: ReadOutcome
    text: str = ""

    @property
    def has_text(self) -> bool:
        """Whether there is something to look at, were it no row at all."""
        return self.outcome in {ReadOutcome.WHOLE, ReadOutcome.CUT}

    @property
    def has_more(self) -> bool:
        """Whether there may be rows that nobody has counted."""
        return self.outcome in {ReadOutcome.CUT, ReadOutcome.DENIED}


def read_table(proc: ProcRoot, path: str, reasons: list[str]) -> Table:
    """Return what can be read of ``path``; what is not to be had goes into ``reasons``."""
    try:
        text = proc.read_text(path)
    except ProcReadError as error:
        reasons.append(str(error))
        return Table(ReadOutcome.DENIED)
    if text is None:
        reasons.append(f"{path}: no such file")
        return Table(ReadOutcome.MISSING)
    if isinstance(text, CutText):
        reasons.append(f"{path}: cut at {FILE_BYTES_MAX // 1024} KiB")
        return Table(ReadOutcome.CUT, text[: text.rfind("\n") + 1])
    return Table(ReadOutcome.WHOLE, text)


class WatchedProcess(Protocol):
    """What one process says of itself. Every method may raise `ProcReadError`: there, but not for us."""

    def stat(self) -> ProcStat | None:
        """Return the figures, None when there is no such process (any more); raises `IntrospectionError`."""
        ...

    def count_descriptors(self) -> int | None:
        """Return how many files it has open."""
        ...

    def arguments(self) -> tuple[str, ...]:
        """Return its command line as it is now, which may be empty."""
        ...

    def can_look(self) -> bool:
        """Whether there are any processes to look at, on this machine."""
        ...

    def close(self) -> None:
        """Hold nothing open. Harmless the second time; reading opens again."""
        ...


@runtime_checkable
class WatchesProcesses(Protocol):
    """A `ProcRoot` that has its own way to look at one process again and again."""

    def watch(self, pid: int) -> WatchedProcess:
        """Return what looks at process ``pid``; nothing is read yet."""
        ...


def watch_process(proc: ProcRoot, pid: int) -> WatchedProcess:
    """Return the best way that ``proc`` has to look at ``pid``."""
    return proc.watch(pid) if isinstance(proc, WatchesProcesses) else ProcessByPath(proc, pid)


class ProcessByPath:
    """Reads whole files of any `ProcRoot`."""

    def __init__(self, proc: ProcRoot, pid: int | str) -> None:
        self._proc = proc
        self._pid = pid

    def stat(self) -> ProcStat | None:
        """See `WatchedProcess`."""
        text = self._proc.read_text(f"{self._pid}/stat")
        return None if text is None else parse_stat(text)

    def count_descriptors(self) -> int | None:
        """See `WatchedProcess`."""
        names = self._proc.list_dir(f"{self._pid}/fd")
        return None if names is None else len(names)

    def arguments(self) -> tuple[str, ...]:
        """See `WatchedProcess`."""
        return split_cmdline(self._proc.read_text(f"{self._pid}/cmdline") or "")

    def can_look(self) -> bool:
        """See `WatchedProcess`."""
        return self._proc.read_text("self/stat") is not None or self._proc.read_text("stat") is not None

    def close(self) -> None:
        """See `WatchedProcess`."""


def parse_stat(text: str) -> ProcStat:
    """Return the fields of a ``stat`` line.

    A process may call itself ``a) R 1 2 (b``: fields are counted from the last parenthesis.

    Raises:
        IntrospectionError: the line is malformed.
    """
    end = text.rfind(")")
    try:
        # As few objects as can be: this is half of what looking at a child costs.
        fields = text[end + 2 :].split(" ", 22)
        (
            state,
            parent,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            user,
            system,
            _,
            _,
            _,
            _,
            threads,
            _,
            start,
            size,
            rss,
            _,
        ) = fields
        user_ticks, system_ticks = int(user), int(system)
        return ProcStat(
            text[text.find("(") + 1 : end],
            state,
            int(parent),
            -1 if user_ticks < 0 or system_ticks < 0 else user_ticks + system_ticks,
            int(threads),
            int(start),
            int(size),
            int(rss),
        )
    except ValueError as error:
        raise IntrospectionError(f"malformed stat line: {text[:80]!r}") from error
