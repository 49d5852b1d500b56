"""A storage on the local disk.

Owns: `LocalStorage`: atomic whole files, logs that are written in place, flushing. Not here: what is promised
(``storage_seam``).
"""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from swactor_diag.collector.storage_seam import (
    PIECE_BYTES,
    UNFINISHED,
    Entry,
    EntryKind,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StoragePath,
    StorageTakenError,
    checked_path,
)

LOGS_OPEN_MAX = 64
"""Logs whose descriptor is kept; the one unused for longest is closed, and opened again at need."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class LocalStorage:
    """A folder on the local disk.

    A whole file goes to a temporary name and is renamed over the final one; a log is written in place. What
    the kernel has taken survives the death of the process; with ``fsync`` it survives a power loss as well,
    once it is flushed. What a former process wrote and did not flush is flushed at the start: it can be read,
    so it would be taken for stored (sync(2), which waits on Linux).
    """

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        if fsync:
            os.sync()
        self._root = root
        self.flushes = fsync
        self._logs: dict[StoragePath, _Log] = {}
        self._unflushed: dict[StoragePath, _Log] = {}
        self._uncut: dict[StoragePath, _Log] = {}
        self._lock = Lock()  # of `_unflushed` and `_uncut`: flushing has a thread of its own

    def write(self, path: StoragePath, pieces: bytes | Iterable[bytes]) -> None:
        """See `Storage.write`."""
        target = self._root.joinpath(*checked_path(path))
        unfinished = target.with_name(target.name + UNFINISHED)
        try:
            with _storage_errors("write", target):
                target.parent.mkdir(parents=True, exist_ok=True)
                with unfinished.open("wb") as file:
                    for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                        file.write(piece)
                    file.flush()
                    if self.flushes:
                        os.fsync(file.fileno())
                unfinished.replace(target)
                if self.flushes:
                    _sync_folders(target.parent, up_to=self._root)
        except BaseException:
            _discard(unfinished)
            raise

    def append(self, path: StoragePath, data: bytes, *, at: int) -> None:
        """See `Storage.append`."""
        try:
            log = self._log(path, is_new=at == 0)
            if self.flushes:
                with self._lock:
                    self._unflushed.setdefault(path, log)
            try:
                _write_at(log.descriptor, data, at)
            except OSError:
                if at == 0:
                    self.delete(path)
                raise
        except OSError as exc:
            raise _named(exc, "write", self._root.joinpath(*path)) from exc

    def flush(self) -> None:
        """See `Storage.flush`."""
        with self._lock:
            if self._uncut:
                # Its bytes can be read and may be known by now: a flush that worked would vouch for them.
                target = self._root.joinpath(*next(iter(self._uncut)))
                raise StorageError(f"cannot flush: {target} holds what did not last")
            flushing, self._unflushed = self._unflushed, {}
        try:
            for path, log in flushing.items():
                target = self._root.joinpath(*path)
                with _storage_errors("flush", target):
                    size = os.fstat(log.descriptor).st_size
                    os.fsync(log.descriptor)
                    if not log.flushed_bytes:
                        _sync_folders(target.parent, up_to=self._root)
                log.flushed_bytes = size
        except StorageError:
            with self._lock:
                self._unflushed = flushing | self._unflushed
            raise

    def drop_unflushed(self) -> None:
        """See `Storage.drop_unflushed`."""
        with self._lock:
            self._uncut |= self._unflushed
            self._unflushed = {}
            failed: tuple[StoragePath, OSError] | None = None
            for path, log in list(self._uncut.items()):
                try:
                    os.ftruncate(log.descriptor, log.flushed_bytes)
                    del self._uncut[path]
                except OSError as exc:
                    failed = failed or (path, exc)
        if failed is not None:
            path, problem = failed
            raise _named(problem, "cut", self._root.joinpath(*path)) from problem

    def seal(self, path: StoragePath) -> None:
        """See `Storage.seal`. It costs nothing here, so nothing is done."""

    def read(self, path: StoragePath, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        target = self._root.joinpath(*checked_path(path))
        try:
            with target.open("rb") as file:
                file.seek(start)
                return file.read(-1 if length is None else length)
        except FileNotFoundError as exc:
            raise StorageMissingError(f"no file {target}") from exc
        except OSError as exc:
            raise StorageError(f"cannot read {target}: {exc.strerror or exc}") from exc

    def stream(self, path: StoragePath, start: int, stop: int) -> Iterator[bytes]:
        """See `Storage.stream`."""
        target = self._root.joinpath(*checked_path(path))
        try:
            file = target.open("rb")
        except FileNotFoundError as exc:
            raise StorageMissingError(f"no file {target}") from exc
        with file, _storage_errors("read", target):
            file.seek(start)
            while start < stop:
                piece = file.read(min(PIECE_BYTES, stop - start))
                if not piece:
                    raise StorageError(f"{target} ends at byte {start}")
                yield piece
                start += len(piece)

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """See `Storage.list`."""
        folder = self._root.joinpath(*checked_path(path))
        if path and folder.is_symlink():
            return ()  # links are named by the folder they are in, and never followed
        try:
            with os.scandir(folder) as found:
                entries = [_entry(item) for item in found if not item.name.endswith(UNFINISHED)]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as exc:
            raise StorageError(f"cannot list {folder}: {exc.strerror or exc}") from exc
        return tuple(sorted(entries, key=lambda entry: entry.name))

    def delete(self, path: StoragePath) -> None:
        """See `Storage.delete`. Links are removed, never followed."""
        target = self._root.joinpath(*checked_path(path))
        below = [log for log in list(self._logs) if log[: len(path)] == path]
        for log in below:
            if log not in self._uncut:  # else it is to be cut as long as it is there
                self._close(log)
        with _storage_errors("delete", target):
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        for log in below:
            self._close(log)

    def location(self, path: StoragePath) -> str:
        """See `Storage.location`."""
        return str(self._root.joinpath(*checked_path(path)))

    def close(self) -> None:
        """See `Storage.close`."""
        for path in list(self._logs):
            self._close(path)

    def _log(self, path: StoragePath, *, is_new: bool) -> "_Log":
        log = None if is_new else self._logs.pop(path, None)
        if log is None:
            target = self._root.joinpath(*checked_path(path))
            needed = self._unflushed.keys() | self._uncut.keys()
            idle = [other for other in list(self._logs) if other not in needed]
            for other in idle[: max(0, len(idle) - LOGS_OPEN_MAX + 1)]:
                self._close(other)
            log = _open_log(target, is_new=is_new)
        self._logs[path] = log  # last: used most recently
        return log

    def _close(self, path: StoragePath) -> None:
        with self._lock:
            self._unflushed.pop(path, None)
            self._uncut.pop(path, None)
        log = self._logs.pop(path, None)
        if log is not None:
            os.close(log.descriptor)


class _Log:
    """A log that is open; ``flushed_bytes`` of it survive a power loss."""

    def __init__(self, descriptor: int, *, flushed_bytes: int) -> None:
        self.descriptor, self.flushed_bytes = descriptor, flushed_bytes


def _open_log(target: Path, *, is_new: bool) -> _Log:
    flags = os.O_WRONLY | os.O_CLOEXEC
    if is_new:
        target.parent.mkdir(parents=True, exist_ok=True)
        flags |= os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(target, flags, 0o644)
    except FileExistsError as exc:
        raise StorageTakenError(f"there is a file {target} already") from exc
    return _Log(descriptor, flushed_bytes=os.fstat(descriptor).st_size)


def _write_at(descriptor: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        at, rest = at + written, rest[written:]


@contextmanager
def _storage_errors(doing: str, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _named(exc, doing, target) from exc


def _named(exc: OSError, doing: str, target: Path) -> StorageError:
    kind = StorageFullError if exc.errno in _FULL else StorageError
    return kind(f"cannot {doing} {target}: {exc.strerror or exc}")


def _entry(item: os.DirEntry[str]) -> Entry:
    if item.is_dir(follow_symlinks=False):
        return Entry(name=item.name, kind=EntryKind.FOLDER)
    if item.is_file(follow_symlinks=False):
        found = item.stat(follow_symlinks=False)
        return Entry(
            name=item.name,
            kind=EntryKind.FILE,
            size_bytes=found.st_size,
            modified_ms=found.st_mtime_ns // 1_000_000,
        )
    return Entry(name=item.name, kind=EntryKind.OTHER)


def _sync_folders(folder: Path, *, up_to: Path) -> None:
    """Make the names on the way to ``folder`` last; a folder that is new is a name in the one above it."""
    for level in [folder, *folder.parents]:
        descriptor = os.open(level, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if level == up_to:
            break


def _discard(unfinished: Path) -> None:
    # Best effort: the write has failed already, and a left-over is overwritten by the next attempt.
    with suppress(OSError):
        unfinished.unlink(missing_ok=True)
