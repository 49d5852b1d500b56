r"""Frames on a pipe: records of any bytes, one after the other. Pure.

A frame is the length of its body in decimal digits, a newline, the body, a newline: ``5\nhello\n``. Both
newlines are part of the format: a frame ends where a line ends, whatever its body holds.

Owns: the border between frames, and that a broken or too large one is refused before it takes memory.
"""

from collections.abc import Iterator

BODY_BYTES_MAX = 16 << 20
_DIGITS_MAX = len(str(BODY_BYTES_MAX))


class FrameError(ValueError):
    """The bytes are no frame. What comes after them cannot be understood either."""


def frame(body: bytes) -> bytes:
    """Return ``body`` as one frame.

    Raises:
        FrameError: it is larger than `BODY_BYTES_MAX`.
    """
    if len(body) > BODY_BYTES_MAX:
        raise FrameError(f"a frame holds {BODY_BYTES_MAX} bytes, not {len(body)}")
    return b"%d\n%b\n" % (len(body), body)


class FrameReader:
    """Finds the frames in a stream; it holds the bytes of one unfinished frame at most."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes; yield the bodies that they complete.

        Raises:
            FrameError: what comes next is no frame.
        """
        self._data += data
        start = 0
        try:
            while (found := self._next(start)) is not None:
                body, start = found
                yield body
        finally:
            del self._data[:start]

    def _next(self, start: int) -> tuple[bytes, int] | None:
        newline = self._data.find(b"\n", start, start + _DIGITS_MAX + 1)
        digits = bytes(
            self._data[start:newline] if newline >= 0 else self._data[start : start + _DIGITS_MAX + 1]
        )
        if digits and not digits.isdigit():
            raise FrameError(f"a frame begins with its length in digits, not with {digits!r}")
        if newline < 0 and len(digits) > _DIGITS_MAX:
            raise FrameError(f"a frame holds {BODY_BYTES_MAX} bytes at most")
        if newline < 0:
            return None
        if not digits or int(digits) > BODY_BYTES_MAX:
            raise FrameError(f"a frame holds 0 to {BODY_BYTES_MAX} bytes, not {digits!r}")
        begin, end = newline + 1, newline + 1 + int(digits)
        if len(self._data) <= end:
            return None
        if self._data[end] != ord("\n"):
            raise FrameError("a frame ends with a newline")
        return bytes(self._data[begin:end]), end + 1
