"""What is around scripted children: files in memory.

Owns: `ScriptedSurroundings`, which a `ScriptedSpawner` brings along.
Not here: the scripts (``_scripted``).
"""

import errno
import os


class ScriptedSurroundings:
    """Implements `Surroundings`. A test looks at ``files``, and makes writing fail."""

    def __init__(self) -> None:
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
