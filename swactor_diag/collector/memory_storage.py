"""A storage in memory: for the simulator and for tests.

Owns: `MemoryStorage`, which keeps the promises of `Storage` as long as its process lives.
"""

from collections.abc import Iterable, Iterator

from swactor_diag.collector.storage_seam import (
    PIECE_BYTES,
    Entry,
    EntryKind,
    StorageError,
    StorageMissingError,
    StoragePath,
    StorageTakenError,
    checked_path,
)


class MemoryStorage:
    """The tree of a storage in memory."""

    flushes = False

    def __init__(self) -> None:
        self._files: dict[StoragePath, bytearray] = {}

    def write(self, path: StoragePath, pieces: bytes | Iterable[bytes]) -> None:
        """See `Storage.write`."""
        self._files[checked_path(path)] = bytearray(pieces if isinstance(pieces, bytes) else b"".join(pieces))

    def append(self, path: StoragePath, data: bytes, *, at: int) -> None:
        """See `Storage.append`."""
        if at == 0:
            if checked_path(path) in self._files:
                raise StorageTakenError(f"there is a file {self.location(path)} already")
            self._files[path] = bytearray()
        file = self._file(path)
        file[at:] = data

    def flush(self) -> None:
        """See `Storage.flush`."""

    def drop_unflushed(self) -> None:
        """See `Storage.drop_unflushed`."""

    def seal(self, path: StoragePath) -> None:
        """See `Storage.seal`."""

    def read(self, path: StoragePath, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        file = self._file(path)
        return bytes(file[start : len(file) if length is None else start + length])

    def stream(self, path: StoragePath, start: int, stop: int) -> Iterator[bytes]:
        """See `Storage.stream`."""
        data = self.read(path, start, stop - start)
        if len(data) < stop - start:
            raise StorageError(f"{self.location(path)} ends at byte {start + len(data)}")
        yield from (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """See `Storage.list`."""
        depth = len(checked_path(path))
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
        depth = len(checked_path(path))
        for file in [file for file in self._files if file[:depth] == path]:
            del self._files[file]

    def location(self, path: StoragePath) -> str:
        """See `Storage.location`."""
        return "memory:/" + "/".join(checked_path(path))

    def close(self) -> None:
        """See `Storage.close`."""

    def _file(self, path: StoragePath) -> bytearray:
        found = self._files.get(checked_path(path))
        if found is None:
            raise StorageMissingError(f"no file {self.location(path)}")
        return found
