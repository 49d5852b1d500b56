"""Both storages keep the same promises."""

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
