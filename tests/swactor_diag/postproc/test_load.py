"""Bundles as values, those of the original included."""

import hashlib
import json
from collections.abc import Callable, Mapping

from swactor_diag.postproc.archive import ProblemKind
from swactor_diag.postproc.load import load_run
from swactor_diag.postproc.summary import render

Pack = Callable[[Mapping[str, bytes]], bytes]

STAGE = "0c" * 32
OTHER = "a0" * 32


def encoded(value: object) -> bytes:
    return json.dumps(value, indent=2).encode()


def ints(node: str) -> list[int]:
    return list(bytes.fromhex(node))


def identity(node: str = STAGE, **facts: object) -> dict[str, object]:
    return {
        "node_id_hex": node,
        "node_id_short": node[:8],
        "role": "stage",
        "stage_index": 1,
        "run_id": "old-run",
        "vastai_contract_id": None,
        "hostname": "f748f583bdec",
        "process_start_unix_ms": 1_000,
        "boot_sequence": 0,
    } | facts


def event(type_: str, seq: int, /, **fields: object) -> dict[str, object]:
    head = {"node_id": ints(STAGE), "monotonic_seq": seq, "wall_ms": 1_000 + seq, "type": type_}
    return head | fields


def worker(kind: str, seq: int, **fields: object) -> dict[str, object]:
    return event("Custom", seq, kind=kind, fields=fields)


def legacy() -> dict[str, bytes]:
    """A small bundle as the original wrote it before its observability upgrade."""
    snapshot = {
        "identity": identity(),
        "run_id": "old-run",
        "snapshot_id": "0c0c0c0c-0",
        "wall_ms": 1_500,
        "monotonic_seq": 3,
        "trigger": {"kind": "Periodic"},
        "body": {
            "reachability": [],
            "iroh": {"peers": [{"peer_node_id_hex": OTHER, "conn_type": "None"}], "scraped_at_ms": 1_400},
            "probes": {"probes": [{"target": "echo", "last_outcome": "ok"}], "scraped_at_ms": 1_400},
        },
    }
    listed = {
        "node_id_hex": STAGE,
        "label": "stage-1",
        "role": "stage",
        "stage_index": 1,
        "boot_recorded": True,
        "event_batches": 2,
        "snapshots": 1,
        "finalize_recorded": False,
    }
    first = [
        worker("clock_sample", 1, collector_recv_ms=5),
        worker("worker_starting", 1, pid=365, stage=1),
        event(
            "SwimTransition",
            2,
            peer=ints(OTHER),
            to="Dead",
            reason="suspicion-timeout",
            **{"from": "Suspect"},
        ),
    ]
    second = [
        event("DialStarted", 3, peer=ints(OTHER), attempt=1, timeout_ms=10_000),
        event("DialOutcome", 4, peer=ints(OTHER), attempt=1, outcome={"Error": "no route"}, duration_ms=7),
        worker("worker_exited", 5, exit_code=1, signal=None, uptime_ms=2_500, stderr_tail="a\nboom\n"),
    ]
    return {
        "old-run/MANIFEST.json": encoded(
            {"run_id": "old-run", "finalize_received": False, "nodes": [listed]}
        ),
        "old-run/stage-1/boot.json": encoded(identity()),
        "old-run/stage-1/events/events-000001.json": encoded(first),
        "old-run/stage-1/events/events-000002.json": encoded(second),
        "old-run/stage-1/snapshots/snapshot-000001.json": encoded(snapshot),
    }


def test_a_bundle_of_the_original_is_read_without_a_complaint(pack: Pack) -> None:
    run = load_run(pack(legacy()))

    assert run.problems == ()
    (node,) = run.nodes
    assert (node.label, node.node_id, len(node.records), len(node.snapshots)) == ("stage-1", STAGE, 6, 1)
    assert run.label_of(STAGE.upper()) == "stage-1"
    assert run.label_of(OTHER) == "node-a0a0a0a0"


def test_a_bundle_of_the_original_has_a_sensible_summary(pack: Pack) -> None:
    summary = render(load_run(pack(legacy())))

    assert "- first record: not recorded" in summary
    assert "exited 1 after 2.5 s" in summary
    assert "| boom |" in summary
    assert "stage-1 marked node-a0a0a0a0" in summary
    assert "stage-1 then: path to the other None, tunnel unknown, any probe ok yes" in summary
    assert '`Error("no route")`' in summary
    assert "hostname f748f583bdec" in summary


def test_a_folder_that_the_manifest_does_not_list_is_read_and_named(pack: Pack) -> None:
    files = legacy() | {"old-run/extra/boot.json": encoded(identity(OTHER))}

    run = load_run(pack(files))

    assert [(node.label, node.listed is None) for node in run.nodes] == [("stage-1", False), ("extra", True)]
    assert [problem.where for problem in run.problems] == ["extra"]


def test_without_a_manifest_the_folders_speak(pack: Pack) -> None:
    files = legacy()
    del files["old-run/MANIFEST.json"]

    run = load_run(pack(files))

    assert run.run_id == "old-run"
    assert [(node.label, node.node_id) for node in run.nodes] == [("stage-1", STAGE)]
    assert [problem.kind for problem in run.problems] == [ProblemKind.MISSING]


def test_one_bad_record_costs_that_record(pack: Pack) -> None:
    files = legacy()
    files["old-run/stage-1/events/events-000001.json"] = encoded(
        [event("SubprocessExited", 1, label=[], pid=1, command=""), event("TeleportStarted", 2), 7]
    )
    files["old-run/stage-1/snapshots/snapshot-000001.json"] = b"{"
    files["old-run/stage-1/boot.json"] = b"[" * 100_000

    run = load_run(pack(files))

    assert [record.kind for record in run.nodes[0].records][:1] == ["TeleportStarted"]
    assert len(run.nodes[0].records) == 4
    assert [problem.where.split("/")[1].split()[0] for problem in run.problems] == [
        "boot.json",
        "events",
        "events",
        "snapshots",
        "boot.json",
    ]


def test_files_are_checked_against_the_hashes_of_the_manifest(pack: Pack) -> None:
    files = legacy()
    manifest = json.loads(files["old-run/MANIFEST.json"])
    good = files["old-run/stage-1/boot.json"]
    manifest["files"] = [
        {"path": "stage-1/boot.json", "size_bytes": len(good), "sha256": hashlib.sha256(good).hexdigest()},
        {"path": "stage-1/events/events-000001.json", "size_bytes": 1, "sha256": "0" * 64},
        {"path": "stage-1/events/events-000009.json", "size_bytes": 1, "sha256": "0" * 64},
    ]
    files["old-run/MANIFEST.json"] = encoded(manifest)

    run = load_run(pack(files))

    assert [(problem.kind, problem.where) for problem in run.problems] == [
        (ProblemKind.DAMAGED, "stage-1/events/events-000001.json"),
        (ProblemKind.MISSING, "stage-1/events/events-000009.json"),
    ]


def test_a_second_top_folder_is_not_mixed_in(pack: Pack) -> None:
    files = legacy() | {"other-run/stage-1/boot.json": encoded(identity(OTHER))}

    run = load_run(pack(files))

    assert len(run.nodes[0].identities) == 1
    assert [problem.kind for problem in run.problems] == [ProblemKind.SKIPPED]


def test_a_manifest_of_a_wrong_shape_is_named_and_the_rest_is_read(pack: Pack) -> None:
    files = legacy() | {"old-run/MANIFEST.json": encoded({"run_id": 5, "nodes": "many"})}

    run = load_run(pack(files))

    assert run.manifest is None
    assert len(run.nodes[0].records) == 6
