"""Evidence of out-of-memory kills: the kernel's count of them in the control group of this node.

Owns: keeping open its file and the one that says where this node is; when it says nothing about a child.
Not here: what the file is and says (``_cgroup_paths``), the counter of a child's own group (``_cgroups``).
"""

import os
from pathlib import Path

from swactor_process._cgroup_paths import OWN, oom_counter_file, parse_oom_kills, read_own
from swactor_process.spawner import OomEvidence

TEXT_MAX_BYTES = 16_384
"""More than either file has: ``/proc/self/cgroup`` has a path, mostly a short one, for each hierarchy."""


class NodeOomCounter:
    """The counter of this node's control group, which children are in too unless they have their own."""

    def __init__(self, own: Path = OWN) -> None:
        counter = oom_counter_file(read_own("cgroup", own), read_own("mountinfo", own))
        self._counter_file = None if counter is None else _opened(counter)
        self._cgroup_file = _opened(own / "cgroup")
        self._cgroup_at_first = _read(self._cgroup_file)

    def read(self) -> bytes:
        """Return what the counter's file says now, empty when nothing: few will ever want to know."""
        return _read(self._counter_file)

    def since(self, then: bytes) -> OomEvidence | None:
        """Return how much the counter has gone up since its file said ``then``; None when that says nothing.

        A node that was moved since then is in another group than its child.
        """
        before, now = parse_oom_kills(then), parse_oom_kills(self.read())
        if now is None or before is None or now < before or _read(self._cgroup_file) != self._cgroup_at_first:
            return None
        return OomEvidence(now - before, own_cgroup=False)

    def close(self) -> None:
        """Read no more."""
        for descriptor in (self._counter_file, self._cgroup_file):
            if descriptor is not None:
                os.close(descriptor)
        self._counter_file = self._cgroup_file = None


def _opened(file: Path) -> int | None:
    try:
        return os.open(file, os.O_RDONLY)
    except OSError:
        return None


def _read(descriptor: int | None) -> bytes:
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, TEXT_MAX_BYTES, 0)
    except OSError:  # the group is gone: this node was moved
        return b""
