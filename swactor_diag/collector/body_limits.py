"""The body of one request, put together under limits: size on the wire and size inflated.

Owns: what is refused before a record exists, and with which status. Pure: chunks in, bytes out.
Not here: reading from the network and the time it may take (``bodies``), what the bytes mean (``ingest``).
"""

import zlib
from typing import Protocol

from swactor_diag.zstd_library import zstd

_WINDOW_LOG_MAX = 25  # 32 MiB: what a zstd frame may ask us to keep in memory beside the body
_DAMAGED = (zlib.error, zstd.ZstdError)


class BodyError(Exception):
    """The body cannot be taken; carries the status that says why."""

    def __init__(self, status: int, *, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class BodyCollector:
    """Takes the chunks of a body as they come; at most ``bytes_max`` on the wire and as many inflated.

    Inflating stops at the limit, so that a small body never becomes a large one in memory.
    """

    def __init__(self, *, bytes_max: int, encoding: str = "", length: int | None = None) -> None:
        """Start; ``encoding`` and ``length`` are what the headers say.

        Raises:
            BodyError: 415 an encoding other than gzip and zstd, 413 announced as too large.
        """
        self._name = encoding.strip().lower()
        self._inflate = _inflater(self._name)
        self._bytes_max = bytes_max
        if length is not None and length > bytes_max:
            raise self._too_large()
        self._wire_bytes = 0
        self._body = bytearray()

    @property
    def held_bytes(self) -> int:
        """How much of the body is in memory."""
        return len(self._body)

    def add(self, chunk: bytes) -> None:
        """Take the next chunk.

        Raises:
            BodyError: 413 too large, 400 not what its encoding says.
        """
        self._wire_bytes += len(chunk)
        if self._wire_bytes > self._bytes_max:
            raise self._too_large()
        if self._inflate is None:
            self._body += chunk
            return
        try:
            self._body += self._inflate.decompress(chunk, self._bytes_max - len(self._body) + 1)
        except _DAMAGED as exc:
            raise BodyError(400, code="body_damaged", message=f"the body is not {self._name}") from exc
        except EOFError as exc:
            raise self._too_long() from exc
        if len(self._body) > self._bytes_max:
            raise self._too_large()
        if self._inflate.unused_data:
            raise self._too_long()

    def finish(self) -> bytes:
        """Return the whole body.

        Raises:
            BodyError: 400 the compressed data ends early.
        """
        if self._inflate is not None and not self._inflate.eof:
            raise BodyError(400, code="body_incomplete", message=f"the {self._name} data ended early")
        return bytes(self._body)

    def _too_large(self) -> BodyError:
        return BodyError(
            413, code="body_too_large", message=f"a body may have at most {self._bytes_max} bytes"
        )

    def _too_long(self) -> BodyError:
        return BodyError(400, code="body_damaged", message=f"bytes follow the end of the {self._name} data")


def _inflater(encoding: str) -> _Inflater | None:
    match encoding:
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=31)
        case "zstd":
            return zstd.ZstdDecompressor(
                options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
            )
        case _:
            raise BodyError(415, code="unsupported_encoding", message="a body may be plain, gzip or zstd")
