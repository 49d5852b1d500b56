"""Evidence of out-of-memory kills: the kernel's count of them in the control group of this node.

Owns: keeping the counter's file open, and when it says nothing about a child.
Not here: what the file is and says (``_cgroup_paths``), the counter of a child's own group (``_cgroups``).
"""

import os
from pathlib import Path

from swactor_process._cgroup_paths import OWN, oom_counter_file, parse_oom_kills, read_own
from swactor_process.spawner import OomEvidence

TEXT_MAX_BYTES = 4_096


class NodeOomCounter:
    """The counter of this node's control group, which children are in too unless they have their own."""

    def __init__(self, own: Path = OWN) -> None:
        self._own = own
        self._cgroups = read_own("cgroup", self._own)
        self._descriptor = self._open()

    def read(self) -> bytes:
        """Return what the counter's file says now, empty when nothing: few will ever want to know."""
        return b"" if self._descriptor is None else _read(self._descriptor)

    def since(self, then: bytes) -> OomEvidence | None:
        """Return how much the counter has gone up since its file said ``then``; None when that says nothing.

        A node that was moved since then is in another group than its child.
        """
        before, now = parse_oom_kills(then), parse_oom_kills(self.read())
        if now is None or before is None or now < before or read_own("cgroup", self._own) != self._cgroups:
            return None
        return OomEvidence(now - before, own_cgroup=False)

    def _open(self) -> int | None:
        try:
            file = oom_counter_file(self._cgroups, read_own("mountinfo", self._own))
            return None if file is None else os.open(file, os.O_RDONLY)
        except OSError:
            return None

    def close(self) -> None:
        """Read no more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _read(descriptor: int) -> bytes:
    try:
        return os.pread(descriptor, TEXT_MAX_BYTES, 0)
    except OSError:  # the group is gone: this node was moved
        return b""
