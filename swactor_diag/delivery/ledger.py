"""What a spool lost, counted by the boot that made it, by where and by what; small, so that it can be kept.

Owns: the counts, their bound, and their form on disk. Pure. Not here: when it is written (``disk_spool``).
"""

import enum
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from swactor_diag.schema.submission import Outgoing, RecordKind, boot_of

BOOTS_KEPT_MAX = 32
"""Boots with rows of their own; the rows of the oldest become rows of `EARLIER_BOOTS` beyond it."""

EARLIER_BOOTS = "earlier"

UNKNOWN_ROWS_MAX = 256
"""Rows of a newer version that are kept for it."""


class LossPlace(enum.StrEnum):
    """How a record came to be lost."""

    SPOOL = "spool"
    """There was no room for it."""
    REFUSED = "refused"
    """The sink will never take it."""
    DAMAGED = "damaged"
    """Its file is not what was written."""


class Loss(Struct, frozen=True, kw_only=True):
    """Records of one boot and kind that were lost at one place, and the events that were in them."""

    boot_id: str
    where: LossPlace
    what: RecordKind
    records: int
    events: int


_Key = tuple[str, LossPlace, RecordKind]


class Ledger:
    """The losses of one spool so far, in the order in which a boot, a place and a kind first had one."""

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        self._counts: dict[_Key, tuple[int, int]] = {}
        for loss in losses:
            self._add((loss.boot_id, loss.where, loss.what), records=loss.records, events=loss.events)

    def count(self, where: LossPlace, *, batch_id: str, kind: RecordKind, events: int) -> None:
        """Count one record as lost."""
        self._add((boot_of(batch_id), where, kind), records=1, events=events)

    def count_record(self, where: LossPlace, record: Outgoing) -> None:
        """Count ``record`` as lost."""
        self.count(where, batch_id=record.batch_id, kind=record.kind, events=record.events)

    def uncount(self, where: LossPlace, *, batch_id: str, kind: RecordKind, events: int) -> None:
        """Take back what was counted: the record was on its way, and has arrived."""
        key = (boot_of(batch_id), where, kind)
        if key not in self._counts:
            key = (EARLIER_BOOTS, where, kind)
        self._add(key, records=-1, events=-events)
        if self._counts[key] == (0, 0):
            del self._counts[key]

    def losses(self) -> tuple[Loss, ...]:
        """Return all counts."""
        return tuple(
            Loss(boot_id=boot_id, where=where, what=what, records=records, events=events)
            for (boot_id, where, what), (records, events) in self._counts.items()
        )

    def _add(self, key: _Key, *, records: int, events: int) -> None:
        had_records, had_events = self._counts.get(key, (0, 0))
        self._counts[key] = (had_records + records, had_events + events)
        boots = dict.fromkeys(boot_id for boot_id, _, _ in self._counts if boot_id != EARLIER_BOOTS)
        if len(boots) > BOOTS_KEPT_MAX:
            self._fold(next(iter(boots)))

    def _fold(self, boot_id: str) -> None:
        for key in [key for key in self._counts if key[0] == boot_id]:
            records, events = self._counts.pop(key)
            self._add((EARLIER_BOOTS, key[1], key[2]), records=records, events=events)


class LedgerFile(Struct, frozen=True):
    """The ledger as it is kept. It covers the files numbered up to ``gone_through``: they are no records.

    ``unknown`` are rows that this version cannot read; they are kept for the one that wrote them.
    """

    gone_through: int = 0
    losses: tuple[Loss, ...] = ()
    unknown: tuple[Raw, ...] = ()


class _Rows(Struct, frozen=True):
    gone_through: Raw = Raw(b"0")
    losses: tuple[Raw, ...] = ()


def encode_ledger(ledger: Ledger, *, gone_through: int, unknown: Iterable[Raw] = ()) -> bytes:
    """Return the bytes to keep."""
    return msgspec.json.encode({"gone_through": gone_through, "losses": [*ledger.losses(), *unknown]})


def decode_ledger(data: bytes) -> LedgerFile:
    """Return what was kept, each part that can be read; an empty ledger when these are not its bytes."""
    try:
        kept = msgspec.json.decode(data, type=_Rows)
    except msgspec.MsgspecError:
        return LedgerFile()
    losses: list[Loss] = []
    unknown: list[Raw] = []
    for row in kept.losses:
        try:
            losses.append(msgspec.json.decode(row, type=Loss))
        except msgspec.MsgspecError:
            unknown.append(row.copy())
    try:
        gone_through = msgspec.json.decode(kept.gone_through, type=Annotated[int, Meta(ge=0)])
    except msgspec.MsgspecError:
        gone_through = 0
    return LedgerFile(gone_through, tuple(losses), tuple(unknown[-UNKNOWN_ROWS_MAX:]))
