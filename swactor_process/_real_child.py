"""Real children, as far as all systems have them in common.

Owns: reading, writing, signalling and reaping one child; the spawner around it.
Not here: how the exit is noticed (``linux``, ``portable``) and read (``_exits``), when to do what
(``session``), what a refusal means (``_launch``), who is killed when this node dies (``guardian``), what
holds a child (``_confined``).

Until `RealChild.reap` the dead leader keeps its process id, so that signalling the group can never hit
somebody else.
"""

import os
import signal
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from swactor.abc import Cancellable, Loop
from swactor_process._cgroups import Cgroups
from swactor_process._children_file import ChildrenFile
from swactor_process._confined import Confined
from swactor_process._exits import Ended
from swactor_process._guardian_program import DEAD, is_same_group, living_members, read_stat
from swactor_process._launch import Launch, Outcome, explain_start
from swactor_process._leftovers import Leftovers
from swactor_process._oom import NodeOomCounter
from swactor_process._pipes import LINES_A_TURN, READ_BYTES, PipeReader, PipeWriter, Readables
from swactor_process._start import ChildPipes
from swactor_process._start_times import StartTimes
from swactor_process.events import SubprocessLeftBehind
from swactor_process.guardian import Guardian
from swactor_process.limits import CgroupPlace
from swactor_process.spawner import ChildListener, ExitStatus, SpawnError, SpawnRole, WriteDone, WriteOutcome
from swactor_process.spec import Lines, ProcessSpec, Stream


class RealSpawner(ABC):
    """Starts real children. Create it on the loop's thread; close it when no child is left.

    Once closed it starts nothing any more. A process that was started with SIGCHLD ignored would lose every
    exit status; the default is restored here, when this is the main thread. The orphan guard is one process;
    the first guarded child starts it.

    ``cgroup_root`` is the control group that may be divided among children with a `Cgroup`; unless given, it
    is that of this node, or one above it that was delegated. ``children_file`` is where children are written
    down, so that the next boot with the same file recognises those that this one leaves behind.

    Raises:
        ChildrenFileError: ``children_file`` cannot be used, or another node that runs uses it.
    """

    def __init__(
        self, loop: Loop, *, cgroup_root: Path | None = None, children_file: Path | None = None
    ) -> None:
        self._loop = loop
        self._closed = False
        pid, stat = os.getpid(), read_stat(os.getpid())
        start_time = None if stat is None else stat.start_time
        self._children_file: ChildrenFile | None = None
        if children_file is not None:
            self._children_file = ChildrenFile(children_file, pid=pid, start_time=start_time)
        self._cgroups = Cgroups(pid, start_time, root=cgroup_root)
        self._oom_counter = NodeOomCounter()
        self._guardian = Guardian(loop)
        self._leftovers = Leftovers()
        self._start_times = StartTimes()
        ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if ignored and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> "RealChild":
        """See `Spawner.spawn`. Blocks until the program, or the launcher, is loaded: about 0.3 ms."""
        if self._closed:
            raise SpawnError(
                errno_name="ECANCELED",
                role=SpawnRole.STOPPED,
                path=spec.program,
                hint="the spawner is closed",
            )
        self._leftovers.look()
        confined = Confined.of(spec.cgroup, self._cgroups, self._oom_counter)
        try:
            return self._start(spec, listener, confined)
        except OSError as exc:
            raise explain_start(exc, spec) from exc

    def _start(self, spec: ProcessSpec, listener: ChildListener, confined: Confined) -> "RealChild":
        """Start ``spec``. Whatever raises, nothing is left of the start.

        Raises:
            OSError: it could not be started, or not be looked after.
        """
        pipes = ChildPipes()
        began_ns = self._start_times.now_ns()
        try:
            pid = pipes.start(spec, cgroup_members=confined.members_file)
        except BaseException:
            pipes.close_ours()
            confined.release()
            raise
        finally:
            pipes.close_theirs()
        child = RealChild(
            spec,
            pid=pid,
            start_time=self._start_times.of(pid, began_ns),
            listener=listener,
            guardian=self._guardian,
            confined=confined,
            children_file=self._children_file,
            leftovers=self._leftovers,
        )
        try:
            child.register()
            child.take(pipes, self._loop, self._readables())
            self._watch_exit(child)
        except BaseException:
            child.discard()
            pipes.close_ours()
            raise
        return child

    @abstractmethod
    def _watch_exit(self, child: "RealChild") -> None:
        """Have `RealChild.on_ended` called when ``child`` has ended, but not before this returns.

        Raises:
            OSError: there is no means to that; ``child`` has to be discarded.
        """

    @abstractmethod
    def _readables(self) -> Readables:
        """Return what is to watch our ends of the pipes."""

    @property
    def guardian_pid(self) -> int | None:
        """The process id of the orphan guard; None before the first guarded child and after `close`."""
        return self._guardian.pid

    @property
    def left_behind(self) -> tuple[SubprocessLeftBehind, ...]:
        """See `Spawner.left_behind`; nothing without a ``children_file``."""
        return () if self._children_file is None else self._children_file.left_behind

    def close(self) -> None:
        """End the orphan guard, and with it the groups of guarded children that still live."""
        self._closed = True
        self._guardian.close()
        if self._children_file is not None:
            self._children_file.close()
        self._cgroups.close()
        self._oom_counter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RealChild:
    """One real child; see `Child`."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        pid: int,
        start_time: int | None,
        listener: ChildListener,
        guardian: Guardian,
        confined: Confined,
        children_file: ChildrenFile | None,
        leftovers: Leftovers,
    ) -> None:
        self.pid, self.start_time = pid, start_time
        self.parent_pid = os.getpid()
        self.guarded = False
        self.loading = False
        self._guardian = guardian
        self._confined = confined
        self._children_file = children_file
        self._leftovers = leftovers
        self._survivors: tuple[int, ...] = ()
        self._exit_watch: Cancellable | None = None
        self._launch: Launch | None = None
        self._refusal: SpawnError | None = None
        self._listener: ChildListener | None = listener
        self._ended = self._reaped = self._killed = self._closed = False
        self._spec = spec
        self._stdin: PipeWriter | None = None
        self._readers: dict[Stream, PipeReader] = {}

    def register(self) -> None:
        """Have it known to those who look after this node's end."""
        self._leftovers.discard(self.pid)  # an earlier child with that number
        self.guarded = self._spec.guarded and self._guardian.guard(self.pid, self.start_time)
        if self._children_file is not None:
            place = self._confined.place
            cgroup = None if place is None else place.path
            self._children_file.add(self.pid, self.start_time, label=self._spec.label, cgroup=cgroup)

    def take(self, pipes: ChildPipes, loop: Loop, readables: Readables) -> None:
        """Take over our ends of ``pipes``.

        Raises:
            OSError: not all of them could be; ``pipes`` still has those.
        """
        if pipes.stdin is not None:
            self._stdin = PipeWriter(loop, pipes.stdin, limit_bytes=self._spec.stdin_buffer_bytes)
            pipes.stdin = None
        for stream in tuple(pipes.outputs):
            self._readers[stream] = self._reader(loop, readables, stream, pipes.outputs[stream])
            del pipes.outputs[stream]
        if pipes.report is not None:
            self._launch = Launch(self._spec, readables, pipes.report, self._launched)
            pipes.report = None
            self.loading = True
            for reader in self._readers.values():
                reader.pause()  # the program may speak before we know that it runs

    def _reader(self, loop: Loop, readables: Readables, stream: Stream, descriptor: int) -> PipeReader:
        def on_data(data: bytes) -> None:
            if self._listener is not None:
                self._listener.output(stream, data)

        def on_eof() -> None:
            if self._listener is not None:
                self._listener.eof(stream)

        policy = self._spec.policy(stream)
        by_line = isinstance(policy, Lines) and not policy.batched
        # Each piece of a line that is cut is work, too: no more of them in one turn than lines.
        most = policy.line_max_bytes * LINES_A_TURN if isinstance(policy, Lines) else READ_BYTES
        return PipeReader(
            loop, readables, descriptor, on_data=on_data, on_eof=on_eof, by_line=by_line, most_bytes=most
        )

    @property
    def cgroup(self) -> CgroupPlace | None:
        """See `Child.cgroup`."""
        return self._confined.place

    def _launched(self, outcome: Outcome) -> None:
        """The launcher has told how it went."""
        if outcome.no_cgroup:
            self._confined.do_without(outcome.no_cgroup)
        self._refusal = outcome.refusal
        if self._refusal is None:
            self.loading = False
            for reader in self._readers.values():
                reader.resume()
            if self._listener is not None:
                self._listener.loaded()

    def on_ended(self, ended: Ended, watch: Cancellable | None = None) -> None:
        """Tell the listener of the exit, or of the launcher's failure; without one, reap.

        ``watch`` is what has seen it, and is cancelled with the rest: the news does not wait for that.
        """
        self._ended, self._reaped = True, ended.reaped
        self._exit_watch = watch
        if self._launch is not None:
            self._launch.finish()  # the loop may not have come to it
        listener, status = self._listener, ended.status
        if listener is None:
            self.reap()
        elif self._refusal is not None:
            self.reap()
            self.close()
            listener.refused(self._refusal)
        elif status.signal == signal.SIGKILL and not self._killed:
            listener.exited(ExitStatus(signal=status.signal, oom=self._confined.oom_kills()))
        else:
            listener.exited(status)

    def write(self, data: bytes, done: WriteDone) -> None:
        """See `Child.write`."""
        if self._stdin is None:
            done(WriteOutcome.STDIN_CLOSED, len(data))
        else:
            self._stdin.write(data, done)

    def close_stdin(self) -> None:
        """See `Child.close_stdin`."""
        if self._stdin is not None:
            self._stdin.close_when_written()

    def signal(self, number: int) -> None:
        """See `Child.signal`. Once reaped, the number may be somebody else's."""
        if not self._reaped:
            try:  # noqa: SIM105 - a context manager for it would be felt
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                pass
            if number == signal.SIGKILL:
                self._killed = True
                self._confined.kill()

    def state(self) -> str | None:
        """See `Child.state`."""
        stat = None if self._reaped else read_stat(self.pid)
        return None if stat is None else stat.state

    def reap(self) -> tuple[int, ...]:
        """See `Child.reap`."""
        if self._ended and not self._reaped:
            self._reaped = True
            try:  # noqa: SIM105 - a context manager for it would be felt
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                pass
        if self._stdin is not None:
            self._stdin.give_up()
        self._survivors = self._confined.with_members(self._group())
        if self._children_file is not None:
            self._children_file.leave(self.pid, self._survivors)
        if self._closed:
            self._release()
        return self._survivors

    def _release(self) -> None:
        """It is reaped and closed: from now on nothing is kept but what its survivors need."""
        if self._exit_watch is not None:
            watch, self._exit_watch = self._exit_watch, None
            watch.cancel()
        if self._survivors:
            self._leftovers.add(self)
        else:
            self._leftovers.discard(self.pid)
            self._guardian.release(self.pid)
            self._confined.release()

    def _group(self) -> tuple[int, ...]:
        living = living_members(self.pid)
        # Once nobody was left, the kernel may have given the number of the group to somebody else.
        return living if living and is_same_group(self.pid, self.start_time) else ()

    def has_left(self) -> bool:
        """Whether anybody that it left behind is still there; when not, nothing is kept of it any more."""
        stats = (read_stat(pid) for pid in self._survivors)
        # One of them is enough, and found faster than all.
        if any(stat is not None and stat.group == self.pid and stat.state not in DEAD for stat in stats):
            return True
        return bool(self.reap())

    def pause(self, stream: Stream) -> None:
        """See `Child.pause`."""
        if stream in self._readers:
            self._readers[stream].pause()

    def resume(self, stream: Stream) -> None:
        """See `Child.resume`."""
        if stream in self._readers:
            self._readers[stream].resume()

    def read_rest(self) -> None:
        """See `Child.read_rest`."""
        for reader in self._readers.values():
            reader.read_rest()

    def close(self) -> None:
        """See `Child.close`."""
        if self._closed:
            return
        self._closed = True
        self._listener = None
        for reader in self._readers.values():
            reader.close()
        if self._stdin is not None:
            self._stdin.close()
        if self._launch is not None:
            self._launch.close()
        if self._reaped:
            self._release()

    def discard(self) -> None:
        """Kill and reap it: its exit could not be noticed. Blocks until it is gone."""
        self.close()
        self.signal(signal.SIGKILL)
        self._ended = True
        self.reap()
