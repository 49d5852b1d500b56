"""How the records of a run lie in a storage: one file a batch, whose name says everything but the body.

Owns: the layout ``<run>/<node>/<kind>-<batch id>@<receive time>.json``, reading it back after any restart,
and naming what is there but cannot be used. Not here: which records are accepted (see ``ingest``), the
archive (see ``bundle``).

Folders that are not runs start with ``@``, which no id can: a run called ``bundles`` collides with nothing.
Files of the original (``<kind>-<number>.json``) are read too; they have no receive time.
"""

import re
from collections.abc import Iterator

import msgspec

from swactor_diag.collector.storage import (
    Entry,
    EntryKind,
    Storage,
    StorageError,
    StorageMissingError,
    StoragePath,
)
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.schema.manifest import SetAside
from swactor_diag.schema.submission import RecordKind

BUNDLES_FOLDER = "@bundles"

_NAME = re.compile(
    r"(?P<kind>boot|events|snapshot|finalize)-(?P<batch>[A-Za-z0-9._-]{1,128})(?:@(?P<recv_ms>[0-9]{1,15}))?\.json"
)
_BATCH = re.compile(
    r"(?P<boot>[A-Za-z0-9._-]{1,128})-(?:boot|events|snapshot|finalize)-(?P<number>[0-9]{1,12})"
)


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


class StagedFile(msgspec.Struct, frozen=True):
    """One stored batch. ``recv_ms`` is None when nobody recorded it."""

    run_id: str
    node_id: str
    kind: RecordKind
    batch_id: str
    recv_ms: int | None = None
    size_bytes: int = 0

    @property
    def path(self) -> StoragePath:
        """Where the body lies."""
        received = "" if self.recv_ms is None else f"@{self.recv_ms}"
        return (self.run_id, self.node_id, f"{self.kind.value}-{self.batch_id}{received}.json")

    @property
    def boot_id(self) -> str | None:
        """Which process start made the batch; None for senders that do not say."""
        found = _BATCH.fullmatch(self.batch_id)
        return None if found is None else found["boot"]

    @property
    def number(self) -> int | None:
        """Which batch of its kind and boot this is, from 1; None for senders that do not say."""
        found = _BATCH.fullmatch(self.batch_id)
        return None if found is None else int(found["number"])

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Sorts the files of one node: as received, and those of one moment by boot and number."""
        return (self.recv_ms or 0, self.boot_id or "", self.number or 0, self.batch_id)


class StagedRun(msgspec.Struct, frozen=True):
    """Everything a storage holds of one run; ``files`` by node, then in `StagedFile.order`."""

    run_id: str
    files: tuple[StagedFile, ...] = ()
    set_aside: tuple[SetAside, ...] = ()


class Staging:
    """The runs in one storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def run_ids(self) -> tuple[str, ...]:
        """Return the runs that have a folder, sorted."""
        entries = self.storage.list()
        return tuple(e.name for e in entries if e.kind is EntryKind.FOLDER and _is_id(e.name))

    def has_run(self, run_id: str) -> bool:
        """Return whether anything of ``run_id`` is stored."""
        return _is_id(run_id) and bool(self.storage.list((run_id,)))

    def scan(self, run_id: str) -> StagedRun:
        """Return what is stored of ``run_id``, from the storage alone."""
        files: list[StagedFile] = []
        aside: list[SetAside] = []
        for entry in self.storage.list((check_id(run_id, what="run id"),)):
            if entry.kind is EntryKind.FOLDER and _is_id(entry.name):
                files += sorted(self._scan_node(run_id, entry.name, aside), key=lambda file: file.order)
            else:
                aside.append(_aside((run_id, entry.name), "not the folder of a node"))
        return StagedRun(run_id=run_id, files=tuple(files), set_aside=tuple(aside))

    def _scan_node(self, run_id: str, node_id: str, aside: list[SetAside]) -> Iterator[StagedFile]:
        for entry in self.storage.list((run_id, node_id)):
            file = _parse(run_id, node_id, entry)
            if file is None:
                aside.append(_aside((run_id, node_id, entry.name), "not a file of the collector"))
            else:
                yield file

    def write(self, file: StagedFile, body: bytes) -> None:
        """Store ``body`` whole; see `Storage.write` for the errors."""
        self.storage.write(file.path, body)

    def read(self, file: StagedFile) -> bytes:
        """Return the body; see `Storage.read` for the errors."""
        return self.storage.read(file.path)

    def read_whole(self, file: StagedFile) -> bytes | SetAside:
        """Return the body, or why it cannot be used."""
        try:
            body = self.read(file)
        except StorageMissingError:
            return _aside(file.path, "gone while it was read")
        except StorageError:
            return _aside(file.path, "cannot be read")
        try:
            check_json(body)
        except ValueError:
            return _aside(file.path, f"torn or damaged: {len(body)} bytes that are not JSON")
        return body


def _parse(run_id: str, node_id: str, entry: Entry) -> StagedFile | None:
    found = _NAME.fullmatch(entry.name)
    if found is None or entry.kind is not EntryKind.FILE:
        return None
    file = StagedFile(
        run_id=run_id,
        node_id=node_id,
        kind=RecordKind(found["kind"]),
        batch_id=found["batch"],
        recv_ms=None if found["recv_ms"] is None else int(found["recv_ms"]),
        size_bytes=entry.size_bytes,
    )
    # 007 and 7 are the same time but not the same name: only names that we would give lead back to the file.
    return file if file.path[-1] == entry.name else None


def _is_id(name: str) -> bool:
    try:
        check_id(name, what="id")
    except IdError:
        return False
    return True


def _aside(path: StoragePath, reason: str) -> SetAside:
    shown = "/".join(path).encode("utf-8", "backslashreplace").decode("utf-8")
    return SetAside(path=shown, reason=reason)
