"""The surroundings of real children: the files of this machine.

Owns: the production implementation of `Surroundings`.
"""

from swactor_process._rotating import RotatingFile
from swactor_process.surroundings import OutputFile


class HostSurroundings:
    """Implements `Surroundings` for children on this machine."""

    def open_output(self, path: str, *, max_bytes: int, keep: int) -> OutputFile:
        """See `Surroundings.open_output`."""
        return RotatingFile(path, max_bytes=max_bytes, keep=keep)
