"""Who watches a run sees what comes; who is too slow is told what it missed, and costs no memory."""

import asyncio
import json

from swactor_diag.collector.live import FEED_BYTES_MAX, WATCHERS_MAX, LiveFeeds
from swactor_diag.schema.submission import Outgoing, RecordKind


def record(number: int, *, run: str = "run-1", body: bytes | None = None) -> Outgoing:
    return Outgoing(
        kind=RecordKind.EVENTS,
        run_id=run,
        node_id="n",
        batch_id=f"b-events-{number}",
        body=b"[%d]" % number if body is None else body,
    )


def number_of(message: bytes) -> int:
    seq: int = json.loads(message.split(b"data: ")[1])["seq"]
    return seq


async def test_a_slow_watcher_skips_the_oldest_and_is_told_how_many() -> None:
    feeds = LiveFeeds(capacity=3)
    with feeds.watching("run-1") as slow, feeds.watching("run-1") as quick:
        assert slow is not None
        assert quick is not None
        seen = []
        for number in range(1, 11):
            feeds.publish(record(number), recv_ms=number)
            seen.append(number_of(await quick.next()))

        assert seen == list(range(1, 11))
        assert await slow.next() == b'event: skipped\ndata: {"records":7}\n\n'
        assert [number_of(await slow.next()) for _ in range(3)] == [8, 9, 10]


async def test_what_waits_for_a_watcher_is_bounded_in_bytes_too() -> None:
    feeds = LiveFeeds(capacity=1_000)
    with feeds.watching("run-1") as feed:
        assert feed is not None
        for number in range(1, 21):
            feeds.publish(record(number, body=b'"%b"' % (b"x" * (FEED_BYTES_MAX // 8))), recv_ms=number)

        assert b"skipped" in await feed.next()
        waiting = [await feed.next() for _ in range(7)]

    assert sum(map(len, waiting)) <= FEED_BYTES_MAX
    assert number_of(waiting[-1]) == 20


async def test_a_watcher_sees_its_own_run_and_hears_of_the_end() -> None:
    feeds = LiveFeeds(capacity=10)
    with feeds.watching("run-1") as feed:
        assert feed is not None
        feeds.publish(record(1, run="run-2"), recv_ms=1)
        feeds.publish(record(2), recv_ms=2)
        feeds.close()

        assert json.loads((await feed.next()).split(b"data: ")[1])["body"] == [2]
        assert await asyncio.wait_for(feed.next(), 10) == b""
    assert feeds.watchers == 0


async def test_there_are_only_so_many_watchers() -> None:
    feeds = LiveFeeds(capacity=1)
    held = [feeds.watching("run-1") for _ in range(WATCHERS_MAX)]
    assert all(one.__enter__() is not None for one in held)

    with feeds.watching("run-1") as one_too_many:
        assert one_too_many is None
    held.pop().__exit__(None, None, None)

    with feeds.watching("run-1") as again:
        assert again is not None
    for one in held:
        one.__exit__(None, None, None)
