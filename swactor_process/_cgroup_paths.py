"""Where the control groups of this process lie in the file system, and how many were killed for memory there.

Owns: reading ``/proc/self/cgroup`` and ``/proc/self/mountinfo`` (cgroups(7), proc(5)), and the counter
``oom_kill`` of ``memory.events`` (version 2) or ``memory.oom_control`` (version 1).
Not here: making control groups (``_cgroups``).
"""

from pathlib import Path, PurePosixPath
from typing import NamedTuple

OWN = Path("/proc/self")
COUNTER = b"\noom_kill "


class Mount(NamedTuple):
    """One hierarchy: the part of it that is mounted begins at ``root``, and is seen at ``point``."""

    root: str
    point: str
    version: int
    controllers: frozenset[str]


def parse_mounts(mountinfo: str) -> list[Mount]:
    """Return the hierarchies that are mounted; malformed lines are skipped."""
    mounts = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        where, what = left.split(), right.split()
        if len(where) >= 5 and len(what) >= 3 and what[0] in {"cgroup", "cgroup2"}:
            version = 2 if what[0] == "cgroup2" else 1
            mounts.append(Mount(_plain(where[3]), _plain(where[4]), version, frozenset(what[2].split(","))))
    return mounts


def _plain(path: str) -> str:
    """Undo what the kernel does to blanks and the like."""
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        path = path.replace(code, character)
    return path


def read_own(name: str, own: Path = OWN) -> str:
    """Return the text of one file of ``own``, the /proc directory of this process; empty without one."""
    try:
        return (own / name).read_text("utf-8", "replace")
    except OSError:
        return ""


def own_cgroup(cgroups: str, mountinfo: str) -> tuple[Path, Path] | None:
    """Return the directory of this process's control group of version 2, and where its hierarchy is mounted.

    None when there is none, or none that can be seen from here.
    """
    for mount in parse_mounts(mountinfo):
        path = _path_of(cgroups, "") if mount.version == 2 else None
        directory = None if path is None else _seen(path, mount)
        if directory is not None:
            return directory, Path(mount.point)
    return None


def oom_counter_file(cgroups: str, mountinfo: str) -> Path | None:
    """Return the file that counts the out-of-memory kills in this process's control group, or None."""
    for mount in parse_mounts(mountinfo):
        controlled = mount.version == 2 or "memory" in mount.controllers
        path = _path_of(cgroups, "" if mount.version == 2 else "memory") if controlled else None
        directory = None if path is None else _seen(path, mount)
        if directory is not None:
            file = directory / ("memory.events" if mount.version == 2 else "memory.oom_control")
            if file.exists():
                return file
    return None


def _path_of(cgroups: str, controller: str) -> str | None:
    """Return the path in the hierarchy of ``controller``; that of version 2 has none in its line."""
    for line in cgroups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path and controller in controllers.split(","):
            return path
    return None


def _seen(path: str, mount: Mount) -> Path | None:
    pure = PurePosixPath(path)
    if ".." in pure.parts or not pure.is_relative_to(mount.root):
        return None
    return Path(mount.point) / pure.relative_to(mount.root)


def parse_oom_kills(text: bytes) -> int | None:
    """Return the counter of the file's text; None when there is none in it."""
    _, found, rest = text.partition(COUNTER)
    number = rest.split(b"\n", 1)[0]
    return int(number) if found and number.isdigit() else None
