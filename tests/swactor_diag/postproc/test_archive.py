"""Archives as they come: whole, cut off, damaged, hostile."""

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping

import pytest

from swactor_diag.postproc.archive import MEMBER_BYTES_MAX, ArchiveReader, ProblemKind

Pack = Callable[[Mapping[str, bytes]], bytes]


def read(data: bytes) -> tuple[dict[str, bytes], list[ProblemKind]]:
    reader = ArchiveReader(io.BytesIO(data))
    members = {"/".join(member.path): member.data for member in reader}
    return members, [problem.kind for problem in reader.problems]


def special(kind: bytes, name: str, *, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info.tobuf(tarfile.GNU_FORMAT)


def regular(name: str, data: bytes, *, size: int | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


END = bytes(10_240)


def test_members_come_in_order_with_their_bytes(pack: Pack) -> None:
    files = {"run/b": b"2", "run/a": b"", "run/deep/c": b"x" * 5_000}

    assert read(pack(files)) == (files, [])


def test_a_plain_tar_is_read_too(pack: Pack) -> None:
    assert read(gzip.decompress(pack({"run/a": b"1"}))) == ({"run/a": b"1"}, [])


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_are_whole_in_every_format(form: int) -> None:
    name = f"run/{'n' * 90}/{'m' * 90}"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as archive:
        info = tarfile.TarInfo(name)
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
        archive.addfile(tarfile.TarInfo("run/short"))

    assert read(out.getvalue()) == ({name: b"1", "run/short": b""}, [])


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.99])
def test_a_cut_archive_gives_its_whole_members_and_says_that_it_is_cut(pack: Pack, share: float) -> None:
    files = {f"run/{number:02d}": bytes([number]) * 3_000 for number in range(20)}
    data = pack(files)

    members, problems = read(data[: int(len(data) * share)])

    assert problems == [ProblemKind.TRUNCATED]
    assert members == dict(list(files.items())[: len(members)])


def test_an_archive_without_its_last_bytes_is_not_taken_for_whole(pack: Pack) -> None:
    files = {"run/a": b"1", "run/b": b"2"}

    assert read(pack(files)[:-4]) == (files, [ProblemKind.TRUNCATED])


def test_the_last_whole_member_before_the_cut_is_kept() -> None:
    tar = regular("run/a", b"1") + regular("run/b", b"2" * 600)

    assert read(tar[:-600]) == ({"run/a": b"1"}, [ProblemKind.TRUNCATED])


def test_damaged_compression_is_named(pack: Pack) -> None:
    data = bytearray(pack({f"run/{n}": bytes(range(256)) * 40 for n in range(20)}))
    data[len(data) // 2] ^= 0xFF

    _, problems = read(bytes(data))

    assert ProblemKind.DAMAGED in problems


def test_a_wrong_check_sum_is_named(pack: Pack) -> None:
    data = bytearray(pack({"run/a": b"1"}))
    data[-8] ^= 0xFF

    members, problems = read(bytes(data))

    assert members == {"run/a": b"1"}
    assert problems == [ProblemKind.DAMAGED]


def test_what_is_no_archive_is_named() -> None:
    assert read(b"hello world, this is not a bundle " * 100) == ({}, [ProblemKind.DAMAGED])
    assert read(b"") == ({}, [ProblemKind.TRUNCATED])


@pytest.mark.parametrize("name", ["../x", "/abs/x", "run/../../x", "..", "a\\b", "run/.."])
def test_names_that_point_outside_are_skipped_and_named(name: str) -> None:
    tar = regular(name, b"evil") + regular("run/good", b"1") + END

    assert read(tar) == ({"run/good": b"1"}, [ProblemKind.SKIPPED])


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, b"Z", tarfile.BLKTYPE]
)
def test_links_and_devices_are_skipped_and_named(kind: bytes) -> None:
    tar = special(kind, "run/link", link="..") + regular("run/good", b"1") + END

    assert read(tar) == ({"run/good": b"1"}, [ProblemKind.SKIPPED])


def test_a_member_that_claims_to_be_huge_is_skipped_without_reading_it_into_memory() -> None:
    header = regular("run/huge", b"", size=MEMBER_BYTES_MAX + 1)
    body = bytes(MEMBER_BYTES_MAX + 512)
    tar = gzip.compress(header + body + regular("run/good", b"1") + END, compresslevel=1)

    assert read(tar) == ({"run/good": b"1"}, [ProblemKind.SKIPPED])


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_name_that_claims_to_be_huge_ends_the_reading(kind: bytes) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, 1 << 40
    tar = regular("run/good", b"1") + info.tobuf(tarfile.GNU_FORMAT) + END

    assert read(tar) == ({"run/good": b"1"}, [ProblemKind.DAMAGED])
