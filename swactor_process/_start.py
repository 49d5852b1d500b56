"""One start of a real child: its pipes, and the call that makes the kernel run the program.

Owns: which end of a pipe is whose, until the child has its own or was not started.
Not here: what happens on the pipes (``_pipes``), what a refusal means (``_refusals``).
"""

import os
import subprocess

from swactor_process.spec import Inherit, Null, ProcessSpec, Stream


class ChildPipes:
    """The pipes of one start: our ends, and those of the child until it has them."""

    def __init__(self) -> None:
        self.stdin: int | None = None
        self.outputs: dict[Stream, int] = {}
        self._theirs: list[int] = []

    def start(self, spec: ProcessSpec) -> int:
        """Start ``spec`` in a session of its own; return its process id. It is up to the caller to reap it.

        Raises:
            OSError: nothing was started.
        """
        stdin = subprocess.DEVNULL
        if spec.stdin:
            stdin, self.stdin = self._pipe()
        popen = subprocess.Popen(  # noqa: S603 - running what the owner names is the purpose
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
        for descriptor in [*self.outputs.values(), *([] if self.stdin is None else [self.stdin])]:
            os.close(descriptor)
