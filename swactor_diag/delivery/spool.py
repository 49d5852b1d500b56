"""Where records wait when the sink is away: bounded, oldest dropped first, every loss in a ledger.

Owns: the `Spool` protocol and the spool in memory. Not here: the one on disk (``disk_spool``), what a loss is
counted by (``ledger``), when something is spooled or sent again (``shipper``).
"""

from collections import deque
from collections.abc import Collection, Iterable
from typing import Protocol

from msgspec import Struct

from swactor_diag.delivery.ledger import Ledger, Loss, LossPlace
from swactor_diag.schema.submission import Outgoing, RecordKind

SPOOL_BYTES_MAX = 64 * 1024 * 1024
SPOOL_RECORDS_MAX = 10_000


class SpoolFigures(Struct, frozen=True):
    """What a spool holds and lost, the losses of earlier boots included."""

    records: int
    bytes: int
    losses: tuple[Loss, ...]

    def lost(self, *places: LossPlace) -> int:
        """Return how many records were lost at ``places``."""
        return sum(loss.records for loss in self.losses if loss.where in places)


def first_to_go(kinds: Iterable[RecordKind]) -> int:
    """Return which of the records, oldest first, makes room: the oldest that does not say who a node is."""
    return next((at for at, kind in enumerate(kinds) if kind is not RecordKind.BOOT), 0)


class Spool(Protocol):
    """A first-in first-out store of records. No method raises because it is full or the disk is."""

    def put(self, record: Outgoing) -> None:
        """Append ``record``; drop the oldest ones, counted, when there is no room."""
        ...

    def peek(self, *, passing: Collection[str] = ()) -> Outgoing | None:
        """Return the oldest record whose batch id is not in ``passing``, or None."""
        ...

    def pop(self, batch_id: str) -> None:
        """Remove the record that was peeked last. If it was dropped since, it is no loss: it has arrived."""
        ...

    def set_aside(self, record: Outgoing, reason: str) -> None:
        """Keep a record that can never be sent, for people; it counts as lost, and is not peeked again."""
        ...

    def figures(self) -> SpoolFigures:
        """Return what is held and what was lost."""
        ...

    def close(self) -> None:
        """Leave what is held to the next boot; this one puts nothing in any more."""
        ...


class MemorySpool:
    """A spool that ends with its process: for the simulator, and for nodes without a disk."""

    def __init__(self, *, bytes_max: int = SPOOL_BYTES_MAX, records_max: int = SPOOL_RECORDS_MAX) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._records: deque[Outgoing] = deque()
        self._bytes = 0
        self._ledger = Ledger()
        self._peeked: Outgoing | None = None

    def put(self, record: Outgoing) -> None:
        """See `Spool`."""
        if len(record.body) > self._bytes_max:
            self._ledger.count_record(LossPlace.SPOOL, record)
            return
        self._records.append(record)
        self._bytes += len(record.body)
        while self._records and (self._bytes > self._bytes_max or len(self._records) > self._records_max):
            gone = first_to_go(one.kind for one in self._records)
            self._ledger.count_record(LossPlace.SPOOL, self._remove(gone))

    def peek(self, *, passing: Collection[str] = ()) -> Outgoing | None:
        """See `Spool`."""
        self._peeked = next((one for one in self._records if one.batch_id not in passing), None)
        return self._peeked

    def pop(self, batch_id: str) -> None:
        """See `Spool`."""
        peeked, self._peeked = self._peeked, None
        if peeked is None or peeked.batch_id != batch_id:
            return
        for place, record in enumerate(self._records):
            if record is peeked:
                self._remove(place)
                return
        self._ledger.uncount(LossPlace.SPOOL, batch_id=batch_id, kind=peeked.kind, events=peeked.events)

    def set_aside(self, record: Outgoing, reason: str) -> None:  # noqa: ARG002 - the protocol's
        """See `Spool`. Nobody could look into this memory later, so only the count stays."""
        self.pop(record.batch_id)
        self._ledger.count_record(LossPlace.REFUSED, record)

    def figures(self) -> SpoolFigures:
        """See `Spool`."""
        return SpoolFigures(len(self._records), self._bytes, self._ledger.losses())

    def close(self) -> None:
        """See `Spool`. There is nothing to leave."""

    def _remove(self, at: int) -> Outgoing:
        record = self._records[at]
        del self._records[at]
        self._bytes -= len(record.body)
        return record
