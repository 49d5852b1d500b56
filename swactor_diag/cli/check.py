"""Whether a bundle, or the folder of a collector, is what it says it is.

Owns: comparing an archive with its manifest, and looking at every record of a folder. Nothing is changed.
Not here: making a copy without what is wrong (``repair``).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from swactor_diag.cli.console import CommandError, Exit
from swactor_diag.collector.run_facts import RunFacts
from swactor_diag.collector.staging import Staging, check_json
from swactor_diag.collector.storage import LocalStorage, StorageError
from swactor_diag.postproc.archive import ArchiveReader, Member
from swactor_diag.schema.manifest import Manifest, ManifestFile, SetAside

MANIFEST = "MANIFEST.json"
EXTRA_FOLDER = "sim"


class ArchiveCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a bundle."""

    top: str
    """The folder that everything is below."""
    manifest: Manifest | None
    """None when it is missing or damaged."""
    sound: tuple[ManifestFile, ...]
    """The files that can be used, in their order."""
    wrong: tuple[SetAside, ...]

    @property
    def earlier(self) -> int:
        """How many things the collector, or a repair, had to leave out when it was made."""
        return 0 if self.manifest is None else len(self.manifest.set_aside or ())


class FolderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the folder of a collector."""

    wrong: tuple[SetAside, ...]
    earlier: int
    """How many things an earlier repair has set aside."""


def check_archive(file: Path) -> ArchiveCheck:
    """Read a bundle and compare it with its manifest.

    Raises:
        CommandError: it cannot be read, or is no bundle at all.
    """
    reading = _Reading()
    try:
        with file.open("rb") as source:
            reader = ArchiveReader(source)
            for member in reader:
                reading.take(member)
    except OSError as exc:
        raise CommandError(f"cannot read {file}: {exc.strerror or exc}", status=Exit.WRONG_INPUT) from exc
    reading.wrong += [SetAside(path=problem.where, reason=problem.reason) for problem in reader.problems]
    if reading.top is None and not reading.wrong:
        raise CommandError(f"{file} is not a bundle: it holds no run", status=Exit.WRONG_INPUT)
    return reading.finish()


class _Found(msgspec.Struct, frozen=True):
    """One file as it is in the archive. ``fault`` is why its bytes are no record."""

    size_bytes: int
    sha256: str
    fault: str | None


class _Reading:
    """The members of an archive so far."""

    def __init__(self) -> None:
        self.top: str | None = None
        self.manifest: Manifest | None = None
        self.wrong: list[SetAside] = []
        self._found: dict[str, _Found] = {}
        self._has_manifest = False

    def take(self, member: Member) -> None:
        top, *below = member.path
        self.top = self.top or top
        path = "/".join(below)
        if top != self.top or not below:
            self._note("/".join(member.path), "outside of the run's folder")
        elif path in self._found or (path == MANIFEST and self._has_manifest):
            self._note(path, "a second file of this name")
        elif path == MANIFEST:
            self._has_manifest = True
            try:
                self.manifest = msgspec.json.decode(member.data, type=Manifest)
            except (msgspec.MsgspecError, RecursionError) as exc:
                self._note(MANIFEST, f"damaged: {exc}")
        else:
            digest = hashlib.sha256(member.data).hexdigest()
            self._found[path] = _Found(len(member.data), digest, self._fault(below, member.data))

    def finish(self) -> ArchiveCheck:
        if not self._has_manifest:
            self._note(MANIFEST, "missing")
        listed = () if self.manifest is None else self.manifest.files or ()
        sound = tuple(self._compared(listed) if listed else self._unlisted())
        return ArchiveCheck(top=self.top or "", manifest=self.manifest, sound=sound, wrong=tuple(self.wrong))

    def _compared(self, listed: tuple[ManifestFile, ...]) -> Iterator[ManifestFile]:
        for file in listed:
            found = self._found.pop(file.path, None)
            if found is None:
                self._note(file.path, "missing")
            elif (found.size_bytes, found.sha256) != (file.size_bytes, file.sha256):
                self._note(file.path, "not the bytes that the manifest names")
            else:
                yield file
        for path in self._found:
            self._note(path, "not in the manifest")

    def _unlisted(self) -> Iterator[ManifestFile]:
        """Bundles of the original list no files, nor does one without its manifest: JSON has to do."""
        for path, found in self._found.items():
            if found.fault is None:
                yield ManifestFile(path=path, size_bytes=found.size_bytes, sha256=found.sha256)
            else:
                self._note(path, found.fault)

    def _fault(self, below: list[str], data: bytes) -> str | None:
        if below[0] == EXTRA_FOLDER or (self.manifest is not None and self.manifest.files):
            return None  # no record, or one that the manifest guards
        try:
            check_json(data)
        except ValueError as exc:
            return f"not JSON: {exc}"
        return None

    def _note(self, path: str, reason: str) -> None:
        self.wrong.append(SetAside(path=path, reason=reason))


def check_folder(folder: Path) -> FolderCheck:
    """Read every record below the folder of a collector.

    Raises:
        CommandError: there is no run in it, or it cannot be read.
    """
    staging = Staging(LocalStorage(folder))
    aside: list[SetAside] = []
    try:
        run_ids = staging.run_ids()
        if not run_ids:
            raise CommandError(f"no run is stored below {folder}", status=Exit.WRONG_INPUT)
        for run_id in run_ids:
            aside += RunFacts(staging, staging.list(run_id)).set_aside
    except StorageError as exc:
        raise CommandError(str(exc)) from exc
    wrong = tuple(one for one in aside if one.kept_as is UNSET)
    return FolderCheck(wrong=wrong, earlier=len(aside) - len(wrong))
