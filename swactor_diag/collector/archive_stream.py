"""Members in, the bytes of a ``tar.gz`` out, piece by piece and always the same for the same members.

Owns: headers with fixed times, owners and modes, so that equal input gives equal bytes; compression while
streaming, so that nothing larger than one member is in memory. Not here: which members (see ``bundle``).
"""

import struct
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

from swactor_diag.collector.storage import StorageError

_BLOCK = 512
_RECORD = 10_240
_PIECE_BYTES = 256 * 1024
_LEVEL = 2

# Magic, deflate, no flags, time 0, no extra flags, operating system unknown.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


class Member(msgspec.Struct, frozen=True):
    """One entry of the archive: a folder, or a file of ``size_bytes`` that ``read`` yields when needed."""

    path: str
    size_bytes: int = 0
    read: Callable[[], Iterable[bytes]] | None = None


def with_folders(files: Iterable[Member]) -> Iterator[Member]:
    """Yield each file after the folders that it is the first one in."""
    known: set[str] = set()
    for file in files:
        parents = file.path.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            folder = "/".join(parents[:depth])
            if folder not in known:
                known.add(folder)
                yield Member(path=f"{folder}/")
        yield file


def stream_archive(members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the archive in pieces of about 256 KiB.

    Raises:
        StorageError: a file is not as long as its member said; the archive cannot be finished.
    """
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    check = 0
    total = 0
    out = bytearray(_GZIP_HEADER)
    for block in _tar_blocks(members):
        check = zlib.crc32(block, check)
        total += len(block)
        out += deflate.compress(block)
        if len(out) >= _PIECE_BYTES:
            yield bytes(out)
            out.clear()
    out += deflate.flush()
    out += struct.pack("<II", check, total & 0xFFFF_FFFF)
    yield bytes(out)


def _tar_blocks(members: Iterable[Member]) -> Iterator[bytes]:
    written = 0
    for member in members:
        header = _header(member)
        written += len(header)
        yield header
        if member.read is None:
            continue
        size = 0
        for piece in member.read():
            size += len(piece)
            yield piece
        if size != member.size_bytes:
            raise StorageError(f"{member.path} has {size} bytes, not the {member.size_bytes} it had before")
        padding = -size % _BLOCK
        written += size + padding
        yield bytes(padding)
    # Two empty blocks end a tar; readers expect the whole to fill up its last record.
    end = written + 2 * _BLOCK
    yield bytes(2 * _BLOCK + -end % _RECORD)


def _header(member: Member) -> bytes:
    info = tarfile.TarInfo(member.path)
    if member.read is None:
        info.type = tarfile.DIRTYPE
        info.mode = 0o755
    else:
        info.mode = 0o644
        info.size = member.size_bytes
    return info.tobuf(tarfile.GNU_FORMAT)
