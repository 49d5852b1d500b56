"""What goes over the wire for a body: zstd where its library is installed, else gzip; plain when it is small.

Owns: `Packer`. Not here: the request (``http``), the other direction (``collector.body_limits``).
"""

import zlib
from collections.abc import Callable
from typing import Protocol

import anyio.lowlevel

try:
    from swactor_diag.zstd_library import zstd
except ImportError:
    zstd = None  # type: ignore[assignment]  # it comes with the extra of the collector; nodes do without

PACKED_ABOVE_BYTES = 1024
PIECE_BYTES = 64 * 1024
"""Compressed without a pause: about a millisecond of the event loop's time."""


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def _gzip() -> _Compressor:
    return zlib.compressobj(level=1, wbits=31)


class Packer:
    """Packs bodies for one receiver, in the best way that it has not refused."""

    def __init__(self) -> None:
        self._ways: dict[str, Callable[[], _Compressor]] = {"gzip": _gzip}
        if zstd is not None:
            self._ways = {"zstd": zstd.ZstdCompressor, **self._ways}

    async def pack(self, body: bytes) -> tuple[bytes, str]:
        """Return what to send, and its ``Content-Encoding``, which is empty for a body as it is."""
        encoding, make = next(iter(self._ways.items()), ("", None))
        if make is None or len(body) <= PACKED_ABOVE_BYTES:
            return body, ""
        compressor = make()
        pieces: list[bytes] = []
        for start in range(0, len(body), PIECE_BYTES):
            pieces.append(compressor.compress(body[start : start + PIECE_BYTES]))
            await anyio.lowlevel.checkpoint()
        pieces.append(compressor.flush())
        return b"".join(pieces), encoding

    def refused(self, encoding: str) -> bool:
        """The receiver does not know ``encoding``: use it no more. Return whether there is another way."""
        return self._ways.pop(encoding, None) is not None
