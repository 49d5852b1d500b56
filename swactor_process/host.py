"""The surroundings of real children: the ports and files of this machine.

Owns: the production implementation of `Surroundings`; the only sockets of this package.
Not here: writing to files (``_rotating``).
"""

import errno
import os
import socket
from collections.abc import Callable, Hashable

from swactor.abc import Cancellable, Loop
from swactor_process._rotating import RotatingFile
from swactor_process.surroundings import OutputFile

TRY_S = 1.0
"""After this long without an answer nobody accepts connections."""


class HostSurroundings:
    """Implements `Surroundings` for children on this machine."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def open_output(self, path: str, *, max_bytes: int, keep: int) -> OutputFile:
        """See `Surroundings.open_output`."""
        return RotatingFile(path, max_bytes=max_bytes, keep=keep)

    def try_port(self, host: str, port: int, done: Callable[[bool], None]) -> Cancellable:
        """See `Surroundings.try_port`."""
        return _PortTry(self._loop, host, port, done)

    def file_mark(self, path: str) -> Hashable:
        """See `Surroundings.file_mark`. A file that may not be looked at is none."""
        try:
            facts = os.stat(path)  # noqa: PTH116 - Path would say the same in more words
        except OSError:
            return None
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns


class _PortTry:
    """One connection that is closed as soon as it stands."""

    def __init__(self, loop: Loop, host: str, port: int, done: Callable[[bool], None]) -> None:
        self._done: Callable[[bool], None] | None = done
        self._watch: Cancellable | None = None
        self._timer: Cancellable | None = None
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            self._socket.settimeout(0)
            code = self._socket.connect_ex((host, port))
        except OSError:  # no descriptor to be had: nobody was reached
            code = errno.EMFILE
        if self._socket is not None and code in {0, errno.EINPROGRESS}:
            self._watch = loop.watch_writable(self._socket.fileno(), self._look)
            self._timer = loop.call_later(TRY_S, lambda: self._answer(stands=False))
        else:
            loop.call_soon(lambda: self._answer(stands=False))

    def _look(self) -> None:
        if self._socket is not None:
            self._answer(stands=_stands(self._socket))

    def _answer(self, *, stands: bool) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(stands)

    def cancel(self) -> None:
        """Want no answer any more."""
        self._done = None
        for running in (self._watch, self._timer):
            if running is not None:
                running.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _stands(connection: socket.socket) -> bool:
    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return False
    try:
        # A port of the range that outgoing connections use may, by chance, be given to this very connection:
        # then it is connected to itself, and nobody listens.
        return bool(connection.getpeername() != connection.getsockname())
    except OSError:
        return False
