"""The archive of a finalized run, kept so that serving it costs reading it and nothing more.

Owns: ``@bundles/<run>.tar.gz``, the note beside it that says what it was made from, and the rule that an
archive counts only as long as staging is what it was then. Not here: making it (``bundle``).
"""

import hashlib
from collections.abc import Iterator

import msgspec

from swactor_diag.collector.bundle import Bundle
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import Storage, StorageMissingError, StoragePath

BUNDLES_FOLDER = "@bundles"


class Canonical(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a kept archive."""

    state: str
    """`Listing.state` of the run when it was made."""
    size_bytes: int
    sha256: str
    set_aside: int


def archive_path(run_id: str) -> StoragePath:
    """Return where the archive of a run is kept, whether it is there or not."""
    return (BUNDLES_FOLDER, f"{run_id}.tar.gz")


def find_canonical(storage: Storage, run_id: str, *, state: str) -> Canonical | None:
    """Return the kept archive of a run if it was made from this ``state`` of it."""
    try:
        kept = msgspec.json.decode(storage.read(_note_path(run_id)), type=Canonical)
    except (StorageMissingError, msgspec.MsgspecError):
        return None
    return kept if kept.state == state else None


def keep_canonical(storage: Storage, bundle: Bundle) -> Canonical:
    """Store the archive of a run in place of an older one.

    Raises:
        StorageError: it cannot be stored; there is no archive of the run then.
    """
    run_id = bundle.manifest.run_id
    counted = _Counted(bundle.stream())
    # The note goes first and comes last, so that it never tells of another archive than the one beside it.
    drop_canonical(storage, run_id)
    storage.write(archive_path(run_id), counted)
    kept = Canonical(
        state=bundle.state,
        size_bytes=counted.size_bytes,
        sha256=counted.sha256.hexdigest(),
        set_aside=len(bundle.manifest.set_aside or ()),
    )
    storage.write(_note_path(run_id), msgspec.json.encode(kept))
    return kept


def drop_canonical(storage: Storage, run_id: str) -> None:
    """Remove the kept archive of a run, if there is one."""
    storage.delete(_note_path(run_id))
    storage.delete(archive_path(run_id))


def store_bundle(staging: Staging, run_id: str) -> str:
    """Make and keep the archive of ``run_id``, and return where it lies; see `Bundle` for the errors."""
    keep_canonical(staging.storage, Bundle(staging, run_id))
    return staging.storage.location(archive_path(run_id))


def _note_path(run_id: str) -> StoragePath:
    return (BUNDLES_FOLDER, f"{run_id}.json")


class _Counted:
    """Passes pieces on, and knows afterwards what they were."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size_bytes += len(piece)
            self.sha256.update(piece)
            yield piece
