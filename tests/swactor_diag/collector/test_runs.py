"""What an operator lives through: nodes and collectors die, ids are used again, folders are copied about."""

import hashlib
import io
import json
import lzma
import os
import signal
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swactor_diag.cli.main import main
from swactor_diag.collector.bundle import build_bundle
from swactor_diag.collector.canonical import CanonicalBundles
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage, MemoryStorage
from swactor_diag.postproc.load import load_run
from swactor_diag.schema.events import Custom
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id

from .conftest import CollectorProcess, Processes, until

LEGACY = Path(__file__).parents[2] / "fixtures" / "legacy" / "vastai-N3-1779720002.staging.tar.xz"
N3 = "vastai-N3-1779720002"
NODE, OTHER = "a1" * 32, "b2" * 32


def contents(bundle: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        return {
            member.name.partition("/")[2]: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }


def manifest(bundle: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(contents(bundle)["MANIFEST.json"])
    return found


# -- death -------------------------------------------------------------------------------------------------


def reported(collector: CollectorProcess, *, nodes: int, batches: int) -> bool:
    """Whether so many nodes have handed in so many batches of events, and a snapshot."""
    found = collector.run()["nodes"]
    return len(found) >= nodes and all(
        one["event_batches"] >= batches and one["snapshots"] >= 1 for one in found
    )


@pytest.mark.timeout(120)
def test_the_orchestrator_is_killed_and_then_the_collector_too(processes: Processes, tmp_path: Path) -> None:
    """FC-043, FC-058: a usable bundle that says it was never finalized, before and after the restart."""
    root = str(tmp_path / "root")
    first = processes.collector("--port", "0", "--root", root)
    orchestrator = processes.node(first.url, role="orchestrator")
    stage = processes.node(
        first.url, role="stage", SWACTOR_DIAG_STAGE_INDEX="0", SWACTOR_DIAG_STAGE_COUNT="1"
    )
    until(lambda: reported(first, nodes=2, batches=2), "both nodes report")

    orchestrator.kill()
    orchestrator.wait()
    before = first.bundle()
    first.kill()
    second = processes.collector("--port", str(first.port), "--root", root)
    after = second.bundle()
    known = {one["label"]: one["event_batches"] for one in manifest(after)["nodes"]}
    until(
        lambda: any(one["event_batches"] > known["stage-0"] for one in second.run()["nodes"]),
        "the stage goes on reporting",
    )
    stage.send_signal(signal.SIGTERM)
    assert stage.wait(60) == 0
    last = second.bundle()

    for bundle in (before, after, last):
        run = load_run(bundle)
        assert run.problems == ()
        assert run.manifest is not None
        assert run.manifest.finalize_received is False
        assert {node.label for node in run.nodes} == {"orchestrator", "stage-0"}
        assert all(node.identities and node.records and node.snapshots for node in run.nodes)
    kept = {file["batch_id"] for file in manifest(last)["files"]}
    assert {file["batch_id"] for file in manifest(before)["files"]} <= kept
    assert {file["batch_id"] for file in manifest(after)["files"]} <= kept
    # What the stage emitted while nobody listened came later: not one event is missing.
    (survivor,) = [node for node in load_run(last).nodes if node.label == "stage-0"]
    made = [one.event for one in survivor.records if isinstance(one.event, Custom)]
    steps = [event.fields["n"] for event in made if event.kind == "step"]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.timeout(120)
def test_a_finalized_run_goes_on_with_more_nodes(processes: Processes, tmp_path: Path) -> None:
    """The run id is used again: what comes after the finalize is in the next bundle, and it is true."""
    collector = processes.collector("--port", "0", "--root", str(tmp_path))
    first = processes.node(collector.url, role="orchestrator")
    until(lambda: reported(collector, nodes=1, batches=1), "the first node reports")
    assert first.stdin is not None
    first.stdin.write(b"finalize\n")
    first.stdin.flush()
    assert first.wait(60) == 0
    finalized = manifest(collector.bundle())

    second = processes.node(collector.url, role="orchestrator")
    until(lambda: len(collector.run()["nodes"]) == 2, "the second node is there")
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    again = collector.bundle()

    assert [one["label"] for one in finalized["nodes"]] == ["orchestrator"]
    assert {one["label"].partition("-")[0] for one in manifest(again)["nodes"]} == {"orchestrator"}
    assert_true(again)
    assert manifest(again)["finalize_received"] is True
    assert [one["finalize_recorded"] for one in manifest(again)["nodes"]].count(True) == 1
    assert {one["batch_id"] for one in finalized["files"]} < {
        one["batch_id"] for one in manifest(again)["files"]
    }


def assert_true(bundle: bytes) -> None:
    """Everything that the manifest says of files is what the archive holds, and nothing is left out."""
    files = contents(bundle)
    said = manifest(bundle)
    assert {one["path"] for one in said["files"]} == set(files) - {"MANIFEST.json"}
    for one in said["files"]:
        assert hashlib.sha256(files[one["path"]]).hexdigest() == one["sha256"]
    for node in said["nodes"]:
        paths = Counter(path.split("/")[1] for path in files if path.startswith(f"{node['label']}/"))
        assert (paths["events"], paths["snapshots"]) == (node["event_batches"], node["snapshots"])
        assert (paths["boot.json"] > 0, paths["finalize.json"] > 0) == (
            node["boot_recorded"],
            node["finalize_recorded"],
        )


RECORDS = st.tuples(
    st.sampled_from([NODE, OTHER, "c3" * 32]),
    st.sampled_from(list(RecordKind)),
    st.integers(1, 3),
    st.sampled_from(["b1", "b2"]),
)


@settings(max_examples=60)
@given(st.lists(RECORDS | st.sampled_from(["restart", "keep"]), max_size=25))
def test_whatever_comes_in_whatever_order_the_bundle_has_all_of_it_once(steps: list[Any]) -> None:
    """Also across restarts, and when the archive was kept somewhere on the way."""
    storage = MemoryStorage()
    ingest = Ingest(storage)
    sent: dict[tuple[str, str], bytes] = {}
    for at_ms, step in enumerate(steps):
        if step == "restart":
            ingest = Ingest(storage)
        elif step == "keep" and sent:
            CanonicalBundles(Staging(storage)).finish("run-1")
        elif isinstance(step, tuple):
            node, kind, number, boot = step
            body = json.dumps({"of": [node[:2], number, boot]}).encode()
            record = Outgoing(
                kind=kind,
                run_id="run-1",
                node_id=node,
                batch_id=batch_id(boot, kind, number),
                body=body,
            )
            ingest.accept(record, at_ms)
            sent[node, record.batch_id] = body
    if not sent:
        return
    bundle = build_bundle(storage, "run-1")
    assert_true(bundle)
    labels = {one["label"]: one["node_id_hex"] for one in manifest(bundle)["nodes"]}
    found = {
        (labels[one["path"].split("/")[0]], one["batch_id"]): contents(bundle)[one["path"]]
        for one in manifest(bundle)["files"]
    }
    assert found == sent
    assert manifest(bundle)["finalize_received"] == any("-finalize-" in batch for _, batch in sent)


# -- folders that were copied ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Staging of the original, as an operator scraped it from its collector."""
    folder = tmp_path_factory.mktemp("scraped")
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(LEGACY.read_bytes()))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def assert_the_published_figures(bundle: bytes) -> None:
    run = load_run(bundle)
    assert run.problems == ()
    figures = {
        node.label: (node.listed.snapshots, node.listed.event_batches) for node in run.nodes if node.listed
    }
    assert figures == {
        "orchestrator": (130, 223),
        "stage-0": (100, 188),
        "stage-1": (58, 87),
        "stage-2": (23, 38),
    }
    kinds = Counter(record.kind for node in run.nodes for record in node.records)
    assert (kinds["SwimTransition"], kinds["DialStarted"], kinds["DialOutcome"]) == (46, 83, 80)
    assert run.manifest is not None
    assert run.manifest.finalize_received is False
    assert not run.manifest.set_aside


def test_staging_of_the_original_becomes_a_bundle_from_its_folder(scraped: Path, tmp_path: Path) -> None:
    out = tmp_path / "n3.tar.gz"

    assert main(["bundle", "from-dir", str(scraped), N3, "-o", str(out)]) == 0

    assert_the_published_figures(out.read_bytes())
    assert main(["bundle", "check", str(out)]) == 0


def test_staging_of_the_original_becomes_a_bundle_in_a_collectors_root(
    processes: Processes, scraped: Path, tmp_path: Path
) -> None:
    """Also while the collector runs, and in the very bytes that ``from-dir`` makes."""
    collector = processes.collector("--port", "0", "--root", str(tmp_path))
    assert collector.ask("GET", f"/diag/bundle/{N3}")[0] == 404

    (tmp_path / N3).symlink_to(scraped / N3)
    assert collector.ask("GET", f"/diag/bundle/{N3}")[0] == 404  # a link is never followed
    (tmp_path / N3).unlink()
    copied = [*copy(scraped, tmp_path)]
    bundle = collector.bundle(N3)

    assert len(copied) == 851
    assert_the_published_figures(bundle)
    assert bundle == build_bundle(LocalStorage(scraped), N3)
    assert json.loads(collector.get("/diag/runs"))[0]["run_id"] == N3


def copy(source: Path, target: Path) -> Iterable[Path]:
    for path in sorted(source.rglob("*.json")):
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
        yield to


def test_a_node_that_joins_a_run_of_the_original_is_in_its_bundle(
    processes: Processes, scraped: Path, tmp_path: Path
) -> None:
    [*copy(scraped, tmp_path)]
    collector = processes.collector("--port", "0", "--root", str(tmp_path))

    assert collector.post("b1-boot-000001", b'{"role": "relay"}', run=N3) == 200

    assert [one["label"] for one in manifest(collector.bundle(N3))["nodes"]][:2] == ["orchestrator", "relay"]


# -- large, slow, full -------------------------------------------------------------------------------------

MIB = 1024 * 1024


@pytest.mark.timeout(180)
def test_five_downloads_of_a_large_run_take_no_memory_and_hold_up_nobody(
    processes: Processes, tmp_path: Path
) -> None:
    """FC-060, at a sixteenth of its size; ``benches/collector.py bundle`` is the whole."""
    staging = Staging(LocalStorage(tmp_path))
    for number in range(1, 65):
        body = b'"%b"' % os.urandom(MIB // 2).hex().encode()
        batch = batch_id("b1", RecordKind.EVENTS, number)
        record = Outgoing(kind=RecordKind.EVENTS, run_id="run-1", node_id=NODE, batch_id=batch, body=body)
        staging.append(record, recv_ms=number)
    staging.storage.close()
    collector = processes.collector("--port", "0", "--root", str(tmp_path))
    until(lambda: collector.get("/healthz"), "it is there")
    before = collector.rss_bytes()
    sizes: list[int] = []
    downloads = [threading.Thread(target=lambda: sizes.append(len(collector.bundle()))) for _ in range(5)]

    for download in downloads:
        download.start()
    posted = 0
    while any(download.is_alive() for download in downloads):
        posted += 1
        assert collector.post(f"b2-events-{posted:06d}", b"[]", run="run-2") == 200
    for download in downloads:
        download.join()

    assert min(sizes) > 30 * MIB
    assert len(sizes) == 5
    assert posted > 20
    assert collector.rss_bytes("VmHWM") - before < 64 * MIB


def small_disk(folder: Path) -> tuple[str, ...]:
    """Return a command that runs what follows it with a disk of 8 MB at ``folder``, which it alone sees."""
    script = f'mount -t tmpfs -o size=8m tmpfs "{folder}" && cp -a "{folder}.old/." "{folder}" && exec "$@"'
    return ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")


def can_mount() -> bool:
    return os.system("unshare --user --map-root-user --mount mount -t tmpfs tmpfs /mnt 2>/dev/null") == 0


@pytest.mark.skipif(not can_mount(), reason="this machine lets nobody mount a small disk")
def test_a_full_disk_is_told_and_served_from_and_recovers_by_itself(
    processes: Processes, tmp_path: Path
) -> None:
    """FC-045: no partial record, bundles go on, trimming needs no room, and then there is some."""
    disk = tmp_path / "disk"
    disk.mkdir()
    old = tmp_path / "disk.old" / "old" / NODE / "events-000001.json"
    old.parent.mkdir(parents=True)
    old.write_bytes(b'"%b"' % (b"x" * 3 * MIB))
    os.utime(old, (time.time() - 40 * 86_400,) * 2)
    (tmp_path / "disk.old" / "@pins").mkdir()
    (tmp_path / "disk.old" / "@pins" / "old").write_bytes(b"")
    collector = processes.collector(
        *("--port", "0", "--root", str(disk)), before=small_disk(disk), settings=("trim_every_s=0.1",)
    )

    stored: dict[str, bytes] = {}
    while True:
        batch, body = f"b1-events-{len(stored) + 1:06d}", b'"%b"' % os.urandom(MIB // 4).hex().encode()
        status, answer, headers = collector.ask(
            "POST", "/diag/events", body, x_run_id="run-1", x_node_id=NODE, x_batch_id=batch
        )
        if status != 200:
            break
        stored[batch] = body
    assert (status, json.loads(answer)["code"]) == (507, "storage_full")
    assert int(headers["Retry-After"]) >= 1
    assert 3 <= len(stored) <= 10
    assert json.loads(collector.get("/healthz"))["status"] == "degraded"
    full = collector.bundle()

    assert collector.ask("DELETE", "/diag/runs/old/pin")[0] == 200
    until(lambda: collector.post(batch, body) == 200, "the old run is trimmed and there is room again")

    # A run is written down after it was deleted: with no room left nothing else is possible.
    trims = until(lambda: json.loads(collector.get("/diag/trims")), "what was trimmed is written down")
    assert [one["run_id"] for one in trims] == ["old"]
    assert json.loads(collector.get("/healthz"))["status"] == "ok"
    for bundle, bodies in ((full, stored), (collector.bundle(), stored | {batch: body})):
        assert_true(bundle)
        said = manifest(bundle)
        assert said["set_aside"] == []
        assert {one["batch_id"]: contents(bundle)[one["path"]] for one in said["files"]} == bodies
