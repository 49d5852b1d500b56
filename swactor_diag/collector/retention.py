"""Which runs have to go, and why: by age for each state, and the oldest first when the disk is full.

Owns: the decision, as a pure function, and how the facts for it are read from a storage.
Not here: deleting, and when (``trimming``).

A run that receives, or whose bundle is downloaded, or that is pinned, never goes.
"""

from collections.abc import Iterable, Sequence

import msgspec

from swactor_diag.collector.canonical import BUNDLES_FOLDER
from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.staging import Listing, Staging
from swactor_diag.collector.storage import Storage
from swactor_diag.schema.submission import RecordKind

PINS_FOLDER = "@pins"
"""A file with the name of a run keeps that run; people may put one there by hand."""
TRIM_LOG = ("@trims.json",)
"""Where it is written down which runs went."""

RECEIVING_MS = 60_000
"""A run that had a record within this time is receiving: its nodes send a snapshot every 5 s."""

_DAY_MS = 86_400_000


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """What retention has to know of one run. ``last_ms`` is None when its age is unknown."""

    run_id: str
    is_finalized: bool
    last_ms: int | None
    size_bytes: int
    is_held: bool = False
    """Pinned, or downloaded right now."""


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """One run that goes, or went."""

    run_id: str
    reason: str
    size_bytes: int
    finalized: bool
    last_record_at_ms: int | None
    at_ms: int


def decide(
    runs: Iterable[StoredRun], config: CollectorConfig, *, now_ms: int, room_bytes: int = 0
) -> list[Trim]:
    """Return what has to go, oldest first, so that ``room_bytes`` more than now may be stored.

    A run of unknown age is never too old; under the cap it counts as older than the others.
    """
    runs = sorted(runs, key=lambda run: (run.last_ms or 0, run.run_id))
    stored = sum(run.size_bytes for run in runs)
    trims: list[Trim] = []
    for run in runs:
        if run.is_held or now_ms - (run.last_ms or 0) < RECEIVING_MS:
            continue
        days = config.keep_finalized_days if run.is_finalized else config.keep_unfinalized_days
        if run.last_ms is not None and now_ms - run.last_ms > days * _DAY_MS:
            reason = f"silent for more than {days:g} days"
        elif config.disk_bytes_max and stored + room_bytes > config.disk_bytes_max:
            reason = f"more than {config.disk_bytes_max} bytes stored, and it is the oldest"
        else:
            continue
        stored -= run.size_bytes
        trims.append(
            Trim(
                run_id=run.run_id,
                reason=reason,
                size_bytes=run.size_bytes,
                finalized=run.is_finalized,
                last_record_at_ms=run.last_ms,
                at_ms=now_ms,
            )
        )
    return trims


class Ages:
    """Reads what `decide` needs; what is unchanged since the last time is not read again."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._known: dict[str, tuple[str, StoredRun]] = {}

    def look(self) -> list[StoredRun]:
        """Return every stored run, held by nobody.

        Raises:
            StorageError: the storage cannot be listed.
        """
        kept = kept_bytes(self._staging.storage)
        found: dict[str, tuple[str, StoredRun]] = {}
        for run_id in self._staging.run_ids():
            listing = self._staging.list(run_id)
            state, run = self._known.get(run_id, ("", None))
            if run is None or state != listing.state:
                run = self._read(listing)
            found[run_id] = (listing.state, run)
        self._known = found
        return [
            msgspec.structs.replace(run, size_bytes=run.size_bytes + kept.get(run_id, 0))
            for run_id, (_, run) in found.items()
        ]

    def _read(self, listing: Listing) -> StoredRun:
        is_finalized, last_ms = False, listing.modified_ms
        for portion in self._staging.portions(listing):
            for record in portion.records:
                is_finalized = is_finalized or record.kind is RecordKind.FINALIZE
                if record.recv_ms is not None:
                    last_ms = max(last_ms or 0, record.recv_ms)
        return StoredRun(
            run_id=listing.run_id, is_finalized=is_finalized, last_ms=last_ms, size_bytes=listing.size_bytes
        )


def kept_bytes(storage: Storage) -> dict[str, int]:
    """Return how much the kept archives of each run take."""
    found: dict[str, int] = {}
    for entry in storage.list((BUNDLES_FOLDER,)):
        run_id = entry.name.removesuffix(".json").partition("@")[0]
        found[run_id] = found.get(run_id, 0) + entry.size_bytes
    return found


def held(runs: Sequence[StoredRun], holding: Iterable[str]) -> list[StoredRun]:
    """Return ``runs`` with those marked that somebody holds on to."""
    names = set(holding)
    return [msgspec.structs.replace(run, is_held=True) if run.run_id in names else run for run in runs]
