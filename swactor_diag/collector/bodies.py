"""Bodies on their way in: read under a deadline, under the limits of one body and of all at once.

Owns: the memory that bodies may take altogether. Not here: one body's limits (``body_limits``), what a body
means (``ingest``).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from aiohttp import web

from swactor_diag.collector.body_limits import BodyCollector, BodyError
from swactor_diag.collector.config import CollectorConfig


class Bodies:
    """The bodies that one collector is receiving."""

    def __init__(self, config: CollectorConfig) -> None:
        self._config = config
        self.held_bytes = 0
        """What all of them take in memory now."""

    @asynccontextmanager
    async def received(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read the body of ``request``; it counts as held until the end of the block.

        Raises:
            BodyError: 408 too slow, 413 too large, 415 or 400 not what its encoding says, 503 no room now.
        """
        collector = BodyCollector(
            bytes_max=self._config.body_bytes_max,
            encoding=request.headers.get("Content-Encoding", ""),
            length=request.content_length,
        )
        held = 0
        deadline_s = self._config.body_deadline_s
        try:
            try:
                # Most bodies came together with their headers: nothing has to be waited for.
                async with nullcontext() if request.content.is_eof() else asyncio.timeout(deadline_s):
                    async for chunk in request.content.iter_any():
                        collector.add(chunk)
                        self._hold(collector.held_bytes - held)
                        held = collector.held_bytes
            except TimeoutError as exc:
                message = f"the body did not arrive within {deadline_s:g} s"
                raise BodyError(408, code="body_timeout", message=message) from exc
            except (web.RequestPayloadError, ConnectionError) as exc:
                raise BodyError(400, code="body_incomplete", message="the body ended early") from exc
            yield collector.finish()
        finally:
            self.held_bytes -= held

    def _hold(self, n_bytes: int) -> None:
        if self.held_bytes + n_bytes > self._config.bodies_bytes_max:
            raise BodyError(503, code="busy", message="too many bodies at once", retry_after_s=1)
        self.held_bytes += n_bytes
