"""The body of one request, put together under limits: size on the wire and size inflated.

Owns: what is refused before a record exists, and with which status. Pure: chunks in, bytes out.
Not here: reading from the network and the time it may take (``routes``), what the bytes mean (``ingest``).
"""

import zlib

_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip"})


class BodyError(Exception):
    """The body cannot be taken; carries the status that says why."""

    def __init__(self, status: int, *, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class BodyCollector:
    """Takes the chunks of a body as they come; at most ``bytes_max`` on the wire and as many inflated.

    Inflating stops at the limit, so that a small body never becomes a large one in memory.
    """

    def __init__(self, *, bytes_max: int, encoding: str = "", length: int | None = None) -> None:
        """Start; ``encoding`` and ``length`` are what the headers say.

        Raises:
            BodyError: 415 an encoding other than gzip, 413 announced as too large.
        """
        if encoding.strip().lower() not in _ENCODINGS:
            raise BodyError(415, code="unsupported_encoding", message="a body may be plain or gzip")
        self._bytes_max = bytes_max
        if length is not None and length > bytes_max:
            raise self._too_large()
        self._inflate = zlib.decompressobj(wbits=31) if "gzip" in encoding.lower() else None
        self._wire_bytes = 0
        self._body = bytearray()

    def add(self, chunk: bytes) -> None:
        """Take the next chunk.

        Raises:
            BodyError: 413 too large, 400 not gzip.
        """
        self._wire_bytes += len(chunk)
        if self._wire_bytes > self._bytes_max:
            raise self._too_large()
        if self._inflate is None:
            self._body += chunk
            return
        try:
            self._body += self._inflate.decompress(chunk, self._bytes_max - len(self._body) + 1)
        except zlib.error as exc:
            raise BodyError(400, code="body_damaged", message="the body is not gzip") from exc
        if len(self._body) > self._bytes_max:
            raise self._too_large()
        if self._inflate.unused_data:
            raise BodyError(400, code="body_damaged", message="bytes follow the end of the gzip data")

    def finish(self) -> bytes:
        """Return the whole body.

        Raises:
            BodyError: 400 the compressed data ends early.
        """
        if self._inflate is not None and not self._inflate.eof:
            raise BodyError(400, code="body_incomplete", message="the gzip data ended early")
        return bytes(self._body)

    def _too_large(self) -> BodyError:
        return BodyError(
            413, code="body_too_large", message=f"a body may have at most {self._bytes_max} bytes"
        )
