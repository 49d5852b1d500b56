"""The contents list of a bundle.

Owns: ``MANIFEST.json``. The original's fields come first and keep their meaning; the others are additions,
which a bundle of the original does not have and a reader therefore treats as absent.
Not here: how the list is made (``collector.bundle``) or judged (``postproc``).
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType


class ManifestFile(Struct, frozen=True, kw_only=True):
    """One file of the bundle, so that damage is found."""

    path: Annotated[str, Meta(description="Below the top folder.")]
    size_bytes: int
    sha256: str
    batch_id: Annotated[str | UnsetType, Meta(description="Of a record; names its boot.")] = UNSET
    recv_ms: Annotated[int | UnsetType, Meta(description="Collector clock, when known.")] = UNSET


class SetAside(Struct, frozen=True, kw_only=True):
    """A staged file, or a part of one, that could not be used and was kept out."""

    path: str
    reason: str
    from_byte: Annotated[int | UnsetType, Meta(description="Of a part: where it begins.")] = UNSET
    to_byte: Annotated[int | UnsetType, Meta(description="Of a part: where what follows it begins.")] = UNSET
    kept_as: Annotated[
        str | UnsetType | None,
        Meta(description="After a repair: where the bytes are now; null when they stayed in the original."),
    ] = UNSET


class ManifestBoot(Struct, frozen=True, kw_only=True):
    """One process start of a node inside the run."""

    boot_id: str
    first_record_at_ms: Annotated[int, Meta(description="Collector clock.")]
    last_record_at_ms: Annotated[int, Meta(description="Collector clock.")]
    event_batches: int = 0
    snapshots: int = 0
    batches_missing: Annotated[
        int | UnsetType, Meta(description="Numbers left out below the highest one that was received.")
    ] = UNSET


class Silence(Struct, frozen=True, kw_only=True):
    """A time in which nothing came from a node, though it came again afterwards."""

    from_ms: Annotated[int, Meta(description="Last record before it, collector clock.")]
    to_ms: Annotated[int, Meta(description="First record after it, collector clock.")]


class ManifestNode(Struct, frozen=True, kw_only=True):
    """One node of the run."""

    node_id_hex: str
    label: str
    role: str | None = None
    stage_index: int | None = None
    boot_recorded: bool = False
    event_batches: Annotated[int, Meta(description="Files, not events.")] = 0
    snapshots: int = 0
    finalize_recorded: bool = False
    first_record_at_ms: Annotated[int | UnsetType, Meta(description="Collector clock.")] = UNSET
    last_record_at_ms: Annotated[int | UnsetType, Meta(description="Collector clock.")] = UNSET
    silent_ms: Annotated[int | UnsetType, Meta(description="Last record of the node to end of run.")] = UNSET
    boots: tuple[ManifestBoot, ...] | UnsetType = UNSET
    schema_version: Annotated[int | UnsetType, Meta(description="As its last boot record says.")] = UNSET
    silences: Annotated[
        tuple[Silence, ...] | UnsetType,
        Meta(description="The longest ones above 15 s, in order; at most 16."),
    ] = UNSET


class DropRow(Struct, frozen=True, kw_only=True):
    """Records that are known to be missing, and who dropped them why."""

    node_id_hex: str
    boot_id: str | None = None
    where: Annotated[
        str, Meta(description="recorder, spool, refused, damaged (on the node), collector, retention.")
    ]
    what: Annotated[str, Meta(description="Event type or record kind.")]
    count: int
    events: Annotated[int | UnsetType, Meta(description="How many events were lost with them.")] = UNSET


class Manifest(Struct, frozen=True, kw_only=True):
    """``MANIFEST.json``."""

    run_id: str
    run_start_collector_ms: int | None = None
    run_end_collector_ms: int | None = None
    finalize_received: bool = False
    nodes: tuple[ManifestNode, ...] = ()
    schema_version: int | UnsetType = UNSET
    finalize_reason: str | UnsetType = UNSET
    files: tuple[ManifestFile, ...] | UnsetType = UNSET
    drops: tuple[DropRow, ...] | UnsetType = UNSET
    set_aside: tuple[SetAside, ...] | UnsetType = UNSET
