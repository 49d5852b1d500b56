"""Real children without pidfds: a thread a child waits for its end.

Owns: `PortableSpawner`, `default_spawner`. Not here: what all systems have in common (``_real_child``).

The thread looks and does not reap, so that the process id is the child's until the loop's thread has let go
of it.
"""

import contextlib
import errno
import os
import threading
from functools import partial
from pathlib import Path

from swactor.abc import Loop
from swactor_process._errors import ProcessError
from swactor_process._exits import LOST, look_for_exit
from swactor_process._pipes import Readables
from swactor_process._real_child import RealChild, RealSpawner
from swactor_process.linux import LinuxSpawner


class PortableSpawner(RealSpawner):
    """Starts real children, for each of which a thread waits; see `RealSpawner`.

    A thread that still waits does not keep the interpreter from ending. Without ``/proc`` the kernel start
    time and state of a child are unknown, and ``ps`` says who of its group is left.

    Raises:
        ProcessError: this Python cannot look at a child without reaping it: before 3.13 on macOS.
    """

    def __init__(
        self, loop: Loop, *, cgroup_root: Path | None = None, children_file: Path | None = None
    ) -> None:
        if not hasattr(os, "waitid"):
            raise ProcessError("child processes need os.waitid: on macOS there is one since Python 3.13")
        super().__init__(loop, cgroup_root=cgroup_root, children_file=children_file)

    def _readables(self) -> Readables:
        return self._loop

    def _watch_exit(self, child: RealChild) -> None:
        thread = threading.Thread(
            target=self._wait, args=(child,), name=f"swactor child {child.pid}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:  # what Python makes of the system's EAGAIN
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from exc

    def _wait(self, child: RealChild) -> None:
        ended = look_for_exit(child.pid, wait=True) or LOST
        try:
            self._loop.call_from_thread(partial(child.on_ended, ended))
        except RuntimeError:  # the loop has ended, so nobody will hear of it, and nobody else reaps it
            if not ended.reaped:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, 0)


def default_spawner(
    loop: Loop, *, cgroup_root: Path | None = None, children_file: Path | None = None
) -> LinuxSpawner | PortableSpawner:
    """Return the best spawner there is here; on Linux since 5.3 one that needs no threads.

    ``cgroup_root`` is the control group to divide among children, ``children_file`` where they are written
    down for the next boot; see `RealSpawner`.

    Raises:
        ChildrenFileError: ``children_file`` cannot be used, or another node that runs uses it.
        ProcessError: there is none, see `PortableSpawner`.
    """
    best = LinuxSpawner if _has_pidfds() else PortableSpawner
    return best(loop, cgroup_root=cgroup_root, children_file=children_file)


def _has_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # not Linux, an older one, or a sandbox that does not allow it
        return False
    return True
