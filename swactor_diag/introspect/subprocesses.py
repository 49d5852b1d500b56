"""The child processes of this node: snapshot block ``subprocess`` and their lifecycle events.

Fed by two notifications that the owning actor forwards, `ProcessStarted` and `ProcessExited`. Emits
`SubprocessSpawned` and `SubprocessExited` exactly once per spawn id, however often a notification comes; a
start that was refused is reported by the driver itself (`SubprocessSpawnFailed`). Numbers come from
``stat``, ``fd`` and ``cmdline`` of registered pids, whose command line is read again when a program has
changed its name, and now and then.

Whether a child has ended is the driver's to say; the kernel can only say that it is not there. So:
gone from /proc: ``unknown`` (reason ``vanished``); a zombie without threads, or a pid that now belongs to
another program: ``exited`` without numbers; a zombie whose other threads go on: ``running``, without memory
and files (reason ``leader_ended``); no /proc at all: ``unknown`` (reason ``no_proc``), as with one of another
pid namespace, where our numbers are those of strangers. The wall clock decides nothing.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from msgspec import UNSET, Struct, UnsetType

from swactor import Event
from swactor.abc import Clock
from swactor_diag.introspect._base import IntrospectionError
from swactor_diag.introspect._command_line import readable_command
from swactor_diag.introspect._procfs import (
    ProcReadError,
    ProcRoot,
    ProcStat,
    ProcUnits,
    WatchedProcess,
    measured,
    memory_of,
    watch_process,
)
from swactor_diag.schema.blocks import Subprocess, SubprocessBlock, SubprocessStatus
from swactor_diag.schema.events import Error, SubprocessExited, SubprocessSpawned
from swactor_process import ProcessExited, ProcessStarted

EXITED_KEPT_MAX = 64
"""Ended children that stay in the block; beyond it the oldest is forgotten and counted."""

FORGOTTEN_KEPT_MAX = 4096
"""Spawn ids of forgotten children that are remembered, so that a late duplicate says nothing new."""

COMMAND_LOOKS = 60
"""A command line is read again after so many observations, in case it was rewritten under the same name."""

CHILDREN_A_STEP = 128
"""Children that are looked at in one turn of the event loop: a few milliseconds."""

_RUNNING = SubprocessStatus.RUNNING
_HANGS = "D"


class _Child(Struct):
    """What is known of one spawn. ``start_ticks`` with the pid names the process to the kernel."""

    spawn_id: str
    label: str
    pid: int
    process: WatchedProcess
    command: str
    command_cut: bool
    started: ProcessStarted | None = None
    exited: ProcessExited | None = None
    start_ticks: int | None = None
    cpu_ticks: int = 0
    comm: str = ""
    """The name under which the command line was last read."""
    looks_left: int = 0
    command_reason: str = ""
    spawn_at_ms: int | UnsetType = UNSET
    final: Subprocess | None = None
    """The row of one that has ended."""


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
        self._order: list[_Child] | None = None
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
        return next(block for block in self.observe_in_steps() if block is not None)

    def observe_in_steps(self) -> Iterator[SubprocessBlock | None]:
        """See `Stepwise`: thousands of children would hold the event loop."""
        if self._order is None:
            key = attrgetter("label", "pid", "spawn_id")
            self._order = sorted(self._children.values(), key=key)
        rows: list[Subprocess] = []
        for at in range(0, len(self._order), CHILDREN_A_STEP):
            if at:
                yield None
            rows += [child.final or self._alive(child) for child in self._order[at : at + CHILDREN_A_STEP]]
        yield SubprocessBlock(
            subprocesses=tuple(rows),
            exited_forgotten=self._exited_forgotten,
            scraped_at_ms=self._clock.wall_ms(),
        )

    def close(self) -> None:
        """Hold no file open."""
        for child in self._children.values():
            child.process.close()

    def _started(self, message: ProcessStarted) -> None:
        child = self._child(message)
        if child.started is not None:
            return
        child.started = message
        child.spawn_at_ms = message.started_at_ms
        child.start_ticks = message.start_time
        if child.exited is not None:
            child.final = _ended(child, child.exited)
        elif child.start_ticks is None:
            child.start_ticks = self._read_start(child)
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
        child.final = _ended(child, message)
        child.process.close()
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
            process = watch_process(self._proc, message.pid)
            child = _Child(message.spawn_id, label, message.pid, process, command, cut)
            self._children[message.spawn_id] = child
            self._order = None
        return child

    def _forget_oldest(self) -> None:
        ended = [child for child in self._children.values() if child.exited is not None]
        for child in ended[: max(0, len(ended) - self._exited_kept_max)]:
            del self._children[child.spawn_id]
            self._order = None
            self._exited_forgotten += 1
            self._forgotten[child.spawn_id] = None
        while len(self._forgotten) > FORGOTTEN_KEPT_MAX:
            del self._forgotten[next(iter(self._forgotten))]

    def _alive(self, child: _Child) -> Subprocess:
        """What the kernel says of a child whose exit nobody has reported."""
        try:
            stat = child.process.stat()
        except (ProcReadError, IntrospectionError) as error:
            return _unseen(child, SubprocessStatus.UNKNOWN, self._report_once("stat", error))
        if stat is None:
            return _unseen(child, SubprocessStatus.UNKNOWN, self._why_gone(child))
        if (
            stat.start_ticks != child.start_ticks
            and stat.start_ticks is not None
            and child.start_ticks is not None
        ):
            return _unseen(child, SubprocessStatus.EXITED, "pid_reused")
        if stat.ended:
            return _unseen(child, SubprocessStatus.EXITED, "zombie", state=stat.state)
        return self._running(child, stat)

    def _running(self, child: _Child, stat: ProcStat) -> Subprocess:
        units = self._units
        reasons: list[str] = []
        descriptors: int | None = None
        rss_bytes, vm_size_bytes = memory_of(stat, units, reasons)
        if not stat.leader_ended:
            try:
                descriptors = child.process.count_descriptors()
            except ProcReadError as error:
                reasons.append(self._report_once("fd", error))
        cpu_ms = measured(units.ms(stat.cpu_ticks), "cpu", reasons)
        reset = cpu_ms is not UNSET and stat.cpu_ticks < child.cpu_ticks
        if cpu_ms is not UNSET:
            child.cpu_ticks = stat.cpu_ticks
        child.looks_left -= 1
        # One that hangs in the kernel may hold the lock of its memory: reading its command line hangs, too.
        if (child.looks_left < 0 or child.comm != stat.comm) and stat.state != _HANGS:
            self._read_command(child, stat)
        return Subprocess(
            label=child.label,
            pid=child.pid,
            spawn_id=child.spawn_id,
            parent_pid=stat.parent_pid,
            status=_RUNNING,
            spawn_at_ms=child.spawn_at_ms,
            rss_bytes=rss_bytes,
            vm_size_bytes=vm_size_bytes,
            open_fd_count=UNSET if descriptors is None else descriptors,
            cpu_ms=cpu_ms,
            cpu_reset=reset,
            threads=measured(stat.threads, "threads", reasons),
            state=stat.state,
            cmdline=child.command or UNSET,
            cmdline_cut=child.command_cut,
            reasons=(*reasons, child.command_reason) if child.command_reason else tuple(reasons),
        )

    def _read_command(self, child: _Child, stat: ProcStat) -> None:
        """Look at the command line, and at the same moment of a snapshot not at that of every child."""
        child.looks_left = child.pid % COMMAND_LOOKS if not child.comm else COMMAND_LOOKS - 1
        child.comm = stat.comm
        child.command_reason = ""
        try:
            arguments = child.process.arguments()
        except ProcReadError as error:
            child.command_reason = self._report_once("cmdline", error)
            arguments = ()
        if arguments:
            child.command, child.command_cut = readable_command(arguments)
        child.command = child.command or stat.comm

    def _read_start(self, child: _Child) -> int | None:
        try:
            stat = child.process.stat()
        except (ProcReadError, IntrospectionError):
            return None  # the next observation meets and reports the same
        return None if stat is None else stat.start_ticks

    def _why_gone(self, child: _Child) -> str:
        """Whether this process is gone or there are none to look at."""
        try:
            if child.process.can_look():
                return "vanished"
        except ProcReadError:
            return "vanished"  # there are some, and we may not look at them
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


def _unseen(
    child: _Child, status: SubprocessStatus, reason: str, *, state: str | UnsetType = UNSET
) -> Subprocess:
    """A child whose end nobody has told, and of which there are no numbers."""
    return Subprocess(
        label=child.label,
        pid=child.pid,
        spawn_id=child.spawn_id,
        parent_pid=UNSET if child.started is None else child.started.parent_pid,
        status=status,
        spawn_at_ms=child.spawn_at_ms,
        state=state,
        cmdline=child.command or UNSET,
        cmdline_cut=child.command_cut,
        reasons=(reason,),
    )


def _ended(child: _Child, exited: ProcessExited) -> Subprocess:
    return Subprocess(
        label=child.label,
        pid=child.pid,
        spawn_id=child.spawn_id,
        parent_pid=UNSET if child.started is None else child.started.parent_pid,
        status=SubprocessStatus.EXITED,
        spawn_at_ms=child.spawn_at_ms,
        exit_at_ms=exited.exited_at_ms,
        exit_code=UNSET if exited.exit_code is None else exited.exit_code,
        exit_signal=UNSET if exited.signal is None else exited.signal,
        cmdline=child.command or UNSET,
        cmdline_cut=child.command_cut,
        reasons=("status_lost",) if exited.status_lost else (),
    )
