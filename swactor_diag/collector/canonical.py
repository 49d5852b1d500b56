"""The archive of a finalized run, kept so that serving it costs reading it and nothing more.

Owns: ``@bundles/<run>@<state>.tar.gz``, the note beside it, and the rule that an archive counts only as long
as staging is what it was made from. Not here: making it (``bundle``), who asks for it (``downloads``).
"""

import hashlib
import zlib
from collections.abc import Iterator
from threading import Lock

import msgspec

from swactor_diag.collector.bundle import Bundle
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import Storage, StorageMissingError, StoragePath

BUNDLES_FOLDER = "@bundles"

_LOCKS = 16
_STATE_DIGITS = 16


class Canonical(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a kept archive."""

    state: str
    """`Listing.state` of the run when it was made."""
    size_bytes: int
    sha256: str
    set_aside: int


class CanonicalBundles:
    """The kept archives of one staging. Any thread may call; one archive of a run is made at a time."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._locks = [Lock() for _ in range(_LOCKS)]

    def find(self, run_id: str, *, state: str) -> Canonical | None:
        """Return the kept archive of a run if it was made from this ``state`` of it."""
        try:
            kept = msgspec.json.decode(self._storage.read(_note_path(run_id)), type=Canonical)
        except (StorageMissingError, msgspec.MsgspecError):
            return None
        return kept if kept.state == state else None

    def keep(self, bundle: Bundle) -> Canonical:
        """Store an archive in place of an older one of its run.

        Raises:
            StorageError: it cannot be stored.
        """
        run_id = bundle.manifest.run_id
        with self._locks[zlib.crc32(run_id.encode()) % _LOCKS]:
            kept = self.find(run_id, state=bundle.state)
            if kept is not None:
                return kept
            counted = _Counted(bundle.stream())
            self._storage.write(_path(run_id, bundle.state), counted)
            kept = Canonical(
                state=bundle.state,
                size_bytes=counted.size_bytes,
                sha256=counted.sha256.hexdigest(),
                set_aside=bundle.unusable,
            )
            self._storage.write(_note_path(run_id), msgspec.json.encode(kept))
            # A reader of an older one has it open, and reads it to its end.
            self._drop(run_id, but=_path(run_id, bundle.state)[-1])
            return kept

    def finish(self, run_id: str) -> str:
        """Make and keep the archive of a run, and return where it lies; see `Bundle` for the errors."""
        bundle = Bundle(self._staging, run_id)
        self.keep(bundle)
        return self._storage.location(_path(run_id, bundle.state))

    def read(self, run_id: str, kept: Canonical, *, start: int, stop: int) -> Iterator[bytes]:
        """Yield a part of a kept archive; see `Storage.stream` for the errors."""
        return self._storage.stream(_path(run_id, kept.state), start, stop)

    def drop(self, run_id: str) -> None:
        """Remove the kept archive of a run, if there is one."""
        self._storage.delete(_note_path(run_id))
        self._drop(run_id)

    def _drop(self, run_id: str, *, but: str = "") -> None:
        for entry in self._storage.list((BUNDLES_FOLDER,)):
            if entry.name.startswith(f"{run_id}@") and entry.name != but:
                self._storage.delete((BUNDLES_FOLDER, entry.name))

    @property
    def _storage(self) -> Storage:
        return self._staging.storage


def _path(run_id: str, state: str) -> StoragePath:
    return (BUNDLES_FOLDER, f"{run_id}@{state[:_STATE_DIGITS]}.tar.gz")


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
