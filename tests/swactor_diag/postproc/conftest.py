"""Archives by their files: made from a mapping, and taken apart into one."""

import io
import tarfile
from collections.abc import Callable, Mapping

import pytest


def _pack(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _unpack(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        return {
            member.name: reader.read()
            for member in archive.getmembers()
            if (reader := archive.extractfile(member)) is not None
        }


@pytest.fixture
def pack() -> Callable[[Mapping[str, bytes]], bytes]:
    """A tar.gz with exactly these members, in this order."""
    return _pack


@pytest.fixture
def unpack() -> Callable[[bytes], dict[str, bytes]]:
    """The files of an archive by name, in its order."""
    return _unpack
