"""One run becomes one archive: equal staging, equal bytes, and a manifest that is true."""

import hashlib
import io
import json
import tarfile
from typing import Any

import pytest

from swactor_diag.collector.bundle import BundleError, build_bundle
from swactor_diag.collector.canonical import CanonicalBundles
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import MemoryStorage
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

STAGE = "a1" * 32
ORCHESTRATOR = "b2" * 32


def contents(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        return {
            member.name: reader.read()
            for member in archive.getmembers()
            if (reader := archive.extractfile(member)) is not None
        }


class Staged:
    """A run that is put together record by record."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.ingest = Ingest(self.storage)
        self.now_ms = 1_000

    def add(self, kind: str, number: int, body: object, *, node: str = STAGE, boot: str = "b1") -> None:
        record = Outgoing(
            kind=RecordKind(kind),
            run_id="run-1",
            node_id=node,
            batch_id=batch_id(boot, RecordKind(kind), number),
            body=json.dumps(body).encode(),
        )
        self.ingest.accept(record, self.now_ms)
        self.now_ms += 100

    def files(self, *, extra: dict[str, bytes] | None = None) -> dict[str, bytes]:
        return contents(build_bundle(self.storage, "run-1", extra=extra))

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(self.files()["run-1/MANIFEST.json"])
        return manifest


@pytest.fixture
def staged() -> Staged:
    run = Staged()
    run.add("boot", 1, {"role": "stage", "stage_index": 2})
    run.add("events", 1, [{"n": 1}])
    run.add("events", 2, [{"n": 2}])
    run.add("snapshot", 1, {"n": 3})
    run.add("boot", 1, {"role": "orchestrator"}, node=ORCHESTRATOR)
    return run


def test_members_lie_where_the_format_says_with_their_bytes_as_received(staged: Staged) -> None:
    files = staged.files()

    assert sorted(files) == [
        "run-1/MANIFEST.json",
        "run-1/orchestrator/boot.json",
        "run-1/stage-2/boot.json",
        "run-1/stage-2/events/events-000001.json",
        "run-1/stage-2/events/events-000002.json",
        "run-1/stage-2/snapshots/snapshot-000001.json",
    ]
    assert files["run-1/stage-2/events/events-000002.json"] == b'[{"n": 2}]'


def test_headers_carry_nothing_that_differs_between_two_builds(staged: Staged) -> None:
    data = build_bundle(staged.storage, "run-1")

    assert data == build_bundle(staged.storage, "run-1")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
    for member in members:
        assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
        assert member.mode == (0o755 if member.isdir() else 0o644)
    assert data[4:8] == b"\0\0\0\0"


def test_the_order_of_arrival_of_different_nodes_changes_nothing_but_times() -> None:
    one, two = Staged(), Staged()
    for run, nodes in ((one, (STAGE, ORCHESTRATOR)), (two, (ORCHESTRATOR, STAGE))):
        for node in nodes:
            run.now_ms = 5_000
            run.add("boot", 1, {"role": "stage", "stage_index": int(node[0] == "a")}, node=node)

    assert build_bundle(one.storage, "run-1") == build_bundle(two.storage, "run-1")


def test_the_manifest_of_a_run_without_finalize(staged: Staged) -> None:
    manifest = staged.manifest()

    assert manifest["run_id"] == "run-1"
    assert (manifest["run_start_collector_ms"], manifest["run_end_collector_ms"]) == (1_000, 1_400)
    assert manifest["finalize_received"] is False
    assert [node["label"] for node in manifest["nodes"]] == ["orchestrator", "stage-2"]
    stage = manifest["nodes"][1]
    assert (stage["node_id_hex"], stage["role"], stage["stage_index"]) == (STAGE, "stage", 2)
    assert (stage["boot_recorded"], stage["event_batches"], stage["snapshots"]) == (True, 2, 1)
    assert (stage["first_record_at_ms"], stage["last_record_at_ms"], stage["silent_ms"]) == (
        1_000,
        1_300,
        100,
    )


def test_every_file_is_listed_with_its_hash_and_its_batch(staged: Staged) -> None:
    files = staged.files(extra={"sim/scenario.toml": b"seed = 1"})
    manifest = json.loads(files["run-1/MANIFEST.json"])

    listed = {entry["path"]: entry for entry in manifest["files"]}

    assert {f"run-1/{path}" for path in listed} == set(files) - {"run-1/MANIFEST.json"}
    for path, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256(files[f"run-1/{path}"]).hexdigest()
    assert listed["stage-2/events/events-000001.json"]["batch_id"] == "b1-events-000001"
    assert "batch_id" not in listed["sim/scenario.toml"]


def test_a_finalize_shows_with_its_reason(staged: Staged) -> None:
    staged.add("finalize", 1, {"reason": "done"}, node=ORCHESTRATOR)

    manifest = staged.manifest()

    assert manifest["finalize_received"] is True
    assert manifest["finalize_reason"] == "done"
    assert "run-1/orchestrator/finalize.json" in staged.files()


def test_a_record_that_comes_after_the_finalize_is_in_the_next_bundle(staged: Staged) -> None:
    staged.add("finalize", 1, {}, node=ORCHESTRATOR)
    CanonicalBundles(Staging(staged.storage)).finish("run-1")

    staged.add("boot", 1, {"role": "relay"}, node="c3" * 32)

    assert [node["label"] for node in staged.manifest()["nodes"]] == ["orchestrator", "relay", "stage-2"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"role": "relay", "stage_index": 1e999}',
        b'{"schema_version": ' + b"9" * 5_000 + b"}",
        b'{"stage_index": 1180591620717411303424, "reason": 18446744073709551616}',
        b'{"body": {"delivery": {"drops": [{"where": "x", "what": "y", "count": 1e400}]}}}',
        b'{"body": {"delivery": {"drops": [{"where": "x", "what": "y", "count": 18446744073709551616}]}}}',
        b"[" * 900 + b"]" * 900,
        b'{"role": "\\u0000", "reason": "\\u0000"}',
        b'{"role": "' + b"x" * 1_000_000 + b'"}',
    ],
    ids=lambda body: body[:40].decode(),
)
@pytest.mark.parametrize("kind", list(RecordKind))
def test_no_record_keeps_its_run_from_its_bundle(staged: Staged, kind: RecordKind, body: bytes) -> None:
    """What is JSON is stored as it is, whether or not a program can hold what it says."""
    record = Outgoing(kind=kind, run_id="run-1", node_id="c3" * 32, batch_id=f"b1-{kind}-000009", body=body)
    staged.ingest.accept(record, 5_000)

    files = staged.files()

    assert body in files.values()
    listed = {file["batch_id"] for file in json.loads(files["run-1/MANIFEST.json"])["files"]}
    assert record.batch_id in listed


def test_two_lives_of_a_node_are_both_there(staged: Staged) -> None:
    """FC-047."""
    staged.add("boot", 1, {"role": "stage", "stage_index": 2, "life": 2}, boot="b2")
    staged.add("events", 1, [{"n": 4}], boot="b2")
    staged.add("events", 4, [{"n": 5}], boot="b2")

    files = staged.files()
    boots = json.loads(files["run-1/MANIFEST.json"])["nodes"][1]["boots"]

    assert json.loads(files["run-1/stage-2/boot.json"])["life"] == 2
    assert "life" not in json.loads(files["run-1/stage-2/boot/boot-000001.json"])
    assert [(boot["boot_id"], boot["event_batches"]) for boot in boots] == [("b1", 2), ("b2", 2)]
    assert [boot["batches_missing"] for boot in boots] == [0, 2]


def test_damaged_torn_and_foreign_things_are_named_and_cost_nothing_else(staged: Staged) -> None:
    """FC-044."""
    segment = ("run-1", "@log", "main-000001.seg")
    whole = staged.storage.read(segment)
    staged.storage.write(segment, whole.replace(b'[{"n": 1}]', b'[{"n": 9}]') + b"@rec 0123")
    staged.storage.write(("run-1", STAGE, "notes.txt"), b"hello")
    staged.storage.write(("run-1", STAGE, "events-000007.json"), b'[{"n": ')
    staged.storage.write(("run-1", "stray.json"), b"{}")

    manifest = staged.manifest()

    assert manifest["nodes"][1]["event_batches"] == 1
    assert [aside["path"] for aside in manifest["set_aside"]] == [
        "run-1/@log/main-000001.seg",
        "run-1/@log/main-000001.seg",
        f"run-1/{STAGE}/events-000007.json",
        f"run-1/{STAGE}/notes.txt",
        "run-1/stray.json",
    ]
    reasons = [aside["reason"] for aside in manifest["set_aside"][:2]]
    assert f"b1-events-000001 of {STAGE}" in reasons[0]
    assert f"bytes {len(whole)} to {len(whole) + 9}" in reasons[1]


def test_the_same_batch_in_two_segments_is_one_batch() -> None:
    """FC-046: it was sent twice, and two collectors took one copy each."""
    run = Staged()
    for writer, body in (("one", b"[1]"), ("two", b"[1]"), ("three", b"[2]")):
        record = Outgoing(
            kind=RecordKind.EVENTS, run_id="run-1", node_id=STAGE, batch_id="b1-events-000001", body=body
        )
        Staging(run.storage, writer=writer).append(record, recv_ms=len(writer))

    manifest = run.manifest()

    assert [file["path"] for file in manifest["files"]] == [f"node-{STAGE[:8]}/events/events-000001.json"]
    ((path, reason),) = [(aside["path"], aside["reason"]) for aside in manifest["set_aside"]]
    assert path == "run-1/@log/three-000001.seg"
    assert "another body" in reason


def test_times_in_which_nothing_came_are_named() -> None:
    """FC-059."""
    run = Staged()
    run.add("boot", 1, {"role": "relay", "schema_version": 1})
    run.now_ms = 60_000
    run.add("snapshot", 1, {})
    run.add("boot", 1, {"role": "orchestrator"}, node=ORCHESTRATOR)
    run.now_ms = 90_000
    run.add("snapshot", 1, {}, node=ORCHESTRATOR)

    nodes = {node["label"]: node for node in run.manifest()["nodes"]}

    assert nodes["relay"]["silences"] == [{"from_ms": 1_000, "to_ms": 60_000}]
    assert (nodes["relay"]["silent_ms"], nodes["orchestrator"]["silent_ms"]) == (30_000, 0)
    assert (nodes["relay"]["schema_version"], "schema_version" in nodes["orchestrator"]) == (1, False)


def test_what_nodes_say_they_dropped_is_in_the_manifest(staged: Staged) -> None:
    drops = [{"where": "recorder", "what": "MessageSent", "count": 7}]
    staged.add("snapshot", 2, {"body": {"delivery": {"drops": drops}}})

    (drop,) = staged.manifest()["drops"]

    assert (drop["node_id_hex"], drop["boot_id"], drop["what"], drop["count"]) == (
        STAGE,
        "b1",
        "MessageSent",
        7,
    )


def test_what_a_later_boot_repeats_of_an_earlier_ones_losses_is_counted_once(staged: Staged) -> None:
    loss = {"where": "spool", "what": "events", "count": 2, "events": 9, "boot_id": "b1"}
    later = {**loss, "count": 5, "events": 21}
    staged.add("snapshot", 2, {"body": {"delivery": {"drops": [loss]}}}, boot="b1")
    staged.add("snapshot", 3, {"body": {"delivery": {"drops": [later]}}}, boot="b2")

    (drop,) = staged.manifest()["drops"]

    assert (drop["boot_id"], drop["count"], drop["events"]) == ("b1", 5, 21)


def test_without_a_report_on_deliveries_the_number_of_drops_is_unknown(staged: Staged) -> None:
    assert "drops" not in staged.manifest()

    staged.add("snapshot", 2, {"body": {"delivery": {"records_sent": 3}}})

    assert staged.manifest()["drops"] == []


def test_files_of_the_original_are_read_and_have_no_times() -> None:
    storage = MemoryStorage()
    storage.write(("run-1", STAGE, "boot-000001.json"), b'{"role": "stage", "stage_index": 0}')
    storage.write(("run-1", STAGE, "events-000001.json"), b"[]")

    manifest = json.loads(contents(build_bundle(storage, "run-1"))["run-1/MANIFEST.json"])

    assert manifest["run_start_collector_ms"] is None
    assert manifest["nodes"][0]["label"] == "stage-0"
    assert manifest["nodes"][0]["event_batches"] == 1


def test_a_run_without_a_file_has_no_bundle() -> None:
    with pytest.raises(BundleError):
        build_bundle(MemoryStorage(), "run-1")


@pytest.mark.parametrize("path", ["stage-2/boot.json", "sim", "sim/../x", "sim//x", "/sim/x"])
def test_extra_files_belong_below_sim(staged: Staged, path: str) -> None:
    with pytest.raises(BundleError):
        build_bundle(staged.storage, "run-1", extra={path: b""})
