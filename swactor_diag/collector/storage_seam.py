"""Where a collector's bytes lie: a small tree of files behind one seam.

Owns: what every storage promises. Not here: the kinds of storage (``local_storage``, ``memory_storage``,
``object_storage``), what the files mean and how they are named (``staging``).

There are two sorts of files. A whole file is written once: it is there entirely or not at all. A log grows at
its end: a process that is killed leaves a log that ends inside what was appended last, and is sound before.

A path is a tuple of parts. Parts handed to a storage must be plain names; a listing may show foreign names
(put there by somebody else), which are reported but never opened.
"""

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

StoragePath = tuple[str, ...]

_PART = re.compile(r"[A-Za-z0-9._@-]{1,240}")
PIECE_BYTES = 256 * 1024
"""Files are streamed in pieces of this size."""

UNFINISHED = ".part"
"""No name ends so, but that of a whole file that is being written."""


class StorageError(Exception):
    """The storage could not do what was asked; nothing changed. Trying again later may help."""


class StorageFullError(StorageError):
    """There is no room left. Reading and deleting still work; writing works again once there is room."""


class StorageMissingError(StorageError):
    """There is no file at that path."""


class StorageTakenError(StorageError):
    """A new log was to begin at a path where there is something already."""


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
    modified_ms: int | None = None
    """When it was written last, by the clock of whoever keeps it; None where nobody knows."""


class Storage(Protocol):
    """A tree of files. Every call is synchronous.

    Any thread may call; appending is for one thread, and calls that change one path come one at a time.
    """

    @property
    def flushes(self) -> bool:
        """Whether what was appended lasts only after the next `flush`."""
        ...

    def write(self, path: StoragePath, pieces: bytes | Iterable[bytes]) -> None:
        """Put a whole file at ``path``, replacing what was there; readers see the old or the new one, whole.

        Raises:
            StorageFullError: no room; nothing was changed.
            StorageError: any other failure; nothing was changed.
        """
        ...

    def append(self, path: StoragePath, data: bytes, *, at: int) -> None:
        """Add ``data`` to the log at ``path``, which has ``at`` bytes; 0 begins a new log.

        After a failure the same call, with the same ``at``, may be made again.

        Raises:
            StorageTakenError: ``at`` is 0 and there is something already.
            StorageFullError: no room.
            StorageError: any other failure.
        """
        ...

    def flush(self) -> None:
        """Make everything appended so far last as long as this storage can.

        Raises:
            StorageError: not everything lasts, or an earlier drop failed; call `drop_unflushed` before
                anything else.
        """
        ...

    def drop_unflushed(self) -> None:
        """Forget what was appended since the last flush that worked; what of it did last stays.

        Raises:
            StorageError: some of it is still there to be read. Every `flush` fails until this has worked.
        """
        ...

    def seal(self, path: StoragePath) -> None:
        """Say that nothing will be appended any more, so that a log may be kept in a cheaper way."""
        ...

    def read(self, path: StoragePath, start: int = 0, length: int | None = None) -> bytes:
        """Return the file from byte ``start``, at most ``length`` bytes of it or all.

        Raises:
            StorageMissingError: there is none.
        """
        ...

    def stream(self, path: StoragePath, start: int, stop: int) -> Iterator[bytes]:
        """Yield the file from byte ``start`` up to ``stop``, as it is now, whatever becomes of its name.

        Raises:
            StorageMissingError: there is none.
            StorageError: it ends before ``stop``.
        """
        ...

    def list(self, path: StoragePath = ()) -> tuple[Entry, ...]:
        """Return what the folder holds, sorted by name; an absent folder is an empty one."""
        ...

    def delete(self, path: StoragePath) -> None:
        """Remove the file, or the folder with everything in it; does nothing when there is none."""
        ...

    def location(self, path: StoragePath) -> str:
        """Return how a person finds ``path``: for messages only."""
        ...

    def close(self) -> None:
        """Let go of what is open. The storage may be used again."""
        ...


def is_storage_name(part: str) -> bool:
    """Return whether ``part`` may be used as one part of a path."""
    return _PART.fullmatch(part) is not None and part not in {".", ".."} and not part.endswith(UNFINISHED)


def checked_path(path: StoragePath) -> StoragePath:
    """Return ``path``.

    Raises:
        StorageError: one of its parts is no plain file name.
    """
    for part in path:
        if not is_storage_name(part):
            raise StorageError(f"not a plain file name: {part[:80]!r}")
    return path
