"""The seam between the driver and what is around a child on its machine: its ports, its files.

Owns: the protocols `Surroundings` and `OutputFile`, and whose surroundings are meant.
Not here: the implementations (``host``, ``testing``). All calls happen on the loop's thread.
"""

from collections.abc import Callable, Hashable
from typing import Protocol, runtime_checkable

from swactor.abc import Cancellable


class OutputFile(Protocol):
    """A file that takes a child's output, and that starts anew when it is large."""

    @property
    def lost_bytes(self) -> int:
        """How many bytes could not be written."""
        ...

    def write(self, data: bytes) -> OSError | None:
        """Append ``data``; return what went wrong. The rest of ``data`` is lost then."""
        ...

    def close(self) -> None:
        """Let go of the file. Everything that was not lost is in it."""
        ...


class Surroundings(Protocol):
    """What is around the children of one spawner."""

    def open_output(self, path: str, *, max_bytes: int, keep: int) -> OutputFile:
        """Open ``path`` for output; see `ToFile`.

        Raises:
            OSError: it cannot be written to.
        """
        ...

    def try_port(self, host: str, port: int, done: Callable[[bool], None]) -> Cancellable:
        """Find out whether somebody accepts connections at ``port`` of ``host``, an address.

        ``done`` is called once, later, within a second or so; not after it was cancelled.
        """
        ...

    def file_mark(self, path: str) -> Hashable:
        """Return what tells this file from an earlier state of it; None when there is no such file."""
        ...


@runtime_checkable
class Surrounded(Protocol):
    """A spawner whose children are not on this machine, and that brings their surroundings along."""

    @property
    def surroundings(self) -> Surroundings:
        """What is around its children."""
        ...
