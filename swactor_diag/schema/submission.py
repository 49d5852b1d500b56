"""What a node hands to a collector, and what it is told in return.

Owns: the records on both sides of a ``Sink``, over HTTP or not, and the size limit they share.
Not here: headers and status codes (``delivery.http``, ``collector.routes``), what a body means.
"""

import enum
from typing import Annotated

from msgspec import Meta, Struct

BODY_BYTES_MAX = 32 * 1024 * 1024
"""No body may be larger, compressed or not; a node's largest batch stays far below."""


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


def batch_id(boot_id: str, kind: RecordKind, number: int) -> str:
    """Return the id of the ``number``-th batch (from 1) of ``kind`` that this boot made."""
    return f"{boot_id}-{kind.value}-{number:06d}"


def boot_of(batch_id: str) -> str:
    """Return the boot that made the batch; the whole id when it is not one of ours."""
    parts = batch_id.rsplit("-", 2)
    return parts[0] if len(parts) == 3 else batch_id
