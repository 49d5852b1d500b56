"""The child processes of this node: snapshot block ``subprocess`` and their lifecycle events.

Fed by two notifications that the owning actor forwards, `ProcessStarted` and `ProcessExited`. Emits
`SubprocessSpawned` and `SubprocessExited` exactly once per spawn id, however often a notification comes; a
start that was refused is reported by the driver itself (`SubprocessSpawnFailed`). Numbers come from
``stat``, ``fd`` and ``cmdline`` of registered pids.

Whether a child has ended is the driver's to say; the kernel can only say that it is not there. So:
gone from /proc: ``unknown`` (reason ``vanished``); a zombie or a pid that now belongs to another program:
``exited`` without numbers; no /proc at all: ``unknown`` (reason ``no_proc``). The wall clock decides nothing.
"""

from collections.abc import Sequence

from msgspec import UNSET, Struct, structs

from swactor import Event
from swactor.abc import Clock
from swactor_diag.introspect._base import IntrospectionError
from swactor_diag.introspect._command_line import readable_command, split_cmdline
from swactor_diag.introspect._procfs import ProcReadError, ProcRoot, ProcStat, ProcUnits, parse_stat
from swactor_diag.schema.blocks import Subprocess, SubprocessBlock, SubprocessStatus
from swactor_diag.schema.events import Error, SubprocessExited, SubprocessSpawned
from swactor_process import ProcessExited, ProcessStarted

EXITED_KEPT_MAX = 64
"""Ended children that stay in the block; beyond it the oldest is forgotten and counted."""

FORGOTTEN_KEPT_MAX = 4096
"""Spawn ids of forgotten children that are remembered, so that a late duplicate says nothing new."""

_ENDED_STATES = frozenset("ZXx")


class _Child(Struct):
    """What is known of one spawn. ``start_ticks`` with the pid names the process to the kernel."""

    spawn_id: str
    label: str
    pid: int
    command: str
    command_cut: bool
    started: ProcessStarted | None = None
    exited: ProcessExited | None = None
    start_ticks: int | None = None
    cpu_ticks: int = 0


class SubprocessIntrospector:
    """Table of the children that somebody told us about."""

    name = "subprocess"
    record = SubprocessBlock

    def __init__(
        self,
        *,
        proc: ProcRoot,
        clock: Clock,
        units: ProcUnits | None = None,
        exited_kept_max: int = EXITED_KEPT_MAX,
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._units = units or ProcUnits()
        self._exited_kept_max = exited_kept_max
        self._children: dict[str, _Child] = {}
        self._exited_forgotten = 0
        self._forgotten: dict[str, None] = {}
        self._events: list[Event] = []
        self._reported: set[str] = set()

    def hear(self, message: object) -> None:
        """Take note of a start or an exit; anything else is ignored."""
        match message:
            case ProcessStarted() | ProcessExited() if message.spawn_id in self._forgotten:
                pass
            case ProcessStarted():
                self._started(message)
            case ProcessExited():
                self._exited(message)
            case _:
                pass

    def take_events(self) -> Sequence[Event]:
        """Return the lifecycle events, and errors once per cause, that came up since the last call."""
        events, self._events = self._events, []
        return events

    def observe(self) -> SubprocessBlock:
        """Return all children, running ones with fresh numbers, sorted by label, pid and spawn id."""
        rows = [self._row(child) for child in self._children.values()]
        rows.sort(key=lambda row: (row.label, row.pid, row.spawn_id or ""))
        return SubprocessBlock(
            subprocesses=tuple(rows),
            exited_forgotten=self._exited_forgotten,
            scraped_at_ms=self._clock.wall_ms(),
        )

    def _started(self, message: ProcessStarted) -> None:
        child = self._child(message)
        if child.started is not None:
            return
        child.started = message
        child.start_ticks = message.start_time
        if child.start_ticks is None and child.exited is None:
            child.start_ticks = self._read_start(message.pid)
        self._events.append(
            SubprocessSpawned(
                label=child.label,
                pid=child.pid,
                command=child.command,
                spawn_id=child.spawn_id,
                parent_pid=message.parent_pid,
                started_at_ms=message.started_at_ms,
            )
        )

    def _exited(self, message: ProcessExited) -> None:
        child = self._child(message)
        if child.exited is not None:
            return
        child.exited = message
        self._events.append(
            SubprocessExited(
                label=child.label,
                pid=child.pid,
                command=child.command,
                exit_code=message.exit_code,
                exit_signal=message.signal,
                uptime_ms=max(0, message.uptime_ms),
                spawn_id=child.spawn_id,
                exited_at_ms=message.exited_at_ms,
                asked_for=message.asked_for,
                escalated=message.escalated,
                external=UNSET if message.signal is None else message.external,
                oom_kills=UNSET if message.oom is None else message.oom.kills,
                oom_own_cgroup=UNSET if message.oom is None else message.oom.own_cgroup,
                stderr_tail=message.stderr_tail or UNSET,
                status_lost=message.status_lost or UNSET,
                eof_reached=message.eof_reached,
                survivors=message.survivors or UNSET,
            )
        )
        self._forget_oldest()

    def _child(self, message: ProcessStarted | ProcessExited) -> _Child:
        """The entry of the message's spawn. An exit nobody announced gets one too, under what it says."""
        child = self._children.get(message.spawn_id)
        if child is None:
            command, cut = readable_command(message.command)
            label = message.label or f"unknown-pid-{message.pid}"
            child = _Child(message.spawn_id, label, message.pid, command, cut)
            self._children[message.spawn_id] = child
        return child

    def _forget_oldest(self) -> None:
        ended = [child for child in self._children.values() if child.exited is not None]
        for child in ended[: max(0, len(ended) - self._exited_kept_max)]:
            del self._children[child.spawn_id]
            self._exited_forgotten += 1
            self._forgotten[child.spawn_id] = None
        while len(self._forgotten) > FORGOTTEN_KEPT_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    def _row(self, child: _Child) -> Subprocess:
        row = Subprocess(
            label=child.label,
            pid=child.pid,
            spawn_id=child.spawn_id,
            parent_pid=UNSET if child.started is None else child.started.parent_pid,
            status=SubprocessStatus.UNKNOWN,
            spawn_at_ms=UNSET if child.started is None else child.started.started_at_ms,
            cmdline=child.command or UNSET,
            cmdline_cut=child.command_cut,
        )
        return self._ended(row, child.exited) if child.exited is not None else self._alive(row, child)

    @staticmethod
    def _ended(row: Subprocess, exited: ProcessExited) -> Subprocess:
        return _with(
            row,
            status=SubprocessStatus.EXITED,
            exit_at_ms=exited.exited_at_ms,
            exit_code=UNSET if exited.exit_code is None else exited.exit_code,
            exit_signal=UNSET if exited.signal is None else exited.signal,
            reasons=("status_lost",) if exited.status_lost else (),
        )

    def _alive(self, row: Subprocess, child: _Child) -> Subprocess:
        """What the kernel says of a child whose exit nobody has reported."""
        try:
            stat = self._read_stat(child.pid)
        except (ProcReadError, IntrospectionError) as error:
            return _with(row, reasons=(self._report_once("stat", error),))
        if stat is None:
            return _with(row, reasons=(self._why_gone(),))
        if child.start_ticks is not None and stat.start_ticks != child.start_ticks:
            return _with(row, status=SubprocessStatus.EXITED, reasons=("pid_reused",))
        if stat.state in _ENDED_STATES:
            return _with(row, status=SubprocessStatus.EXITED, state=stat.state, reasons=("zombie",))
        return self._running(row, child, stat)

    def _running(self, row: Subprocess, child: _Child, stat: ProcStat) -> Subprocess:
        reset = stat.cpu_ticks < child.cpu_ticks
        child.cpu_ticks = stat.cpu_ticks
        reasons: list[str] = []
        descriptors = self._count_descriptors(child.pid, reasons)
        command, cut = self._command(child, stat, reasons)
        return _with(
            row,
            status=SubprocessStatus.RUNNING,
            parent_pid=stat.parent_pid,
            rss_bytes=stat.rss_pages * self._units.page_bytes,
            vm_size_bytes=stat.vm_size_bytes,
            open_fd_count=descriptors,
            cpu_ms=self._units.ms(stat.cpu_ticks),
            cpu_reset=reset,
            threads=stat.threads,
            state=stat.state,
            cmdline=command,
            cmdline_cut=cut,
            reasons=tuple(reasons),
        )

    def _count_descriptors(self, pid: int, reasons: list[str]) -> object:
        try:
            names = self._proc.list_dir(f"{pid}/fd")
        except ProcReadError as error:
            reasons.append(self._report_once("fd", error))
            return UNSET
        return UNSET if names is None else len(names)

    def _command(self, child: _Child, stat: ProcStat, reasons: list[str]) -> tuple[object, bool]:
        try:
            arguments = split_cmdline(self._proc.read_text(f"{child.pid}/cmdline") or "")
        except ProcReadError as error:
            reasons.append(self._report_once("cmdline", error))
            arguments = ()
        if arguments:
            return readable_command(arguments)
        return child.command or stat.comm or UNSET, child.command_cut

    def _read_stat(self, pid: int) -> ProcStat | None:
        text = self._proc.read_text(f"{pid}/stat")
        return None if text is None else parse_stat(text)

    def _read_start(self, pid: int) -> int | None:
        try:
            stat = self._read_stat(pid)
        except (ProcReadError, IntrospectionError):
            return None  # the next observation meets and reports the same
        return None if stat is None else stat.start_ticks

    def _why_gone(self) -> str:
        """Whether this pid is gone or there is no /proc to look at."""
        try:
            has_proc = (
                self._proc.read_text("self/stat") is not None or self._proc.read_text("stat") is not None
            )
        except ProcReadError:
            has_proc = True
        if has_proc:
            return "vanished"
        if "no_proc" not in self._reported:
            self._reported.add("no_proc")
            self._events.append(Error(component="subprocess_introspect", message="there is no /proc here"))
        return "no_proc"

    def _report_once(self, what: str, error: Exception) -> str:
        """The reason for a row; an Error event the first time a cause is met, not once per snapshot."""
        cause = error.reason if isinstance(error, ProcReadError) else "malformed"
        reason = f"{what}: {cause}"
        if reason not in self._reported:
            self._reported.add(reason)
            self._events.append(Error(component="subprocess_introspect", message=str(error)))
        return reason


def _with(row: Subprocess, **changes: object) -> Subprocess:
    """Return ``row`` with ``changes``; the names are those of `Subprocess`."""
    return structs.replace(row, **changes)
