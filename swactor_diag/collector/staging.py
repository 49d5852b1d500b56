"""How the records of a run lie in a storage, and how they are found again.

Owns: the layout, appending to it, reading it back after any restart, and naming what is there but cannot be
used. Not here: the bytes of a record (``segments``), which records are accepted (``ingest``), the archive
(``bundle``).

    <run>/@log/<writer>-<number>.seg          what collectors write: many records a file, see ``segments``
    <run>/<node>/<kind>-<batch id>.json       one record, as the original's collectors and people leave it
    <run>/@aside/                             what a repair could not use, and why: see ``repair``

Names that are no ids start with ``@``: a run called ``bundles`` collides with nothing.
"""

import hashlib
import re
import zlib
from collections.abc import Iterator
from functools import partial
from threading import Lock
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, UnsetType

from swactor_diag.collector.segments import Damage, Frame, encode_frame, read_frames
from swactor_diag.collector.storage import (
    Entry,
    EntryKind,
    Storage,
    StorageError,
    StorageMissingError,
    StoragePath,
    StorageTakenError,
    is_storage_name,
)
from swactor_diag.schema.ids import check_id, is_id
from swactor_diag.schema.manifest import SetAside
from swactor_diag.schema.submission import Outgoing, RecordKind, split_batch_id

LOG_FOLDER = "@log"
ASIDE_FOLDER = "@aside"
NOTES_NAME = "why.json"
"""In the folder of what a repair set aside: the list of it."""

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""A segment that has grown beyond this is closed and another one begun."""

_OURS = frozenset({LOG_FOLDER, ASIDE_FOLDER})
_SEGMENT = re.compile(r"(?P<writer>[A-Za-z0-9_]{1,64})-(?P<number>[0-9]{6,12})\.seg")
_NAME = re.compile(
    r"(?P<kind>boot|events|snapshot|finalize)-(?P<batch>[A-Za-z0-9._-]{1,128})(?:@(?P<recv_ms>[0-9]{1,15}))?\.json"
)
_NOTES = msgspec.json.Decoder(tuple[SetAside, ...]).decode
_SCAN = msgspec.json.Decoder(msgspec.Raw).decode
"""Reads a whole text without making anything of it; it does not look at the encoding of strings."""


def check_json(body: bytes) -> None:
    """Do nothing if ``body`` is one JSON value.

    Raises:
        ValueError: it is not; says where.
    """
    try:
        body.decode()
        _SCAN(body)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc


def read_json(body: bytes) -> object:
    """Return what a checked body says; None for what cannot be held, such as a number beyond all range."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None


class StagedRecord(msgspec.Struct, gc=False):
    """One stored record. ``recv_ms`` is None when nobody recorded it, ``checksum`` for a file of its own."""

    kind: RecordKind
    node_id: str
    batch_id: str
    recv_ms: int | None
    path: StoragePath
    body_at: int
    body_bytes: int
    checksum: int | None
    digest: bytes | None = None
    """SHA-256 of the body, once somebody had to know it."""

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Sorts the records of one node: as received, and those of one moment by boot and number."""
        boot, number = split_batch_id(self.batch_id) or ("", 0)
        return (self.recv_ms or 0, boot, number, self.batch_id)

    def set_aside(self, reason: str) -> SetAside:
        """Return the note that this record cannot be used."""
        if self.checksum is None:
            return set_aside(self.path, reason)
        return set_aside(self.path, reason, start=self.body_at, stop=self.body_at + self.body_bytes)


class Listing(msgspec.Struct, frozen=True):
    """Which files a run consists of at one moment, and how much of each; nothing of them was read."""

    run_id: str
    segments: tuple[tuple[StoragePath, int], ...]
    singles: tuple[tuple[StoragePath, int], ...]
    foreign: tuple[tuple[StoragePath, str], ...]
    """What cannot be used whatever is in it, and why."""
    aside: tuple[tuple[StoragePath, int], ...] = ()
    """What an earlier repair has kept."""
    modified_ms: int | None = None
    """When one of the files was written last; it is all that is known of the age of some."""

    @property
    def state(self) -> str:
        """Names these very bytes: equal exactly when nothing was added, removed or cut off."""
        names = hashlib.sha256()
        for path, fact in (*self.segments, *self.singles, *self.foreign, *self.aside):
            names.update(f"{_shown(path)}\0{fact}\n".encode())
        return names.hexdigest()

    @property
    def size_bytes(self) -> int:
        """How much is stored."""
        return sum(size for _, size in (*self.segments, *self.singles, *self.aside))


class Portion(msgspec.Struct, frozen=True, weakref=True):
    """The records of one segment or of the single files, repeats included, and what cannot be used."""

    records: tuple[StagedRecord, ...]
    set_aside: tuple[SetAside, ...] = ()
    size_bytes: int = 0


class Staging:
    """The runs in one storage, and the segments that this ``writer`` appends to."""

    def __init__(
        self, storage: Storage, *, writer: str = "main", segment_bytes_max: int = SEGMENT_BYTES_MAX
    ) -> None:
        self.storage = storage
        self._writer = writer
        self._segment_bytes_max = segment_bytes_max
        self._open: dict[str, _OpenSegment] = {}
        self._portions: WeakValueDictionary[StoragePath, Portion] = WeakValueDictionary()
        self._lock = Lock()

    def run_ids(self) -> tuple[str, ...]:
        """Return the runs that have a folder, sorted."""
        return tuple(e.name for e in self.storage.list() if e.kind is EntryKind.FOLDER and is_id(e.name))

    def has_run(self, run_id: str) -> bool:
        """Return whether anything of ``run_id`` is stored; false for what is no id."""
        return is_id(run_id) and bool(self.storage.list((run_id,)))

    def append(self, record: Outgoing, *, recv_ms: int) -> None:
        """Store one record, whose ids must be ids.

        Raises:
            StorageError: it is not stored.
        """
        frame = encode_frame(record, recv_ms=recv_ms)
        segment = self._open.get(record.run_id)
        if segment is None:
            self._begin_segment(record.run_id, frame)
            return
        self.storage.append(segment.path, frame, at=segment.size)
        segment.size += len(frame)
        if segment.size >= self._segment_bytes_max:
            self.close_segment(record.run_id)

    def close_segment(self, run_id: str) -> None:
        """Append the next record of the run to another segment."""
        segment = self._open.pop(run_id, None)
        if segment is not None:
            self.storage.seal(segment.path)

    def drop_unflushed(self) -> None:
        """Forget what was appended since the last flush that worked."""
        self._open.clear()
        self.storage.drop_unflushed()

    def delete(self, run_id: str) -> None:
        """Remove everything that is stored of a run."""
        self._open.pop(run_id, None)
        self.storage.delete((check_id(run_id, what="run id"),))

    def list(self, run_id: str) -> Listing:
        """Return which files there are of ``run_id``, from the storage alone.

        Raises:
            StorageError: it cannot be listed.
        """
        segments: list[tuple[StoragePath, int]] = []
        singles: list[tuple[StoragePath, int]] = []
        foreign: list[tuple[StoragePath, str]] = []
        aside: list[tuple[StoragePath, int]] = []
        modified_ms: int | None = None
        for folder in self.storage.list((check_id(run_id, what="run id"),)):
            top = (run_id, folder.name)
            if folder.kind is not EntryKind.FOLDER or not (folder.name in _OURS or is_id(folder.name)):
                foreign.append((top, "not the folder of a node"))
                continue
            if folder.name == ASIDE_FOLDER:
                for entry in self.storage.list(top):
                    if entry.kind is EntryKind.FILE and is_storage_name(entry.name):
                        aside.append(((*top, entry.name), entry.size_bytes))
                    else:
                        foreign.append(((*top, entry.name), "not a file of a repair"))
                continue
            pattern, found = (_SEGMENT, segments) if folder.name == LOG_FOLDER else (_NAME, singles)
            for entry in self.storage.list(top):
                path = (*top, entry.name)
                if entry.kind is EntryKind.FILE and pattern.fullmatch(entry.name):
                    found.append((path, self._settled_bytes(path, entry)))
                    if entry.modified_ms is not None:
                        modified_ms = max(modified_ms or 0, entry.modified_ms)
                else:
                    foreign.append((path, "not a file of the collector"))
        return Listing(
            run_id, tuple(segments), tuple(singles), tuple(foreign), tuple(aside), modified_ms=modified_ms
        )

    def portions(self, listing: Listing) -> Iterator[Portion]:
        """Yield what is stored, a part at a time. Segments that somebody holds are not read again."""
        for path, size in listing.segments:
            yield self._segment(path, size)
        yield Portion(
            records=tuple(_named(path, size) for path, size in listing.singles),
            set_aside=tuple(set_aside(path, why) for path, why in listing.foreign),
        )
        notes = (listing.run_id, ASIDE_FOLDER, NOTES_NAME)
        if any(path == notes for path, _ in listing.aside):
            yield Portion(records=(), set_aside=self._earlier(notes))

    def read(self, record: StagedRecord) -> bytes | SetAside:
        """Return the body of a record, or why it cannot be used."""
        try:
            body = self.storage.read(record.path, record.body_at, record.body_bytes)
        except StorageMissingError:
            return record.set_aside("gone while it was read")
        except StorageError:
            return record.set_aside("cannot be read")
        if record.checksum is None:
            try:
                check_json(body)
            except ValueError:
                return record.set_aside(f"torn or damaged: {len(body)} bytes that are not JSON")
        elif len(body) != record.body_bytes or zlib.crc32(body) != record.checksum:
            end = record.body_at + record.body_bytes
            reason = f"bytes {record.body_at} to {end} are damaged: {record.batch_id} of {record.node_id}"
            return record.set_aside(reason)
        return body

    def _earlier(self, notes: StoragePath) -> tuple[SetAside, ...]:
        try:
            return _NOTES(self.storage.read(notes))
        except (StorageError, msgspec.MsgspecError):
            return (set_aside(notes, "what a repair set aside cannot be told"),)

    def _begin_segment(self, run_id: str, frame: bytes) -> None:
        folder = (run_id, LOG_FOLDER)
        number = 1 + max(
            (
                int(found["number"])
                for entry in self.storage.list(folder)
                if (found := _SEGMENT.fullmatch(entry.name)) and found["writer"] == self._writer
            ),
            default=0,
        )
        while True:
            path = (*folder, f"{self._writer}-{number:06d}.seg")
            try:
                self.storage.append(path, frame, at=0)
                break
            except StorageTakenError:  # by another process that goes by our name
                number += 1
        self._open[run_id] = _OpenSegment(path, len(frame))

    def _settled_bytes(self, path: StoragePath, entry: Entry) -> int:
        """How much of a file is meant to be there: a record may be on its way into our own segment."""
        mine = self._open.get(path[0])
        return (
            min(mine.size, entry.size_bytes) if mine is not None and mine.path == path else entry.size_bytes
        )

    def _segment(self, path: StoragePath, size: int) -> Portion:
        with self._lock:
            known = self._portions.get(path)
            if known is not None and known.size_bytes == size:
                return known
            portion = _read_segment(self.storage, path, size=size, known=known)
            self._portions[path] = portion
            return portion


class _OpenSegment:
    """The segment that a run's next record goes to."""

    def __init__(self, path: StoragePath, size: int) -> None:
        self.path, self.size = path, size


def _read_segment(storage: Storage, path: StoragePath, *, size: int, known: Portion | None) -> Portion:
    """Read a segment up to ``size``; of one that is ``known`` only what it has grown by."""
    if known is not None and (known.set_aside or known.size_bytes > size):
        known = None  # a torn end may be whole by now
    records = [] if known is None else list(known.records)
    aside: list[SetAside] = []
    start = 0 if known is None else known.size_bytes
    for found in read_frames(partial(storage.read, path), start=start, end=size):
        match found:
            case Frame():
                records.append(_framed(path, found))
            case Damage(at, end, reason):
                aside.append(set_aside(path, f"bytes {at} to {end}: {reason}", start=at, stop=end))
    return Portion(records=tuple(records), set_aside=tuple(aside), size_bytes=size)


def _framed(path: StoragePath, frame: Frame) -> StagedRecord:
    return StagedRecord(
        kind=frame.kind,
        node_id=frame.node_id,
        batch_id=frame.batch_id,
        recv_ms=frame.recv_ms,
        path=path,
        body_at=frame.body_at,
        body_bytes=frame.body_bytes,
        checksum=frame.checksum,
    )


def _named(path: StoragePath, size: int) -> StagedRecord:
    found = _NAME.fullmatch(path[-1])
    if found is None:
        raise StorageError(f"not the name of a record: {path[-1]}")
    return StagedRecord(
        kind=RecordKind(found["kind"]),
        node_id=path[1],
        batch_id=found["batch"],
        recv_ms=None if found["recv_ms"] is None else int(found["recv_ms"]),
        path=path,
        body_at=0,
        body_bytes=size,
        checksum=None,
    )


def _shown(path: StoragePath) -> str:
    return "/".join(path).encode("utf-8", "backslashreplace").decode("utf-8")


def set_aside(
    path: StoragePath, reason: str, *, start: int | UnsetType = UNSET, stop: int | UnsetType = UNSET
) -> SetAside:
    """Return the note that the file at ``path``, or a part of it, cannot be used."""
    return SetAside(path=_shown(path), reason=reason, from_byte=start, to_byte=stop)
