"""Records are read whatever else lies beside them."""

import msgspec
import pytest

from swactor_diag.schema.blocks import IntrospectionOutcome, SubprocessStatus
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.catalog import BLOCKS, EVENTS, json_schema
from swactor_diag.schema.events import Custom, SubprocessExited, SubprocessSpawned, encode_record
from swactor_diag.schema.producers import SwimTransition
from swactor_diag.schema.reading import (
    RecordError,
    UnknownEvent,
    read_batch,
    read_identity,
    read_record,
    read_snapshot,
)
from swactor_diag.schema.snapshot import TriggerKind

NODE = "ab" * 32
EXITED = SubprocessExited(label="w", pid=7, command="python w.py", exit_code=3, uptime_ms=12)


def row(event_type: str, **fields: object) -> dict[str, object]:
    return {"node_id": NODE, "monotonic_seq": 1, "wall_ms": 2, "type": event_type, **fields}


def legacy_identity() -> dict[str, object]:
    return {
        "node_id_hex": NODE,
        "node_id_short": NODE[:8],
        "role": "stage",
        "run_id": "r",
        "process_start_unix_ms": 1,
        "boot_sequence": 0,
        "git_sha": None,
    }


def snapshot(body: dict[str, object], **changes: object) -> bytes:
    plain = {
        "identity": legacy_identity(),
        "run_id": "r",
        "snapshot_id": "abababab-0",
        "wall_ms": 5,
        "monotonic_seq": 3,
        "trigger": {"kind": "Transition", "data": "seq-3"},
        "body": {"reachability": [], **body},
    }
    return msgspec.json.encode({**plain, **changes})


def test_a_written_event_is_one_flat_object_and_reads_back() -> None:
    data = encode_record(NODE, seq=4, wall_ms=9, event=EXITED)
    assert msgspec.json.decode(data)["node_id"] == NODE
    record = read_record(msgspec.json.decode(data))
    assert (record.monotonic_seq, record.wall_ms, record.event) == (4, 9, EXITED)


def test_absent_legacy_fields_are_null_and_absent_additions_are_left_out() -> None:
    plain = msgspec.json.decode(encode_record(NODE, seq=1, wall_ms=1, event=EXITED))
    assert plain["exit_signal"] is None
    assert "stderr_tail" not in plain


def test_node_ids_are_read_as_arrays_too() -> None:
    peer = {"peer": [1] * 32, "from": "Alive", "to": "Dead", "reason": "gossip"}
    plain = row("SwimTransition", node_id=[171] * 32, **peer)
    record = read_record(plain)
    assert record.node_id == NODE
    assert isinstance(record.event, SwimTransition)
    assert record.event.peer == "01" * 32


def test_fc089_an_unknown_kind_is_kept_with_its_body_and_the_rest_is_read() -> None:
    rows = [row("TeleportStarted", to="mars"), row("SubprocessSpawned", label="w", pid=1, command="x")]
    batch = read_batch(msgspec.json.encode(rows))
    assert batch.problems == ()
    assert batch.records[0].event == UnknownEvent("TeleportStarted", {"to": "mars"})
    assert isinstance(batch.records[1].event, SubprocessSpawned)


def test_fc089_a_known_kind_with_a_wrong_body_is_a_located_problem_not_unknown() -> None:
    rows = [row("SubprocessExited", label="w", pid=1, command="", exit_code=[3]), row("Later")]
    batch = read_batch(msgspec.json.encode(rows))
    assert [record.kind for record in batch.records] == ["Later"]
    assert batch.problems[0].where == "[0]"
    assert "exit_code" in batch.problems[0].message


def test_an_unknown_value_of_an_enumeration_is_kept_and_named() -> None:
    rows = [row("SwimTransition", peer=NODE, to="Zombie", reason="gossip", **{"from": "Alive"})]
    event = read_batch(msgspec.json.encode(rows)).records[0].event
    assert isinstance(event, UnknownEvent)
    assert event.body["to"] == "Zombie"
    assert "Zombie" in event.unknown_value


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b"7", b"null"])
def test_a_broken_batch_is_one_problem(data: bytes) -> None:
    batch = read_batch(data)
    assert batch.records == ()
    assert len(batch.problems) == 1


def test_one_record_without_envelope_costs_itself_only() -> None:
    batch = read_batch(msgspec.json.encode([7, {"type": "Custom"}, row("Custom", kind="k", fields={"a": 1})]))
    assert [problem.where for problem in batch.problems] == ["[0]", "[1]"]
    assert [record.event for record in batch.records] == [Custom(kind="k", fields={"a": 1})]


def test_a_legacy_identity_reads_and_one_without_a_required_field_does_not() -> None:
    plain = legacy_identity()
    assert read_identity(msgspec.json.encode(plain)).boot_id is None
    del plain["run_id"]
    with pytest.raises(RecordError, match="run_id"):
        read_identity(msgspec.json.encode(plain))


def test_a_bad_block_costs_that_block() -> None:
    body: dict[str, object] = {
        "process": {"rss_bytes": "many"},
        "subprocess": {"subprocesses": [{"label": "w", "pid": 1, "status": "running"}], "scraped_at_ms": 5},
        "weather": {"celsius": 21},
    }
    read = read_snapshot(snapshot(body))
    assert [problem.where for problem in read.problems] == ["body.process"]
    assert read.body.process is msgspec.UNSET
    assert isinstance(read.body.subprocess, msgspec.Struct)
    assert read.body.subprocess.subprocesses[0].status is SubprocessStatus.RUNNING
    assert read.body.others == {"weather": {"celsius": 21}}
    assert read.trigger is not None
    assert (read.trigger.kind, read.trigger.data) == (TriggerKind.TRANSITION, "seq-3")


def test_values_of_a_newer_version_cost_nothing_and_stay_in_the_raw_record() -> None:
    child = {"label": "w", "pid": 1, "status": "teleporting"}
    body: dict[str, object] = {
        "subprocess": {"subprocesses": [child], "scraped_at_ms": 5},
        "introspectors": [{"name": "x", "outcome": "tired"}],
    }
    read = read_snapshot(snapshot(body, trigger={"kind": "Eclipse"}))
    assert read.problems == ()
    assert isinstance(read.body.subprocess, msgspec.Struct)
    assert read.body.subprocess.subprocesses[0].status is SubprocessStatus.UNRECOGNIZED
    assert read.body.introspectors[0].outcome is IntrospectionOutcome.UNRECOGNIZED
    assert read.trigger is not None
    assert read.trigger.kind is TriggerKind.UNRECOGNIZED
    assert read.raw_body["subprocess"] == body["subprocess"]


def test_a_broken_trigger_does_not_cost_the_snapshot() -> None:
    read = read_snapshot(snapshot({}, trigger={"kind": 7}))
    assert read.trigger is None
    assert [problem.where for problem in read.problems] == ["trigger"]


def test_blocks_of_the_original_read_as_its_writer_wrote_them() -> None:
    peer = {"peer_node_id_hex": NODE, "conn_type": "Relay", "relay_urls": [{"addr": "u", "usage": "active"}]}
    histogram = {"type": "Histogram", "value": {"count": 2, "sum": 7}}
    body: dict[str, object] = {
        "iroh": {
            "peers": [peer],
            "metrics": [{"group": "socket", "name": "rtt", "value": histogram}],
            "scraped_at_ms": 1,
        },
        "relay_server": {
            "active_sessions": 0,
            "total_opens": 0,
            "total_closes": 0,
            "bytes_rx_total": 0,
            "bytes_tx_total": 0,
            "closes_by_reason": [["evicted", 2]],
            "scraped_at_ms": 1,
        },
        "process": {"rss_bytes": 1, "tokio": {"flavor": "current_thread"}, "captured_at_ms": 3},
        "host": {"network": {"interfaces": [{"name": "lo", "up": True}], "refreshed_at_ms": 2}},
        "registry": {"entries": [], "tombstone_count": 0, "clock": 4, "scraped_at_ms": 1},
    }
    read = read_snapshot(snapshot(body))
    assert read.problems == ()
    assert isinstance(read.body.relay_server, msgspec.Struct)
    assert read.body.relay_server.closes_by_reason == (("evicted", 2),)


def test_the_json_schema_names_every_event_and_block() -> None:
    schema = json_schema()
    defs = schema["$defs"]
    assert isinstance(defs, dict)
    assert {"Identity", "Manifest", "SnapshotEnvelope"} <= set(defs)
    assert set(EVENTS) <= set(defs)
    assert {"subprocess", "iroh", "actors", "delivery", "introspectors"} <= set(BLOCKS)
    assert msgspec.json.encode(schema) == msgspec.json.encode(json_schema())


def test_the_identity_keeps_the_originals_fields_in_its_order() -> None:
    assert Identity.__struct_fields__[:18] == (
        "node_id_hex",
        "node_id_short",
        "role",
        "stage_index",
        "stage_count",
        "run_id",
        "vastai_contract_id",
        "host_ip_public",
        "host_country",
        "datacenter_id",
        "hostname",
        "container_id",
        "process_start_unix_ms",
        "boot_sequence",
        "binary_version",
        "git_sha",
        "iroh_version",
        "home_relay_url_at_boot",
    )
