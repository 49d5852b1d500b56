"""A bundle as values: its manifest, and per node what was recorded, in order.

Owns: which member is what, joining folders with the manifest, the order of records within a node, and the
list of everything that is missing or could not be read. Never raises for what a bundle holds.
Not here: the archive format (``archive``), decoding one record (``swactor_diag.schema.reading``).

Within a node order is by process start, then by sequence number: wall clocks may jump.
"""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, UnsetType

from swactor_diag.postproc.archive import ArchiveReader, Member, Problem, ProblemKind
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.manifest import Manifest, ManifestNode
from swactor_diag.schema.reading import (
    Record,
    RecordError,
    Snapshot,
    read_batch,
    read_identity,
    read_snapshot,
)

_MANIFEST = "MANIFEST.json"
_EXTRA_FOLDER = "sim"


class Node(Struct, frozen=True, kw_only=True):
    """One node of a run. ``listed`` is its entry in the manifest, None when only its folder is there."""

    label: str
    node_id: str | None
    listed: ManifestNode | None = None
    identities: tuple[Identity, ...] = ()
    records: tuple[Record, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    finalized: bool = False

    @property
    def identity(self) -> Identity | None:
        """Its latest boot record."""
        return self.identities[-1] if self.identities else None

    @property
    def last_seen_ms(self) -> int | None:
        """The wall time of its last event or snapshot, by its own clock."""
        times = [*(r.wall_ms for r in self.records[-1:]), *(s.wall_ms for s in self.snapshots[-1:])]
        return max(times, default=None)


class Run(Struct, frozen=True, kw_only=True):
    """One bundle. ``nodes`` are those of the manifest in its order, then folders that it does not list."""

    run_id: str
    manifest: Manifest | None
    nodes: tuple[Node, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def incomplete(self) -> bool:
        """Whether the archive itself is cut off or damaged."""
        cut = {ProblemKind.TRUNCATED, ProblemKind.DAMAGED}
        return any(problem.kind in cut for problem in self.problems)

    def label_of(self, node_id: str) -> str:
        """Return what the bundle calls ``node_id``; the short id when it knows no such node."""
        wanted = node_id.lower()
        for node in self.nodes:
            if node.node_id is not None and node.node_id.lower() == wanted:
                return node.label
        return f"node-{wanted[:8]}"

    def node_of(self, node_id: str) -> Node | None:
        """Return the node with that id."""
        wanted = node_id.lower()
        return next((n for n in self.nodes if n.node_id is not None and n.node_id.lower() == wanted), None)


def load_run(source: Path | bytes) -> Run:
    """Read the bundle at ``source``, or the bundle that ``source`` is.

    Raises:
        OSError: the file cannot be opened or read.
    """
    if isinstance(source, bytes):
        return _load(ArchiveReader(io.BytesIO(source)))
    with source.open("rb") as file:
        return _load(ArchiveReader(file))


def _load(archive: ArchiveReader) -> Run:
    reading = _Reading()
    for member in archive:
        reading.take(member)
    return reading.finish(archive.problems)


class _Folder:
    """What the members of one node's folder hold."""

    def __init__(self) -> None:
        self.identities: list[Identity] = []
        self.batches: list[tuple[str, tuple[Record, ...]]] = []
        self.snapshots: list[Snapshot] = []
        self.finalized = False


class _Reading:
    """The members so far."""

    def __init__(self) -> None:
        self.manifest: Manifest | None = None
        self.folders: dict[str, _Folder] = {}
        self.problems: list[Problem] = []
        self._top: str | None = None
        self._hashes: dict[str, str] = {}

    def take(self, member: Member) -> None:
        """Take the next member in archive order."""
        top, *below = member.path
        self._top = self._top if self._top is not None else top
        if top != self._top or not below:
            self._note(ProblemKind.SKIPPED, "/".join(member.path), "outside of the run's folder")
            return
        path = "/".join(below)
        self._hashes[path] = hashlib.sha256(member.data).hexdigest()
        if below == [_MANIFEST]:
            self._take_manifest(member.data)
        elif below[0] != _EXTRA_FOLDER and len(below) in {2, 3}:
            try:
                self._take_file(self.folders.setdefault(below[0], _Folder()), below, member.data)
            except (RecordError, RecursionError) as exc:
                self._note(ProblemKind.UNREADABLE, path, str(exc))

    def _take_manifest(self, data: bytes) -> None:
        try:
            self.manifest = msgspec.json.decode(data, type=Manifest)
        except (msgspec.MsgspecError, RecursionError) as exc:
            self._note(ProblemKind.UNREADABLE, _MANIFEST, str(exc))

    def _take_file(self, folder: _Folder, below: list[str], data: bytes) -> None:
        path = "/".join(below)
        match below[1:]:
            case ["boot.json"] | ["boot", _]:
                folder.identities.append(read_identity(data))
            case ["finalize.json"] | ["finalize", _]:
                folder.finalized = True
            case ["events", _]:
                batch = read_batch(data)
                folder.batches.append((path, batch.records))
                for problem in batch.problems:
                    self._note(ProblemKind.UNREADABLE, f"{path} {problem.where}", problem.message)
            case ["snapshots", _]:
                snapshot = read_snapshot(data)
                folder.snapshots.append(snapshot)
                for problem in snapshot.problems:
                    self._note(ProblemKind.UNREADABLE, f"{path} {problem.where}", problem.message)
            case _:
                self._note(ProblemKind.SKIPPED, path, "not a file that this version knows")

    def finish(self, archive_problems: list[Problem]) -> Run:
        """Return the run that the members make."""
        run_id = self.manifest.run_id if self.manifest is not None else self._top or "?"
        if self.manifest is None:
            self._note(
                ProblemKind.MISSING, _MANIFEST, "no readable contents list: nodes are known by folder only"
            )
        self.problems += self._check_contents()
        nodes = tuple(self._nodes())
        for node in nodes:
            if not node.identities:
                self._note(ProblemKind.MISSING, f"{node.label}/boot.json", "no boot record of this node")
        return Run(
            run_id=run_id,
            manifest=self.manifest,
            nodes=nodes,
            problems=(*archive_problems, *self.problems),
        )

    def _check_contents(self) -> Iterator[Problem]:
        listed = () if self.manifest is None else self.manifest.files or ()
        for file in listed:
            found = self._hashes.get(file.path)
            if found is None:
                yield Problem(ProblemKind.MISSING, file.path, "listed in the manifest, not in the archive")
            elif found != file.sha256:
                yield Problem(
                    ProblemKind.DAMAGED, file.path, "its bytes are not those that the manifest lists"
                )

    def _nodes(self) -> Iterator[Node]:
        listed = () if self.manifest is None else self.manifest.nodes
        boots = self._boot_of_path()
        for entry in listed:
            folder = self.folders.get(entry.label, _Folder())
            yield _node(entry.label, folder, entry=entry, boots=boots)
        known = {entry.label for entry in listed}
        for label in sorted(self.folders.keys() - known):
            if self.manifest is not None:
                self._note(ProblemKind.MISSING, label, "this folder is not listed in the manifest")
            yield _node(label, self.folders[label], entry=None, boots=boots)

    def _boot_of_path(self) -> dict[str, str]:
        files = () if self.manifest is None else self.manifest.files or ()
        return {
            file.path: file.batch_id.rsplit("-", 2)[0] for file in files if isinstance(file.batch_id, str)
        }

    def _note(self, kind: ProblemKind, where: str, reason: str) -> None:
        self.problems.append(Problem(kind=kind, where=where, reason=reason))


def _node(label: str, folder: _Folder, *, entry: ManifestNode | None, boots: dict[str, str]) -> Node:
    identities = sorted(folder.identities, key=lambda one: (one.process_start_unix_ms, one.boot_sequence))
    order = _boot_order(entry, identities)
    records = sorted(
        (
            (order.get(boots.get(path, ""), 0), record.monotonic_seq, index, record)
            for index, (path, batch) in enumerate(folder.batches)
            for record in batch
        ),
        key=lambda item: item[:3],
    )
    snapshots = sorted(
        folder.snapshots, key=lambda one: (one.identity.process_start_unix_ms, one.monotonic_seq, one.wall_ms)
    )
    return Node(
        label=label,
        node_id=entry.node_id_hex if entry is not None else _seen_id(identities, folder),
        listed=entry,
        identities=tuple(identities),
        records=tuple(record for *_, record in records),
        snapshots=tuple(snapshots),
        finalized=folder.finalized,
    )


def _boot_order(entry: ManifestNode | None, identities: list[Identity]) -> dict[str, int]:
    """Return the rank of every boot id: by process start where a boot record says it, else as received."""
    ids = [one.boot_id for one in identities if one.boot_id is not None]
    if entry is not None and not isinstance(entry.boots, UnsetType):
        ids += [boot.boot_id for boot in entry.boots if boot.boot_id not in ids]
    return {boot_id: rank for rank, boot_id in enumerate(ids)}


def _seen_id(identities: list[Identity], folder: _Folder) -> str | None:
    if identities:
        return identities[-1].node_id_hex
    if folder.snapshots:
        return folder.snapshots[-1].identity.node_id_hex
    return next((batch[0].node_id for _, batch in folder.batches if batch), None)
