"""What a running collector consists of.

Owns: making the parts and the few steps that concern several of them. Not here: HTTP (``routes``), sockets
(``server``).
"""

import asyncio

from swactor.abc import Clock
from swactor_diag.collector.access import load_access
from swactor_diag.collector.bodies import Bodies
from swactor_diag.collector.canonical import CanonicalBundles
from swactor_diag.collector.commits import GroupCommit
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.connections import Connections
from swactor_diag.collector.descriptors import connections_affordable
from swactor_diag.collector.downloads import Downloads
from swactor_diag.collector.ingest import Ingest, RefusedError
from swactor_diag.collector.live import LiveFeeds
from swactor_diag.collector.metrics import Metrics
from swactor_diag.collector.node_limits import RateLimit
from swactor_diag.collector.storage import Storage, StorageError
from swactor_diag.collector.trimming import Trimmer
from swactor_diag.schema.submission import Outgoing

_READING_MAX = 2
"""Runs that are read at once: the other threads are for flushes and downloads."""


class Parts:
    """The parts of one collector, by name."""

    def __init__(self, config: CollectorConfig, storage: Storage, *, clock: Clock, writer: str) -> None:
        """Make them, without touching the network.

        Raises:
            ConfigError: see `load_access`.
        """
        self.config = config
        self.clock = clock
        self.access = load_access(config)
        self.storage = storage
        self.ingest = Ingest(storage, writer=writer)
        self.commit = GroupCommit(self.ingest.flush, self.ingest.drop_unflushed)
        self.canonical = CanonicalBundles(self.ingest.staging)
        self.downloads = Downloads(self.ingest.staging, self.canonical, idle_s=config.idle_s)
        self.trimmer = Trimmer(
            self.ingest, canonical=self.canonical, downloads=self.downloads, config=config, clock=clock
        )
        self.bodies = Bodies(config)
        count_max = connections_affordable(config.connections_max)
        self.connections = Connections(count_max=count_max, idle_s=config.idle_s)
        self.feeds = LiveFeeds(capacity=config.stream_capacity)
        self.metrics = Metrics()
        self._records_limit = RateLimit(config.node_records_per_s)
        self._bytes_limit = RateLimit(config.node_bytes_per_s)
        self._reading = asyncio.Semaphore(_READING_MAX)
        self._loading: dict[str, asyncio.Task[StorageError | None]] = {}
        self._watch()

    def charge(self, record: Outgoing) -> None:
        """Count a record against what its node may send.

        Raises:
            RefusedError: 429, too much for now.
        """
        now_s = self.clock.monotonic_ns() / 1e9
        wait_s = self._records_limit.spend(record.node_id, 1, now_s=now_s)
        wait_s = wait_s or self._bytes_limit.spend(record.node_id, len(record.body), now_s=now_s)
        if wait_s:
            message = f"node {record.node_id} sends more than it may"
            raise RefusedError("too_fast", message, status=429, retry_after_s=wait_s)

    async def know(self, run_id: str) -> None:
        """Have a run in the index before it is asked for, so that nobody else waits while it is read.

        After a restart all nodes of a run come at once: it is read once for all of them.
        """
        if self.ingest.is_known(run_id) or not self.ingest.staging.has_run(run_id):
            return
        loading = self._loading.get(run_id)
        if loading is None:
            loading = asyncio.create_task(self._load(run_id), name=f"read run {run_id}")
            self._loading[run_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(run_id, None))
        # Who asked first may go away while others wait.
        problem = await asyncio.shield(loading)
        if problem is not None:
            raise problem

    async def _load(self, run_id: str) -> StorageError | None:
        try:
            async with self._reading:
                self.ingest.learn(await asyncio.to_thread(self.ingest.load, run_id))
        except StorageError as exc:
            return exc
        return None

    def _watch(self) -> None:
        metrics, trimmer, bodies = self.metrics, self.trimmer, self.bodies
        metrics.watch("stored_bytes", "Bytes in the storage.", lambda: trimmer.stored_bytes)
        metrics.watch("trimmed_runs", "Runs removed since the start.", lambda: trimmer.trimmed)
        metrics.watch("connections", "Connections that are open.", lambda: self.connections.count)
        metrics.watch("connections_refused", "Too many at once.", lambda: self.connections.refused)
        metrics.watch("held_bytes", "Bytes of bodies on their way in.", lambda: bodies.held_bytes)
        metrics.watch("watchers", "Live streams that are open.", lambda: self.feeds.watchers)
        metrics.watch("set_aside", "Staged things of no use.", lambda: sum(self.downloads.set_aside.values()))
