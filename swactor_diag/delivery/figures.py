"""What a node's delivery says of itself: the snapshot block ``delivery``.

Owns: the shipper's own counts, and how they, the recorder's and the spool's become the block.
Not here: when it is asked for (``shipper``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from swactor_diag.delivery.batches import BatchMaker
from swactor_diag.delivery.ledger import Loss, LossPlace
from swactor_diag.delivery.spool import SpoolFigures
from swactor_diag.recorder import Recorder
from swactor_diag.schema.blocks import DeliveryBlock, DropCount
from swactor_diag.schema.submission import RecordKind


@dataclass(slots=True)
class ShipperFigures:
    """What the shippers of one boot did; outlives a restart of the actor."""

    sent: int = 0
    attempts_failed: int = 0
    last_failure: str | None = None


def delivery_block(
    figures: ShipperFigures, *, recorder: Recorder, batches: BatchMaker, spool: SpoolFigures, waiting: int
) -> DeliveryBlock:
    """Return the block; ``waiting`` records are neither sent nor in the spool."""
    return DeliveryBlock(
        events_made=recorder.seq,
        events_waiting=recorder.waiting,
        records_made=batches.records_made,
        records_sent=figures.sent,
        records_waiting=waiting,
        records_spooled=spool.records,
        spooled_bytes=spool.bytes,
        records_set_aside=spool.lost(LossPlace.REFUSED, LossPlace.DAMAGED),
        attempts_failed=figures.attempts_failed,
        last_failure=figures.last_failure or UNSET,
        drops=(*_recorder_drops(recorder, batches.boot_id), *map(_spool_drop, spool.losses)),
    )


def _recorder_drops(recorder: Recorder, boot_id: str) -> Iterator[DropCount]:
    for what, count in sorted(recorder.dropped.items()):
        yield DropCount(where="recorder", what=what, count=count, events=count, boot_id=boot_id)


def _spool_drop(loss: Loss) -> DropCount:
    return DropCount(
        where=loss.where.value,
        what=loss.what.value,
        count=loss.records,
        events=loss.events if loss.what is RecordKind.EVENTS else UNSET,
        boot_id=loss.boot_id,
    )
