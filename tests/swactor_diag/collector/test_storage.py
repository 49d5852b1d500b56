"""Every storage keeps the same promises."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swactor_diag.collector.storage import (
    EntryKind,
    LocalStorage,
    MemoryStorage,
    Storage,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StorageTakenError,
)


def _local(folder: Path) -> Storage:
    return LocalStorage(folder / "root")


def _flushed(folder: Path) -> Storage:
    return LocalStorage(folder / "root", fsync=True)


def _memory(_: Path) -> Storage:
    return MemoryStorage()


@pytest.fixture(params=[_local, _flushed, _memory], ids=["local", "fsync", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    make: Callable[[Path], Storage] = request.param
    return make(tmp_path)


def test_a_written_file_is_read_back_whole(storage: Storage) -> None:
    storage.write(("run", "node", "a.json"), b"one")
    storage.write(("run", "node", "a.json"), b"two")

    assert storage.read(("run", "node", "a.json")) == b"two"


def test_listings_are_sorted_and_say_what_is_a_folder(storage: Storage) -> None:
    for name in ("b", "c", "a"):
        storage.write(("run", name), b"x" * 3)
    storage.write(("run", "folder", "deep"), b"")

    entries = storage.list(("run",))

    assert [entry.name for entry in entries] == ["a", "b", "c", "folder"]
    assert [entry.kind for entry in entries] == [EntryKind.FILE] * 3 + [EntryKind.FOLDER]
    assert [entry.size_bytes for entry in entries] == [3, 3, 3, 0]
    assert [entry.name for entry in storage.list()] == ["run"]


def test_an_absent_folder_is_empty_and_an_absent_file_an_error(storage: Storage) -> None:
    assert storage.list(("nowhere",)) == ()
    with pytest.raises(StorageMissingError):
        storage.read(("nowhere", "file"))


def test_deleting_twice_is_no_error(storage: Storage) -> None:
    storage.write(("file",), b"x")

    storage.delete(("file",))
    storage.delete(("file",))

    assert storage.list() == ()


@pytest.mark.parametrize("part", ["..", ".", "", "a/b", "/etc", "a\0b", "x" * 241, "name.part", "ä"])
def test_a_part_that_is_no_plain_name_is_refused(storage: Storage, part: str) -> None:
    with pytest.raises(StorageError):
        storage.write(("run", part), b"x")
    with pytest.raises(StorageError):
        storage.read((part, "file"))
    assert storage.list() == ()


def test_a_part_of_a_file_is_read_without_the_rest(storage: Storage) -> None:
    storage.write(("file",), iter([b"0123", b"456", b"789"]))

    assert storage.read(("file",), 3, 4) == b"3456"
    assert storage.read(("file",), 8, 100) == b"89"
    assert storage.read(("file",), 100, 5) == b""


def test_a_log_grows_and_is_read_like_any_file(storage: Storage) -> None:
    log = ("run", "log")
    at = 0
    for piece in (b"one ", b"two ", b"three"):
        storage.append(log, piece, at=at)
        at += len(piece)
        if piece == b"two ":
            storage.flush()
    storage.flush()

    assert storage.read(log) == b"one two three"
    assert storage.read(log, 2, 8) == b"e two th"
    assert [(entry.name, entry.kind, entry.size_bytes) for entry in storage.list(("run",))] == [
        ("log", EntryKind.FILE, 13)
    ]


def test_a_sealed_log_is_the_same_file(storage: Storage) -> None:
    log = ("run", "log")
    storage.append(log, b"one", at=0)
    storage.flush()
    storage.append(log, b"two", at=3)
    storage.seal(log)
    storage.flush()

    assert storage.read(log) == b"onetwo"
    assert [(entry.name, entry.size_bytes) for entry in storage.list(("run",))] == [("log", 6)]


def test_a_new_log_does_not_begin_where_something_is(storage: Storage) -> None:
    storage.append(("log",), b"mine", at=0)
    storage.flush()

    with pytest.raises(StorageTakenError):
        storage.append(("log",), b"yours", at=0)

    assert storage.read(("log",)) == b"mine"


def test_what_was_flushed_outlives_what_was_not(storage: Storage) -> None:
    storage.append(("log",), b"flushed", at=0)
    storage.flush()
    storage.append(("log",), b" and not", at=7)
    storage.append(("other",), b"new", at=0)

    storage.drop_unflushed()

    if storage.flushes:
        assert storage.read(("log",)) == b"flushed"
        assert all(entry.size_bytes == 0 for entry in storage.list() if entry.name == "other")
    else:
        assert storage.read(("log",)) == b"flushed and not"


def test_a_folder_goes_with_everything_in_it(storage: Storage) -> None:
    storage.write(("run", "a", "deep"), b"x")
    storage.append(("run", "log"), b"x", at=0)
    storage.flush()
    storage.write(("runs",), b"stays")

    storage.delete(("run",))

    assert [entry.name for entry in storage.list()] == ["runs"]
    storage.append(("run", "log"), b"again", at=0)
    storage.flush()
    assert storage.read(("run", "log")) == b"again"


def test_more_logs_than_may_be_open_at_once(storage: Storage) -> None:
    names = [f"log-{number}" for number in range(100)]
    for at, piece in ((0, b"one"), (3, b"two")):
        for name in names:
            storage.append((name,), piece, at=at)
        storage.flush()

    assert all(storage.read((name,)) == b"onetwo" for name in names)


def test_links_and_unfinished_files_are_not_taken_for_files(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "secret").write_bytes(b"outside")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "run" / "torn.json.part").write_bytes(b"{")

    assert [(entry.name, entry.kind) for entry in storage.list(("run",))] == [("link", EntryKind.OTHER)]


def test_a_failed_write_leaves_the_old_file_and_no_partial_one(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "run").write_bytes(b"a file where a folder should be")

    with pytest.raises(StorageError) as caught:
        storage.write(("run", "file"), b"x")

    assert not isinstance(caught.value, StorageFullError)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
