"""Evidence of out-of-memory kills: the kernel's count of them in the control group of this node.

Owns: keeping its file open, and that which says where this node is; when it says nothing about a child.
Not here: what the file is and says (``_cgroup_paths``), the counter of a child's own group (``_cgroups``).
"""

import os
from pathlib import Path

from swactor_process._cgroup_paths import OWN, oom_counter_file, parse_oom_kills, read_own
from swactor_process.spawner import OomEvidence

TEXT_MAX_BYTES = 16_384


class NodeOomCounter:
    """The counter of this node's control group, which children are in too unless they have their own."""

    def __init__(self, own: Path = OWN) -> None:
        self._counter = self._whereabouts = -1
        try:
            self._whereabouts = os.open(own / "cgroup", os.O_RDONLY)
            file = oom_counter_file(read_own("cgroup", own), read_own("mountinfo", own))
            if file is not None:
                self._counter = os.open(file, os.O_RDONLY)
        except OSError:
            pass  # there is none to be read
        self._lay_in = _read(self._whereabouts)

    def read(self) -> bytes:
        """Return what the counter's file says now, empty when nothing: few will ever want to know."""
        return _read(self._counter)

    def since(self, then: bytes) -> OomEvidence | None:
        """Return how much the counter has gone up since its file said ``then``; None when that says nothing.

        A node that was moved since then is in another group than its child.
        """
        before, now = parse_oom_kills(then), parse_oom_kills(self.read())
        if now is None or before is None or now < before or _read(self._whereabouts) != self._lay_in:
            return None
        return OomEvidence(now - before, own_cgroup=False)

    def close(self) -> None:
        """Read no more."""
        for descriptor in {self._counter, self._whereabouts} - {-1}:
            os.close(descriptor)
        self._counter = self._whereabouts = -1


def _read(descriptor: int) -> bytes:
    if descriptor < 0:
        return b""
    try:
        return os.pread(descriptor, TEXT_MAX_BYTES, 0)
    except OSError:  # the group is gone: this node was moved
        return b""
