"""Standard output that cannot fail: a run must end in order even when nobody is there to see it.

Owns: what happens when the terminal has closed, the reader of a pipe has gone, or a disk is full.
Not here: what is shown (`screen`, `demo`).
"""

import io
from collections.abc import Callable
from typing import TextIO

from swactor_diag.cli.console import lose


class Output(io.TextIOBase):
    """Writes to ``stream`` until that fails, then to nowhere; ``on_lost`` hears of it, once.

    What the encoding of the stream does not have is replaced.
    """

    def __init__(self, stream: TextIO) -> None:
        self.on_lost: Callable[[], object] = lambda: None
        self._stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    @property
    def encoding(self) -> str:  # type: ignore[override]  # of a class attribute that nobody sets
        """That of the stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Whether a person sees it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()

    def write(self, text: str, /) -> int:
        """Write ``text``, or lose it."""
        try:
            self._stream.write(text)
        except OSError:
            self._lose()
        return len(text)

    def flush(self) -> None:
        """Write what waits, or lose it."""
        if self._stream.closed:
            return  # collected after it: from Python 3.13 on that would be an error that nobody can handle
        try:
            self._stream.flush()
        except OSError:
            self._lose()

    def _lose(self) -> None:
        lose(self._stream)
        self.on_lost()
