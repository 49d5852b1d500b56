"""The orphan guard, seen from the node: one small process that outlives it just long enough to kill the rest.

Owns: starting that process with the first guarded child, telling it which groups exist, starting it again
when somebody killed it.
Not here: what it does (``_guardian_program``), whom to guard (``ProcessSpec.guarded``).

It notices the node's death, whatever its cause, by the end of a pipe that only the node holds open. What it
cannot cover: a child in the instant between its start and its registration, and processes that left the
group of the child that started them.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from swactor.abc import Loop
from swactor_process import _guardian_program
from swactor_process._pipes import PipeWriter
from swactor_process.spawner import WriteOutcome

STARTS_MAX = 4
"""A guard that keeps being killed is given up after this many starts: children report ``guarded`` false."""
QUEUE_LIMIT_BYTES = 1_048_576
CLOSE_TIMEOUT_S = 2.0

log = logging.getLogger("swactor.process")


class Guardian:
    """The guard process of one node, and the groups it knows."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._groups: dict[int, int | None] = {}
        self._popen: subprocess.Popen[bytes] | None = None
        self._writer: PipeWriter | None = None
        self._starts = 0

    @property
    def pid(self) -> int | None:
        """The process id of the guard; None when there is none."""
        return None if self._popen is None else self._popen.pid

    def guard(self, group: int, start_time: int | None) -> bool:
        """Have ``group`` killed when this node dies. False when there is no guard to be had."""
        self._groups[group] = start_time
        if self._writer is None:
            return self._start()
        self._send(_line_to_add(group, start_time))
        return self._writer is not None

    def release(self, group: int) -> None:
        """Forget ``group``: nobody of it is left."""
        if group in self._groups:
            del self._groups[group]
            self._send(b"-%d\n" % group)

    def close(self) -> None:
        """End the guard, which kills what is still registered. Blocks until it is gone: some milliseconds."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._groups.clear()
        self._end_process(CLOSE_TIMEOUT_S)

    def _start(self) -> bool:
        self._end_process(0)
        if self._starts >= STARTS_MAX:
            return False
        self._starts += 1
        ours: int | None = None
        theirs: int | None = None
        try:
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            self._popen = subprocess.Popen(  # noqa: S603 - our own program
                # -I and -S: nothing of the environment, no site packages; it is there after some 10 ms.
                [sys.executable, "-I", "-S", str(Path(_guardian_program.__file__)), str(os.getpid())],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError as exc:
            log.warning("no orphan guard: children would outlive a node that is killed: %s", exc)
            if ours is not None:
                os.close(ours)
            return False
        finally:
            if theirs is not None:
                os.close(theirs)
        self._writer = PipeWriter(self._loop, ours, limit_bytes=QUEUE_LIMIT_BYTES)
        self._send(b"".join(_line_to_add(group, start) for group, start in self._groups.items()))
        return True

    def _send(self, lines: bytes) -> None:
        writer = self._writer
        if writer is not None:
            writer.write(lines, lambda outcome: self._sent(writer, outcome))

    def _sent(self, writer: PipeWriter, outcome: WriteOutcome) -> None:
        if outcome is WriteOutcome.WRITTEN or writer is not self._writer:
            return
        self._writer = None
        writer.close()
        log.warning("the orphan guard is gone (%s); starting it again", outcome.value)
        self._start()

    def _end_process(self, timeout_s: float) -> None:
        popen, self._popen = self._popen, None
        if popen is None:
            return
        try:
            popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                popen.send_signal(signal.SIGKILL)
            popen.wait()


def _line_to_add(group: int, start_time: int | None) -> bytes:
    return b"+%d\n" % group if start_time is None else b"+%d %d\n" % (group, start_time)
