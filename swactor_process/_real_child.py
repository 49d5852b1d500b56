"""Real children, as far as all systems have them in common.

Owns: reading, writing, signalling and reaping one child; how its exit is read; the spawner around it.
Not here: how the exit is noticed (``linux``, ``portable``), when to do what (``session``), what a refusal
means (``_refusals``), who is killed when this node dies (``guardian``).

The exit is read without reaping. Until `RealChild.reap` the dead leader keeps its process id, so that
signalling the group can never hit somebody else.
"""

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from swactor.abc import Loop
from swactor_process._guardian_program import living_members, read_stat
from swactor_process._pipes import PipeReader, PipeWriter, Readables
from swactor_process._refusals import explain
from swactor_process._start import ChildPipes
from swactor_process._start_times import StartTimes
from swactor_process.guardian import Guardian
from swactor_process.spawner import ChildListener, ExitStatus, WriteOutcome
from swactor_process.spec import Lines, ProcessSpec, Stream


class Ended(NamedTuple):
    """What the kernel said of a child that has ended; ``reaped``: it has forgotten it already."""

    status: ExitStatus
    reaped: bool = False


LOST = Ended(ExitStatus(status_lost=True), reaped=True)
"""Ended and reaped by somebody else, or by the kernel on its own: nobody will ever know how."""


def look_for_exit(pid: int, *, wait: bool = False) -> Ended | None:
    """Return how child ``pid`` ended, and leave it there to be reaped; None when it has not ended.

    With ``wait`` it blocks until then.
    """
    flags = os.WEXITED | os.WNOWAIT
    try:
        found = os.waitid(os.P_PID, pid, flags if wait else flags | os.WNOHANG)
    except ChildProcessError:
        return LOST  # SIGCHLD is ignored, or somebody else waited for all children
    if found is None:
        return None
    exited = found.si_code == os.CLD_EXITED
    return Ended(ExitStatus(exit_code=found.si_status) if exited else ExitStatus(signal=found.si_status))


class RealSpawner(ABC):
    """Starts real children. Create it on the loop's thread; close it when no child is left.

    A process that was started with SIGCHLD ignored would lose every exit status; the default is restored
    here, when this is the main thread. The orphan guard is one process; the first guarded child starts it.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._guardian = Guardian(loop)
        self._start_times = StartTimes()
        ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if ignored and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> "RealChild":
        """See `Spawner.spawn`. Blocks until the kernel has loaded the program: about 0.3 ms."""
        pipes = ChildPipes()
        began_ns = self._start_times.now_ns()
        try:
            pid = pipes.start(spec)
        except OSError as exc:
            pipes.close_ours()
            raise explain(exc, spec) from exc
        finally:
            pipes.close_theirs()
        child = RealChild(
            spec,
            pid=pid,
            start_time=self._start_times.of(pid, began_ns),
            listener=listener,
            guardian=self._guardian,
        )
        try:
            child.take(pipes, self._loop, self._readables())
            self._watch_exit(child)
        except OSError as exc:
            child.discard()
            pipes.close_ours()
            raise explain(exc, spec) from exc
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

    def close(self) -> None:
        """End the orphan guard, and with it the groups of guarded children that still live."""
        self._guardian.close()

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
    ) -> None:
        self.pid, self.start_time = pid, start_time
        self.parent_pid = os.getpid()
        self.guarded = spec.guarded and guardian.guard(pid, start_time)
        self._guardian = guardian
        self._listener: ChildListener | None = listener
        self._ended = self._reaped = False
        self._spec = spec
        self._stdin: PipeWriter | None = None
        self._readers: dict[Stream, PipeReader] = {}

    def take(self, pipes: ChildPipes, loop: Loop, readables: Readables) -> None:
        """Take over our ends of ``pipes``.

        Raises:
            OSError: not all of them could be; ``pipes`` still has those.
        """
        if pipes.stdin is not None:
            self._stdin = PipeWriter(loop, pipes.stdin, limit_bytes=self._spec.stdin_buffer_bytes)
            pipes.stdin = None
        for stream in tuple(pipes.outputs):
            self._readers[stream] = self._reader(readables, stream, pipes.outputs[stream])
            del pipes.outputs[stream]

    def _reader(self, readables: Readables, stream: Stream, descriptor: int) -> PipeReader:
        def on_data(data: bytes) -> None:
            if self._listener is not None:
                self._listener.output(stream, data)

        def on_eof() -> None:
            if self._listener is not None:
                self._listener.eof(stream)

        # Cutting lines is so much work that others should have their turn more often.
        wide = not isinstance(self._spec.policy(stream), Lines)
        return PipeReader(readables, descriptor, on_data=on_data, on_eof=on_eof, wide=wide)

    def on_ended(self, ended: Ended) -> None:
        """Tell the listener of the exit; without one, reap."""
        self._ended, self._reaped = True, ended.reaped
        if self._listener is not None:
            self._listener.exited(ended.status)
        else:
            self.reap()

    def write(self, data: bytes, done: Callable[[WriteOutcome], None]) -> None:
        """See `Child.write`."""
        if self._stdin is None:
            done(WriteOutcome.STDIN_CLOSED)
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
        survivors = living_members(self.pid)
        if not survivors:
            self._guardian.release(self.pid)
        return survivors

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
        self._listener = None
        for reader in self._readers.values():
            reader.close()
        if self._stdin is not None:
            self._stdin.close()

    def discard(self) -> None:
        """Kill and reap it: its exit could not be noticed. Blocks until it is gone."""
        self.close()
        self.signal(signal.SIGKILL)
        self._ended = True
        self.reap()
