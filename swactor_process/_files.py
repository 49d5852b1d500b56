"""The files that the output of one child goes to.

Owns: opening them before the start, which of its streams share one, what trouble is news.
Not here: writing (``_rotating``), telling (``_telling``).
"""

import errno

from swactor_process.spawner import SpawnError, SpawnRole
from swactor_process.spec import STREAMS, ProcessSpec, Stream, ToFile
from swactor_process.surroundings import OutputFile, Surroundings


class OutputFiles:
    """The open output files of one child."""

    def __init__(self, spec: ProcessSpec, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._policies = {
            stream: policy for stream in STREAMS if isinstance(policy := spec.policy(stream), ToFile)
        }
        self._files: dict[str, OutputFile] = {}
        self._told: set[tuple[str, int | None]] = set()

    @property
    def lost_bytes(self) -> int:
        """How many bytes could not be written."""
        return sum(file.lost_bytes for file in self._files.values())

    def open(self) -> None:
        """Open what is not open yet.

        Raises:
            SpawnError: a file cannot be written to, so the child must not start.
        """
        for policy in self._policies.values():
            if policy.path in self._files:
                continue
            try:
                self._files[policy.path] = self._surroundings.open_output(
                    policy.path, max_bytes=policy.max_bytes, keep=policy.keep
                )
            except OSError as error:
                raise SpawnError(
                    errno_name=errno_name(error),
                    role=SpawnRole.OUTPUT_FILE,
                    path=policy.path,
                    hint=f"the output file cannot be written to ({error.strerror})",
                ) from error

    def write(self, stream: Stream, data: bytes) -> tuple[str, OSError] | None:
        """Write; return path and error when they are news."""
        path = self._policies[stream].path
        error = self._files[path].write(data)
        if error is None or (path, error.errno) in self._told:
            return None
        self._told.add((path, error.errno))
        return path, error

    def close(self) -> None:
        """Close all."""
        for file in self._files.values():
            file.close()


def errno_name(error: OSError) -> str:
    """Return the name of the kernel's error number, such as ``ENOSPC``."""
    return errno.errorcode.get(error.errno or 0, "UNKNOWN")
