"""One start of a real child: its pipes, and the call that makes the kernel run the program.

Owns: which end of a pipe is whose, until the child has its own or was not started; under which numbers
descriptors can be passed on.
Not here: what happens on the pipes (``_pipes``), the launcher (``_launch``), what a refusal means
(``_refusals``).
"""

import fcntl
import os
import subprocess
from collections.abc import Sequence

from swactor_process._launch import launcher_command, needs_launcher
from swactor_process.spec import Inherit, Null, ProcessSpec, Stream

STANDARD = 3
"""Descriptors below are standard input, output and error."""


def above_standard(descriptor: int) -> int:
    """Return ``descriptor``, or another instead of it when it has the number of a standard stream.

    A process that was started with those closed gives their numbers to whatever it opens. A child has its own
    there, so nothing else can be passed on to it under such a number.

    Raises:
        OSError: there is no other to be had; ``descriptor`` is closed.
    """
    if descriptor >= STANDARD:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STANDARD)
    finally:
        os.close(descriptor)


class ChildPipes:
    """The pipes of one start: our ends, and those of the child until it has them."""

    def __init__(self) -> None:
        self.stdin: int | None = None
        self.outputs: dict[Stream, int] = {}
        self.report: int | None = None
        self._theirs: list[int] = []

    def start(self, spec: ProcessSpec, *, cgroup_members: str | None = None) -> int:
        """Start ``spec`` in a session of its own; return its process id. It is up to the caller to reap it.

        If it needs the launcher, that is what runs then; ``report`` is where it tells how it goes on.

        Raises:
            OSError: nothing was started.
        """
        stdin = subprocess.DEVNULL
        if spec.stdin:
            stdin, self.stdin = self._pipe()
        command: Sequence[str] = spec.command
        cwd, passed = spec.cwd, tuple[int, ...]()
        if needs_launcher(spec):
            self.report, _ = self._pipe(ours_first=True)
            theirs = above_standard(self._theirs.pop())
            self._theirs.append(theirs)
            command = launcher_command(spec, report=theirs, cgroup_members=cgroup_members)
            cwd, passed = None, (theirs,)
        popen = subprocess.Popen(  # noqa: S603 - running what the owner names is the purpose
            command,
            stdin=stdin,
            stdout=self._output(spec, Stream.STDOUT),
            stderr=self._output(spec, Stream.STDERR),
            cwd=cwd,
            env=spec.env,
            # Its own session, so that a signal reaches its whole group and a Ctrl-C at the terminal does not.
            start_new_session=True,
            close_fds=True,
            pass_fds=passed,
        )
        popen.returncode = 0  # tells Popen that there is nothing to wait for; nobody reads it
        return popen.pid

    def _output(self, spec: ProcessSpec, stream: Stream) -> int | None:
        policy = spec.policy(stream)
        if isinstance(policy, Inherit):
            return None
        if isinstance(policy, Null):
            return subprocess.DEVNULL
        self.outputs[stream], theirs = self._pipe(ours_first=True)
        return theirs

    def _pipe(self, *, ours_first: bool = False) -> tuple[int, int]:
        reading, writing = os.pipe()  # neither is inherited
        self._theirs.append(writing if ours_first else reading)
        return reading, writing

    def close_theirs(self) -> None:
        """Close the child's ends here; it has its own copies now, or was not started."""
        for descriptor in self._theirs:
            os.close(descriptor)

    def close_ours(self) -> None:
        """Close our ends: nothing was started."""
        for descriptor in (*self.outputs.values(), self.stdin, self.report):
            if descriptor is not None:
                os.close(descriptor)
