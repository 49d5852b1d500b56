"""How a child has ended, as the kernel says it.

Owns: `look_for_exit`, which reads an exit and leaves the child to be reaped (waitid(2), WNOWAIT).
Not here: reaping (``_real_child``), when to look (``linux``, ``portable``).
"""

import os
from typing import NamedTuple

from swactor_process.spawner import ExitStatus


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
