"""The members of a bundle, one after the other, without ever writing one to disk.

Owns: inflating, the tar format as far as bundles use it, and what to do with an archive that is cut off,
damaged or hostile: give what is whole, name the rest. Not here: what the members mean (see ``load``).

The tar headers are walked here and not by ``tarfile``: that reads names of any claimed length into memory,
and takes an archive whose last bytes are missing for a whole one.
"""

import enum
import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

MEMBER_BYTES_MAX = 64 * 1024 * 1024
"""A larger member is skipped and named; the largest legal record is half of that."""

_NAME_BYTES_MAX = 8 * 1024
_BLOCK = 512
_CHUNK = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_FILE_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_LONG_NAME = tarfile.GNUTYPE_LONGNAME
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE)


class ProblemKind(enum.Enum):
    """What is wrong with a bundle or a part of it."""

    TRUNCATED = "truncated"
    DAMAGED = "damaged"
    SKIPPED = "skipped"
    UNREADABLE = "unreadable"
    MISSING = "missing"


class Problem(msgspec.Struct, frozen=True):
    """One thing that could not be read, where it is, and why."""

    kind: ProblemKind
    where: str
    reason: str


class Member(msgspec.Struct, frozen=True):
    """One regular file of the archive; ``path`` has no empty, ``.`` or ``..`` parts."""

    path: tuple[str, ...]
    data: bytes


class ArchiveReader:
    """Reads one archive once. Iterate over it, then look at ``problems``."""

    def __init__(self, source: BinaryIO) -> None:
        self.problems: list[Problem] = []
        self._source = _Inflated(source)

    def __iter__(self) -> Iterator[Member]:
        """Yield the whole members in archive order; stops at the first place that cannot be read."""
        try:
            yield from self._members()
        except _EndError as end:
            self._note(end.kind, end.where, end.reason)
        if self._source.failure is not None:
            self._note(ProblemKind.DAMAGED, "the archive", self._source.failure)

    def _members(self) -> Iterator[Member]:
        long_name: str | None = None
        while (info := self._next_header()) is not None:
            name = long_name if long_name is not None else info.name
            long_name = None
            if info.type == _LONG_NAME or info.type in _PAX:
                if info.size > _NAME_BYTES_MAX:
                    raise _EndError(ProblemKind.DAMAGED, name, f"a name of {info.size} bytes")
                long_name = _long_name(info.type, self._body(info.size, name))
            elif info.type in _FILE_TYPES:
                member = self._file(info.size, name)
                if member is not None:
                    yield member
            else:
                self._skip_special(info, name)
        self._drain()

    def _next_header(self) -> tarfile.TarInfo | None:
        block = self._source.take(_BLOCK)
        if len(block) < _BLOCK:
            raise _EndError(ProblemKind.TRUNCATED, "the archive", "it ends before its end mark")
        if not block.strip(b"\0"):
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as exc:
            raise _EndError(ProblemKind.DAMAGED, "the archive", f"a header is invalid: {exc}") from exc
        if info.size < 0:
            raise _EndError(ProblemKind.DAMAGED, _shown(info.name), "negative size")
        return info

    def _file(self, size: int, name: str) -> Member | None:
        path = _inside(name)
        if path is None:
            self._note(ProblemKind.SKIPPED, _shown(name), "the name points outside of the archive")
        elif size > MEMBER_BYTES_MAX:
            self._note(ProblemKind.SKIPPED, _shown(name), f"larger than {MEMBER_BYTES_MAX} bytes")
        else:
            return Member(path=path, data=self._body(size, name))
        self._pass_over(size, name)
        return None

    def _skip_special(self, info: tarfile.TarInfo, name: str) -> None:
        if info.type != tarfile.DIRTYPE:
            self._note(ProblemKind.SKIPPED, _shown(name), "a link or device, not a file")
        elif _inside(name) is None:
            self._note(ProblemKind.SKIPPED, _shown(name), "the name points outside of the archive")
        self._pass_over(info.size, name)

    def _body(self, size: int, name: str) -> bytes:
        data = self._source.take(size)
        if len(data) < size:
            raise _EndError(ProblemKind.TRUNCATED, _shown(name), "the archive ends inside this file")
        self._source.take(-size % _BLOCK)
        return data

    def _pass_over(self, size: int, name: str) -> None:
        left = size + -size % _BLOCK
        while left > 0:
            taken = len(self._source.take(min(left, _CHUNK)))
            if taken == 0:
                raise _EndError(ProblemKind.TRUNCATED, _shown(name), "the archive ends inside this file")
            left -= taken

    def _drain(self) -> None:
        # The check sum stands behind the end mark: only reading on shows that the last bytes are there.
        while self._source.take(_CHUNK):
            pass
        if not self._source.complete and self._source.failure is None:
            raise _EndError(ProblemKind.TRUNCATED, "the archive", "its last bytes are missing")

    def _note(self, kind: ProblemKind, where: str, reason: str) -> None:
        self.problems.append(Problem(kind=kind, where=where, reason=reason))


class _EndError(Exception):
    """Reading stops here; carries what to report."""

    def __init__(self, kind: ProblemKind, where: str, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.where, self.reason = kind, where, reason


class _Inflated:
    """The bytes of a tar, compressed or not; a short answer means that there is no more."""

    def __init__(self, source: BinaryIO) -> None:
        self.failure: str | None = None
        self.complete = False
        self._source = source
        self._ready = bytearray()
        self._ended = False
        first = source.read(_CHUNK)
        self._inflate = zlib.decompressobj(wbits=31) if first.startswith(_GZIP_MAGIC) else None
        self._compressed = first
        if self._inflate is None:
            self._compressed = b""
            self._ready += first
            self._ended = self.complete = not first

    def take(self, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end."""
        while len(self._ready) < size and not self._ended:
            self._more()
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def _more(self) -> None:
        if not self._compressed:
            self._compressed = self._source.read(_CHUNK)
            if not self._compressed:
                self._ended = True
                self.complete = self.complete or self._inflate is None
                return
        if self._inflate is None:
            self._ready += self._compressed
            self._compressed = b""
            return
        before = self._inflate.copy()
        try:
            self._ready += self._inflate.decompress(self._compressed, _CHUNK)
        except zlib.error as exc:
            self._ready += _salvage(before, self._compressed)
            self.failure = f"the compressed data is damaged ({exc})"
            self._ended = True
            return
        self._compressed = self._inflate.unconsumed_tail
        if self._inflate.eof:
            self._ended = self.complete = True


def _salvage(inflate: "zlib._Decompress", data: bytes) -> bytes:
    """Return what ``data`` holds before its fault: a failed call gives nothing of what it had inflated."""
    found = bytearray()
    for at in range(len(data)):
        try:
            found += inflate.decompress(data[at : at + 1])
        except zlib.error:
            break
    return bytes(found)


def _inside(name: str) -> tuple[str, ...] | None:
    if name.startswith("/") or "\\" in name or "\0" in name:
        return None
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    return None if not parts or ".." in parts else parts


def _shown(name: str) -> str:
    return name[:200].encode("utf-8", "replace").decode("utf-8")


def _long_name(kind: bytes, body: bytes) -> str | None:
    """Return the name that ``body`` gives the next member, if it gives one."""
    if kind == _LONG_NAME:
        return body.rstrip(b"\0").decode("utf-8", "surrogateescape")
    for line in body.split(b"\n"):
        _, _, assignment = line.partition(b" ")
        key, _, value = assignment.partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "surrogateescape")
    return None
