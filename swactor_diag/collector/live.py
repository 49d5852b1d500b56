"""Records on their way past: whoever watches a run sees each one as it is stored.

Owns: the feeds of the watchers and what a slow one misses. A feed holds so many records and bytes at most;
when it is full the oldest go, and the watcher is told how many. Not here: HTTP (``routes``).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from swactor_diag.schema.submission import Outgoing

FEED_BYTES_MAX = 8 * 1024 * 1024
WATCHERS_MAX = 64
PING_S = 15.0


class Feed:
    """What one watcher has not seen yet."""

    def __init__(self, capacity: int) -> None:
        self._waiting: deque[bytes] = deque()
        self._capacity = capacity
        self._bytes = 0
        self._skipped = 0
        self._arrived = asyncio.Event()
        self._is_closed = False

    def close(self) -> None:
        """Let `next` return nothing as soon as it has returned what waits."""
        self._is_closed = True
        self._arrived.set()

    def put(self, message: bytes) -> None:
        """Add a message; the oldest ones make room for it."""
        self._waiting.append(message)
        self._bytes += len(message)
        while len(self._waiting) > self._capacity or (
            self._bytes > FEED_BYTES_MAX and len(self._waiting) > 1
        ):
            self._bytes -= len(self._waiting.popleft())
            self._skipped += 1
        self._arrived.set()

    async def next(self) -> bytes:
        """Return what to send next: a comment when nothing comes for a while, nothing when it is over."""
        try:
            async with asyncio.timeout(PING_S):
                await self._arrived.wait()
        except TimeoutError:
            return b": ping\n\n"
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            return b'event: skipped\ndata: {"records":%d}\n\n' % skipped
        if not self._waiting:
            return b""
        message = self._waiting.popleft()
        self._bytes -= len(message)
        if not self._waiting and not self._is_closed:
            self._arrived.clear()
        return message


class LiveFeeds:
    """The watchers of all runs."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._feeds: dict[str, list[Feed]] = {}
        self._numbers: Counter[str] = Counter()

    @property
    def watchers(self) -> int:
        """How many feeds there are."""
        return sum(len(feeds) for feeds in self._feeds.values())

    @contextmanager
    def watching(self, run_id: str) -> Iterator[Feed | None]:
        """Give a feed of a run for the length of the block; None when there are too many already."""
        if self.watchers >= WATCHERS_MAX:
            yield None
            return
        feed = Feed(self._capacity)
        self._feeds.setdefault(run_id, []).append(feed)
        try:
            yield feed
        finally:
            self._feeds[run_id].remove(feed)
            if not self._feeds[run_id]:
                del self._feeds[run_id]
                del self._numbers[run_id]

    def close(self) -> None:
        """Let every watcher come to its end."""
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.close()

    def publish(self, record: Outgoing, *, recv_ms: int) -> None:
        """Show a stored record to everybody who watches its run."""
        feeds = self._feeds.get(record.run_id)
        if feeds is None:
            return
        self._numbers[record.run_id] += 1
        said = msgspec.json.encode(
            {
                "run_id": record.run_id,
                "node_id": record.node_id,
                "kind": record.kind.value,
                "recv_ms": recv_ms,
                "seq": self._numbers[record.run_id],
                "body": msgspec.Raw(record.body or b"null"),
            }
        )
        # A body may hold line feeds between its values; inside of strings JSON has none.
        message = b"event: %b\ndata: %b\n\n" % (record.kind.value.encode(), b" ".join(said.splitlines()))
        for feed in feeds:
            feed.put(message)
