"""Output that goes to a file: real files, real children; and what only scripted surroundings can play."""

import errno
import os
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swactor import ActorSystem
from swactor_process import (
    ProcessExited,
    ProcessFileFailed,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    SpawnRole,
    Stream,
    ToFile,
    WriteStdin,
)
from swactor_process._rotating import RotatingFile, fitting_bytes
from swactor_process.testing import Exit, Say, Script, ScriptedSpawner
from tests.descriptors import open_descriptors

from .conftest import Node, Owned, Owner, eventually, sh


async def test_output_goes_to_the_file_at_once_and_behind_what_was_there(node: Node, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    owned = await node.start(sh("echo one; read go; printf two; exit 3", stdout=ToFile(str(log))))
    await eventually(lambda: log.read_text() == "before\none\n")

    owned.process.tell(WriteStdin(b"go\n"))

    exited = await owned.exited()
    assert log.read_text() == "before\none\ntwo"
    assert [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessExited]
    assert (exited.exit_code, exited.lost_file_bytes) == (3, 0)


async def test_both_streams_can_share_a_file_and_stderr_still_has_its_tail(
    node: Node, tmp_path: Path
) -> None:
    policy = ToFile(str(tmp_path / "log"))
    owned = await node.start(sh("echo out; echo err >&2", stdout=policy, stderr=policy))

    exited = await owned.exited()

    assert sorted((tmp_path / "log").read_text().splitlines()) == ["err", "out"]
    assert exited.stderr_tail == "err\n"


async def test_a_large_file_is_renamed_and_a_bounded_number_stays(node: Node, tmp_path: Path) -> None:
    policy = ToFile(str(tmp_path / "log"), max_bytes=10_000, keep=2)
    owned = await node.start(sh("seq 1 20000", stdout=policy))

    exited = await owned.exited()

    assert _names(tmp_path) == ["log", "log.1", "log.2"]
    assert all((tmp_path / name).stat().st_size <= 10_000 for name in _names(tmp_path))
    kept = "".join((tmp_path / name).read_text() for name in ("log.2", "log.1", "log"))
    lines = kept.splitlines()
    assert lines == [str(number) for number in range(int(lines[0]), 20_001)]
    assert len(lines) > 3_000
    assert exited.lost_file_bytes == 0


@pytest.mark.parametrize(
    ("kind", "errno_name"),
    [("no directory", "ENOENT"), ("directory", "EISDIR"), ("pipe", "ENXIO"), ("device", "EINVAL")],
)
async def test_a_file_that_cannot_be_opened_refuses_the_start(
    node: Node, tmp_path: Path, kind: str, errno_name: str
) -> None:
    mark = tmp_path / "ran"
    paths = {
        "no directory": tmp_path / "nowhere" / "log",
        "directory": tmp_path,
        "pipe": tmp_path / "pipe",
        "device": Path("/dev/null"),
    }
    os.mkfifo(paths["pipe"])

    owned = await node.start(sh(f"touch {mark}", stderr=ToFile(str(paths[kind]))))

    failed = await owned.failed()
    assert (failed.role, failed.errno_name) == (SpawnRole.OUTPUT_FILE, errno_name)
    assert failed.path == str(paths[kind])
    assert owned.heard == [failed]
    assert not mark.exists()


async def test_a_file_of_a_start_that_is_refused_is_closed(node: Node, tmp_path: Path) -> None:
    before = open_descriptors()
    policy = ToFile(str(tmp_path / "log"))

    owned = await node.start(ProcessSpec(program="no-such-program", label="x", stdout=policy))

    assert (await owned.failed()).role is SpawnRole.PROGRAM
    assert open_descriptors() == before


async def test_a_file_that_cannot_be_written_loses_output_counted_and_nothing_else(
    node: Node, tmp_path: Path
) -> None:
    """The child is read all the same."""
    log = tmp_path / "log"
    (tmp_path / "log.1").mkdir()  # a file cannot take the name of a directory

    owned = await node.start(
        sh("head -c 200000 /dev/zero; exit 3", stdout=ToFile(str(log), max_bytes=1_000, keep=1))
    )

    exited = await owned.exited()
    (failed,) = owned.all(ProcessFileFailed)
    assert (failed.stream, failed.path, failed.errno_name) == (Stream.STDOUT, str(log), "EISDIR")
    assert log.stat().st_size == 1_000
    assert (exited.exit_code, exited.lost_file_bytes) == (3, 199_000)


async def _scripted(script: Script, failing: dict[str, str], **changes: Any) -> tuple[Owned, ScriptedSpawner]:
    async with ActorSystem() as system:
        spawner = ScriptedSpawner(system.loop, system.clock, programs={"p": lambda _: script})
        owned = Owned()
        await system.spawn(Owner(owned, ProcessSpec(program="p", label="child", **changes), spawner, ()))
        await owned.started()
        for path, errno_name in failing.items():
            spawner.surroundings.fail_writing(path, errno_name)
        await owned.exited()
    return owned, spawner


async def test_scripted_children_write_to_scripted_files() -> None:
    script = Script(begin=(Say(b"x" * 25 + b"\n"), Exit()))

    _, spawner = await _scripted(script, {}, stdout=ToFile("/nowhere/log", max_bytes=10))

    assert spawner.surroundings.files == {"/nowhere/log": b"xxxxx\n"}


async def test_trouble_is_told_once_a_cause_and_what_is_lost_is_counted() -> None:
    script = Script(begin=(*(Say(b"12345", after_s=0.01) for _ in range(4)), Exit(3)))

    owned, _ = await _scripted(script, {"/log": "ENOSPC"}, stdout=ToFile("/log"))

    kinds = [type(heard) for heard in owned.heard]
    assert kinds == [ProcessStarted, ProcessFileFailed, ProcessExited]
    assert owned.heard[1].errno_name == "ENOSPC"
    assert owned.heard[2].lost_file_bytes == 20
    assert owned.all(ProcessOutput) == []


CHUNKS = st.lists(st.text("ab\n", max_size=30).map(str.encode), max_size=12)


@given(CHUNKS, st.integers(1, 20), st.integers(0, 3))
def test_what_stays_is_the_end_of_what_was_written_and_within_the_bounds(
    chunks: list[bytes], max_bytes: int, keep: int
) -> None:
    names = [*(f"log.{number}" for number in range(keep, 0, -1)), "log"]
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        file = RotatingFile(str(directory / "log"), max_bytes=max_bytes, keep=keep)

        assert [file.write(chunk) for chunk in chunks] == [None] * len(chunks)

        file.close()
        found = _names(directory)
        parts = [(directory / name).read_bytes() for name in names if name in found]
    assert set(found) <= set(names)
    assert all(len(part) <= max_bytes for part in parts)
    kept, whole = b"".join(parts), b"".join(chunks)
    assert whole.endswith(kept)
    if len(whole) <= max_bytes:
        assert kept == whole


@given(st.text("a\n", max_size=20).map(str.encode), st.integers(-3, 20), st.booleans())
def test_a_file_ends_between_lines_where_it_can(data: bytes, room_bytes: int, fresh: bool) -> None:
    fitting = fitting_bytes(memoryview(data), room_bytes, fresh=fresh and room_bytes > 0)

    assert 0 <= fitting <= max(room_bytes, 0)
    if fitting < len(data) and b"\n" in data[: max(room_bytes, 0)]:
        assert data[fitting - 1 : fitting] == b"\n"


def test_a_renaming_that_fails_loses_nothing_old_and_is_tried_again(tmp_path: Path) -> None:
    file = RotatingFile(str(tmp_path / "log"), max_bytes=4, keep=2)
    for word in (b"one\n", b"two\n"):
        assert file.write(word) is None
    (tmp_path / "log.2").mkdir()  # so log.1 cannot become log.2

    errors = [file.write(b"three") for _ in range(5)]

    assert all(isinstance(error, IsADirectoryError) for error in errors)
    assert file.lost_bytes == 25
    (tmp_path / "log.2").rmdir()
    assert file.write(b"last") is None
    file.close()
    kept = [(tmp_path / name).read_bytes() for name in ("log.2", "log.1", "log")]
    assert kept == [b"one\n", b"two\n", b"last"]


def test_a_write_that_goes_half_way_counts_the_other_half(tmp_path: Path) -> None:
    """The limit of this process stands for a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = RotatingFile(str(tmp_path / "log"), max_bytes=10_000, keep=0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        error = file.write(b"x" * 1_500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert error is not None
    assert error.errno == errno.EFBIG
    assert file.lost_bytes == 500
    assert file.write(b"y") is None
    file.close()
    assert (tmp_path / "log").read_bytes() == b"x" * 1_000 + b"y"


def test_a_file_that_was_taken_away_begins_anew_when_it_is_full(tmp_path: Path) -> None:
    file = RotatingFile(str(tmp_path / "log"), max_bytes=4, keep=1)
    file.write(b"one\n")
    (tmp_path / "log").unlink()

    assert file.write(b"two\n") is None

    file.close()
    assert (tmp_path / "log").read_bytes() == b"two\n"


def test_a_file_that_is_its_own_predecessor_gives_up_the_name(tmp_path: Path) -> None:
    log, older = tmp_path / "log", tmp_path / "log.1"
    log.write_text("x" * 12)
    older.hardlink_to(log)
    file = RotatingFile(str(log), max_bytes=10, keep=1)

    error = file.write(b"new\n")

    file.close()
    assert error is None
    assert (log.read_text(), older.read_text()) == ("new\n", "x" * 12)


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
