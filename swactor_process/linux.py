"""Real children on Linux: their exit is a pidfd, and all their descriptors are one for the event loop.

Owns: `LinuxSpawner`. Not here: what all systems have in common (``_real_child``).
"""

import os
from functools import partial
from pathlib import Path

from swactor.abc import Cancellable, Loop
from swactor_process._exits import LOST, look_for_exit
from swactor_process._pipes import Readables
from swactor_process._real_child import RealChild, RealSpawner
from swactor_process._watches import Watches, is_readable

TRACED_S = 0.05
"""Between looks at a child that has ended, but only for whoever traces it (ptrace(2))."""


class LinuxSpawner(RealSpawner):
    """Starts real children, of which pidfds tell the exit; see `RealSpawner`."""

    def __init__(
        self, loop: Loop, *, cgroup_root: Path | None = None, children_file: Path | None = None
    ) -> None:
        super().__init__(loop, cgroup_root=cgroup_root, children_file=children_file)
        self._watches = Watches(loop)

    def _readables(self) -> Readables:
        return self._watches

    def _watch_exit(self, child: RealChild) -> None:
        try:
            pidfd = os.pidfd_open(child.pid)
        except ProcessLookupError:
            # The kernel has forgotten it already: SIGCHLD is ignored.
            self._loop.call_soon(partial(child.on_ended, LOST))
        else:
            _Exit(self._loop, self._watches, child, pidfd)

    def close(self) -> None:
        """End the orphan guard, and with it the groups of guarded children that still live.

        The exits of children that live nevertheless are told all the same.
        """
        super().close()
        self._watches.close()


class _Exit:
    """Looks at a child when its pidfd says that it has ended, which it does once; to be cancelled then."""

    def __init__(self, loop: Loop, watches: Watches, child: RealChild, pidfd: int) -> None:
        self._loop, self._child, self._pidfd = loop, child, pidfd
        self._seen = False
        self._again: Cancellable | None = None
        try:
            self._watch: Cancellable = watches.watch_readable(pidfd, self._look, once=True)
        except BaseException:
            os.close(pidfd)
            raise

    def _look(self) -> None:
        if self._seen:
            return
        ended = look_for_exit(self._child.pid)
        if ended is not None:
            self._seen = True
            self._child.on_ended(ended, self)
        elif is_readable(self._pidfd):  # else it was not for us: see `Watches.watch_readable`
            # A debugger hears of the end of its tracee first: the kernel tells us when that lets go of it.
            self._again = self._loop.call_later(TRACED_S, self._look)

    def cancel(self) -> None:
        """Watch no more."""
        if self._again is not None:
            self._again.cancel()
        self._watch.cancel()
        os.close(self._pidfd)
