"""The archive of one run, made from what is staged at this moment.

Owns: which staged file becomes which member, and ``MANIFEST.json``. Equal staging gives equal bytes.
Not here: labels (``labels``), tar and gzip (``archive_stream``), serving (``routes``).

A run is read twice: once to check every file and to write the manifest, which comes first in the archive,
and once to put the bytes in. So no more than one record is in memory at a time.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
from msgspec import UNSET

from swactor_diag.collector.archive_stream import Member, stream_archive
from swactor_diag.collector.labels import RoleFacts, assign_labels, label_order, read_role
from swactor_diag.collector.staging import BUNDLES_FOLDER, StagedFile, Staging
from swactor_diag.collector.storage import Storage
from swactor_diag.schema.boot import SCHEMA_VERSION
from swactor_diag.schema.manifest import (
    DropRow,
    Manifest,
    ManifestBoot,
    ManifestFile,
    ManifestNode,
    SetAside,
)
from swactor_diag.schema.submission import RecordKind

_FOLDERS = {
    RecordKind.BOOT: ("boot", "boot"),
    RecordKind.EVENTS: ("events", "events"),
    RecordKind.SNAPSHOT: ("snapshots", "snapshot"),
    RecordKind.FINALIZE: ("finalize", "finalize"),
}
_ONE_FILE = (RecordKind.BOOT, RecordKind.FINALIZE)


class BundleError(Exception):
    """The run cannot be made into an archive."""


class Bundle:
    """The archive of one run as it was when this was made: its contents list, and its bytes on demand."""

    def __init__(self, storage: Storage, run_id: str, *, extra: Mapping[str, bytes] | None = None) -> None:
        """Check every staged file of ``run_id``.

        ``extra`` adds files below ``sim/``: the path below the top folder, and the bytes.

        Raises:
            BundleError: nothing is staged for the run, or an extra path is not below ``sim/``.
            StorageError: the storage cannot be listed.
        """
        staging = Staging(storage)
        added = _checked_extra(extra or {})
        plan = _Plan(staging, run_id)
        listed = [*plan.listed, *(_listed(path, data) for path, data in added.items())]
        self.manifest = plan.manifest(tuple(sorted(listed, key=lambda file: file.path)))
        self._contents: dict[str, Callable[[], bytes]] = {p: _bytes_of(data) for p, data in added.items()}
        self._contents.update({path: partial(staging.read, file) for path, file in plan.paths.items()})

    def stream(self) -> Iterator[bytes]:
        """Yield the archive in pieces of about 256 KiB.

        Raises:
            StorageError: a staged file cannot be read any more.
            ValueError: a staged file changed since the bundle was made; the archive cannot be finished.
        """
        return stream_archive(self._members())

    def _members(self) -> Iterator[Member]:
        top = self.manifest.run_id
        contents = encode_manifest(self.manifest)
        yield Member(path=f"{top}/")
        yield Member(path=f"{top}/MANIFEST.json", size_bytes=len(contents), read=_bytes_of(contents))
        folders: set[str] = set()
        for file in self.manifest.files or ():
            parents = file.path.split("/")[:-1]
            for depth in range(1, len(parents) + 1):
                folder = "/".join(parents[:depth])
                if folder not in folders:
                    folders.add(folder)
                    yield Member(path=f"{top}/{folder}/")
            yield Member(
                path=f"{top}/{file.path}", size_bytes=file.size_bytes, read=self._contents[file.path]
            )


def build_bundle(storage: Storage, run_id: str, *, extra: Mapping[str, bytes] | None = None) -> bytes:
    """Return the archive of ``run_id`` as one piece; see `Bundle` for the errors."""
    return b"".join(Bundle(storage, run_id, extra=extra).stream())


def store_bundle(storage: Storage, run_id: str) -> str:
    """Build the archive of ``run_id``, keep it beside the staged runs, and return where it lies.

    It is for people who look at the collector's disk. Downloads are built from staging, so that a record
    which comes later is never missing from them.
    """
    path = (BUNDLES_FOLDER, f"{run_id}.tar.gz")
    storage.write(path, build_bundle(storage, run_id))
    return storage.location(path)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return ``MANIFEST.json`` as it stands in the archive."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def _bytes_of(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def _checked_extra(extra: Mapping[str, bytes]) -> Mapping[str, bytes]:
    for path in extra:
        parts = path.split("/")
        if len(parts) < 2 or parts[0] != "sim" or not all(parts) or ".." in parts:
            raise BundleError(f"an extra file belongs below sim/, not at {path!r}")
    return extra


def _listed(path: str, data: bytes) -> ManifestFile:
    return ManifestFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class _Plan:
    """What the first pass over the staged files of one run has found."""

    def __init__(self, staging: Staging, run_id: str) -> None:
        staged = staging.scan(run_id)
        if not staged.files:
            raise BundleError(f"nothing is stored for run {run_id}")
        self.paths: dict[str, StagedFile] = {}
        self.listed: list[ManifestFile] = []
        self._run_id = run_id
        self._aside: list[SetAside] = list(staged.set_aside)
        self._good: dict[str, list[StagedFile]] = {file.node_id: [] for file in staged.files}
        self._hashes: dict[StagedFile, tuple[int, str]] = {}
        self._roles: dict[str, RoleFacts] = {}
        self._drops: dict[tuple[str, str | None], object] = {}
        self._last_snapshots: dict[tuple[str, str | None], bytes] = {}
        self._reason: str | None = None
        for file in staged.files:
            self._check(staging, file)
        self._read_drops()
        facts = {node_id: self._roles.get(node_id, RoleFacts()) for node_id in self._good}
        self._labels = assign_labels(facts)
        for node_id in self._good:
            self._place(node_id)

    def _check(self, staging: Staging, file: StagedFile) -> None:
        body = staging.read_whole(file)
        if isinstance(body, SetAside):
            self._aside.append(body)
            return
        self._good[file.node_id].append(file)
        self._hashes[file] = (len(body), hashlib.sha256(body).hexdigest())
        if file.kind is RecordKind.BOOT:
            self._roles[file.node_id] = read_role(msgspec.json.decode(body))
        elif file.kind is RecordKind.SNAPSHOT:
            self._last_snapshots[file.node_id, file.boot_id] = body
        elif file.kind is RecordKind.FINALIZE:
            reason = _dig(msgspec.json.decode(body), "reason")
            self._reason = reason if isinstance(reason, str) else self._reason

    def _read_drops(self) -> None:
        """The ledger of a boot is in each of its snapshots; the last one has it all."""
        for boot, body in self._last_snapshots.items():
            delivery = _dig(msgspec.json.decode(body), "body", "delivery")
            if isinstance(delivery, dict):
                self._drops[boot] = delivery.get("drops")

    def _place(self, node_id: str) -> None:
        label = self._labels[node_id]
        for kind, (folder, stem) in _FOLDERS.items():
            files = [file for file in self._good[node_id] if file.kind is kind]
            if kind in _ONE_FILE and files:
                self._add(f"{label}/{folder}.json", files.pop())
            for number, file in enumerate(files, start=1):
                self._add(f"{label}/{folder}/{stem}-{number:06d}.json", file)

    def _add(self, path: str, file: StagedFile) -> None:
        size_bytes, digest = self._hashes[file]
        self.paths[path] = file
        self.listed.append(
            ManifestFile(
                path=path,
                size_bytes=size_bytes,
                sha256=digest,
                batch_id=file.batch_id,
                recv_ms=UNSET if file.recv_ms is None else file.recv_ms,
            )
        )

    def manifest(self, files: tuple[ManifestFile, ...]) -> Manifest:
        """Return the contents list, with ``files`` as they are in the archive."""
        received = [file.recv_ms for good in self._good.values() for file in good if file.recv_ms is not None]
        end = max(received, default=None)
        nodes = [self._node(node_id, end) for node_id in self._good]
        return Manifest(
            run_id=self._run_id,
            run_start_collector_ms=min(received, default=None),
            run_end_collector_ms=end,
            finalize_received=any(node.finalize_recorded for node in nodes),
            nodes=tuple(sorted(nodes, key=lambda node: (label_order(node.label), node.node_id_hex))),
            schema_version=SCHEMA_VERSION,
            finalize_reason=UNSET if self._reason is None else self._reason,
            files=files,
            # Nobody reported on deliveries: that is unknown, not zero.
            drops=self._drop_rows() if self._drops else UNSET,
            set_aside=tuple(sorted(self._aside, key=lambda aside: aside.path)),
        )

    def _node(self, node_id: str, run_end_ms: int | None) -> ManifestNode:
        files = self._good[node_id]
        facts = self._roles.get(node_id, RoleFacts())
        received = [file.recv_ms for file in files if file.recv_ms is not None]
        silent = UNSET if run_end_ms is None or not received else run_end_ms - max(received)
        return ManifestNode(
            node_id_hex=node_id,
            label=self._labels[node_id],
            role=facts.role,
            stage_index=facts.stage_index,
            boot_recorded=_count(files, RecordKind.BOOT) > 0,
            event_batches=_count(files, RecordKind.EVENTS),
            snapshots=_count(files, RecordKind.SNAPSHOT),
            finalize_recorded=_count(files, RecordKind.FINALIZE) > 0,
            first_record_at_ms=min(received, default=UNSET),
            last_record_at_ms=max(received, default=UNSET),
            silent_ms=silent,
            boots=_boots(files),
        )

    def _drop_rows(self) -> tuple[DropRow, ...]:
        """One row for each node, boot, place and kind. A later boot may repeat what an earlier one said."""
        rows: dict[tuple[str, str | None, str, str], DropRow] = {}
        for (node_id, reporter), drops in self._drops.items():
            for drop in drops if isinstance(drops, list) else []:
                row = _drop_row(node_id, reporter, drop)
                if row is None:
                    continue
                key = (node_id, row.boot_id, row.where, row.what)
                if key not in rows or rows[key].count < row.count:
                    rows[key] = row
        return tuple(rows.values())


def _drop_row(node_id: str, reporter: str | None, drop: object) -> DropRow | None:
    where, what, count, events, boot_id = (
        _dig(drop, key) for key in ("where", "what", "count", "events", "boot_id")
    )
    if not (isinstance(where, str) and isinstance(what, str) and isinstance(count, int)):
        return None
    return DropRow(
        node_id_hex=node_id,
        boot_id=boot_id if isinstance(boot_id, str) else reporter,
        where=where,
        what=what,
        count=count,
        events=events if isinstance(events, int) else UNSET,
    )


def _boots(files: list[StagedFile]) -> tuple[ManifestBoot, ...]:
    by_boot: dict[str, list[StagedFile]] = {}
    for file in files:
        if file.boot_id is not None and file.recv_ms is not None:
            by_boot.setdefault(file.boot_id, []).append(file)
    return tuple(
        ManifestBoot(
            boot_id=boot_id,
            first_record_at_ms=min(file.recv_ms or 0 for file in mine),
            last_record_at_ms=max(file.recv_ms or 0 for file in mine),
            event_batches=_count(mine, RecordKind.EVENTS),
            snapshots=_count(mine, RecordKind.SNAPSHOT),
            batches_missing=_missing(mine),
        )
        for boot_id, mine in by_boot.items()
    )


def _missing(files: list[StagedFile]) -> int:
    """Return how many numbers are left out below the highest of each kind."""
    missing = 0
    for kind in RecordKind:
        numbers = {file.number for file in files if file.kind is kind and file.number is not None}
        missing += max(numbers, default=0) - len(numbers)
    return max(missing, 0)


def _count(files: list[StagedFile], kind: RecordKind) -> int:
    return sum(1 for file in files if file.kind is kind)


def _dig(value: object, *keys: str) -> object:
    """Return what lies below ``keys``, or None as soon as there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
