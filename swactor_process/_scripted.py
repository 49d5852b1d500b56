"""Children that are scripts instead of processes, for tests and simulations.

Owns: `ScriptedSpawner` and the vocabulary of its scripts.
Not here: anything the driver does; it cannot tell these children from real ones. All timing goes through the
loop, so on a virtual loop it is virtual time; process ids come from a counter.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from swactor.abc import Clock, Scheduler
from swactor_process._scripted_surroundings import ScriptedSurroundings
from swactor_process._signals import HARMLESS, KILL
from swactor_process.events import SubprocessLeftBehind
from swactor_process.limits import CgroupPlace
from swactor_process.spawner import (
    ChildListener,
    ExitStatus,
    OomEvidence,
    SpawnError,
    SpawnRole,
    WriteDone,
    WriteOutcome,
)
from swactor_process.spec import ProcessSpec, Stream

FIRST_PID = 1_000
PIPE_BYTES = 65_536
"""So much of a paused stream is held before the script waits, as with a real pipe."""


@dataclass(frozen=True)
class Say:
    """Write ``data`` to ``stream``, ``after_s`` seconds after the step before."""

    data: bytes
    after_s: float = 0.0
    stream: Stream = Stream.STDOUT


@dataclass(frozen=True)
class Exit:
    """End with ``code``, or by ``signal``, ``after_s`` seconds after the step before.

    ``oom`` is what the kernel has counted, for an end by KILL.
    """

    code: int = 0
    after_s: float = 0.0
    signal: int | None = None
    oom: OomEvidence | None = None


@dataclass(frozen=True)
class Listen:
    """Accept connections at the TCP ``port`` until the end, ``after_s`` seconds after the step before."""

    port: int
    after_s: float = 0.0


@dataclass(frozen=True)
class MakeFile:
    """Write the file ``path``, ``after_s`` seconds after the step before."""

    path: str
    after_s: float = 0.0


Step = Say | Exit | Listen | MakeFile


def _end_at_eof() -> Iterable[Step]:
    return (Exit(),)


def _no_answer(line: bytes) -> Iterable[Step]:  # noqa: ARG001 - reads the line and says nothing
    return ()


@dataclass(frozen=True, kw_only=True)
class Script:
    """What one child does. Steps run one after the other; a line of input waits for the steps before it.

    The default reads its input silently and ends with 0 when it is closed. ``begin`` runs first;
    ``on_line`` gets each line of input without its newline; ``ignores`` are signals it does not mind;
    ``unkillable`` survives KILL, like a process inside an uninterruptible call. The program is loaded
    ``load_s`` seconds after the start, at once unless given; infinity is a file system that hangs.
    """

    begin: tuple[Step, ...] = ()
    on_line: Callable[[bytes], Iterable[Step]] = _no_answer
    on_stdin_closed: Callable[[], Iterable[Step]] = _end_at_eof
    ignores: frozenset[int] = frozenset()
    unkillable: bool = False
    load_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The kernel refuses to start this program."""

    errno_name: str
    role: SpawnRole = SpawnRole.PROGRAM
    path: str = ""


Program = Callable[[ProcessSpec], Script | Refusal]
"""Makes the script of one start."""


class ScriptedSpawner:
    """Starts scripted children. A program that is not in ``programs`` does not exist."""

    def __init__(
        self,
        loop: Scheduler,
        clock: Clock,
        *,
        programs: Mapping[str, Program],
        parent_pid: int = 1,
        first_pid: int = FIRST_PID,
        left_behind: tuple[SubprocessLeftBehind, ...] = (),
    ) -> None:
        self.left_behind = left_behind
        self._loop, self._clock = loop, clock
        self._programs = programs
        self._parent_pid = parent_pid
        self._next_pid = first_pid
        self._living: dict[int, ScriptedChild] = {}
        self.surroundings = ScriptedSurroundings(loop)

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> "ScriptedChild":
        """See `Spawner.spawn`."""
        program = self._programs.get(spec.program)
        script = Refusal(errno_name="ENOENT", path=spec.program) if program is None else program(spec)
        if isinstance(script, Refusal):
            raise SpawnError(
                errno_name=script.errno_name, role=script.role, path=script.path, hint="refused by its script"
            )
        pid = self._next_pid
        self._next_pid += 1
        ticks = self._clock.monotonic_ns() // 10_000_000
        child = ScriptedChild(
            self._loop,
            spec,
            script,
            pid=pid,
            parent_pid=self._parent_pid,
            start_time=ticks,
            surroundings=self.surroundings,
            listener=listener,
            on_end=lambda: self._living.pop(pid),
        )
        self._living[pid] = child
        if not child.loading:
            self._loop.call_soon(child.begin)
        elif math.isfinite(script.load_s):
            self._loop.call_later(script.load_s, child.begin)
        return child

    def living(self) -> tuple["ScriptedChild", ...]:
        """Return the children that have not ended, oldest first."""
        return tuple(self._living.values())

    def kill(self, pid: int, number: int = KILL) -> None:
        """Signal a child from outside, as an operator or the kernel would; nothing when it has ended."""
        child = self._living.get(pid)
        if child is not None:
            child.signal(number)


class ScriptedChild:
    """One scripted child; see `Child`."""

    def __init__(
        self,
        loop: Scheduler,
        spec: ProcessSpec,
        script: Script,
        *,
        pid: int,
        parent_pid: int,
        start_time: int,
        surroundings: ScriptedSurroundings,
        listener: ChildListener,
        on_end: Callable[[], object],
    ) -> None:
        self.spec = spec
        self.pid, self.parent_pid, self.start_time = pid, parent_pid, start_time
        self.guarded = spec.guarded
        self.loading = script.load_s > 0
        self.cgroup = None if spec.cgroup is None else CgroupPlace(f"/scripted/{pid}")
        self._loop, self._script = loop, script
        self._surroundings = surroundings
        self._listener: ChildListener | None = listener
        self._on_end = on_end
        self._todo: deque[Step | bytes | None] = deque(script.begin)  # bytes: a line; None: end of input
        self._busy = False
        self._ended = False
        self._unread = dict.fromkeys(spec.piped(), b"")
        self._paused: set[Stream] = set()
        self._over: set[Stream] = set()
        self._stdin_open = spec.stdin
        self._rest = b""
        if not spec.stdin:
            self._todo.append(None)

    def begin(self) -> None:
        """Be loaded, and take the first step."""
        if self._ended:
            return
        if self.loading:
            self.loading = False
            if self._listener is not None:
                self._listener.loaded()
        self._next()

    def _next(self) -> None:
        while self._todo and not (self._busy or self._ended or self.loading or self._blocked()):
            step = self._todo.popleft()
            if isinstance(step, Step):
                self._busy = True
                self._loop.call_later(step.after_s, partial(self._do, step))
            else:
                steps = self._script.on_stdin_closed() if step is None else self._script.on_line(step)
                self._todo.extendleft(reversed(tuple(steps)))

    def _do(self, step: Step) -> None:
        self._busy = False
        if self._ended:
            return
        match step:
            case Exit(code=code, signal=number, oom=oom):
                self._end(ExitStatus(exit_code=code if number is None else None, signal=number, oom=oom))
            case Listen(port=port):
                self._surroundings.listen(port, self.pid)
            case MakeFile(path=path):
                self._surroundings.make_file(path)
            case Say(data=data, stream=stream):
                if data and stream in self._unread:
                    self._unread[stream] += data
                    self._show(stream)
        self._next()

    def _blocked(self) -> bool:
        return any(len(unread) >= PIPE_BYTES for unread in self._unread.values())

    def _end(self, status: ExitStatus) -> None:
        self._ended = True
        self._surroundings.hang_up(self.pid)
        self._on_end()
        for stream in self._unread:
            self._show(stream)
        if self._listener is not None and self.loading:
            self._listener.refused(_killed_while_loading(self.spec))
        elif self._listener is not None:
            self._listener.exited(status)

    def _show(self, stream: Stream) -> None:
        if stream not in self._paused and not self.loading:
            self._read(stream)

    def _read(self, stream: Stream) -> None:
        data, self._unread[stream] = self._unread[stream], b""
        if data and self._listener is not None:
            self._listener.output(stream, data)
        if self._ended and stream not in self._over and self._listener is not None:
            self._over.add(stream)
            self._listener.eof(stream)

    def write(self, data: bytes, done: WriteDone) -> None:
        """See `Child.write`. A scripted child reads at once."""
        if not self._stdin_open:
            done(WriteOutcome.STDIN_CLOSED, len(data))
        elif self._ended:
            done(WriteOutcome.CHILD_GONE, len(data))
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._todo.extend(lines)
            done(WriteOutcome.WRITTEN, 0)
            self._loop.call_soon(self._next)

    def close_stdin(self) -> None:
        """See `Child.close_stdin`."""
        if self._stdin_open:
            self._stdin_open = False
            if self._rest:
                self._todo.append(self._rest)
            self._todo.append(None)
            self._loop.call_soon(self._next)

    def signal(self, number: int) -> None:
        """See `Child.signal`. The effect comes with the next turn of the loop, as with a real one."""
        deadly = number not in self._script.ignores or number == KILL
        if self._ended or number == 0 or number in HARMLESS or not deadly or self._script.unkillable:
            return
        self._loop.call_soon(lambda: None if self._ended else self._end(ExitStatus(signal=int(number))))

    def state(self) -> str | None:
        """See `Child.state`."""
        if self._ended:
            return "Z"
        return "D" if self._script.unkillable else "S"

    def pause(self, stream: Stream) -> None:
        """See `Child.pause`."""
        if stream in self._unread:
            self._paused.add(stream)

    def resume(self, stream: Stream) -> None:
        """See `Child.resume`. What was said meanwhile comes with the next turn of the loop."""
        if stream in self._paused:
            self._paused.discard(stream)
            self._loop.call_soon(partial(self._go_on, stream))

    def _go_on(self, stream: Stream) -> None:
        self._show(stream)
        self._next()

    def read_rest(self) -> None:
        """See `Child.read_rest`. Only a paused stream holds anything."""
        for stream in self._unread:
            self._read(stream)
        self._loop.call_soon(self._next)

    def reap(self) -> tuple[int, ...]:
        """See `Child.reap`: there are no grandchildren."""
        return ()

    def close(self) -> None:
        """See `Child.close`."""
        self._listener = None
        self._paused.clear()
        self.read_rest()


def _killed_while_loading(spec: ProcessSpec) -> SpawnError:
    return SpawnError(
        errno_name="UNKNOWN", role=SpawnRole.UNKNOWN, path=spec.program, hint="it ended before it was loaded"
    )
