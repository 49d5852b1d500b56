"""What is installed here, and from which commit: read from the installation itself, never from a literal.

Owns: the version of a distribution, and the git commit that it was installed from, by the record that
installers leave (PEP 610, ``direct_url.json``). Not here: which of them go into a boot record (``identity``).
"""

import importlib.metadata
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
from msgspec import Struct

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class _Vcs(Struct, frozen=True):
    commit_id: str


class _Directory(Struct, frozen=True):
    editable: bool = False


class _DirectUrl(Struct, frozen=True):
    url: str
    vcs_info: _Vcs | None = None
    dir_info: _Directory | None = None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_commit(distribution: str) -> str | None:
    """Return the git commit of an installed distribution, or None when the installation does not say.

    An installation from a git address has its commit on record. An editable one runs what is checked out, so
    that commit is it (changes that nobody has committed do not show). Any other has none: whoever builds the
    image says it by ``SWACTOR_DIAG_GIT_SHA``.
    """
    try:
        record = importlib.metadata.distribution(distribution).read_text("direct_url.json")
        origin = msgspec.json.decode(record or "", type=_DirectUrl)
    except (importlib.metadata.PackageNotFoundError, msgspec.MsgspecError, OSError):
        return None
    if origin.vcs_info is not None:
        return _checked(origin.vcs_info.commit_id)
    if origin.dir_info is not None and origin.dir_info.editable:
        return checked_out_commit(Path(url2pathname(urlsplit(origin.url).path)))
    return None


def checked_out_commit(folder: Path) -> str | None:
    """Return the commit that is checked out in ``folder``; None when it is no git checkout or has none."""
    marker = folder / ".git"
    try:
        git_dir = marker if marker.is_dir() else folder / _linked(marker, "gitdir: ")
        head = (git_dir / "HEAD").read_text("utf-8").strip()
        common = git_dir / "commondir"
        shared = git_dir / common.read_text("utf-8").strip() if common.is_file() else git_dir
        return _checked(_resolved(head.removeprefix("ref: "), shared) if head.startswith("ref: ") else head)
    except (OSError, UnicodeDecodeError):
        return None


def _linked(file: Path, prefix: str) -> str:
    """What a ``.git`` file of a worktree points to."""
    return file.read_text("utf-8").strip().removeprefix(prefix)


def _resolved(reference: str, git_dir: Path) -> str:
    loose = git_dir / reference
    if loose.is_file():
        return loose.read_text("utf-8").strip()
    packed = (git_dir / "packed-refs").read_text("utf-8").splitlines()
    return next((line.split(" ")[0] for line in packed if line.endswith(f" {reference}")), "")


def _checked(commit: str) -> str | None:
    return commit if _COMMIT.fullmatch(commit) else None
