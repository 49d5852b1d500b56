"""Many records, one flush: who waits for the same flush shares it.

Owns: when a storage is flushed and who is told how it went. Not here: flushing (``storage_seam``).

While one flush runs, everything that comes in waits for the next one. So the busier a collector is, the more
records share the price of a flush, and nobody waits for more than two of them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from swactor_diag.collector.storage import StorageError


class GroupCommit:
    """Flushes by ``flush``, in a thread; after one that failed, ``drop`` is called before anybody is told."""

    def __init__(self, flush: Callable[[], None], drop: Callable[[], None]) -> None:
        self._flush = flush
        self._drop = drop
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        """Return as soon as everything that was stored before this call lasts.

        Raises:
            StorageError: it does not last, and is not stored any more.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="collector flush")
        await asyncio.shield(self._next)

    async def _run(self) -> None:
        while (current := self._take()) is not None:
            try:
                await asyncio.to_thread(self._flush)
            except StorageError as exc:
                # What came in meanwhile goes the same way: it is cut off together with what failed.
                with suppress(StorageError):  # then the next flush fails too, and this is tried again
                    self._drop()
                self._tell(current, exc)
                self._tell(self._take(), exc)
            else:
                current.set_result(None)
        self._running = None

    def _take(self) -> asyncio.Future[None] | None:
        waiting, self._next = self._next, None
        return waiting

    @staticmethod
    def _tell(waiting: asyncio.Future[None] | None, exc: StorageError) -> None:
        if waiting is not None:
            waiting.set_exception(exc)
            waiting.exception()  # seen, also if everybody who waited has gone away
