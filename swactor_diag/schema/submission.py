"""What a node hands to a collector, and what it is told in return.

Owns: the records on both sides of a ``Sink``, over HTTP or not, how a batch is named, the size limit they
share, and the JSON that answers a submission over HTTP.
Not here: headers and status codes (``delivery.http``, ``collector.routes``), what a body means.
"""

import enum
import re
from typing import Annotated

from msgspec import Meta, Struct

BODY_BYTES_MAX = 32 * 1024 * 1024
"""No body may be larger, compressed or not; a node's largest batch stays far below."""

_BATCH = re.compile(
    r"(?P<boot>[A-Za-z0-9._-]{1,128})-(?:boot|events|snapshot|finalize)-(?P<number>[0-9]{1,12})"
)


class RecordKind(enum.StrEnum):
    """What one submission is; also the first part of its file name in staging."""

    BOOT = "boot"
    EVENTS = "events"
    SNAPSHOT = "snapshot"
    FINALIZE = "finalize"


class Outgoing(Struct, frozen=True, kw_only=True):
    """One record on its way to the collector."""

    kind: RecordKind
    run_id: str
    node_id: str
    batch_id: Annotated[str, Meta(description="<boot_id>-<kind>-<number>: equal ids mean equal bytes.")]
    body: Annotated[bytes, Meta(description="JSON, uncompressed.")]
    events: Annotated[int, Meta(description="Events in the body; 0 for the other kinds.")] = 0
    clock_samples: Annotated[int, Meta(description="How many of the events are clock samples.")] = 0


class ClockStamp(Struct, frozen=True, kw_only=True):
    """Three of the four times of one exchange; the fourth is when the answer arrived."""

    node_send_ms_echoed: int
    collector_recv_ms: int
    collector_send_ms: int


class Answer(Struct, frozen=True, kw_only=True):
    """The collector has the record on its disk, or had it before."""

    clock: ClockStamp
    snapshot_now: Annotated[bool, Meta(description="A run ends: send a snapshot at once.")] = False
    bundle_path: Annotated[str | None, Meta(description="Finalize only: where the archive lies.")] = None


class HintsAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the node is asked to do."""

    snapshot_now: bool = False


class FinalizeAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the bundle lies on the collector's side."""

    bundle_path: str | None = None


class SubmitAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record is stored."""

    clock: ClockStamp
    hints: HintsAnswer = HintsAnswer()
    body: FinalizeAnswer = FinalizeAnswer()


def batch_id(boot_id: str, kind: RecordKind, number: int) -> str:
    """Return the id of the ``number``-th batch (from 1) of ``kind`` that this boot made."""
    return f"{boot_id}-{kind.value}-{number:06d}"


def split_batch_id(batch_id: str) -> tuple[str, int] | None:
    """Return the boot and the number (from 1) that a batch id names; None for senders that do not say."""
    found = _BATCH.fullmatch(batch_id)
    return None if found is None else (found["boot"], int(found["number"]))


def boot_of(batch_id: str) -> str:
    """Return the boot that made the batch; the whole id when it is not one of ours."""
    found = split_batch_id(batch_id)
    return batch_id if found is None else found[0]
