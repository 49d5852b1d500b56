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


class Piece(Struct, frozen=True, gc=False):
    """What is not simply a whole line: a piece of an over-long one, or the unterminated rest.

    ``data`` are the child's own bytes, without the newline. ``terminated`` is false for the rest that the
    child ended, or stopped being read, without a newline.
    """

    data: bytes
    part: LinePart = LinePart.WHOLE
    terminated: bool = True


Cut = bytes | Piece
"""Whole lines that follow each other, each with its newline, or a piece of one."""


class LineSplitter:
    """Cuts one stream into lines of at most ``line_max_bytes``; a longer one not within a character."""

    def __init__(self, line_max_bytes: int) -> None:
        self._max = line_max_bytes
        self._rest = bytearray()  # grows in place: a long line comes in many reads
        self._open_piece = False  # pieces of the line at hand went out already

    def feed(self, data: bytes) -> list[Cut]:
        """Return the lines and pieces that ``data`` completes, in order."""
        end = data.rfind(b"\n") + 1
        cuts: list[Cut] = []
        if end:
            block = b"".join((self._rest, data[:end])) if self._rest else data[:end]
            self._rest.clear()
            data = data[end:]
            if not self._open_piece and self._all_fit(block):
                cuts.append(block)
            else:
                cuts += self._cut_lines(block)
        self._rest += data
        if len(self._rest) > self._max:
            pieces, self._rest[:] = self._cut(bytes(self._rest))
            cuts += pieces
        return cuts

    def end(self) -> list[Cut]:
        """Return the unterminated rest, if there is any. The stream is over."""
        rest = bytes(self._rest)
        self._rest.clear()
        if not rest and not self._open_piece:
            return []
        return [self._last_piece(rest, terminated=False)]

    def _all_fit(self, block: bytes) -> bool:
        """Whether no line of ``block`` is too long. Looks for one newline every ``line_max_bytes``.

        What lies between two newlines that are so close together is short enough, however many lines it is.
        """
        at, last = 0, len(block) - 1
        while last - at > self._max:
            newline = block.rfind(b"\n", at, at + self._max + 1)
            if newline < 0:
                return False
            at = newline + 1
        return True

    def _cut_lines(self, block: bytes) -> list[Cut]:
        cuts: list[Cut] = []
        whole = at = 0  # where the whole lines begin that no cut has yet, and where the line at hand begins
        for line in block[:-1].split(b"\n"):
            after = at + len(line) + 1
            if self._open_piece or len(line) > self._max:
                if whole < at:
                    cuts.append(block[whole:at])
                pieces, last = self._cut(line)
                cuts += [*pieces, self._last_piece(last, terminated=True)]
                whole = after
            at = after
        return cuts if whole == at else [*cuts, block[whole:]]

    def _cut(self, line: bytes) -> tuple[list[Piece], bytes]:
        """Return pieces of ``line``, and the rest that is short enough."""
        pieces: list[Piece] = []
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

    def _piece(self, data: bytes) -> Piece:
        part = LinePart.MIDDLE if self._open_piece else LinePart.FIRST
        self._open_piece = True
        return Piece(data, part)

    def _last_piece(self, data: bytes, *, terminated: bool) -> Piece:
        part = LinePart.LAST if self._open_piece else LinePart.WHOLE
        self._open_piece = False
        return Piece(data, part, terminated)


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
