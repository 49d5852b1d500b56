"""Bodies on their way in: read under a deadline, under the limits of one body and of all at once.

Owns: the memory that bodies may take altogether. Not here: one body's limits (``body_limits``), what a body
means (``ingest``).
"""

import asyncio

from aiohttp import web

from swactor_diag.collector.body_limits import BodyCollector, BodyError
from swactor_diag.collector.config import CollectorConfig


class Bodies:
    """The bodies that one collector is receiving."""

    def __init__(self, config: CollectorConfig) -> None:
        self._config = config
        self.held_bytes = 0
        """What all of them take in memory now."""

    async def receive(self, request: web.Request) -> bytes:
        """Return the body of ``request``, which counts as held until `release`.

        Raises:
            BodyError: 408 too slow, 413 too large, 415 or 400 not what its encoding says, 503 no room now.
        """
        collector = BodyCollector(
            bytes_max=self._config.body_bytes_max,
            encoding=request.headers.get("Content-Encoding", ""),
            length=request.content_length,
        )
        try:
            await self._read(request, collector)
            return collector.finish()
        except BaseException:
            self.held_bytes -= collector.held_bytes
            raise

    def release(self, body: bytes) -> None:
        """Count a body no longer."""
        self.held_bytes -= len(body)

    async def _read(self, request: web.Request, collector: BodyCollector) -> None:
        deadline_s = self._config.body_deadline_s
        try:
            if request.content.is_eof():  # most bodies come together with their headers
                self._take(request.content.read_nowait(), collector)
                return
            async with asyncio.timeout(deadline_s):
                async for chunk in request.content.iter_any():
                    self._take(chunk, collector)
        except TimeoutError as exc:
            message = f"the body did not arrive within {deadline_s:g} s"
            raise BodyError(408, code="body_timeout", message=message) from exc
        except (web.RequestPayloadError, ConnectionError) as exc:
            raise BodyError(400, code="body_incomplete", message="the body ended early") from exc

    def _take(self, chunk: bytes, collector: BodyCollector) -> None:
        before = collector.held_bytes
        try:
            collector.add(chunk)
        finally:
            self.held_bytes += collector.held_bytes - before
        if self.held_bytes > self._config.bodies_bytes_max:
            raise BodyError(503, code="busy", message="too many bodies at once", retry_after_s=1)
