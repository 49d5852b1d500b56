"""What is around scripted children: ports and files in memory.

Owns: `ScriptedSurroundings`, which a `ScriptedSpawner` brings along.
Not here: the scripts (``_scripted``).
"""

import errno
import os
from collections.abc import Callable, Hashable

from swactor.abc import Cancellable, Scheduler


class ScriptedSurroundings:
    """Implements `Surroundings`. A test looks at ``files``, and makes writing fail."""

    def __init__(self, loop: Scheduler) -> None:
        self._loop = loop
        self._ports: dict[int, int] = {}
        self._marks: dict[str, int] = {}
        self.files: dict[str, bytes] = {}
        """What was written, by path: the newest file only, predecessors are forgotten."""
        self._failing: dict[str, int] = {}

    def fail_writing(self, path: str, errno_name: str | None) -> None:
        """Have the kernel refuse ``path`` with ``errno_name`` from now on; None: no more."""
        if errno_name is None:
            self._failing.pop(path, None)
        else:
            self._failing[path] = getattr(errno, errno_name)

    def open_output(self, path: str, *, max_bytes: int, keep: int) -> "ScriptedFile":  # noqa: ARG002 - as declared
        """See `Surroundings.open_output`."""
        self.check(path)
        self.files.setdefault(path, b"")
        return ScriptedFile(self, path, max_bytes)

    def listen(self, port: int, pid: int) -> None:
        """Have ``pid`` accept connections at ``port``."""
        self._ports[port] = pid

    def hang_up(self, pid: int) -> None:
        """Nobody accepts what ``pid`` accepted."""
        self._ports = {port: owner for port, owner in self._ports.items() if owner != pid}

    def make_file(self, path: str) -> None:
        """Write ``path``, maybe again."""
        self._marks[path] = self._marks.get(path, 0) + 1

    def try_port(self, host: str, port: int, done: Callable[[bool], None]) -> Cancellable:  # noqa: ARG002
        """See `Surroundings.try_port`. All addresses are one host."""
        return self._loop.call_later(0.0, lambda: done(port in self._ports))

    def file_mark(self, path: str) -> Hashable:
        """See `Surroundings.file_mark`."""
        return self._marks.get(path)

    def check(self, path: str) -> None:
        """Raise OSError if writing to ``path`` is to fail."""
        if path in self._failing:
            number = self._failing[path]
            raise OSError(number, os.strerror(number), path)


class ScriptedFile:
    """Implements `OutputFile` in memory."""

    def __init__(self, surroundings: ScriptedSurroundings, path: str, max_bytes: int) -> None:
        self._surroundings, self._path, self._max_bytes = surroundings, path, max_bytes
        self.lost_bytes = 0

    def write(self, data: bytes) -> OSError | None:
        """See `OutputFile.write`."""
        try:
            self._surroundings.check(self._path)
        except OSError as error:
            self.lost_bytes += len(data)
            return error
        whole = self._surroundings.files[self._path] + data
        self._surroundings.files[self._path] = whole[(len(whole) - 1) // self._max_bytes * self._max_bytes :]
        return None

    def close(self) -> None:
        """Nothing is held open."""
