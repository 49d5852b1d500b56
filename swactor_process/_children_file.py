"""The children of this node, written down where its next boot looks for what was left behind.

Owns: the form of the file, whom of an earlier boot's children this one recognises; no two nodes share it.
Not here: killing them when this node dies (``guardian``), reporting them (``events``).

A process is recognised by its id and its kernel start time together, within one boot of the machine and one
namespace of process ids; an id alone names nobody. Its group is then its own, too: the kernel gives the
number of a group to nobody else while there is somebody in it. The file is not synchronised to the disk: it
has to survive this process, not the machine, with which all of them end.
"""

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from swactor_process._cgroups import members_of
from swactor_process._errors import ProcessError
from swactor_process._guardian_program import is_running, living_members, read_stat
from swactor_process._slots import Slots
from swactor_process.events import SubprocessLeftBehind

RECORD_BYTES = 1_024
"""A label of 200 characters, and the rest: what does not fit is left out."""
CHILDREN_MAX = 10_000
"""More children of an earlier boot are not looked at."""
PROCESSES_MAX = 16
"""So many processes are written down of what a child has left in its group."""
PIDS_MAX = 64
"""So many process ids are named of one leftover."""
MACHINE_BOOT = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")

R = TypeVar("R")

log = logging.getLogger("swactor.process")


class ChildrenFileError(ProcessError):
    """The file cannot be used: ``path`` names it, ``rule`` what it must meet."""

    def __init__(self, path: Path, rule: str) -> None:
        super().__init__(f"children file {str(path)!r}: {rule}")
        self.path, self.rule = path, rule


class Process(Struct, frozen=True, array_like=True):
    """One process, named for ever."""

    pid: Annotated[int, Meta(gt=1)]
    start_time: int

    @property
    def lives(self) -> bool:
        """Whether it is there, and not only to be reaped."""
        return is_running(self.pid, self.start_time)


class Owner(Struct, frozen=True, tag="swactor children"):
    """The first record: whose file it is, or was."""

    machine: str
    node: Process


class Entry(Struct, frozen=True):
    """One child. ``processes``: itself or, when it had ended, whom it had left in its group."""

    child: Process
    label: str
    node_pid: int
    processes: tuple[Process, ...]
    cgroup: Annotated[str, Meta(pattern=r"^[^\0]+$")] | None = None

    def living(self) -> tuple[int, ...]:
        """Return who is left: those written down, and who else is in a group that one of them still holds."""
        found = {process.pid for process in self.processes if process.lives}
        if any((stat := read_stat(pid)) and stat.group == self.child.pid for pid in found):
            found.update(living_members(self.child.pid))
        if self.cgroup is not None:
            found.update(members_of(Path(self.cgroup)))
        return tuple(sorted(found))


class ChildrenFile:
    """The file of one node. ``left_behind`` is what was found of earlier boots; it stays in the file."""

    def __init__(self, path: Path, *, pid: int, start_time: int | None) -> None:
        """Take the file over for the node that ``pid`` and ``start_time`` name.

        Raises:
            ChildrenFileError: it is that of a node which runs, or no such file, or cannot be written.
        """
        self._path = Path(os.path.realpath(path))  # a link stays, and is another way to the same file
        self._owner = Owner(_machine(), Process(pid, start_time or 0))
        try:
            # Held until the new one is there and locked: between them nobody else gets in.
            with self._locked() as earlier:
                left = [(entry, pids) for entry in self._earlier(earlier) if (pids := entry.living())]
                self._slots: Slots | None = self._begin([entry for entry, _ in left])
        except OSError as exc:
            raise ChildrenFileError(path, f"a file that this node may write ({exc.strerror})") from exc
        self.left_behind = tuple(_event(entry, pids) for entry, pids in left)
        self._entries: dict[int, Entry] = {}
        self._is_behind = False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file of earlier boots, made if there is none, for this node alone.

        The lock tells a node that runs also where its process id says nothing: in another container.
        """
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if not S_ISREG(os.fstat(descriptor).st_mode):
                    raise ChildrenFileError(self._path, "a regular file")  # it is replaced, and removed
                if self._lock(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def _lock(self, descriptor: int) -> bool:
        """Lock the file; false when it is not the one at the path any more."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _decoded(os.pread(descriptor, RECORD_BYTES, 0), Owner)
            raise ChildrenFileError(
                self._path, f"not that of another node, {self._who_uses(owner)}"
            ) from None
        return self._is_at_path(descriptor)

    def _who_uses(self, owner: Owner | None) -> str:
        if owner is None:
            return "another process uses it"
        seen = owner.machine == self._owner.machine and owner.node.start_time
        if seen and not owner.node.lives:
            # A process that it forked without exec shares the lock.
            return f"process {owner.node.pid} has ended, but one that it forked still holds it open"
        return f"process {owner.node.pid} uses it"

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _earlier(self, descriptor: int) -> Iterator[Entry]:
        """Return the records of earlier boots, unless the machine has been started again since."""
        data = os.pread(descriptor, (CHILDREN_MAX + 1) * RECORD_BYTES, 0)
        first, *others = data.splitlines() or [b""]
        owner = _decoded(first, Owner)
        if owner is None:
            if data:
                raise ChildrenFileError(self._path, "a file that was written by a node before, or none")
            return
        if owner.machine != self._owner.machine:
            return
        for line in others:
            entry = _decoded(line, Entry)
            if entry is not None:
                yield entry

    def _begin(self, entries: list[Entry]) -> Slots:
        """Write the file anew, so that a kill leaves the old one or the new one."""
        beside = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            slots = Slots(descriptor, RECORD_BYTES)
            slots.put(None, _encoded(self._owner))
            for entry in entries:
                slots.put((entry.node_pid, entry.child), _encoded(entry))
            beside.replace(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        return slots

    def add(self, pid: int, start_time: int | None, *, label: str, cgroup: str | None) -> None:
        """Write down a child; one without a start time could never be recognised."""
        if start_time is not None:
            child = Process(pid, start_time)
            self._put(Entry(child, label, self._owner.node.pid, (child,), cgroup))

    def leave(self, pid: int, survivors: tuple[int, ...]) -> None:
        """The child has ended; write down who is left of its group instead, if anybody is."""
        entry = self._entries.get(pid)
        if entry is None or self._slots is None:
            return
        if not survivors:
            del self._entries[pid]
            with self._noticed():
                self._slots.strike(pid)
            return
        stats = [(other, read_stat(other)) for other in survivors[:PROCESSES_MAX]]
        processes = tuple(Process(other, stat.start_time) for other, stat in stats if stat is not None)
        if processes != entry.processes:
            self._put(msgspec.structs.replace(entry, processes=processes))

    def _put(self, entry: Entry) -> None:
        self._entries[entry.child.pid] = entry
        if self._slots is not None:
            with self._noticed():
                self._slots.put(entry.child.pid, _encoded(entry))

    @contextlib.contextmanager
    def _noticed(self) -> Iterator[None]:
        """A child runs on although it could not be written down; that is said once until it works again."""
        try:
            yield
        except OSError as exc:
            if not self._is_behind:
                log.warning(
                    "children file %s: %s; a next boot would not know of all children", self._path, exc
                )
            self._is_behind = True
        else:
            self._is_behind = False

    def close(self) -> None:
        """Leave the file to the next boot; remove it when there is nobody in it."""
        slots, self._slots = self._slots, None
        if slots is None:
            return
        with self._noticed():
            if len(slots) == 1 and self._is_at_path(slots.descriptor):
                self._path.unlink()
        os.close(slots.descriptor)


def _machine() -> str:
    """Return what process ids and start times are valid within; empty where they are not known either."""
    try:
        return f"{MACHINE_BOOT.read_text().strip()} {PID_NAMESPACE.readlink()}"
    except OSError:
        return ""


def _encoded(record: Owner | Entry) -> bytes:
    data = msgspec.json.encode(record)
    if len(data) >= RECORD_BYTES and isinstance(record, Entry):
        data = msgspec.json.encode(
            msgspec.structs.replace(record, processes=record.processes[:1], cgroup=None)
        )
    if len(data) >= RECORD_BYTES:
        raise OSError(errno.EOVERFLOW, f"a record of {len(data)} bytes")
    return data + b"\n"


def _decoded(line: bytes, kind: type[R]) -> R | None:
    """Return the record of ``line``; None when it is none."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _event(entry: Entry, pids: tuple[int, ...]) -> SubprocessLeftBehind:
    return SubprocessLeftBehind(
        label=entry.label,
        pid=entry.child.pid,
        start_time=entry.child.start_time,
        child_alive=entry.child.pid in pids,
        pids=pids[:PIDS_MAX],
        alive=len(pids),
        node_pid=entry.node_pid,
        cgroup=entry.cgroup,
    )
