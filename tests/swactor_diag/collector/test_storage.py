"""Every storage keeps the same promises."""

import errno
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from swactor_diag.collector.bundle import Bundle, build_bundle
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.object_storage import ObjectStorage
from swactor_diag.collector.staging import Staging
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
from swactor_diag.schema.submission import Outgoing, RecordKind


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """A server on loopback that speaks the protocol of S3, with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        environment.setenv("AWS_ACCESS_KEY_ID", "testing")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        environment.setenv("AWS_REGION", "us-east-1")
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/bucket", method="PUT")).close()
        yield "s3://bucket"
    server.stop()


@pytest.fixture(params=["local", "fsync", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    match request.param:
        case "local":
            return LocalStorage(tmp_path / "root")
        case "fsync":
            return LocalStorage(tmp_path / "root", fsync=True)
        case "memory":
            return MemoryStorage()
        case _:
            url: str = request.getfixturevalue("s3_url")
            return ObjectStorage(f"{url}/{tmp_path.name}")


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


def test_a_file_may_be_made_from_another_one(storage: Storage) -> None:
    """An archive is: its pieces are read while it is written, more of them than any buffer holds."""
    whole = bytes(range(256)) * 80_000
    storage.write(("from",), whole)

    storage.write(("to",), storage.stream(("from",), 5, len(whole)))

    assert storage.read(("to",)) == whole[5:]


def test_a_file_whose_pieces_cannot_be_had_is_not_there(storage: Storage) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x" * 10_000_000
        raise StorageError("gone")

    storage.write(("file",), b"old")
    for name in ("file", "new"):
        with pytest.raises(StorageError):
            storage.write((name,), pieces())

    assert storage.read(("file",)) == b"old"
    assert [entry.name for entry in storage.list()] == ["file"]


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


def test_what_can_neither_be_cut_nor_deleted_is_flushed_only_once_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path, fsync=True)
    storage.append(("run", "log"), b"lost", at=0)

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as failing:
        failing.setattr(os, "ftruncate", fails)
        failing.setattr(shutil, "rmtree", fails)
        for attempt in (storage.drop_unflushed, lambda: storage.delete(("run",)), storage.flush):
            with pytest.raises(StorageError):
                attempt()

    storage.delete(("run",))
    storage.flush()


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


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_what_another_collector_has_written_since_is_read(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Whatever one has read before: logs of others grow and become one object, whole files are replaced."""

    def storage() -> Storage:
        if kind == "local":
            return LocalStorage(tmp_path / "root")
        return ObjectStorage(f"{request.getfixturevalue('s3_url')}/{tmp_path.name}")

    one, other = storage(), storage()
    log, file = ("run", "log"), ("run", "file")
    for at, piece in enumerate([b"abc", b"def", b"ghi"]):
        one.append(log, piece, at=3 * at)
        one.flush()
        one.write(file, piece)

        assert other.read(log) == b"abcdefghi"[: 3 * at + 3]
        assert other.read(log, 1, 3 * at + 2) == b"bcdefghi"[: 3 * at + 2]
        assert other.read(file) == piece
        assert b"".join(other.stream(file, 0, 3)) == piece
    one.seal(log)
    one.flush()

    assert other.read(log) == b"abcdefghi"
    assert other.read(log, 2, 5) == b"cdefg"


def test_several_collectors_write_to_one_store_and_any_builds_the_bundle(s3_url: str, tmp_path: Path) -> None:
    """A batch that was sent to two of them, because an answer was lost, is one batch."""
    url = f"{s3_url}/{tmp_path.name}"
    collectors = {name: Ingest(ObjectStorage(url), writer=name) for name in ("one", "two")}
    for number, name in enumerate(["one", "two", "two", "one"], start=1):
        record = Outgoing(
            kind=RecordKind.EVENTS,
            run_id="run-1",
            node_id="a1",
            batch_id=f"b-events-{number}",
            body=b"[%d]" % number,
        )
        collectors[name].accept(record, number * 100)
        collectors["two"].accept(record, number * 100 + 1)
        for one in collectors.values():
            one.flush()

    stores = [ObjectStorage(url), *(one.staging.storage for one in collectors.values())]
    bundles = {build_bundle(store, "run-1") for store in stores}

    assert len(bundles) == 1
    batches = [file.batch_id for file in Bundle(Staging(ObjectStorage(url)), "run-1").files()]
    assert batches == [f"b-events-{number}" for number in (1, 2, 3, 4)]


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


@pytest.mark.parametrize("fsync", [True, False])
def test_what_a_killed_collector_did_not_flush_is_flushed_before_anybody_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    """Its records can be read, so they are taken for stored when their sender repeats them."""
    flushed: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: flushed.append("all"))

    LocalStorage(tmp_path, fsync=fsync)

    assert flushed == (["all"] if fsync else [])
