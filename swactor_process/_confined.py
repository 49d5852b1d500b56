"""What holds one real child, and what the kernel has counted there: its control group, or that of this node.

Owns: whether a child has a control group of its own, and whose counter of out-of-memory kills tells about it.
Not here: making groups (``_cgroups``), reading this node's counter (``_oom``).
"""

import errno
import os
from typing import Self

from swactor_process._cgroups import Cgroups, ChildCgroup
from swactor_process._oom import NodeOomCounter
from swactor_process.limits import Cgroup, CgroupPlace
from swactor_process.spawner import OomEvidence, SpawnError, SpawnRole


class Confined:
    """The confines of one child; make it before the start."""

    def __init__(
        self, cgroups: Cgroups, counter: NodeOomCounter, group: ChildCgroup | None, place: CgroupPlace | None
    ) -> None:
        self.place = place
        self._cgroups, self._counter = cgroups, counter
        self._group = group
        self._kills_before = counter.read()

    @classmethod
    def of(cls, wish: Cgroup | None, cgroups: Cgroups, counter: NodeOomCounter) -> Self:
        """Return the confines that ``wish`` asks for.

        Raises:
            SpawnError: there is no control group to be had, and it is required.
        """
        if wish is None:
            return cls(cgroups, counter, None, None)
        try:
            group = cgroups.make(wish)
        except OSError as exc:
            if wish.required:
                raise _refusal(exc) from exc
            why = f"{exc.strerror}: {exc.filename}"
            return cls(cgroups, counter, None, CgroupPlace(None, why))
        return cls(cgroups, counter, group, CgroupPlace(str(group.path)))

    @property
    def members_file(self) -> str | None:
        """Where the child writes itself in; None when it has no group of its own."""
        return None if self._group is None else self._group.members_file

    def do_without(self, why: str) -> None:
        """The child could not join its group."""
        self.release()
        self._group = None
        self.place = CgroupPlace(None, why)

    def kill(self) -> None:
        """Kill whoever is in the child's own group."""
        if self._group is not None:
            self._group.kill()

    def with_members(self, living: tuple[int, ...]) -> tuple[int, ...]:
        """Return ``living`` and who else is in the child's own group, in ascending order."""
        if self._group is None:
            return living
        return tuple(sorted({*living, *self._group.members()}))

    def oom_kills(self) -> OomEvidence | None:
        """Return what the kernel has counted since the start; None when nobody can say."""
        if self._group is None:
            return self._counter.since(self._kills_before)
        return self._group.oom_kills()

    def release(self) -> None:
        """Nobody of the child is left."""
        if self._group is not None:
            self._cgroups.release(self._group)


def _refusal(error: OSError) -> SpawnError:
    return SpawnError(
        errno_name=errno.errorcode.get(error.errno or 0, "UNKNOWN"),
        role=SpawnRole.CGROUP,
        path=os.fsdecode(error.filename or ""),
        hint=f"no control group of its own to be had ({error.strerror})",
    )
