"""The sink of a node that lives in the same process as its collector.

Owns: handing records to an `Ingest` without HTTP, with the same waiting after a finalize. It is how the
collector itself is a node of its run, and how simulated nodes deliver.
Not here: HTTP (``routes`` on this side, ``swactor_diag.delivery`` on the other).
"""

from collections.abc import Awaitable, Callable

import msgspec

from swactor.abc import Clock, Loop, Waiter
from swactor_diag.collector.canonical import CanonicalBundles
from swactor_diag.collector.ingest import Ingest, RefusedError
from swactor_diag.collector.storage import StorageError
from swactor_diag.delivery.sink import RecordRefusedError, SinkUnavailableError
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind


class LocalSink:
    """Posts to ``ingest`` directly."""

    def __init__(
        self,
        ingest: Ingest,
        *,
        clock: Clock,
        loop: Loop,
        finalize_wait_s: float = 5.0,
        flushed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare; a storage that has to be flushed needs ``flushed``, which returns when it was."""
        self._ingest = ingest
        self._clock = clock
        self._loop = loop
        self._finalize_wait_s = finalize_wait_s
        self._flushed = flushed

    async def post(self, record: Outgoing) -> Answer:
        """Store ``record`` and return the answer; a finalize waits for the last snapshots of the others.

        Raises:
            RecordRefusedError: the record can never be accepted.
            SinkUnavailableError: it could not be stored now.
        """
        try:
            return await self._post(record)
        except RefusedError as exc:
            raise RecordRefusedError(str(exc), status=exc.status) from exc
        except StorageError as exc:
            raise SinkUnavailableError(str(exc)) from exc

    async def _post(self, record: Outgoing) -> Answer:
        recv_ms = self._clock.wall_ms()
        answer = self._ingest.accept(record, recv_ms, send_ms=recv_ms)
        if self._flushed is not None:
            await self._flushed()
        if record.kind is not RecordKind.FINALIZE:
            return answer
        settled: Waiter[None] = self._loop.waiter()
        self._ingest.when_settled(record.run_id, lambda: settled.set(None))
        deadline = self._loop.call_later(self._finalize_wait_s, lambda: settled.set(None))
        await settled.wait()
        deadline.cancel()
        path = CanonicalBundles(self._ingest.staging).finish(record.run_id)
        clock = msgspec.structs.replace(answer.clock, collector_send_ms=max(self._clock.wall_ms(), recv_ms))
        return msgspec.structs.replace(answer, clock=clock, bundle_path=path)

    async def close(self) -> None:
        """Nothing is held open."""
