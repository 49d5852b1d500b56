"""The archive of one run, made from what is staged at this moment.

Owns: which record becomes which member, and ``MANIFEST.json``. Equal staging gives equal bytes.
Not here: what the records say together (``run_facts``), tar and gzip (``archive_stream``), archives that are
kept (``canonical``), serving (``downloads``).

A run is read twice: once to check every record and to write the manifest, which comes first in the archive,
and once to put the bytes in. So no more than one record is in memory at a time.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec import UNSET

from swactor_diag.collector.archive_stream import Member, stream_archive, with_folders
from swactor_diag.collector.run_facts import NodeFacts, RunFacts
from swactor_diag.collector.staging import StagedRecord, Staging
from swactor_diag.collector.storage import Storage, StorageError
from swactor_diag.schema.manifest import Manifest, ManifestFile, SetAside
from swactor_diag.schema.submission import RecordKind

_FOLDERS = (
    # In the order of their paths.
    (RecordKind.BOOT, "boot", "boot"),
    (RecordKind.EVENTS, "events", "events"),
    (RecordKind.FINALIZE, "finalize", "finalize"),
    (RecordKind.SNAPSHOT, "snapshots", "snapshot"),
)
_ONE_FILE = (RecordKind.BOOT, RecordKind.FINALIZE)
_SIM = "sim"


class BundleError(Exception):
    """The run cannot be made into an archive."""


class Bundle:
    """The archive of one run as it was when this was made: its contents list, and its bytes on demand."""

    def __init__(self, staging: Staging, run_id: str, *, extra: Mapping[str, bytes] | None = None) -> None:
        """Check every staged record of ``run_id``.

        ``extra`` adds files below ``sim/``: the path below the top folder, and the bytes.

        Raises:
            BundleError: nothing is staged for the run, or an extra path is not below ``sim/``.
            StorageError: the storage cannot be listed.
        """
        self._extra = _checked_extra(extra or {})
        self._staging = staging
        listing = staging.list(run_id)
        self._facts = RunFacts(staging, listing)
        if not self._facts.nodes:
            raise BundleError(f"nothing is stored for run {run_id}")
        self.state = listing.state
        self.manifest: Manifest = self._facts.manifest()
        """Without its files; they are in `files`."""
        self.unusable = sum(aside.kept_as is UNSET for aside in self._facts.set_aside)
        """How many staged things are of no use; those that a repair has dealt with do not count."""

    def files(self) -> Iterator[ManifestFile]:
        """Yield what the manifest says of each file, in archive order."""
        for path, source in self._sources():
            yield _listed(path, source)

    def stream(self) -> Iterator[bytes]:
        """Yield the archive in pieces of about 256 KiB.

        Raises:
            StorageError: a staged record cannot be read any more, so the archive cannot be finished.
        """
        return stream_archive(with_folders(self._members()))

    def _members(self) -> Iterator[Member]:
        top = self.manifest.run_id
        yield manifest_member(top, self.manifest, self.files)
        for path, source in self._sources():
            size_bytes = len(source) if isinstance(source, bytes) else source.body_bytes
            yield Member(path=f"{top}/{path}", size_bytes=size_bytes, read=lambda: [self._bytes(source)])  # noqa: B023 - it is read before the next one is made

    def _sources(self) -> Iterator[tuple[str, StagedRecord | bytes]]:
        """Yield path and contents of each file in the order of paths; numbers in the order of numbers."""
        tops: dict[str, NodeFacts | None] = {node.label: node for node in self._facts.nodes}
        if self._extra:
            tops[_SIM] = None
        for top in sorted(tops, key=lambda top: f"{top}/"):
            node = tops[top]
            if node is None:
                yield from sorted(self._extra.items())
            else:
                yield from _files_of(node)

    def _bytes(self, source: StagedRecord | bytes) -> bytes:
        if isinstance(source, bytes):
            return source
        body = self._staging.read(source)
        if isinstance(body, SetAside):
            raise StorageError(f"{body.path} has changed: {body.reason}")
        return body


def build_bundle(storage: Storage, run_id: str, *, extra: Mapping[str, bytes] | None = None) -> bytes:
    """Return the archive of ``run_id`` as one piece; see `Bundle` for the errors."""
    return b"".join(Bundle(Staging(storage), run_id, extra=extra).stream())


def manifest_member(top: str, manifest: Manifest, files: Callable[[], Iterable[ManifestFile]]) -> Member:
    """Return ``MANIFEST.json`` below the folder ``top``, with ``files``, which are asked for twice."""

    def pieces() -> Iterator[bytes]:
        # A file a line: the list may be as long as the run.
        head = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        yield head.removesuffix(b"\n}") + b',\n  "files": ['
        between = b"\n    "
        for file in files():
            yield between + msgspec.json.encode(file)
            between = b",\n    "
        yield b"\n  ]\n}\n"

    return Member(path=f"{top}/MANIFEST.json", size_bytes=sum(map(len, pieces())), read=pieces)


def _files_of(node: NodeFacts) -> Iterator[tuple[str, StagedRecord]]:
    for kind, folder, stem in _FOLDERS:
        records = node.of_kind(kind)
        if kind in _ONE_FILE and records:
            yield f"{node.label}/{folder}.json", records.pop()
        for number, record in enumerate(records, start=1):
            yield f"{node.label}/{folder}/{stem}-{number:06d}.json", record


def _listed(path: str, source: StagedRecord | bytes) -> ManifestFile:
    if isinstance(source, bytes):
        return ManifestFile(path=path, size_bytes=len(source), sha256=hashlib.sha256(source).hexdigest())
    return ManifestFile(
        path=path,
        size_bytes=source.body_bytes,
        sha256=(source.digest or b"").hex(),
        batch_id=source.batch_id,
        recv_ms=UNSET if source.recv_ms is None else source.recv_ms,
    )


def _checked_extra(extra: Mapping[str, bytes]) -> Mapping[str, bytes]:
    for path in extra:
        parts = path.split("/")
        if len(parts) < 2 or parts[0] != _SIM or not all(parts) or ".." in parts:
            raise BundleError(f"an extra file belongs below sim/, not at {path!r}")
    return extra
