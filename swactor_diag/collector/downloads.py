"""A bundle over HTTP: what a reader has already, a part of it, or all of it while it is being made.

Owns: ETag, ranges, and where the bytes come from: the kept archive of a finalized run as long as it is
current, else staging itself. Not here: making archives (``bundle``), keeping them (``canonical``).
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from weakref import WeakValueDictionary

from aiohttp import web

from swactor_diag.collector.bundle import Bundle
from swactor_diag.collector.canonical import Canonical, CanonicalBundles
from swactor_diag.collector.connections import send
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import StorageError

_LOG = logging.getLogger(__name__)

_FORMAT = "1"  # part of the ETag: another way of writing the same records is another archive


class RangeError(ValueError):
    """The range lies beyond the archive, whose size is ``size_bytes``."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"the archive has {size_bytes} bytes")
        self.size_bytes = size_bytes


class Downloads:
    """Serves the bundles of one staging; knows who is being served, so that nobody trims it meanwhile."""

    def __init__(self, staging: Staging, canonical: CanonicalBundles, *, idle_s: float) -> None:
        self._staging = staging
        self._canonical = canonical
        self._idle_s = idle_s
        self._serving: dict[str, int] = {}
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.set_aside: dict[str, int] = {}
        """Staged things that could not be used, as the last look at a run found; those with any."""

    def is_serving(self, run_id: str) -> bool:
        """Return whether somebody downloads the bundle of this run."""
        return run_id in self._serving

    async def respond(self, request: web.Request, run_id: str) -> web.StreamResponse:
        """Answer a request for the bundle of ``run_id``.

        Raises:
            BundleError: nothing is staged for it.
            RangeError: a range that is not there was asked for.
            StorageError: it cannot be read.
        """
        self._serving[run_id] = self._serving.get(run_id, 0) + 1
        try:
            return await self._respond(request, run_id)
        finally:
            self._serving[run_id] -= 1
            if not self._serving[run_id]:
                del self._serving[run_id]

    async def _respond(self, request: web.Request, run_id: str) -> web.StreamResponse:
        listing = await asyncio.to_thread(self._staging.list, run_id)
        etag = f'"{_FORMAT}-{listing.state[:40]}"'
        if listing.size_bytes and etag in _etags(request.headers.get("If-None-Match", "")):
            return web.Response(status=304, headers={"ETag": etag})
        kept = await asyncio.to_thread(self._canonical.find, run_id, state=listing.state)
        if kept is None:
            bundle = await self._made(run_id)
            self._note(run_id, bundle.unusable)
            # Records may have come since the listing; what is sent is what the bundle saw.
            etag = f'"{_FORMAT}-{bundle.state[:40]}"'
            if bundle.manifest.finalize_received:
                kept = await self._keep(bundle)
        if kept is None:
            return await self._send(request, run_id, bundle.stream(), etag=etag, status=200, headers={})
        self._note(run_id, kept.set_aside)
        return await self._send_kept(request, run_id, kept, etag=etag)

    async def _made(self, run_id: str) -> Bundle:
        # One after the other: what the first one finds out of the records, the next ones need not read.
        lock = self._making.setdefault(run_id, asyncio.Lock())
        async with lock:
            return await asyncio.to_thread(Bundle, self._staging, run_id)

    def _note(self, run_id: str, set_aside: int) -> None:
        self.set_aside.pop(run_id, None)
        if set_aside:
            self.set_aside[run_id] = set_aside

    async def _keep(self, bundle: Bundle) -> Canonical | None:
        """Keep the archive for whoever comes next; a disk without room for it is no reason to refuse it."""
        try:
            return await asyncio.to_thread(self._canonical.keep, bundle)
        except StorageError as exc:
            _LOG.warning("the bundle of %s is not kept: %s", bundle.manifest.run_id, exc)
            return None

    async def _send_kept(
        self, request: web.Request, run_id: str, kept: Canonical, *, etag: str
    ) -> web.StreamResponse:
        start, stop = _range(request, kept.size_bytes, etag=etag)
        headers = {"Accept-Ranges": "bytes", "Content-Length": str(stop - start)}
        status = 200
        if (start, stop) != (0, kept.size_bytes):
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{kept.size_bytes}"
        pieces = self._canonical.read(run_id, kept, start=start, stop=stop)
        return await self._send(request, run_id, pieces, etag=etag, status=status, headers=headers)

    async def _send(
        self,
        request: web.Request,
        run_id: str,
        pieces: Iterator[bytes],
        *,
        etag: str,
        status: int,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        named = {
            "Content-Type": "application/gzip",
            "Content-Disposition": f'attachment; filename="{run_id}.tar.gz"',
            "ETag": etag,
        }
        response = web.StreamResponse(status=status, headers=named | headers)
        await response.prepare(request)
        try:
            await self._send_pieces(request, response, pieces)
        except StorageError as exc:
            # The status is sent already: a broken connection is all that can tell the reader.
            _LOG.warning("bundle of %s broken off: %s", run_id, exc)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _send_pieces(
        self, request: web.Request, response: web.StreamResponse, pieces: Iterator[bytes]
    ) -> None:
        """Send the pieces as they are made; a reader that goes away or stops reading ends it without ado."""
        with suppress(ConnectionError):
            while piece := await asyncio.to_thread(next, pieces, b""):
                await send(request, response.write(piece), within_s=self._idle_s)
            await send(request, response.write_eof(), within_s=self._idle_s)


def _range(request: web.Request, size_bytes: int, *, etag: str) -> tuple[int, int]:
    """Return the first byte that is wanted, and the one after the last."""
    if request.headers.get("If-Range", etag) != etag:
        return 0, size_bytes
    try:
        wanted = request.http_range
    except ValueError:
        return 0, size_bytes  # several ranges, or no range at all: the whole is a right answer
    start, stop, _ = wanted.indices(size_bytes)
    if (wanted.start or 0) >= size_bytes or start >= stop:
        raise RangeError(size_bytes)
    return start, stop


def _etags(header: str) -> set[str]:
    return {one.strip().removeprefix("W/") for one in header.split(",")}
