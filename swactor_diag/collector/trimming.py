"""Making room at a running collector, and writing down what went.

Owns: the trim log, the pins, how much is stored, and refusing records when nothing more may go.
Not here: the decision (``retention``), when to look (``server``).

Everything works without free space: a run is deleted first and written down afterwards.
"""

import asyncio
import logging

import msgspec

from swactor.abc import Clock
from swactor_diag.collector.canonical import CanonicalBundles
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.downloads import Downloads
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.retention import (
    PINS_FOLDER,
    RECEIVING_MS,
    TRIM_LOG,
    Ages,
    StoredRun,
    Trim,
    decide,
    held,
)
from swactor_diag.collector.storage import (
    Storage,
    StorageError,
    StorageFullError,
    StorageMissingError,
)

TRIMS_LOGGED_MAX = 1_000
ROOM_BYTES_MAX = 64 * 1024 * 1024

_LOG = logging.getLogger(__name__)


class Trimmer:
    """Keeps one collector within its limits."""

    def __init__(
        self,
        ingest: Ingest,
        *,
        canonical: CanonicalBundles,
        downloads: Downloads,
        config: CollectorConfig,
        clock: Clock,
    ) -> None:
        self._ingest = ingest
        self._canonical = canonical
        self._downloads = downloads
        self._config = config
        self._clock = clock
        self._ages = Ages(ingest.staging)
        self._wanted = asyncio.Event()
        self.stored_bytes = 0
        """What was stored at the last look, and everything since."""
        self.trimmed = 0

    def reserve(self, n_bytes: int) -> None:
        """Count what is about to be stored.

        Raises:
            StorageFullError: it would be more than may be stored; room is being made if any can be.
        """
        cap = self._config.disk_bytes_max
        if cap and self.stored_bytes + n_bytes > cap:
            self._wanted.set()
            raise StorageFullError(f"{self.stored_bytes} bytes are stored, {cap} may be")
        self.stored_bytes += n_bytes

    async def run(self) -> None:
        """Trim now, every so often, and when somebody needs room; until cancelled."""
        room_bytes = 0
        while True:
            try:
                await self.trim(room_bytes=room_bytes)
            except StorageError as exc:
                _LOG.warning("cannot look for runs to trim: %s", exc)
            try:
                async with asyncio.timeout(self._config.trim_every_s):
                    await self._wanted.wait()
                self._wanted.clear()
                room_bytes = min(ROOM_BYTES_MAX, self._config.disk_bytes_max // 16)
            except TimeoutError:
                room_bytes = 0

    async def trim(self, *, room_bytes: int = 0) -> list[Trim]:
        """Delete what has to go, and return it."""
        counted = self.stored_bytes
        runs = await asyncio.to_thread(self._ages.look)
        # What came in during the look is counted once more rather than not at all.
        self.stored_bytes += sum(run.size_bytes for run in runs) - counted
        done: list[Trim] = []
        for trim in self._decide(runs, room_bytes=room_bytes):
            if not self._is_receiving(trim.run_id) and not self._downloads.is_serving(trim.run_id):
                await self._delete(trim)
                done.append(trim)
        if done:
            await asyncio.to_thread(self._write_down, done)
        return done

    def plan(self) -> list[Trim]:
        """Return what would go now; nothing is changed."""
        return self._decide(self._ages.look(), room_bytes=0)

    def trims(self) -> list[Trim]:
        """Return what went, oldest first."""
        try:
            data = self._storage.read(TRIM_LOG)
            return msgspec.json.decode(data, type=list[Trim])
        except (StorageMissingError, msgspec.MsgspecError):
            return []

    def pins(self) -> set[str]:
        """Return the runs that are kept whatever their age."""
        return {*self._config.pins, *(entry.name for entry in self._storage.list((PINS_FOLDER,)))}

    @property
    def _storage(self) -> Storage:
        return self._ingest.staging.storage

    def _decide(self, runs: list[StoredRun], *, room_bytes: int) -> list[Trim]:
        serving = [run.run_id for run in runs if self._downloads.is_serving(run.run_id)]
        return decide(
            held(runs, [*self.pins(), *serving]),
            self._config,
            now_ms=self._clock.wall_ms(),
            room_bytes=room_bytes,
        )

    def _is_receiving(self, run_id: str) -> bool:
        seen_ms = self._ingest.seen_ms(run_id)
        return seen_ms is not None and self._clock.wall_ms() - seen_ms < RECEIVING_MS

    async def _delete(self, trim: Trim) -> None:
        with self._ingest.closing(trim.run_id):
            await asyncio.to_thread(self._storage.delete, (trim.run_id,))
            await asyncio.to_thread(self._canonical.drop, trim.run_id)
        self.stored_bytes = max(0, self.stored_bytes - trim.size_bytes)
        self.trimmed += 1
        _LOG.warning("trimmed run %s (%d bytes): %s", trim.run_id, trim.size_bytes, trim.reason)

    def _write_down(self, done: list[Trim]) -> None:
        log = [*self.trims(), *done][-TRIMS_LOGGED_MAX:]
        try:
            self._storage.write(TRIM_LOG, msgspec.json.encode(log))
        except StorageError as exc:
            _LOG.warning("what was trimmed is not written down: %s", exc)
