"""Children that have ended and left others in their group, looked at again until those have ended too.

Owns: which they are, when to look. Not here: what is kept of each until then (``_real_child``).

The kernel tells nobody of the end of a process that is not its child. So each start looks at some: what is
kept of children that left somebody stays within twice of those whose rest still lives.
"""

from itertools import islice
from typing import Protocol

LOOKS = 2
"""So many are looked at before each start, which adds one at most."""


class Leaver(Protocol):
    """A child that was reaped."""

    @property
    def pid(self) -> int:
        """Its process id, and the number of its group."""

    def has_left(self) -> bool:
        """Look who is left of its group; when nobody is, it takes itself off."""


class Leftovers:
    """The children of one spawner that have left somebody."""

    def __init__(self) -> None:
        self._leavers: dict[int, Leaver] = {}

    def add(self, leaver: Leaver) -> None:
        """Look at it from now on."""
        self._leavers[leaver.pid] = leaver

    def discard(self, pid: int) -> None:
        """Do not look at it any more, if it is there."""
        self._leavers.pop(pid, None)

    def look(self) -> None:
        """Look at those whose turn it is."""
        for pid in tuple(islice(self._leavers, LOOKS)):
            leaver = self._leavers.pop(pid)
            if leaver.has_left():
                self._leavers[pid] = leaver  # behind the others
