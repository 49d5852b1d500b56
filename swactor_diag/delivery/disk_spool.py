"""The spool on disk: outlives its process, and so does the count of what it had to drop.

Owns: the files of one node's spool. Not here: the protocol (``spool``), what the ledger counts (``ledger``),
what is in a file (``spool_file``).

A record is one file. It is written under a temporary name and renamed, so a killed process leaves whole
records only. What a machine crash tore is found by length, checksums and file name, and set aside. Numbering
goes on after a restart: records of an earlier boot are sent with the id they were given then. A record that
the disk does not take, though it has room, waits in memory until it does.

A dropped record is counted exactly once, whenever the process is killed: the ledger says which numbers it
covers, and is written before their files are removed. Boot records are no part of this: they go last.
"""

import errno
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from msgspec import structs

from swactor_diag.delivery.folder_lock import FolderLock
from swactor_diag.delivery.ledger import Ledger, LossPlace, decode_ledger, encode_ledger
from swactor_diag.delivery.spool import SPOOL_BYTES_MAX, SPOOL_RECORDS_MAX, SpoolFigures, first_to_go
from swactor_diag.delivery.spool_file import Entry, decode_record, encode_record
from swactor_diag.schema.submission import Outgoing, RecordKind

SET_ASIDE_MAX = 32
"""Refused or damaged records that are kept for people; the oldest goes first."""

SET_ASIDE_BYTES_MAX = 16 * 1024 * 1024
"""What these may take up together; a larger record is counted, and not kept."""

LEDGER_NAME = "ledger.json"
SET_ASIDE_FOLDER = "set-aside"

_NUMBER_MAX = 999_999_999
"""Numbering does not start beyond it, whatever a damaged ledger says."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_MEANS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The process can open nothing now; that says nothing about the file."""


class DiskSpool:
    """A spool in ``directory``, of one node; what an earlier boot left there is taken over.

    ``write`` puts bytes into a file that does not exist yet; a test gives one whose disk is small.
    ``lock`` is the one on the directory, which was taken before; with it comes the care that it is kept.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bytes_max: int = SPOOL_BYTES_MAX,
        records_max: int = SPOOL_RECORDS_MAX,
        set_aside_bytes_max: int = SET_ASIDE_BYTES_MAX,
        write: Callable[[Path, bytes], object] = Path.write_bytes,
        lock: FolderLock | None = None,
    ) -> None:
        """Open the spool.

        Raises:
            OSError: the directory cannot be made, listed or read.
        """
        self._directory = directory
        self._bytes_max = bytes_max
        self._records_max = records_max
        self._write_file = write
        self._lock = lock
        self._set_aside_bytes_max = set_aside_bytes_max
        directory.mkdir(parents=True, exist_ok=True)
        kept = decode_ledger(_read(directory / LEDGER_NAME) or b"")
        self._ledger = Ledger(kept.losses)
        self._unknown_losses = kept.unknown
        self._ledger_saved = True
        self._gone_through = kept.gone_through
        entries = _listed(directory)
        highest = entries[-1].number if entries else 0
        if kept.gone_through > highest:
            # The file with that number is removed last, so it covers none of these. A damaged one must not
            # cost those that are still to come.
            self._gone_through = 0
            self._save_ledger()
        self._entries = deque(self._without_gone(entries))
        self._bytes = sum(entry.size for entry in self._entries)
        self._held: dict[Entry, Outgoing] = {}
        self._peeked: Entry | None = None
        self._number = 1 + max(highest, min(kept.gone_through, _NUMBER_MAX))

    def put(self, record: Outgoing) -> None:
        """See `Spool`. A full disk costs the oldest, too; with other trouble of it records stay in memory."""
        data = encode_record(record)
        entry = Entry(self._number, record.batch_id, record.kind, record.events, len(data))
        self._number += 1
        self._write_held()
        if len(data) > self._bytes_max or not self._make_room(entry):
            self._count([entry], LossPlace.SPOOL)
            return
        while (trouble := self._write(entry.name, data)) is not None:
            if trouble not in _NO_ROOM:
                self._held[entry] = record
                break
            if not self._goes_before(entry):
                self._count([entry], LossPlace.SPOOL)
                return
            self._drop([self._forget_first_to_go()])
        self._entries.append(entry)
        self._bytes += len(data)

    def peek(self, *, passing: Collection[str] = ()) -> Outgoing | None:
        """See `Spool`. Damaged files are passed over, counted, and kept beside the spool."""
        try:
            while (place := self._place(lambda entry: entry.batch_id not in passing)) is not None:
                entry = self._entries[place]
                record = self._held.get(entry) or self._decoded(entry)
                if record is not None:
                    self._peeked = entry
                    return record
                self._give_up(place, LossPlace.DAMAGED, name=f"damaged-{entry.name}")
        except OSError:
            pass  # not now
        return None

    def _decoded(self, entry: Entry) -> Outgoing | None:
        return decode_record(_read(self._directory / entry.name) or b"", entry)

    def pop(self, batch_id: str) -> None:
        """See `Spool`."""
        place = self._settle_peeked(batch_id)
        if place is not None:
            _remove(self._directory / self._forget(place).name)

    def set_aside(self, record: Outgoing, reason: str) -> None:
        """See `Spool`: the file lies in ``set-aside`` below the directory, the reason beside it."""
        name = f"{record.batch_id}.bin"
        place = self._settle_peeked(record.batch_id)
        if place is not None:
            self._give_up(place, LossPlace.REFUSED, name=name)
        else:
            self._ledger.count_record(LossPlace.REFUSED, record)
            self._save_ledger()
            self._keep_aside(lambda folder: self._write_file(folder / name, encode_record(record)))
        text = reason.encode(errors="replace")  # UTF-8 whatever the locale: a collector may answer anything
        self._keep_aside(lambda folder: (folder / f"{record.batch_id}.txt").write_bytes(text))

    def figures(self) -> SpoolFigures:
        """See `Spool`."""
        return SpoolFigures(len(self._entries), self._bytes, self._ledger.losses())

    def close(self) -> None:
        """See `Spool`."""
        if self._lock is not None:
            self._lock.release()

    def _settle_peeked(self, batch_id: str) -> int | None:
        """Return where the record is that was peeked; None, and its loss taken back, if it was dropped."""
        peeked, self._peeked = self._peeked, None
        if peeked is None or peeked.batch_id != batch_id:
            return None
        place = self._place(lambda entry: entry is peeked)
        if place is None:
            self._ledger.uncount(LossPlace.SPOOL, batch_id=batch_id, kind=peeked.kind, events=peeked.events)
            self._save_ledger()
        return place

    def _place(self, fits: Callable[[Entry], bool]) -> int | None:
        return next((place for place, entry in enumerate(self._entries) if fits(entry)), None)

    # -- losses ---------------------------------------------------------------------------------------------

    def _make_room(self, entry: Entry) -> bool:
        dropped: list[Entry] = []
        while (
            is_full := self._bytes + entry.size > self._bytes_max or len(self._entries) >= self._records_max
        ) and self._goes_before(entry):
            dropped.append(self._forget_first_to_go())
        if dropped:
            self._drop(dropped)
        return not is_full

    def _goes_before(self, entry: Entry) -> bool:
        """Whether one of the records can go for a new one: no boot record does for one of another kind."""
        is_boot = entry.kind is RecordKind.BOOT
        return any(is_boot or one.kind is not RecordKind.BOOT for one in self._entries)

    def _drop(self, entries: list[Entry]) -> None:
        self._gone_through = max(self._gone_through, entries[-1].number)
        self._count(entries, LossPlace.SPOOL)
        for entry in entries:
            _remove(self._directory / entry.name)
        if not self._ledger_saved:
            self._save_ledger()  # there was no room for it; now there may be

    def _give_up(self, place: int, where: LossPlace, *, name: str) -> None:
        """Count a record as lost, then keep its file for people.

        The ledger covers all files up to a number, so what is older goes behind the others before.
        """
        while place and self._put_first_last():
            place -= 1
        entry = self._forget(place)
        path = self._directory / entry.name
        if not place:
            self._gone_through = max(self._gone_through, entry.number)
        self._count([entry], where)
        self._keep_aside(lambda folder: path.replace(folder / name))
        _remove(path)

    def _put_first_last(self) -> bool:
        first = self._entries[0]
        last = structs.replace(first, number=self._number)
        if first in self._held:
            self._held[last] = self._held.pop(first)
        else:
            try:
                (self._directory / first.name).replace(self._directory / last.name)
            except OSError:
                return False  # it stays the first: whatever is wrong with the disk, the record is still there
        self._number += 1
        self._entries.rotate(-1)
        self._entries[-1] = last
        return True

    def _count(self, entries: list[Entry], where: LossPlace) -> None:
        for entry in entries:
            self._ledger.count(where, batch_id=entry.batch_id, kind=entry.kind, events=entry.events)
        self._save_ledger()

    def _forget_first_to_go(self) -> Entry:
        return self._forget(first_to_go(entry.kind for entry in self._entries))

    def _forget(self, at: int) -> Entry:
        entry = self._entries[at]
        del self._entries[at]
        self._bytes -= entry.size
        self._held.pop(entry, None)
        return entry

    # -- files ----------------------------------------------------------------------------------------------

    def _save_ledger(self) -> None:
        data = encode_ledger(self._ledger, gone_through=self._gone_through, unknown=self._unknown_losses)
        self._ledger_saved = self._write(LEDGER_NAME, data) is None

    def _without_gone(self, entries: list[Entry]) -> Iterator[Entry]:
        """Remove the files that are counted already: the process was killed before it could."""
        for entry in entries:
            if entry.number <= self._gone_through and entry.kind is not RecordKind.BOOT:
                _remove(self._directory / entry.name)
            else:
                yield entry

    def _write_held(self) -> None:
        for entry, record in list(self._held.items()):
            if self._write(entry.name, encode_record(record)) is not None:
                return
            del self._held[entry]

    def _write(self, name: str, data: bytes) -> int | None:
        """Write a file whole or not at all; return the error number of what prevented it."""
        temporary = self._directory / f"{name}.tmp"
        try:
            try:
                self._renew_lock()
                self._write_file(temporary, data)
            except FileNotFoundError:  # somebody removed the folder, or all of the run
                self._directory.parent.mkdir(exist_ok=True)  # nothing above: who removed that meant it
                self._directory.mkdir(exist_ok=True)
                self._renew_lock()
                self._write_file(temporary, data)
            temporary.replace(self._directory / name)
        except OSError as error:
            _remove(temporary)
            return error.errno or errno.EIO
        return None

    def _renew_lock(self) -> None:
        if self._lock is not None:
            self._lock.renew()

    def _keep_aside(self, keep: Callable[[Path], object]) -> None:
        folder = self._directory / SET_ASIDE_FOLDER
        try:
            self._renew_lock()
            folder.mkdir(exist_ok=True)
            keep(folder)
            _trim(folder, bytes_max=self._set_aside_bytes_max)
        except OSError:
            return  # it is counted; a full disk must not cost more than this


def _listed(directory: Path) -> list[Entry]:
    """The records of an earlier boot, oldest first; unfinished files are removed."""
    entries: list[Entry] = []
    for item in os.scandir(directory):
        if item.name.endswith(".tmp"):
            _remove(Path(item.path))
        elif (entry := Entry.of(item)) is not None:
            entries.append(entry)
    return sorted(entries, key=lambda entry: entry.number)


def _trim(folder: Path, *, bytes_max: int) -> None:
    """Remove the oldest of what is set aside, whatever is too many or too much."""
    found = [(path.stat(), path) for path in folder.iterdir()]
    found.sort(key=lambda one: (one[0].st_mtime_ns, one[1].name), reverse=True)
    size = 0
    for at, (stat, path) in enumerate(found):
        size += stat.st_size
        if at >= 2 * SET_ASIDE_MAX or size > bytes_max:
            _remove(path)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        if error.errno in _NO_MEANS:
            raise
        return None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # read-only or vanished folder: what cannot be removed cannot be helped here
