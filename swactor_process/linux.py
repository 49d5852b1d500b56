"""Real children on Linux: ``Popen`` in a session of its own, a pidfd and non-blocking pipes on the loop.

Owns: starting, reading, writing, signalling, reaping, the kernel start time.
Not here: when to do any of it (``session``), what a refusal means (``_refusals``), who is killed when this
node dies (``guardian``).

The exit is noticed through the pidfd and read without reaping. Until `LinuxChild.reap` the dead leader keeps
its process id, so that signalling the group can never hit somebody else.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from swactor.abc import Cancellable, Loop
from swactor_process._guardian_program import living_members, read_stat
from swactor_process._pipes import PipeReader, PipeWriter
from swactor_process._refusals import explain
from swactor_process.guardian import Guardian
from swactor_process.spawner import ChildListener, ExitStatus, WriteOutcome
from swactor_process.spec import Inherit, ProcessSpec, Stream


class LinuxSpawner:
    """Starts real children. Create it on the loop's thread; close it when no child is left.

    A process that was started with SIGCHLD ignored would lose every exit status; the default is restored
    here, when this is the main thread. The orphan guard is one process; the first guarded child starts it.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._guardian = Guardian(loop)
        ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        if ignored and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> "LinuxChild":
        """See `Spawner.spawn`. Blocks until the kernel has loaded the program: about 0.3 ms."""
        pipes = _Pipes()
        try:
            popen = pipes.start(spec)
            pidfd = _open_pidfd(popen)
        except OSError as exc:
            pipes.close_ours()
            raise explain(exc, spec) from exc
        finally:
            pipes.close_theirs()
        return LinuxChild(
            self._loop, popen, spec, pidfd=pidfd, pipes=pipes, listener=listener, guardian=self._guardian
        )

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


class LinuxChild:
    """One real child; see `Child`."""

    def __init__(
        self,
        loop: Loop,
        popen: subprocess.Popen[bytes],
        spec: ProcessSpec,
        *,
        pidfd: int | None,
        pipes: "_Pipes",
        listener: ChildListener,
        guardian: Guardian,
    ) -> None:
        self.pid = popen.pid
        self.parent_pid = os.getpid()
        stat = read_stat(popen.pid)
        self.start_time = None if stat is None else stat.start_time
        self.guarded = spec.guarded and guardian.guard(self.pid, self.start_time)
        self._guardian = guardian
        self._popen = popen
        self._listener: ChildListener | None = listener
        self._ended = self._reaped = pidfd is None
        self._stdin: PipeWriter | None = None
        if pipes.stdin is not None:
            self._stdin = PipeWriter(loop, pipes.stdin, limit_bytes=spec.stdin_buffer_bytes)
        self._readers = {
            stream: self._reader(loop, stream, descriptor) for stream, descriptor in pipes.outputs.items()
        }
        self._exit_watch: Cancellable | None = None
        self._pidfd = pidfd
        if pidfd is None:
            # Ended, and reaped by the kernel on its own: nobody will ever know how.
            loop.call_soon(lambda: self._tell_exit(ExitStatus(status_lost=True)))
        else:
            self._exit_watch = loop.watch_readable(pidfd, self._look_for_exit)

    def _reader(self, loop: Loop, stream: Stream, descriptor: int) -> PipeReader:
        def on_data(data: bytes) -> None:
            if self._listener is not None:
                self._listener.output(stream, data)

        def on_eof() -> None:
            if self._listener is not None:
                self._listener.eof(stream)

        return PipeReader(loop, descriptor, on_data=on_data, on_eof=on_eof)

    def _look_for_exit(self) -> None:
        if self._ended:
            return
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # SIGCHLD is ignored, or somebody else waited for all children.
            self._reaped = True
            status = ExitStatus(status_lost=True)
        else:
            if found is None:
                return
            exited = found.si_code == os.CLD_EXITED
            status = ExitStatus(exit_code=found.si_status) if exited else ExitStatus(signal=found.si_status)
        self._tell_exit(status)

    def _tell_exit(self, status: ExitStatus) -> None:
        self._ended = True
        if self._exit_watch is not None:
            self._exit_watch.cancel()
        if self._pidfd is not None:
            os.close(self._pidfd)
        if self._listener is not None:
            self._listener.exited(status)
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
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def state(self) -> str | None:
        """See `Child.state`."""
        stat = None if self._reaped else read_stat(self.pid)
        return None if stat is None else stat.state

    def reap(self) -> tuple[int, ...]:
        """See `Child.reap`."""
        if self._ended and not self._reaped:
            self._reaped = True
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._popen.returncode = 0  # tells Popen that there is nothing to wait for; nobody reads it
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


class _Pipes:
    """The pipes of one start: our ends, and those of the child until it has them."""

    def __init__(self) -> None:
        self.stdin: int | None = None
        self.outputs: dict[Stream, int] = {}
        self._theirs: list[int] = []

    def start(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        """Start ``spec``."""
        stdin = subprocess.DEVNULL
        if spec.stdin:
            stdin, self.stdin = self._pipe()
        return subprocess.Popen(  # noqa: S603 - running what the owner names is the purpose
            spec.command,
            stdin=stdin,
            stdout=self._output(spec, Stream.STDOUT),
            stderr=self._output(spec, Stream.STDERR),
            cwd=spec.cwd,
            env=spec.env,
            # Its own session, so that a signal reaches its whole group and a Ctrl-C at the terminal does not.
            start_new_session=True,
            close_fds=True,
        )

    def _output(self, spec: ProcessSpec, stream: Stream) -> int | None:
        if isinstance(spec.policy(stream), Inherit):
            return None
        if stream not in spec.piped():
            return subprocess.DEVNULL
        self.outputs[stream], theirs = self._pipe(ours_first=True)
        return theirs

    def _pipe(self, *, ours_first: bool = False) -> tuple[int, int]:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self._theirs.append(writing if ours_first else reading)
        return reading, writing

    def close_theirs(self) -> None:
        """Close the child's ends here; it has its own copies now, or was not started."""
        for descriptor in self._theirs:
            os.close(descriptor)

    def close_ours(self) -> None:
        """Close our ends: nothing was started."""
        for descriptor in [*self.outputs.values(), *([] if self.stdin is None else [self.stdin])]:
            os.close(descriptor)


def _open_pidfd(popen: subprocess.Popen[bytes]) -> int | None:
    """Return a pidfd of the child; None when the kernel has forgotten it already.

    Raises:
        OSError: no descriptor to be had. The child was killed and reaped.
    """
    try:
        return os.pidfd_open(popen.pid)
    except ProcessLookupError:
        return None
    except OSError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()
        raise
