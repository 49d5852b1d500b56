"""A file of bounded size with a bounded number of predecessors.

Owns: where one file ends and the next begins, renaming, counting what could not be written.
Not here: what is written, whom to tell (``_life``).

Every write goes to the kernel at once: nothing is lost when this node dies, and who follows the file sees it.
That holds the event loop as long as copying the bytes takes, some 20 microseconds for the 64 KiB that a read
brings; but a file system that hangs holds it too.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE = 0o666


class RotatingFile:
    """Implements `OutputFile`: ``path`` is the newest, ``path.1`` its predecessor, ``path.keep`` the oldest.

    Raises:
        OSError: ``path`` cannot be opened for writing, or is no regular file.
    """

    def __init__(self, path: str, *, max_bytes: int, keep: int) -> None:
        self._path, self._max_bytes, self._keep = Path(path), max_bytes, keep
        self._descriptor: int | None = None
        self._size = 0
        self._lost_bytes = 0
        self._open()

    @property
    def lost_bytes(self) -> int:
        """See `OutputFile.lost_bytes`."""
        return self._lost_bytes

    def write(self, data: bytes) -> OSError | None:
        """See `OutputFile.write`. A file ends between two lines where that is possible."""
        rest = memoryview(data)
        try:
            while rest:
                descriptor = self._open() if self._descriptor is None else self._descriptor
                fitting = fitting_bytes(rest, self._max_bytes - self._size, fresh=self._size == 0)
                if fitting:
                    written = os.write(descriptor, rest[:fitting])
                    self._size += written
                    rest = rest[written:]
                else:
                    self._rotate()
        except OSError as error:
            self._lost_bytes += len(rest)
            return error
        return None

    def _open(self) -> int:
        descriptor = os.open(self._path, _FLAGS, _MODE)
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", str(self._path))
        self._descriptor, self._size = descriptor, facts.st_size
        return descriptor

    def _rotate(self) -> None:
        """Make room under the name. When that fails the file stays as it is, and full."""
        if self._keep:
            # Only up to the first gap: what failed half way and is tried again must not push the oldest out.
            gap = next((n for n in range(1, self._keep) if not self._older(n).exists()), self._keep)
            for number in range(gap, 1, -1):
                self._older(number - 1).replace(self._older(number))
            with contextlib.suppress(FileNotFoundError):  # it is gone, or somebody took it away: room
                self._path.replace(self._older(1))
                # Renaming one name of a file to another name of it does nothing, and raises nothing.
                if os.path.samestat(self._path.lstat(), self._older(1).lstat()):
                    self._path.unlink()
        else:
            self._path.unlink(missing_ok=True)
        self.close()
        self._open()

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """See `OutputFile.close`."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):  # a late error of a network share; it is closed
                os.close(descriptor)


def fitting_bytes(data: memoryview, room_bytes: int, *, fresh: bool) -> int:
    """Return how much of ``data`` belongs into a file with ``room_bytes`` left; 0: begin a new one first."""
    if len(data) <= room_bytes:
        return len(data)
    border = bytes(data[: max(0, room_bytes)]).rfind(b"\n") + 1
    if border:
        return border
    return room_bytes if fresh else 0
