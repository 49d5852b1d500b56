"""Bytes of a child's stream to lines, and the last bytes of a stream. Pure.

Owns: line borders, over-long lines, the unterminated rest, decoding for people, the bounded tail.
Not here: reading (see ``linux``), telling anybody (see ``driver``). Memory: one unfinished line of at most
``line_max_bytes`` plus the chunk at hand; a tail holds at most twice its limit.
"""

import codecs
import enum

from msgspec import Struct


class LinePart(enum.Enum):
    """Which part of a line of the child an output line is."""

    WHOLE = "whole"
    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


class Line(Struct, frozen=True):
    """One line, or one piece of an over-long one, without its newline.

    ``data`` are the child's own bytes; ``text`` shows them to people, undecodable ones replaced.
    ``terminated`` is false for the rest that the child ended, or stopped being read, without a newline.
    """

    data: bytes
    text: str
    part: LinePart = LinePart.WHOLE
    terminated: bool = True


class LineSplitter:
    """Cuts one stream into lines of at most ``line_max_bytes``."""

    def __init__(self, line_max_bytes: int) -> None:
        self._max = line_max_bytes
        self._rest = b""
        self._open_piece = False  # pieces of the line at hand went out already
        self._decoder: codecs.IncrementalDecoder | None = None  # within a line that is too long

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines and pieces that ``data`` completes."""
        *complete, rest = (self._rest + data).split(b"\n")
        lines: list[Line] = []
        for line in complete:
            if len(line) <= self._max and not self._open_piece:
                lines.append(Line(line, line.decode("utf-8", "replace")))
            else:
                lines.extend(self._pieces(line))
        if len(rest) > self._max:
            keep = len(rest) % self._max or self._max
            lines.extend(
                self._piece(rest[at : at + self._max]) for at in range(0, len(rest) - keep, self._max)
            )
            rest = rest[len(rest) - keep :]
        self._rest = rest
        return lines

    def end(self) -> list[Line]:
        """Return the unterminated rest, if there is any. The stream is over."""
        rest, self._rest = self._rest, b""
        if not rest and not self._open_piece:
            return []
        if not self._open_piece:
            return [Line(rest, rest.decode("utf-8", "replace"), terminated=False)]
        return [self._last_piece(rest, terminated=False)]

    def _pieces(self, line: bytes) -> list[Line]:
        starts = range(0, max(len(line), 1), self._max)
        pieces = [self._piece(line[at : at + self._max]) for at in starts[:-1]]
        return [*pieces, self._last_piece(line[starts[-1] :], terminated=True)]

    def _piece(self, data: bytes) -> Line:
        part = LinePart.MIDDLE if self._open_piece else LinePart.FIRST
        self._open_piece = True
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return Line(data, self._decoder.decode(data), part)

    def _last_piece(self, data: bytes, *, terminated: bool) -> Line:
        decoder, self._decoder = self._decoder, None
        text = data.decode("utf-8", "replace") if decoder is None else decoder.decode(data, final=True)
        self._open_piece = False
        return Line(data, text, LinePart.LAST, terminated)


class Tail:
    """Remembers the last ``limit_bytes`` of a stream."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take note of the next bytes."""
        if len(data) >= self._limit:
            self._data[:] = data[len(data) - self._limit :]
            return
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: len(self._data) - self._limit]

    def text(self) -> str:
        """Return what is remembered, for people."""
        kept = self._data[max(0, len(self._data) - self._limit) :]
        return kept.decode("utf-8", "replace")
