"""Bytes of a bundle or a submission back into records, whatever else they hold.

Owns: tolerance. One bad record costs that record, one bad block that block; both are reported, with place.
An event type nobody declared is kept as `UnknownEvent`; a declared one with a wrong body is a `Problem`,
never "unknown". Keys a record does not declare stay in its ``raw`` body.
Not here: which files there are (``postproc.load``), what the records mean.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from swactor import Event
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.catalog import BLOCKS, EVENTS
from swactor_diag.schema.ids import read_node_id
from swactor_diag.schema.snapshot import Body, Trigger

R = TypeVar("R")

_UNKNOWN_VALUE = "Invalid enum value"  # how msgspec words a value that is not in an enumeration


class RecordError(ValueError):
    """The bytes are not the record they should be; the text names the place."""


class UnknownEvent(Struct, frozen=True):
    """An event that this version cannot type, kept as it came.

    ``unknown_value`` is empty when the type itself is unknown; else it says which field of a known type holds
    a value that was not in its enumeration when this version was made.
    """

    kind: str
    body: dict[str, object]
    unknown_value: str = ""


class Record(Struct, frozen=True, kw_only=True):
    """One event with its envelope. ``raw`` is the whole object, node ids as hex."""

    node_id: str
    monotonic_seq: int
    wall_ms: int
    event: Event | UnknownEvent
    raw: dict[str, object]

    @property
    def kind(self) -> str:
        """The event's type name, known or not; a `Custom` is just that."""
        return self.event.kind if isinstance(self.event, UnknownEvent) else type(self.event).__name__


class Problem(Struct, frozen=True):
    """One record or block that could not be read: where, why, and what was there."""

    where: str
    message: str
    body: object = None


class EventBatch(Struct, frozen=True):
    """What could be read of one batch, in its order."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]


class Snapshot(Struct, frozen=True, kw_only=True):
    """What could be read of one snapshot. ``raw_body`` keeps what the records leave out."""

    identity: Identity
    run_id: str
    snapshot_id: str
    wall_ms: int
    monotonic_seq: int
    trigger: Trigger | None
    body: Body
    raw_body: dict[str, object]
    problems: tuple[Problem, ...] = ()


class _Envelope(Struct, frozen=True):
    node_id: str
    monotonic_seq: int
    wall_ms: int
    type: str


class _SnapshotHead(Struct, frozen=True):
    identity: Identity
    run_id: str
    snapshot_id: str
    wall_ms: int
    monotonic_seq: int
    body: dict[str, object]


def read_identity(data: bytes) -> Identity:
    """Return the identity of a boot record.

    Raises:
        RecordError: it is not JSON, or a required field is missing or of a wrong type.
    """
    return _convert(_object(data), Identity, where="boot")


def read_batch(data: bytes) -> EventBatch:
    """Return the events of one batch; never raises, a broken batch is one problem."""
    try:
        rows = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        return EventBatch((), (Problem("batch", str(error)),))
    if not isinstance(rows, list):
        return EventBatch(
            (), (Problem("batch", f"an array of events is expected, not {type(rows).__name__}"),)
        )
    return read_rows(rows)


def read_rows(rows: Sequence[object]) -> EventBatch:
    """As `read_batch`, for an array that was decoded to plain values already."""
    records: list[Record] = []
    problems: list[Problem] = []
    for index, row in enumerate(rows):
        try:
            records.append(read_record(row, where=f"[{index}]"))
        except RecordError as error:
            problems.append(Problem(f"[{index}]", str(error), row))
    return EventBatch(tuple(records), tuple(problems))


def read_record(row: object, *, where: str = "event") -> Record:
    """Return one event record from plain values.

    Raises:
        RecordError: the envelope is incomplete, or a declared type has a wrong body.
    """
    if not isinstance(row, dict):
        raise RecordError(f"{where}: an object is expected, not {type(row).__name__}")
    raw = {key: _hex_id(value) for key, value in row.items()}
    head = _convert(raw, _Envelope, where=where)
    declared = EVENTS.get(head.type)
    event = _unknown(head, raw) if declared is None else _typed(head, raw, declared=declared, where=where)
    return Record(
        node_id=head.node_id, monotonic_seq=head.monotonic_seq, wall_ms=head.wall_ms, event=event, raw=raw
    )


def _typed(
    head: _Envelope, raw: dict[str, object], *, declared: type[Event], where: str
) -> Event | UnknownEvent:
    try:
        return _convert(raw, declared, where=f"{where} {head.type}")
    except RecordError as error:
        if _UNKNOWN_VALUE not in str(error):
            raise
        return _unknown(head, raw, unknown_value=str(error))


def _unknown(head: _Envelope, raw: dict[str, object], *, unknown_value: str = "") -> UnknownEvent:
    fields = {key: value for key, value in raw.items() if key not in _Envelope.__struct_fields__}
    return UnknownEvent(head.type, fields, unknown_value)


def read_snapshot(data: bytes) -> Snapshot:
    """Return one snapshot, with every block that could be read.

    Raises:
        RecordError: it is not JSON, or the envelope is incomplete.
    """
    plain = _object(data)
    head = _convert(plain, _SnapshotHead, where="snapshot")
    body, problems = _read_body(head.body)
    trigger: Trigger | None = None
    try:
        trigger = _convert(plain.get("trigger"), Trigger, where="trigger")
    except RecordError as error:
        problems.append(Problem("trigger", str(error), plain.get("trigger")))
    return Snapshot(
        identity=head.identity,
        run_id=head.run_id,
        snapshot_id=head.snapshot_id,
        wall_ms=head.wall_ms,
        monotonic_seq=head.monotonic_seq,
        trigger=trigger,
        body=body,
        raw_body=head.body,
        problems=tuple(problems),
    )


def _read_body(plain: Mapping[str, object]) -> tuple[Body, list[Problem]]:
    blocks: dict[str, object] = {}
    problems: list[Problem] = []
    for name, value in plain.items():
        if name not in BLOCKS:
            continue
        try:
            blocks[name] = _convert(value, BLOCKS[name], where=f"body.{name}")
        except RecordError as error:
            problems.append(Problem(f"body.{name}", str(error), value))
    others = {name: value for name, value in plain.items() if name not in BLOCKS}
    return msgspec.structs.replace(Body(others=others), **blocks), problems


def _object(data: bytes) -> dict[str, object]:
    try:
        plain = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise RecordError(str(error)) from error
    if not isinstance(plain, dict):
        raise RecordError(f"an object is expected, not {type(plain).__name__}")
    return plain


def _convert(value: object, into: type[R], *, where: str) -> R:
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {error}") from error


def _hex_id(value: object) -> object:
    """An array of 32 integers is a node id in the original's spelling; everything else stays."""
    if isinstance(value, list) and len(value) == 32:
        node_id = read_node_id(value)
        return value if node_id is None else node_id
    return value
