"""Control groups of their own for children (cgroup v2, ``Documentation/admin-guide/cgroup-v2.rst``).

Owns: finding the group that this node may divide, making groups below it, removing them when they are empty,
those of a node that was killed too.
Not here: the rules of a `Cgroup` (``limits``), joining one (``_launcher_program``), where groups lie
(``_cgroup_paths``).

This node itself is never moved: whoever runs it decides where it belongs. The kernel lets a group be divided
only while no process is in it, so a node should be alone in a subgroup of a group that was delegated to it.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

from swactor_process._cgroup_paths import OWN, own_cgroup, parse_oom_kills, read_own
from swactor_process._guardian_program import is_running
from swactor_process.limits import Cgroup
from swactor_process.spawner import OomEvidence

PREFIX = "swactor"
PERIOD_US = 100_000
DELEGATED = "user.delegate"
"""The mark that systemd leaves on a group that its owner may divide."""
LEFTOVERS_MAX = 10_000


class ChildCgroup:
    """The control group of one child."""

    def __init__(self, path: Path, remove: Callable[[Path], None]) -> None:
        self.path = path
        self._remove = remove

    @property
    def members_file(self) -> str:
        """Where a process writes itself in."""
        return str(self.path / "cgroup.procs")

    def members(self) -> tuple[int, ...]:
        """Return the processes in the group that live, also those that left the child's process group."""
        return members_of(self.path)

    def kill(self) -> None:
        """Kill all of them at once (Linux since 5.14; else nothing)."""
        with contextlib.suppress(OSError):
            file = self.path / "cgroup.kill"
            if file.exists():
                file.write_bytes(b"1")

    def oom_kills(self) -> OomEvidence | None:
        """Return how many of the group were killed for memory; None when nobody counts."""
        kills = parse_oom_kills(_read(self.path / "memory.events"))
        return None if kills is None else OomEvidence(kills, own_cgroup=True)

    def remove(self) -> bool:
        """Remove it; false when that is not possible, as there is somebody in it."""
        try:
            self._remove(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def members_of(directory: Path) -> tuple[int, ...]:
    """Return the processes in a control group, in ascending order; none when it has gone.

    Those of another namespace of process ids, all of them 0 from here (cgroups(7)), are left out.
    """
    words = _read(directory / "cgroup.procs").split()
    return tuple(sorted(pid for word in words if word.isdigit() and (pid := int(word)) > 0))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except (OSError, ValueError):  # there is none of that name, or can be none
        return b""


class Cgroups:
    """The control groups of this node's children. ``root`` is the group to divide; None has it found.

    A test gives a ``root`` that is no control group, and ``remove`` for a directory with files.
    """

    def __init__(
        self,
        pid: int,
        start_time: int | None,
        *,
        root: Path | None = None,
        remove: Callable[[Path], None] = Path.rmdir,
    ) -> None:
        self._node = f"{PREFIX}-{pid}-{start_time or 0}"
        self._root = root
        self._remove = remove
        self._numbers = itertools.count(1)
        self._made: dict[Path, ChildCgroup] = {}
        self._tidied = False

    def make(self, wish: Cgroup) -> ChildCgroup:
        """Make a group that holds whoever joins it to ``wish``.

        Raises:
            OSError: this node may not; ``filename`` is where that was found out.
        """
        files = _files(wish)
        root = self._usable_root(frozenset(name.partition(".")[0] for name in files))
        if not self._tidied:
            self._tidied = True
            self._remove_leftovers(root)
        group = ChildCgroup(self._new_directory(root), self._remove)
        try:
            for name, value in files.items():
                (group.path / name).write_text(value)
        except OSError:
            group.remove()
            raise
        self._made[group.path] = group
        return group

    def release(self, group: ChildCgroup) -> None:
        """Remove ``group``, now or, when somebody is in it, at the end."""
        if group.remove():
            self._made.pop(group.path, None)

    def close(self) -> None:
        """Remove what is empty by now. What is not, a later boot removes."""
        for group in tuple(self._made.values()):
            self.release(group)

    def _usable_root(self, controllers: frozenset[str]) -> Path:
        problem = OSError(errno.ENOTSUP, "no control groups of version 2 here", str(OWN / "cgroup"))
        for directory in _candidates() if self._root is None else (self._root,):
            try:
                _enable(directory, controllers)
            except OSError as exc:
                problem = exc
            else:
                return directory
        raise problem

    def _new_directory(self, root: Path) -> Path:
        while True:
            path = root / f"{self._node}-{next(self._numbers)}"
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                return path

    def _remove_leftovers(self, root: Path) -> None:
        """Remove the empty groups of nodes that are gone."""
        for path in itertools.islice(root.glob(f"{PREFIX}-*-*-*"), LEFTOVERS_MAX):
            pid, start_time, _ = path.name.removeprefix(f"{PREFIX}-").split("-", 2)
            if pid.isdigit() and start_time.isdigit() and not is_running(int(pid), int(start_time)):
                ChildCgroup(path, self._remove).remove()


def _files(wish: Cgroup) -> dict[str, str]:
    """Return the files of a group to write, and what."""
    files = {}
    if wish.memory_max_bytes is not None:
        files["memory.max"] = str(wish.memory_max_bytes)
    if wish.pids_max is not None:
        files["pids.max"] = str(wish.pids_max)
    if wish.cpus is not None:
        files["cpu.max"] = f"{round(wish.cpus * PERIOD_US)} {PERIOD_US}"
    return files


def _candidates() -> list[Path]:
    """Return the groups that this node may be meant to divide: its own, the one above if delegated."""
    found = own_cgroup(read_own("cgroup"), read_own("mountinfo"))
    if found is None:
        return []
    own, mount = found
    above = own.parent
    return [own, above] if own != mount and _is_delegated(above) else [own]


def _is_delegated(directory: Path) -> bool:
    """Whether ``directory`` was handed over: root may write everywhere, and should not."""
    try:
        if os.getxattr(directory, DELEGATED) == b"1":
            return True
    except OSError:
        pass  # nobody has marked it
    return os.geteuid() != 0 and os.access(directory / "cgroup.procs", os.W_OK)


def _enable(directory: Path, controllers: frozenset[str]) -> None:
    """Have the groups below ``directory`` limited by ``controllers``, and memory counted if possible.

    Raises:
        OSError: a controller is not to be had, or the group may not be divided.
    """
    available = (directory / "cgroup.controllers").read_text().split()
    switch = directory / "cgroup.subtree_control"
    enabled = switch.read_text().split()
    missing = sorted(controllers - set(available))
    if missing:
        words = f"the controllers {', '.join(missing)} are not to be had"
        raise OSError(errno.ENOTSUP, words, str(directory / "cgroup.controllers"))
    wanted = sorted(controllers - set(enabled))
    if wanted:
        switch.write_text(" ".join(f"+{name}" for name in wanted))
    if "memory" in available and "memory" not in {*enabled, *wanted}:
        with contextlib.suppress(OSError):
            switch.write_text("+memory")
