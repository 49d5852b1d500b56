"""A copy of a collector's folder that holds every record that can be used, and beside them what cannot.

Owns: what goes where in the copy. The original is only read. Not here: finding out what can be used
(``run_facts``), the copy's place (``swactor_diag.cli``).

    <run>/@log/..., <run>/<node>/...   the usable records, each once, with the times of their receipt
    <run>/@aside/NNNNNN                bytes that are no usable record
    <run>/@aside/why.json              where each of them was, and what is wrong with it

The notes stay with the run: its manifest goes on naming what was lost.
"""

from contextlib import suppress

import msgspec
from msgspec import UNSET

from swactor_diag.collector.retention import PINS_FOLDER, TRIM_LOG
from swactor_diag.collector.run_facts import RunFacts
from swactor_diag.collector.staging import ASIDE_FOLDER, NOTES_NAME, StagedRecord, Staging
from swactor_diag.collector.storage import (
    EntryKind,
    Storage,
    StorageError,
    StorageMissingError,
    StoragePath,
    is_storage_name,
)
from swactor_diag.schema.manifest import SetAside
from swactor_diag.schema.submission import Outgoing


class Salvage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of everything that was there."""

    files: int
    """Records, or files of an archive, that are in the copy."""
    size_bytes: int
    """Of them."""
    set_aside: tuple[SetAside, ...]
    left: tuple[str, ...] = ()
    """Names at the top that belong to no run, and are not in the copy."""


def repair_staging(source: Staging, target: Staging) -> Salvage:
    """Copy what can be used from ``source`` into ``target``, which is empty.

    Raises:
        StorageError: the one cannot be read or the other not written; the copy is not whole.
    """
    files = size_bytes = 0
    aside: list[SetAside] = []
    runs = source.run_ids()
    for run_id in runs:
        facts = RunFacts(source, source.list(run_id))
        for node in facts.nodes:
            for record in node.records:
                _copy_record(run_id, record, source, target)
                files += 1
                size_bytes += record.body_bytes
        target.close_segment(run_id)
        aside += _keep(run_id, facts.set_aside, source, target.storage)
    own = _copy_own(source.storage, target.storage)
    left = {entry.name for entry in source.storage.list()} - own - set(runs)
    return Salvage(files=files, size_bytes=size_bytes, set_aside=tuple(aside), left=tuple(sorted(left)))


def _copy_record(run_id: str, record: StagedRecord, source: Staging, target: Staging) -> None:
    body = source.read(record)
    if isinstance(body, SetAside):
        raise StorageError(f"{body.path} has changed: {body.reason}")
    if record.recv_ms is None or record.checksum is None:
        target.storage.write(record.path, body)  # a file of its own: only its name says what it is
        return
    copied = Outgoing(
        kind=record.kind, run_id=run_id, node_id=record.node_id, batch_id=record.batch_id, body=body
    )
    target.append(copied, recv_ms=record.recv_ms)


def _keep(run_id: str, aside: tuple[SetAside, ...], source: Staging, target: Storage) -> list[SetAside]:
    """Keep the bytes of what cannot be used, and the notes; return the new ones."""
    folder = (run_id, ASIDE_FOLDER)
    for path, size in source.list(run_id).aside:
        if path[-1] != NOTES_NAME:
            _copy(source.storage, path, size=size, target=target)
    taken = {entry.name for entry in target.list(folder)}
    names = (name for number in range(1, 10**6) if (name := f"{number:06d}") not in taken)
    notes = [one for one in aside if one.kept_as is not UNSET]
    new = []
    for one in aside:
        if one.kept_as is UNSET:
            kept_as = _keep_bytes(one, source.storage, target, path=(*folder, next(names)))
            new.append(msgspec.structs.replace(one, kept_as=kept_as))
    if notes or new:
        text = msgspec.json.format(msgspec.json.encode([*notes, *new]), indent=2)
        target.write((*folder, NOTES_NAME), text)
    return new


def _keep_bytes(one: SetAside, source: Storage, target: Storage, *, path: StoragePath) -> str | None:
    """Return where the bytes are now; None when they have to stay where they were."""
    found = tuple(one.path.split("/"))
    sizes = {
        entry.name: entry.size_bytes for entry in source.list(found[:-1]) if entry.kind is EntryKind.FILE
    }
    if found[-1] not in sizes or not all(is_storage_name(part) for part in found):
        return None  # a folder, a link, or a name that no storage would give
    start = 0 if one.from_byte is UNSET else one.from_byte
    stop = sizes[found[-1]] if one.to_byte is UNSET else min(one.to_byte, sizes[found[-1]])
    target.write(path, source.stream(found, start, stop))
    return "/".join(path)


def _copy_own(source: Storage, target: Storage) -> set[str]:
    """Copy what a collector knows of its runs beside their records, and return what that is called."""
    for entry in source.list((PINS_FOLDER,)):
        if entry.kind is EntryKind.FILE and is_storage_name(entry.name):
            _copy(source, (PINS_FOLDER, entry.name), size=entry.size_bytes, target=target)
    with suppress(StorageMissingError):  # nothing was ever trimmed
        target.write(TRIM_LOG, source.read(TRIM_LOG))
    return {PINS_FOLDER, *TRIM_LOG}


def _copy(source: Storage, path: StoragePath, *, size: int, target: Storage) -> None:
    target.write(path, source.stream(path, 0, size))
