"""Bytes of a child's stream to lines, and the last bytes of a stream. Pure.

Owns: line borders, over-long lines, the unterminated rest, the bounded tail.
Not here: reading (see ``linux``), telling anybody (see ``driver``). Memory: one unfinished line of at most
``line_max_bytes`` plus the chunk at hand; a tail holds at most twice its limit.
"""

import enum

from msgspec import Struct

CHARACTER_MAX_BYTES = 4


class LinePart(enum.Enum):
    """Which part of a line of the child an output line is."""

    WHOLE = "whole"
    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


class Line(Struct, frozen=True, gc=False):
    """One line, or one piece of an over-long one, without its newline.

    ``data`` are the child's own bytes. ``terminated`` is false for the rest that the child ended, or stopped
    being read, without a newline.
    """

    data: bytes
    part: LinePart = LinePart.WHOLE
    terminated: bool = True

    @property
    def text(self) -> str:
        """``data`` for people: undecodable bytes are replaced."""
        return self.data.decode("utf-8", "replace")


class LineSplitter:
    """Cuts one stream into lines of at most ``line_max_bytes``; a longer one not within a character."""

    def __init__(self, line_max_bytes: int) -> None:
        self._max = line_max_bytes
        self._rest = b""
        self._open_piece = False  # pieces of the line at hand went out already

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines and pieces that ``data`` completes."""
        complete = data.split(b"\n")
        if self._rest:
            complete[0] = self._rest + complete[0]
        rest = complete.pop()
        if not self._open_piece and (not complete or max(map(len, complete)) <= self._max):
            lines = list(map(Line, complete))
        else:
            lines = [piece for line in complete for piece in self._pieces(line)]
        pieces, self._rest = self._cut(rest)
        return lines + pieces

    def end(self) -> list[Line]:
        """Return the unterminated rest, if there is any. The stream is over."""
        rest, self._rest = self._rest, b""
        if not rest and not self._open_piece:
            return []
        return [self._last_piece(rest, terminated=False)]

    def _pieces(self, line: bytes) -> list[Line]:
        pieces, last = self._cut(line)
        return [*pieces, self._last_piece(last, terminated=True)]

    def _cut(self, line: bytes) -> tuple[list[Line], bytes]:
        """Return pieces of ``line``, and the rest that is short enough."""
        pieces: list[Line] = []
        start = 0
        while len(line) - start > self._max:
            end = self._end_of_piece(line, start)
            pieces.append(self._piece(line[start:end]))
            start = end
        return pieces, line[start:]

    def _end_of_piece(self, line: bytes, start: int) -> int:
        """Return where a piece ends that begins at ``start``: if possible not within a character."""
        end = start + self._max
        for place in range(end, max(start, end - CHARACTER_MAX_BYTES), -1):
            if line[place] & 0xC0 != 0x80:
                return place
        return end

    def _piece(self, data: bytes) -> Line:
        part = LinePart.MIDDLE if self._open_piece else LinePart.FIRST
        self._open_piece = True
        return Line(data, part)

    def _last_piece(self, data: bytes, *, terminated: bool) -> Line:
        part = LinePart.LAST if self._open_piece else LinePart.WHOLE
        self._open_piece = False
        return Line(data, part, terminated)


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
