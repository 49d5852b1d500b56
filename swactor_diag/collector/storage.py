"""Where a collector's bytes lie: a small tree of whole files behind one seam.

Owns: atomic writes (a file is there entirely or not at all), sorted listings, and the rule that no path
leaves the root. Not here: what the files mean and how they are named (see ``staging``).

A path is a tuple of parts. Parts handed to a storage must be plain names; a listing may show foreign names
(put there by somebody else), which are reported but never opened.
"""

import enum
import errno
import os
import re
from pathlib import Path
from typing import Protocol

import msgspec

StoragePath = tuple[str, ...]

_PART = re.compile(r"[A-Za-z0-9._@-]{1,240}")
_UNFINISHED = ".part"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class StorageError(Exception):
    """The storage could not do what was asked; nothing changed. Trying again later may help."""


class StorageFullError(StorageError):
    """There is no room left. Reading and deleting still work; writing works again once there is room."""


class StorageMissingError(StorageError):
    """There is no file at that path."""


class EntryKind(enum.Enum):
    """What a name in a folder is."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"


class Entry(msgspec.Struct, frozen=True, order=True):
    """One name in a folder. ``OTHER`` covers links and devices: they are named, never followed."""

    name: str
    kind: EntryKind
    size_bytes: int = 0


class Storage(Protocol):
    """A tree of whole files. Every call is synchronous and complete when it returns."""

    def write(self, path: StoragePath, data: bytes) -> None:
        """Put ``data`` at ``path``, replacing what was there; readers see the old or the new file, whole.

        Raises:
            StorageFullError: no room; nothing was changed.
            StorageError: any other failure; nothing was changed.
        """
        ...

    def read(self, path: StoragePath) -> bytes:
        """Return the whole file.

        Raises:
            StorageMissingError: there is none.
        """
        ...

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """Return what the folder holds, sorted by name; an absent folder is an empty one."""
        ...

    def delete(self, path: StoragePath) -> None:
        """Remove the file; does nothing when there is none."""
        ...

    def location(self, path: StoragePath) -> str:
        """Return how a person finds ``path``: for messages only."""
        ...


def is_storage_name(part: str) -> bool:
    """Return whether ``part`` may be used as one part of a path."""
    return _PART.fullmatch(part) is not None and part not in {".", ".."} and not part.endswith(_UNFINISHED)


def _checked(path: StoragePath) -> StoragePath:
    for part in path:
        if not is_storage_name(part):
            raise StorageError(f"not a plain file name: {part[:80]!r}")
    return path


class LocalStorage:
    """A folder on the local disk.

    A write goes to a temporary name and is renamed over the final one, so a killed process leaves a whole
    file or none. With ``fsync`` the same holds when the machine loses power, at the price of two disk
    flushes a write. One process writes to a root at a time.
    """

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        self._root = root
        self._fsync = fsync

    def write(self, path: StoragePath, data: bytes) -> None:
        """See `Storage.write`."""
        target = self._root.joinpath(*_checked(path))
        unfinished = target.with_name(target.name + _UNFINISHED)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                if self._fsync:
                    os.fsync(file.fileno())
            unfinished.replace(target)
            if self._fsync:
                _sync_folder(target.parent)
        except OSError as exc:
            _discard(unfinished)
            kind = StorageFullError if exc.errno in _FULL else StorageError
            raise kind(f"cannot write {target}: {exc.strerror or exc}") from exc

    def read(self, path: StoragePath) -> bytes:
        """See `Storage.read`."""
        target = self._root.joinpath(*_checked(path))
        try:
            return target.read_bytes()
        except FileNotFoundError as exc:
            raise StorageMissingError(f"no file {target}") from exc
        except OSError as exc:
            raise StorageError(f"cannot read {target}: {exc.strerror or exc}") from exc

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """See `Storage.list`."""
        folder = self._root.joinpath(*_checked(path))
        try:
            with os.scandir(folder) as found:
                entries = [_entry(item) for item in found if not item.name.endswith(_UNFINISHED)]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as exc:
            raise StorageError(f"cannot list {folder}: {exc.strerror or exc}") from exc
        return tuple(sorted(entries, key=lambda entry: entry.name))

    def delete(self, path: StoragePath) -> None:
        """See `Storage.delete`."""
        target = self._root.joinpath(*_checked(path))
        try:
            target.unlink(missing_ok=True)
        except OSError as exc:
            raise StorageError(f"cannot delete {target}: {exc.strerror or exc}") from exc

    def location(self, path: StoragePath) -> str:
        """See `Storage.location`."""
        return str(self._root.joinpath(*_checked(path)))


def _entry(item: os.DirEntry[str]) -> Entry:
    if item.is_dir(follow_symlinks=False):
        return Entry(name=item.name, kind=EntryKind.FOLDER)
    if item.is_file(follow_symlinks=False):
        return Entry(name=item.name, kind=EntryKind.FILE, size_bytes=item.stat(follow_symlinks=False).st_size)
    return Entry(name=item.name, kind=EntryKind.OTHER)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(unfinished: Path) -> None:
    # Best effort: the write has failed already, and a left-over is overwritten by the next attempt.
    try:
        unfinished.unlink(missing_ok=True)
    except OSError:
        return


class MemoryStorage:
    """The same tree in memory: for the simulator and for tests."""

    def __init__(self) -> None:
        self._files: dict[StoragePath, bytes] = {}

    def write(self, path: StoragePath, data: bytes) -> None:
        """See `Storage.write`."""
        self._files[_checked(path)] = data

    def read(self, path: StoragePath) -> bytes:
        """See `Storage.read`."""
        found = self._files.get(_checked(path))
        if found is None:
            raise StorageMissingError(f"no file {self.location(path)}")
        return found

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """See `Storage.list`."""
        depth = len(_checked(path))
        found: dict[str, Entry] = {}
        for file, data in self._files.items():
            if len(file) <= depth or file[:depth] != path:
                continue
            name = file[depth]
            is_file = len(file) == depth + 1
            kind = EntryKind.FILE if is_file else EntryKind.FOLDER
            found[name] = Entry(name=name, kind=kind, size_bytes=len(data) if is_file else 0)
        return tuple(found[name] for name in sorted(found))

    def delete(self, path: StoragePath) -> None:
        """See `Storage.delete`."""
        self._files.pop(_checked(path), None)

    def location(self, path: StoragePath) -> str:
        """See `Storage.location`."""
        return "memory:/" + "/".join(_checked(path))
