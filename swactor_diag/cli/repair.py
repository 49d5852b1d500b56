"""A copy of a bundle, or of a collector's folder, without what is wrong with it.

Owns: the copy of a bundle with a manifest that is true again, where a copy lies, and that it is there whole
or not at all. The original is never changed. Not here: what is wrong (``check``), the copy of a folder
(``swactor_diag.collector.repair``).
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

import msgspec
from msgspec import UNSET

from swactor_diag.cli.check import ArchiveCheck, FolderCheck
from swactor_diag.cli.console import CommandError, Exit, write_pieces
from swactor_diag.collector.archive_stream import Member, stream_archive, with_folders
from swactor_diag.collector.bundle import manifest_member
from swactor_diag.collector.labels import label_order, read_role
from swactor_diag.collector.repair import Salvage, repair_staging
from swactor_diag.collector.run_facts import NodeFacts, manifest_node
from swactor_diag.collector.staging import StagedRecord, Staging, read_json
from swactor_diag.collector.storage import LocalStorage, StorageError
from swactor_diag.postproc.archive import ArchiveReader
from swactor_diag.schema.boot import SCHEMA_VERSION
from swactor_diag.schema.ids import read_node_id
from swactor_diag.schema.manifest import Manifest, ManifestFile, ManifestNode
from swactor_diag.schema.submission import RecordKind

_SUFFIX = ".tar.gz"
_RECORD = re.compile(
    r"(?P<label>[^/]+)/(?P<kind>boot|events|snapshot|finalize)s?(?:/[a-z]+-(?P<number>[0-9]+))?\.json"
)


def copy_name(original: Path) -> Path:
    """Return where the copy of ``original`` lies when nobody says: beside it."""
    beside = original.resolve()
    if beside.name.endswith(_SUFFIX):
        return beside.with_name(f"{beside.name.removesuffix(_SUFFIX)}.repaired{_SUFFIX}")
    return beside.with_name(f"{beside.name}.repaired")


def repair(original: Path, check: ArchiveCheck | FolderCheck, target: Path) -> Salvage:
    """Write a copy of ``original``, of which ``check`` was found, and return what became of its contents.

    Of a folder the copy keeps the bytes that cannot be used, apart; of a bundle it names what is left out.

    Raises:
        CommandError: there is something at ``target`` already, nothing can be saved, or the copy cannot be
            made; no part of one is left then.
    """
    if target.exists():
        raise CommandError(f"there is a {target} already: say -o", status=Exit.WRONG_INPUT)
    if isinstance(check, FolderCheck):
        return _repair_folder(original, target)
    return _repair_archive(original, check, target)


def _repair_folder(folder: Path, target: Path) -> Salvage:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        try:
            copy = LocalStorage(unfinished)
            salvage = repair_staging(Staging(LocalStorage(folder)), Staging(copy))
            copy.close()
            _settle(unfinished, like=folder)
            unfinished.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except StorageError as exc:
        raise CommandError(str(exc)) from exc
    except OSError as exc:
        raise CommandError(f"cannot write {target}: {exc.strerror or exc}") from exc
    return salvage


def _settle(copy: Path, *, like: Path) -> None:
    """Give the copy to whoever owns the original, with the mode of it, and let it survive a power loss."""
    original = like.stat()
    for path in (*copy.rglob("*"), copy):
        with suppress(PermissionError):  # nobody but root may give files away
            os.chown(path, original.st_uid, original.st_gid)
        _sync(path)
    copy.chmod(S_IMODE(original.st_mode))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _repair_archive(file: Path, check: ArchiveCheck, target: Path) -> Salvage:
    if not check.sound:
        raise CommandError(f"nothing in {file} can be saved", status=Exit.INCOMPLETE)
    try:
        manifest = _manifest(check, nodes=tuple(_nodes(file, check)))
        members = with_folders(_members(file, check, manifest))
        write_pieces(target, stream_archive(members))
    except StorageError as exc:
        raise CommandError(f"{file} changed while it was read: {exc}") from exc
    except OSError as exc:
        raise CommandError(f"cannot read {file}: {exc.strerror or exc}") from exc
    size_bytes = sum(one.size_bytes for one in check.sound)
    return Salvage(files=len(check.sound), size_bytes=size_bytes, set_aside=check.wrong)


def _members(file: Path, check: ArchiveCheck, manifest: Manifest) -> Iterator[Member]:
    yield manifest_member(check.top, manifest, lambda: check.sound)
    for path, data in _sound_files(file, check):
        yield Member(path=f"{check.top}/{path}", size_bytes=len(data), read=lambda: [data])  # noqa: B023 - it is read before the next one is made


def _sound_files(file: Path, check: ArchiveCheck) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of each sound file; of two with one name the first, as the check did."""
    wanted = {one.path for one in check.sound}
    with file.open("rb") as source:
        for member in ArchiveReader(source):
            path = "/".join(member.path[1:])
            if member.path[0] == check.top and path in wanted:
                wanted.remove(path)
                yield path, member.data
    if wanted:
        raise StorageError(f"{min(wanted)} is gone")


def _manifest(check: ArchiveCheck, *, nodes: tuple[ManifestNode, ...]) -> Manifest:
    """Return the old manifest, true for the files that are left; a new one if there is none.

    What the old one says of the run as a whole stays: it was so, whatever of it can be read now.
    """
    old = check.manifest or Manifest(
        run_id=check.top,
        finalize_received=any(node.finalize_recorded for node in nodes),
        schema_version=SCHEMA_VERSION,
    )
    lost = tuple(msgspec.structs.replace(one, kept_as=None) for one in check.wrong)
    return msgspec.structs.replace(
        old,
        nodes=tuple(sorted(nodes, key=lambda node: (label_order(node.label), node.node_id_hex))),
        files=UNSET,
        set_aside=(*(old.set_aside or ()), *lost),
    )


def _nodes(file: Path, check: ArchiveCheck) -> Iterator[ManifestNode]:
    """Yield the nodes with the counts of what is left of them."""
    records: dict[str, list[StagedRecord]] = {}
    for one in check.sound:
        record = _record(one)
        if record is not None:
            records.setdefault(one.path.partition("/")[0], []).append(record)
    if check.manifest is None:
        for facts in _facts_from_records(file, check):
            facts.records = records.get(facts.label, [])
            yield manifest_node(facts, None)
        return
    for old in check.manifest.nodes:
        facts = NodeFacts(old.node_id_hex, label=old.label)
        facts.records = records.get(old.label, [])
        new = manifest_node(facts, None)
        yield msgspec.structs.replace(
            old,
            boot_recorded=new.boot_recorded,
            event_batches=new.event_batches,
            snapshots=new.snapshots,
            finalize_recorded=new.finalize_recorded,
            boots=UNSET if old.boots is UNSET else new.boots,
        )


def _record(file: ManifestFile) -> StagedRecord | None:
    """Return what path and manifest say of a record; None for a file that is none."""
    found = _RECORD.fullmatch(file.path)
    if found is None:
        return None
    return StagedRecord(
        kind=RecordKind(found["kind"]),
        node_id="",
        batch_id=found["number"] or "" if file.batch_id is UNSET else file.batch_id,
        recv_ms=None if file.recv_ms is UNSET else file.recv_ms,
        path=tuple(file.path.split("/")),
        body_at=0,
        body_bytes=file.size_bytes,
        checksum=None,
    )


def _facts_from_records(file: Path, check: ArchiveCheck) -> Iterator[NodeFacts]:
    """Yield who the folders belong to, as far as a record in them says so."""
    found: dict[str, NodeFacts] = {}
    for path, data in _sound_files(file, check):
        label = path.partition("/")[0]
        if label in found or _RECORD.fullmatch(path) is None:
            continue
        node_id, boot = _identity(read_json(data))
        if node_id is not None:
            found[label] = facts = NodeFacts(node_id, label=label)
            facts.role = read_role(boot)
    yield from found.values()


def _identity(record: object) -> tuple[str | None, object]:
    """Return which node a record says it is of, and what it says of that node's part in the run."""
    match record:
        case {"node_id_hex": node_id} as boot:
            return read_node_id(node_id), boot
        case {"identity": {"node_id_hex": node_id} as boot}:
            return read_node_id(node_id), boot
        case [{"node_id": node_id}, *_]:
            return read_node_id(node_id), None
        case _:
            return None, None
