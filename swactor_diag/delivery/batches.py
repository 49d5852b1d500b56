"""Records of one boot, made into submissions.

Owns: the ids of batches (one row of numbers per kind and boot, so an id names its bytes), their size,
what happens to an event that cannot be written. Pure: no clock, no I/O.
Not here: when a batch is cut (``shipper``), where it goes.
"""

from collections import Counter
from collections.abc import Sequence

from swactor_diag.readable import encode_readable, readable
from swactor_diag.recorder import BATCH_EVENTS, Noted
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import CLOCK_SAMPLE, Custom, Error, encode_record
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""A batch is closed before it grows beyond this; a single event beyond it is replaced by an Error event."""


class BatchMaker:
    """Makes the submissions of one boot; outlives restarts of the shipper, so numbers never repeat."""

    def __init__(self, identity: Identity, *, boot_id: str) -> None:
        self._identity = identity
        self.boot_id = boot_id
        self._made: Counter[RecordKind] = Counter()

    @property
    def records_made(self) -> int:
        """Submissions made so far, of all kinds."""
        return self._made.total()

    def boot(self) -> Outgoing | None:
        """Return the boot record; None when it was made before."""
        if self._made[RecordKind.BOOT]:
            return None
        return self._outgoing(RecordKind.BOOT, encode_readable(self._identity))

    def snapshot(self, body: bytes) -> Outgoing:
        """Return an encoded snapshot as a submission."""
        return self._outgoing(RecordKind.SNAPSHOT, body)

    def finalize(self, reason: str) -> Outgoing:
        """Return the record that ends the run."""
        return self._outgoing(RecordKind.FINALIZE, encode_readable({"reason": reason}))

    def events(self, noted: Sequence[Noted]) -> list[Outgoing]:
        """Return ``noted`` as one or more batches, in order."""
        batches: list[Outgoing] = []
        rows: list[bytes] = []
        size = samples = 0
        for one in noted:
            row = self._row(one)
            if rows and (len(rows) == BATCH_EVENTS or size + len(row) > BATCH_BYTES_MAX):
                batches.append(self._batch(rows, samples))
                rows, size, samples = [], 0, 0
            rows.append(row)
            size += len(row)
            samples += _is_clock_sample(one)
        if rows:
            batches.append(self._batch(rows, samples))
        return batches

    def _row(self, one: Noted) -> bytes:
        node_id = self._identity.node_id_hex
        try:
            row = encode_record(node_id, seq=one.seq, wall_ms=one.wall_ms, event=one.event)
        except Exception as error:  # noqa: BLE001 - an application's own type may fail in any way when written
            row, why = b"", readable(str(error))
        else:
            why = f"{len(row)} bytes"
        if row and len(row) <= BATCH_BYTES_MAX:
            return row
        stand_in = Error(component="recorder", message=f"{type(one.event).__name__} not written: {why}"[:500])
        return encode_record(node_id, seq=one.seq, wall_ms=one.wall_ms, event=stand_in)

    def _batch(self, rows: Sequence[bytes], samples: int) -> Outgoing:
        body = b"[" + b",".join(rows) + b"]"
        return self._outgoing(RecordKind.EVENTS, body, events=len(rows), clock_samples=samples)

    def _outgoing(
        self, kind: RecordKind, body: bytes, *, events: int = 0, clock_samples: int = 0
    ) -> Outgoing:
        self._made[kind] += 1
        return Outgoing(
            kind=kind,
            run_id=self._identity.run_id,
            node_id=self._identity.node_id_hex,
            batch_id=batch_id(self.boot_id, kind, self._made[kind]),
            body=body,
            events=events,
            clock_samples=clock_samples,
        )


def _is_clock_sample(one: Noted) -> bool:
    return isinstance(one.event, Custom) and one.event.kind == CLOCK_SAMPLE
