"""``swactor bundle check --repair``: a copy of what can be used, and no byte lost without a word."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swactor_diag.cli.check import check_archive
from swactor_diag.cli.main import main
from swactor_diag.collector.bundle import Bundle, build_bundle
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage, MemoryStorage
from swactor_diag.postproc.load import load_run
from swactor_diag.schema.manifest import Manifest
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

STAGE, ORCHESTRATOR = "a1" * 32, "b2" * 32
SEGMENT = Path("run-1/@log/main-000001.seg")


def fill(staging: Staging) -> None:
    """Stage a small run of two nodes, of which one ended it."""
    boots = {
        STAGE: {"role": "stage", "stage_index": 0, "node_id_hex": STAGE},
        ORCHESTRATOR: {"role": "orchestrator", "node_id_hex": ORCHESTRATOR},
    }
    bodies: list[tuple[str, RecordKind, object]] = [
        *((node, RecordKind.BOOT, body) for node, body in boots.items()),
        *((STAGE, RecordKind.EVENTS, [{"node_id": STAGE, "n": n}]) for n in range(6)),
        (STAGE, RecordKind.SNAPSHOT, {"identity": boots[STAGE]}),
        (ORCHESTRATOR, RecordKind.EVENTS, [{"node_id": ORCHESTRATOR}]),
        (ORCHESTRATOR, RecordKind.FINALIZE, {"reason": "done"}),
    ]
    numbers: dict[tuple[str, RecordKind], int] = {}
    for recv_ms, (node, kind, body) in enumerate(bodies, start=1_000):
        number = numbers[node, kind] = numbers.get((node, kind), 0) + 1
        record = Outgoing(
            kind=kind,
            run_id="run-1",
            node_id=node,
            batch_id=batch_id("b1", kind, number),
            body=json.dumps(body).encode(),
        )
        staging.append(record, recv_ms=recv_ms)


def sound_bundle() -> bytes:
    storage = MemoryStorage()
    fill(Staging(storage))
    return build_bundle(storage, "run-1")


BUNDLE = sound_bundle()


def contents(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle by their path below the run."""
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        return {
            member.name.removeprefix("run-1/"): file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }


def manifest(bundle: bytes) -> Manifest:
    return msgspec.json.decode(contents(bundle)["MANIFEST.json"], type=Manifest)


def rewritten(change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Return the bundle as somebody leaves it who unpacks it, changes files and packs it again."""
    files = contents(BUNDLE)
    change(files)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(f"run-1/{name}")
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return data.getvalue()


def check(target: Path, *options: str) -> int:
    return main(["bundle", "check", str(target), *options])


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# -- bundles -------------------------------------------------------------------------------------------------


def test_what_is_sound_needs_no_copy(tmp_path: Path) -> None:
    file, root = tmp_path / "b.tar.gz", tmp_path / "root"
    file.write_bytes(BUNDLE)
    fill(Staging(LocalStorage(root)))

    assert [check(file, "--repair"), check(root, "--repair")] == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "root"]


def test_a_cut_bundle_becomes_a_whole_one_that_names_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.tar.gz"
    unpacked = gzip.decompress(BUNDLE)
    cut = gzip.compress(unpacked[: unpacked.rindex(b"stage-0/events/events-000004.json") + 520])
    file.write_bytes(cut)

    assert check(file, "--repair") == 3
    told = capsys.readouterr()
    copy = tmp_path / "b.repaired.tar.gz"

    assert file.read_bytes() == cut
    assert check(copy) == 0
    run = load_run(copy)
    assert not [one for one in run.problems if "listed" in one.reason]
    assert not run.incomplete
    assert run.manifest is not None
    kept = {one.path for one in run.manifest.files or ()}
    lost = {one.path for one in run.manifest.set_aside or ()} - {"the archive"}
    assert kept
    assert {one.path for one in manifest(BUNDLE).files or ()} == kept | (lost & set(contents(BUNDLE)))
    assert all(f"{path}: " in told.out for path in lost)
    assert f"{copy}: {len(kept)} saved" in told.err
    nodes = {node.label: node for node in run.manifest.nodes}
    assert nodes["stage-0"].event_batches == sum(path.startswith("stage-0/events/") for path in kept)
    assert (nodes["orchestrator"].finalize_recorded, run.manifest.finalize_received) == (True, True)


def test_a_file_that_is_not_what_the_manifest_names_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    damaged = "stage-0/events/events-000002.json"
    file.write_bytes(rewritten(lambda files: files.update({damaged: b"[]", "stage-0/new.json": b"{}"})))

    assert check(file, "--repair", "-o", str(tmp_path / "out" / "copy.tar.gz")) == 3
    copy = (tmp_path / "out" / "copy.tar.gz").read_bytes()

    original = contents(BUNDLE)
    left = contents(copy)
    assert {name: body for name, body in left.items() if name != "MANIFEST.json"} == {
        name: body for name, body in original.items() if name not in {"MANIFEST.json", damaged}
    }
    reasons = {one.path: (one.reason, one.kept_as) for one in manifest(copy).set_aside or ()}
    assert reasons == {
        damaged: ("not the bytes that the manifest names", None),
        "stage-0/new.json": ("not in the manifest", None),
    }
    (stage,) = [node for node in manifest(copy).nodes if node.label == "stage-0"]
    assert stage.event_batches == 5
    assert [boot.batches_missing for boot in stage.boots or ()] == [1]


@pytest.mark.parametrize("left", [None, b'{"run_id": ', b"[" * 100_000], ids=["gone", "torn", "deep"])
def test_without_its_manifest_a_bundle_gets_a_new_one_from_its_records(
    tmp_path: Path, left: bytes | None
) -> None:
    def lose_the_manifest(files: dict[str, bytes]) -> None:
        del files["MANIFEST.json"]
        if left is not None:
            files["MANIFEST.json"] = left
        del files["stage-0/boot.json"]
        files["stage-0/events/events-000003.json"] = b"[{"

    file = tmp_path / "b.tar.gz"
    file.write_bytes(rewritten(lose_the_manifest))

    assert check(file, "--repair") == 3
    copy = tmp_path / "b.repaired.tar.gz"

    assert check(copy) == 0
    made = manifest(copy.read_bytes())
    nodes = {node.label: node for node in made.nodes}
    assert (made.run_id, made.finalize_received) == ("run-1", True)
    assert (nodes["orchestrator"].node_id_hex, nodes["orchestrator"].role) == (ORCHESTRATOR, "orchestrator")
    assert (nodes["stage-0"].node_id_hex, nodes["stage-0"].boot_recorded) == (STAGE, False)
    assert nodes["stage-0"].event_batches == 5
    named = {one.path for one in made.set_aside or ()}
    assert named == {"MANIFEST.json", "stage-0/events/events-000003.json"}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    at=st.integers(0, len(BUNDLE) - 1),
    cut=st.booleans(),
    flip=st.integers(1, 255),
)
def test_every_file_is_saved_or_named_whatever_happened_to_the_archive(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int, *, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("repair")
    file, copy = folder / "b.tar.gz", folder / "b.repaired.tar.gz"
    file.write_bytes(BUNDLE[:at] if cut else BUNDLE[:at] + bytes([BUNDLE[at] ^ flip]) + BUNDLE[at + 1 :])

    status = check(file, "--repair")

    assert status in {0, 2, 3}
    if not copy.exists():
        return
    assert check(copy) == 0
    made = manifest(copy.read_bytes())
    listed = {one.path: one.sha256 for one in manifest(BUNDLE).files or ()}
    saved = {one.path: one.sha256 for one in made.files or ()}
    named = {one.path for one in made.set_aside or ()}
    if check_archive(file).manifest == manifest(BUNDLE):  # else damage hit the very list of what there was
        assert saved.items() <= listed.items()
        assert saved.keys() | (named & listed.keys()) == listed.keys()


# -- folders -------------------------------------------------------------------------------------------------


@pytest.fixture
def battered(tmp_path: Path) -> Path:
    """A collector's folder to which everything has happened."""
    root = tmp_path / "root"
    staging = Staging(LocalStorage(root))
    fill(staging)
    segment = root / SEGMENT
    segment.write_bytes(segment.read_bytes().replace(b'"n": 2', b'"n": 7') + b"@rec 0123 ev")
    (root / "run-1" / STAGE).mkdir()
    (root / "run-1" / STAGE / "events-000009.json").write_bytes(b'[{"n": 9}]')
    (root / "run-1" / STAGE / "events-000010.json").write_bytes(b'[{"n": ')
    (root / "run-1" / STAGE / "a note.txt").write_bytes(b"hello")
    (root / "run-1" / STAGE / "link").symlink_to("/etc/passwd")
    (root / "run-1" / "stray.json").write_bytes(b"{}")
    again = Outgoing(
        kind=RecordKind.EVENTS, run_id="run-1", node_id=STAGE, batch_id="b1-events-000001", body=b"[2]"
    )
    Staging(LocalStorage(root), writer="other").append(again, recv_ms=9_000)
    (root / "@pins").mkdir()
    (root / "@pins" / "run-1").write_bytes(b"")
    (root / "@trims.json").write_bytes(b"[]")
    (root / "readme").write_bytes(b"mine")
    return root


def records(root: Path) -> dict[str, tuple[str, int | None]]:
    bundle = Bundle(Staging(LocalStorage(root)), "run-1")
    return {
        f"{one.path} {one.batch_id}": (one.sha256, one.recv_ms if isinstance(one.recv_ms, int) else None)
        for one in bundle.files()
    }


def test_a_folder_is_copied_with_what_is_sound_and_what_is_not_beside_it(
    battered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(battered)
    wrong = (Bundle(Staging(LocalStorage(battered)), "run-1")).manifest.set_aside or ()

    assert check(battered, "--repair") == 3
    told = capsys.readouterr()
    copy = battered.with_name("root.repaired")

    assert tree(battered) == before
    assert records(copy) == records(battered)
    assert (copy / "@pins" / "run-1").exists()
    assert (copy / "@trims.json").read_bytes() == b"[]"
    assert "belongs to no run: readme" in told.err
    notes = {one.path: one for one in Bundle(Staging(LocalStorage(copy)), "run-1").manifest.set_aside or ()}
    assert [(one.path, one.reason) for one in wrong] == sorted(
        (one.path, one.reason)
        for one in msgspec.json.decode((copy / "run-1/@aside/why.json").read_bytes(), type=list[Note])
    )
    stays = {name for name, one in notes.items() if one.kept_as is None}
    assert stays == {f"run-1/{STAGE}/a note.txt", f"run-1/{STAGE}/link"}
    kept = {path.read_bytes() for path in (copy / "run-1" / "@aside").glob("0*")}
    assert kept == {
        json.dumps([{"node_id": STAGE, "n": 7}]).encode(),
        b"@rec 0123 ev",
        b'[{"n": ',
        b"{}",
        b"[2]",
    }
    assert b"root:" not in b"".join(tree(copy).values())


@pytest.mark.parametrize("name", ["folder", "a note.txt", "link", "pipe", "why.json"])
def test_a_stray_thing_beside_what_a_repair_kept_is_named_and_stops_nothing(
    tmp_path: Path, name: str
) -> None:
    root = tmp_path / "root"
    fill(Staging(LocalStorage(root)))
    aside = root / "run-1" / "@aside"
    aside.mkdir()
    match name:
        case "folder":
            (aside / name).mkdir()
        case "a note.txt":
            (aside / name).write_bytes(b"hello")
        case "link":
            (aside / name).symlink_to("/etc/passwd")
        case _:
            os.mkfifo(aside / name)

    assert check(root, "--repair") == 3

    copy = root.with_name("root.repaired")
    assert records(copy) == records(root)
    assert [path.name for path in (copy / "run-1" / "@aside").iterdir()] == ["why.json"]
    named = Bundle(Staging(LocalStorage(copy)), "run-1").manifest.set_aside or ()
    assert [(one.path, one.kept_as) for one in named] == [(f"run-1/@aside/{name}", None)]


def test_the_copy_of_a_folder_is_for_whom_the_folder_is_for(battered: Path) -> None:
    battered.chmod(0o2750)
    if os.geteuid() == 0:
        os.chown(battered, 12_345, 12_346)
    check(battered, "--repair")
    copy = battered.with_name("root.repaired")

    whose = battered.stat()
    assert copy.stat().st_mode == whose.st_mode
    everything = [path.stat() for path in (copy, *copy.rglob("*"))]
    assert {(one.st_uid, one.st_gid) for one in everything} == {(whose.st_uid, whose.st_gid)}


def test_the_copy_of_a_folder_lasts_before_it_has_its_name(
    battered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = battered.with_name("root.repaired")
    synced: set[int] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        if not copy.exists():
            synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    check(battered, "--repair")

    assert {path.stat().st_ino for path in (copy, *copy.rglob("*"))} <= synced


class Note(msgspec.Struct):
    """What a repair writes down of one thing, as far as the original's check says it too."""

    path: str
    reason: str


def test_the_copy_is_sound_and_remembers(battered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(battered, "--repair")
    copy = battered.with_name("root.repaired")
    capsys.readouterr()

    assert check(copy) == 0
    assert "7 things were set aside earlier" in capsys.readouterr().err
    assert Bundle(Staging(LocalStorage(copy)), "run-1").unusable == 0


def test_a_copy_that_was_damaged_again_is_repaired_again(battered: Path) -> None:
    check(battered, "--repair")
    copy = battered.with_name("root.repaired")
    first = tree(copy / "run-1" / "@aside")
    segment = copy / SEGMENT
    segment.write_bytes(segment.read_bytes().replace(b'"n": 3', b'"n": 8'))

    assert check(copy, "--repair", "-o", str(copy.with_name("third"))) == 3
    third = tree(copy.with_name("third") / "run-1" / "@aside")

    assert {name: third[name] for name in first if name != "why.json"} == {
        name: body for name, body in first.items() if name != "why.json"
    }
    assert len(third) == len(first) + 1
    assert len(Bundle(Staging(LocalStorage(copy.with_name("third"))), "run-1").manifest.set_aside or ()) == 8


def test_a_run_of_which_nothing_can_be_used_is_not_called_sound(tmp_path: Path) -> None:
    (tmp_path / "root" / "run-1" / STAGE).mkdir(parents=True)
    (tmp_path / "root" / "run-1" / STAGE / "boot-000001.json").write_bytes(b"{")

    assert check(tmp_path / "root", "--repair") == 3
    assert (tmp_path / "root.repaired" / "run-1" / "@aside" / "000001").read_bytes() == b"{"


@pytest.mark.parametrize("what", ["archive", "folder"])
def test_nothing_is_written_over(
    battered: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.tar.gz"
    file.write_bytes(BUNDLE[:-9])
    taken = tmp_path / "taken"
    taken.write_bytes(b"precious")

    target = file if what == "archive" else battered
    assert check(target, "--repair", "-o", str(taken)) == 2
    assert check(target, "--repair", "-o", str(taken / "below")) == 1

    assert taken.read_bytes() == b"precious"
    assert capsys.readouterr().err.count("swactor: ") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "root", "taken"]


def test_what_holds_nothing_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b.tar.gz"
    file.write_bytes(BUNDLE[:30])

    assert check(file, "--repair") == 3
    assert "can be saved" in capsys.readouterr().err
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(BUNDLE[:30]).digest()
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar.gz"]
