"""How records lie in a segment: one after the other, each with a line that names and guards it.

Owns: the bytes of a frame, and reading them back whatever happened to them. Pure: reads through a callback.
Not here: where segments lie (``staging``).

    @rec 5d41402a events a1b2... b1-events-000007 1716000000000 8192 7d793037
    [{"node_id": ...

The line: its own checksum, kind, node, batch, receive time, length and checksum of the body. After the body
comes a line feed. People can read a segment with ``less``, and ``grep -a '^@rec'`` lists what is in it.
"""

import re
import sys
import zlib
from collections.abc import Callable, Iterator

import msgspec

from swactor_diag.schema.submission import Outgoing, RecordKind

HEADER_BYTES_MAX = 400
"""Two ids of 128 characters and the rest; a longer line is no header."""

_MARK = b"@rec "
_SAID = re.compile(
    rb"(?P<kind>boot|events|snapshot|finalize) (?P<node>[A-Za-z0-9._-]{1,128})"
    rb" (?P<batch>[A-Za-z0-9._-]{1,128}) (?P<recv_ms>[0-9]{1,15})"
    rb" (?P<bytes>[0-9]{1,10}) (?P<checksum>[0-9a-f]{8})"
)
_WINDOW = 256 * 1024

Reader = Callable[[int, int], bytes]
"""Returns at most so many bytes from a position of the segment."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One record of a segment: what its line says, and where its body lies."""

    kind: RecordKind
    node_id: str
    batch_id: str
    recv_ms: int
    body_at: int
    body_bytes: int
    checksum: int

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.body_at + self.body_bytes + 1


class Damage(msgspec.Struct, frozen=True):
    """Bytes of a segment that are no record: from ``at`` up to ``end``."""

    at: int
    end: int
    reason: str


def encode_frame(record: Outgoing, *, recv_ms: int) -> bytes:
    """Return one record as it lies in a segment; its ids must be ids."""
    kind, node_id, batch_id, body = record.kind.value, record.node_id, record.batch_id, record.body
    said = f"{kind} {node_id} {batch_id} {recv_ms} {len(body)} {zlib.crc32(body):08x}".encode()
    return b"%b%08x %b\n%b\n" % (_MARK, zlib.crc32(said), said, body)


def read_frames(read: Reader, *, start: int, end: int) -> Iterator[Frame | Damage]:
    """Yield the records of a segment from ``start``, where one begins, up to ``end``.

    Bodies are not checked here: whoever reads one compares its checksum.
    """
    window = _Window(read, end)
    at = start
    while at < end:
        line = window.line(at)
        frame = _parse(line, at)
        if frame is None:
            following = _next_mark(window, at + 1)
            is_torn = at + len(line) == end and _is_cut_line(line)
            yield Damage(
                at, following, "torn: it ends inside of a line" if is_torn else "no record begins here"
            )
            at = following
        elif frame.end > end:
            yield Damage(at, end, f"torn: {end - frame.body_at} of {frame.body_bytes} bytes of a record")
            return
        else:
            yield frame
            at = frame.end


def _parse(line: bytes, at: int) -> Frame | None:
    if not line.startswith(_MARK) or not line.endswith(b"\n"):
        return None
    guard, _, said = line[len(_MARK) : -1].partition(b" ")
    found = _SAID.fullmatch(said)
    if found is None or guard != b"%08x" % zlib.crc32(said):
        return None
    return Frame(
        kind=RecordKind(found["kind"].decode()),
        node_id=sys.intern(found["node"].decode()),  # the same few, very often
        batch_id=found["batch"].decode(),
        recv_ms=int(found["recv_ms"]),
        body_at=at + len(line),
        body_bytes=int(found["bytes"]),
        checksum=int(found["checksum"], 16),
    )


def _is_cut_line(line: bytes) -> bool:
    """Return whether the last bytes of a segment are what a writer leaves that dies inside of a line.

    A whole line that does not name a record is damage: nobody who dies leaves one.
    """
    return not line.endswith(b"\n") and line[: len(_MARK)] == _MARK[: len(line)]


def _next_mark(window: "_Window", at: int) -> int:
    """Return where the next line that is a header begins, or the end."""
    while at < window.end:
        piece = window.piece(at)
        found = piece.find(b"\n" + _MARK)
        if found < 0:
            # The mark itself may lie across the border of two pieces.
            at += max(1, len(piece) - len(_MARK))
            continue
        at += found + 1
        if _parse(window.line(at), at) is not None:
            return at
    return window.end


class _Window:
    """The part of a segment that was read last."""

    def __init__(self, read: Reader, end: int) -> None:
        self.end = end
        self._read = read
        self._at = 0
        self._data = b""

    def line(self, at: int) -> bytes:
        """Return the line that begins at ``at`` with its line feed, cut off where it cannot be a header."""
        longest = min(HEADER_BYTES_MAX, self.end - at)
        if not self._at <= at <= at + longest <= self._at + len(self._data):
            self._load(at)
        begin = at - self._at
        stop = self._data.find(b"\n", begin, begin + longest)
        return self._data[begin : stop + 1] if stop >= 0 else self._data[begin : begin + longest]

    def piece(self, at: int) -> bytes:
        """Return what follows ``at``, as much as is read at once."""
        self._load(at)
        return self._data

    def _load(self, at: int) -> None:
        self._at = at
        self._data = self._read(at, min(_WINDOW, self.end - at))
