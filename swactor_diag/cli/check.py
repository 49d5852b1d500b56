"""Whether a bundle, or the folder of a collector, is what it says it is.

Owns: comparing an archive with its manifest, and looking at every record of a folder. Nothing is changed.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from swactor_diag.cli.console import CommandError, Exit
from swactor_diag.collector.bundle import Bundle, BundleError
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage, StorageError
from swactor_diag.postproc.archive import ArchiveReader
from swactor_diag.schema.manifest import Manifest, ManifestFile


def check_archive(file: Path) -> Iterator[str]:
    """Yield what is wrong with the bundle in ``file``, a line each.

    Raises:
        CommandError: it cannot be read, or has no manifest.
    """
    found: dict[str, tuple[int, str]] = {}
    manifest: Manifest | None = None
    try:
        with file.open("rb") as source:
            reader = ArchiveReader(source)
            for member in reader:
                path = "/".join(member.path[1:])
                if path == "MANIFEST.json":
                    manifest = msgspec.json.decode(member.data, type=Manifest)
                else:
                    found[path] = (len(member.data), hashlib.sha256(member.data).hexdigest())
    except OSError as exc:
        raise CommandError(f"cannot read {file}: {exc.strerror or exc}", status=Exit.WRONG_INPUT) from exc
    except msgspec.MsgspecError as exc:
        raise CommandError(f"the manifest of {file} is damaged: {exc}", status=Exit.INCOMPLETE) from exc
    if manifest is None:
        raise CommandError(f"{file} has no manifest that could be read", status=Exit.INCOMPLETE)
    yield from (f"{problem.where}: {problem.reason}" for problem in reader.problems)
    yield from _compare(manifest.files or (), found)


def _compare(files: tuple[ManifestFile, ...], found: dict[str, tuple[int, str]]) -> Iterator[str]:
    listed = {file.path: (file.size_bytes, file.sha256) for file in files}
    for path, facts in listed.items():
        if path not in found:
            yield f"{path}: missing"
        elif found[path] != facts:
            yield f"{path}: not the bytes that the manifest names"
    # Bundles of the original list no files at all, so there is nothing to be left out of.
    yield from (f"{path}: not in the manifest" for path in found if listed and path not in listed)


def check_folder(folder: Path) -> Iterator[str]:
    """Yield what cannot be used in the folder of a collector, a line each; every record is read.

    Raises:
        CommandError: there is no run in it.
    """
    staging = Staging(LocalStorage(folder))
    try:
        run_ids = staging.run_ids()
        if not run_ids:
            raise CommandError(f"no run is stored below {folder}", status=Exit.WRONG_INPUT)
        for run_id in run_ids:
            try:
                manifest = Bundle(staging, run_id).manifest
            except BundleError:
                continue
            yield from (f"{aside.path}: {aside.reason}" for aside in manifest.set_aside or ())
    except StorageError as exc:
        raise CommandError(str(exc)) from exc
