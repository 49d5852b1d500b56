"""Where records wait when the sink is away: bounded, oldest dropped first and counted.

Owns: the `Spool` protocol, the one in memory and the one on disk with its file format.
Not here: when something is spooled or sent again (``shipper``).

On disk a record is one file ``<9 digits>-<kind>.bin``: a line of JSON that names the record, its length and
checksum, then the body. It is written under a temporary name and renamed, so a killed process leaves whole
records only. What a machine crash tore is found by length and checksum, and set aside. Numbering goes on
after a restart: records of an earlier boot are sent with the id they were given then.
"""

import os
import zlib
from collections import Counter, deque
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from swactor_diag.schema.submission import Outgoing, RecordKind

SPOOL_BYTES_MAX = 64 * 1024 * 1024
SPOOL_RECORDS_MAX = 10_000
SET_ASIDE_MAX = 32
"""Refused or damaged records that are kept for people; the oldest goes first."""


class SpoolFigures(Struct, frozen=True):
    """What a spool holds and lost. ``dropped`` counts records by kind."""

    records: int
    bytes: int
    dropped: dict[str, int]
    set_aside: int


class Spool(Protocol):
    """A first-in first-out store of records. No method raises because it is full or the disk is."""

    def put(self, record: Outgoing) -> None:
        """Append ``record``; drop the oldest ones, counted, when there is no room."""
        ...

    def peek(self) -> Outgoing | None:
        """Return the oldest record, or None."""
        ...

    def pop(self, batch_id: str) -> None:
        """Remove the oldest record if it is this one: it may have been dropped since it was peeked."""
        ...

    def set_aside(self, record: Outgoing, reason: str) -> None:
        """Keep a record that can never be sent, for people."""
        ...

    def figures(self) -> SpoolFigures:
        """Return what is held and what was lost."""
        ...


class MemorySpool:
    """A spool that ends with its process: for the simulator, and for nodes without a disk."""

    def __init__(self, *, bytes_max: int = SPOOL_BYTES_MAX, records_max: int = SPOOL_RECORDS_MAX) -> None:
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._records: deque[Outgoing] = deque()
        self._bytes = 0
        self._dropped: Counter[str] = Counter()
        self._aside: deque[tuple[Outgoing, str]] = deque(maxlen=SET_ASIDE_MAX)
        self._set_aside = 0

    def put(self, record: Outgoing) -> None:
        """See `Spool`."""
        self._records.append(record)
        self._bytes += len(record.body)
        while self._records and (self._bytes > self._bytes_max or len(self._records) > self._records_max):
            self._dropped[self._remove().kind.value] += 1

    def peek(self) -> Outgoing | None:
        """See `Spool`."""
        return self._records[0] if self._records else None

    def pop(self, batch_id: str) -> None:
        """See `Spool`."""
        if self._records and self._records[0].batch_id == batch_id:
            self._remove()

    def set_aside(self, record: Outgoing, reason: str) -> None:
        """See `Spool`."""
        self._aside.append((record, reason))
        self._set_aside += 1

    def figures(self) -> SpoolFigures:
        """See `Spool`."""
        return SpoolFigures(len(self._records), self._bytes, dict(self._dropped), self._set_aside)

    def _remove(self) -> Outgoing:
        record = self._records.popleft()
        self._bytes -= len(record.body)
        return record


class _Header(Struct, frozen=True):
    kind: RecordKind
    run_id: str
    node_id: str
    batch_id: str
    events: int
    bytes: int
    crc32: int


class _Entry(Struct, frozen=True):
    name: str
    kind: str
    size: int


class DiskSpool:
    """A spool in ``directory``, of one node; what an earlier boot left there is taken over."""

    def __init__(
        self,
        directory: Path,
        *,
        bytes_max: int = SPOOL_BYTES_MAX,
        records_max: int = SPOOL_RECORDS_MAX,
    ) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._dropped: Counter[str] = Counter()
        self._set_aside = 0
        self._peeked: tuple[str, str] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._entries = deque(_listed(directory))
        self._bytes = sum(entry.size for entry in self._entries)
        self._number = 1 + max((int(entry.name[:9]) for entry in self._entries), default=0)

    def put(self, record: Outgoing) -> None:
        """See `Spool`. A write that fails, for whatever reason of the disk's, costs this record."""
        data = _encode(record)
        name = f"{self._number:09d}-{record.kind.value}.bin"
        self._number += 1
        while self._entries and self._is_full_with(len(data)):
            self._drop_oldest()
        if len(data) > self._bytes_max or not self._write(name, data):
            self._dropped[record.kind.value] += 1
            return
        self._entries.append(_Entry(name, record.kind.value, len(data)))
        self._bytes += len(data)

    def peek(self) -> Outgoing | None:
        """See `Spool`. Damaged files are passed over and kept beside the spool."""
        while self._entries:
            record = self._read(self._entries[0])
            if record is not None:
                self._peeked = (self._entries[0].name, record.batch_id)
                return record
            entry = self._forget_oldest()
            self._keep_aside(self._directory / entry.name, entry.name)
        return None

    def pop(self, batch_id: str) -> None:
        """See `Spool`."""
        if self._entries and self._peeked == (self._entries[0].name, batch_id):
            _remove(self._directory / self._forget_oldest().name)

    def set_aside(self, record: Outgoing, reason: str) -> None:
        """See `Spool`: the file lies in ``set-aside`` below the directory, the reason beside it."""
        self._set_aside += 1
        folder = self._directory / "set-aside"
        try:
            folder.mkdir(exist_ok=True)
            (folder / f"{record.batch_id}.bin").write_bytes(_encode(record))
            (folder / f"{record.batch_id}.txt").write_text(reason)
            _trim(folder)
        except OSError:
            return  # counted above; a full disk must not cost more than this

    def figures(self) -> SpoolFigures:
        """See `Spool`."""
        return SpoolFigures(len(self._entries), self._bytes, dict(self._dropped), self._set_aside)

    def _is_full_with(self, size: int) -> bool:
        return self._bytes + size > self._bytes_max or len(self._entries) >= self._records_max

    def _drop_oldest(self) -> None:
        entry = self._forget_oldest()
        _remove(self._directory / entry.name)
        self._dropped[entry.kind] += 1

    def _forget_oldest(self) -> _Entry:
        entry = self._entries.popleft()
        self._bytes -= entry.size
        return entry

    def _write(self, name: str, data: bytes) -> bool:
        temporary = self._directory / f"{name}.tmp"
        try:
            temporary.write_bytes(data)
            temporary.replace(self._directory / name)
        except OSError:
            _remove(temporary)
            return False
        return True

    def _read(self, entry: _Entry) -> Outgoing | None:
        try:
            head, _, body = (self._directory / entry.name).read_bytes().partition(b"\n")
            header = msgspec.json.decode(head, type=_Header)
        except (OSError, msgspec.MsgspecError):
            return None
        if len(body) != header.bytes or zlib.crc32(body) != header.crc32:
            return None
        return Outgoing(
            kind=header.kind,
            run_id=header.run_id,
            node_id=header.node_id,
            batch_id=header.batch_id,
            body=body,
            events=header.events,
        )

    def _keep_aside(self, path: Path, name: str) -> None:
        self._set_aside += 1
        folder = self._directory / "set-aside"
        try:
            folder.mkdir(exist_ok=True)
            path.replace(folder / f"damaged-{name}")
            _trim(folder)
        except OSError:
            _remove(path)


def _encode(record: Outgoing) -> bytes:
    header = _Header(
        kind=record.kind,
        run_id=record.run_id,
        node_id=record.node_id,
        batch_id=record.batch_id,
        events=record.events,
        bytes=len(record.body),
        crc32=zlib.crc32(record.body),
    )
    return msgspec.json.encode(header) + b"\n" + record.body


def _listed(directory: Path) -> list[_Entry]:
    """The records of an earlier boot, oldest first; unfinished ones are removed."""
    entries: list[_Entry] = []
    for item in sorted(os.scandir(directory), key=lambda item: item.name):
        number, _, rest = item.name.partition("-")
        if item.name.endswith(".tmp"):
            _remove(Path(item.path))
        elif number.isdecimal() and len(number) == 9 and rest.endswith(".bin"):
            entries.append(_Entry(item.name, rest.removesuffix(".bin"), item.stat().st_size))
    return entries


def _trim(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
    for path in files[: max(0, len(files) - 2 * SET_ASIDE_MAX)]:
        _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # read-only or vanished folder: what cannot be removed cannot be helped here
