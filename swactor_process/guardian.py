"""The orphan guard, seen from the node: one small process that outlives it just long enough to kill the rest.

Owns: starting that process with the first guarded child, the list of the groups that exist, starting it again
when somebody killed it.
Not here: what it does (``_guardian_program``), whom to guard (``ProcessSpec.guarded``).

The list is a file in memory that both have open: to register a group is one write, which wakes nobody. The
guard reads it when it notices the node's death, whatever its cause, by the end of a pipe that only the node
holds open. What it cannot cover: a child in the instant between its start and its registration, and processes
that left the group of the child that started them.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from swactor.abc import Loop
from swactor_process import _guardian_program
from swactor_process._guardian_program import (
    RECORD_BYTES,
    format_record,
    kill_groups,
    parse_records,
    read_all,
)
from swactor_process._slots import Slots
from swactor_process._start import above_standard

STARTS_MAX = 4
"""A guard that keeps being killed is given up after this many starts: children report ``guarded`` false."""
CLOSE_TIMEOUT_S = 2.0

log = logging.getLogger("swactor.process")


class Guardian:
    """The guard process of one node, and the groups it knows."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._groups = _GroupList()
        self._guard: _Guard | None = None
        self._starts = 0

    @property
    def pid(self) -> int | None:
        """The process id of the guard; None when there is none."""
        return None if self._guard is None else self._guard.pid

    def guard(self, group: int, start_time: int | None) -> bool:
        """Have ``group`` killed when this node dies. False when there is no guard to be had."""
        try:
            self._groups.add(group, start_time)
        except OSError as exc:
            log.warning("no orphan guard for the children of process %d: %s", group, exc)
            return False
        return self._guard is not None or self._start()

    def release(self, group: int) -> None:
        """Forget ``group``: nobody of it is left."""
        self._groups.remove(group)

    def close(self) -> None:
        """End the guard, which kills what is still registered. Blocks until it is gone: some milliseconds.

        Without a guard that did so, this does.
        """
        guard, self._guard = self._guard, None
        if guard is None or not guard.end():
            kill_groups(self._groups.read())
        self._groups.close()

    def _start(self) -> bool:
        if self._starts >= STARTS_MAX:
            return False
        self._starts += 1
        try:
            self._guard = _Guard(self._loop, self._groups.opened().descriptor, on_end=self._restart)
        except OSError as exc:
            log.warning("no orphan guard: children would outlive a node that is killed: %s", exc)
        return self._guard is not None

    def _restart(self) -> None:
        log.warning("the orphan guard is gone; starting it again")
        self._guard = None
        self._start()


class _Guard:
    """One guard process. It and the node notice each other's end by the ends of two pipes."""

    def __init__(self, loop: Loop, groups: int, *, on_end: Callable[[], None]) -> None:
        with ExitStack() as ours, ExitStack() as theirs:
            node_gone, node_lives = os.pipe()
            theirs.callback(os.close, node_gone)
            ours.callback(os.close, node_lives)
            guard_gone, guard_lives = os.pipe()
            theirs.callback(os.close, guard_lives)
            ours.callback(os.close, guard_gone)
            self._popen = subprocess.Popen(  # noqa: S603 - our own program
                # -I and -S: nothing of the environment, no site packages; it is there after some 10 ms.
                [sys.executable, "-I", "-S", _guardian_program.__file__, str(os.getpid()), str(groups)],
                stdin=node_gone,
                stdout=guard_lives,
                stderr=subprocess.DEVNULL,
                pass_fds=(groups,),
                cwd="/",
                env={},
                start_new_session=True,
            )
            self._ours = ours.pop_all()
        self.pid = self._popen.pid
        self._on_end = on_end
        self._watch = loop.watch_readable(guard_gone, self._ended)

    def end(self) -> bool:
        """Have it kill what is registered, and wait until it is gone. False when it ended otherwise."""
        self._watch.cancel()
        self._ours.close()
        self._wait(CLOSE_TIMEOUT_S)
        return self._popen.returncode == 0

    def _ended(self) -> None:
        self._watch.cancel()
        self._ours.close()
        self._wait(0.0)
        self._on_end()

    def _wait(self, timeout_s: float) -> None:
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(signal.SIGKILL)
            self._popen.wait()


class _GroupList:
    """The groups that exist: a file with a record for each."""

    def __init__(self) -> None:
        self._slots: Slots | None = None

    def opened(self) -> Slots:
        """Return the file, made when it is used first.

        Raises:
            OSError: there is none to be had.
        """
        if self._slots is None:
            self._slots = Slots(_memory_file(), RECORD_BYTES)
        return self._slots

    def add(self, group: int, start_time: int | None) -> None:
        """Write ``group`` down, over what is there of an earlier one with that number.

        Raises:
            OSError: it could not be written.
        """
        self.opened().put(group, format_record(group, start_time))

    def remove(self, group: int) -> None:
        """Strike ``group`` out, if it is there."""
        if self._slots is not None:
            self._slots.strike(group)

    def read(self) -> dict[int, int | None]:
        """Return the groups and the start times of their leaders, as the guard would read them."""
        return {} if self._slots is None else parse_records(read_all(self._slots.descriptor))

    def close(self) -> None:
        """Forget all of it."""
        slots, self._slots = self._slots, None
        if slots is not None:
            os.close(slots.descriptor)


def _memory_file() -> int:
    """Return a file without a name; in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return above_standard(os.memfd_create("swactor process groups"))
    descriptor, path = tempfile.mkstemp()
    Path(path).unlink()
    return above_standard(descriptor)
