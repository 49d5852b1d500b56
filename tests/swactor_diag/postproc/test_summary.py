"""The summary of runs that were made through the collector, as a person reads it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import UNSET

from swactor import Event, NodeId
from swactor.relay.events import CloseInitiator, RelaySessionClosed
from swactor_diag.collector.bundle import build_bundle
from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.storage import MemoryStorage
from swactor_diag.postproc.load import load_run
from swactor_diag.postproc.summary import render
from swactor_diag.schema.boot import SCHEMA_VERSION
from swactor_diag.schema.events import (
    SubprocessExited,
    SubprocessSpawned,
    encode_record,
)
from swactor_diag.schema.producers import (
    DialErrorText,
    DialOutcome,
    DialStarted,
    GossipReceived,
)
from swactor_diag.schema.submission import Outgoing, RecordKind, batch_id
from swactor_process.events import SubprocessLeftBehind, SubprocessSpawnFailed

START_MS = 1_779_720_000_000  # 2026-05-25 14:40:00 UTC
GOLDEN = Path(__file__).parent / "golden"

ORCHESTRATOR = NodeId("0a" * 32)
STAGES = [NodeId(f"{number}b" * 32) for number in range(3)]
RELAY = NodeId("cc" * 32)


class MadeRun:
    """A run put together record by record, as nodes and a collector would."""

    run_id = "run-1"

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self._ingest = Ingest(self.storage)
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._sequences: dict[tuple[str, str], int] = {}

    def boot(self, node: str, *, at_s: float = 0, boot: str = "b1", **facts: object) -> None:
        self._post("boot", self._identity(node, boot, at_s) | facts, node=node, boot=boot, at_s=at_s)

    def events(self, node: str, *events: Event | dict[str, object], at_s: float, boot: str = "b1") -> None:
        rows = []
        for event in events:
            seq = self._sequences[node, boot] = self._sequences.get((node, boot), 0) + 1
            wall_ms = START_MS + round(at_s * 1000)
            if isinstance(event, Event):
                rows.append(json.loads(encode_record(node, seq=seq, wall_ms=wall_ms, event=event)))
            else:
                rows.append({"node_id": node, "monotonic_seq": seq, "wall_ms": wall_ms} | event)
        self._post("events", rows, node=node, boot=boot, at_s=at_s)

    def snapshot(self, node: str, *, at_s: float, boot: str = "b1", **blocks: object) -> None:
        seq = self._sequences.get((node, boot), 0)
        body = {
            "identity": self._identity(node, boot, 0),
            "run_id": self.run_id,
            "snapshot_id": f"{node[:8]}-{seq}",
            "wall_ms": START_MS + round(at_s * 1000),
            "monotonic_seq": seq,
            "trigger": {"kind": "Periodic"},
            "body": {"reachability": []} | blocks,
        }
        self._post("snapshot", body, node=node, boot=boot, at_s=at_s)

    def finalize(self, node: str, *, at_s: float, reason: str) -> None:
        self._post("finalize", {"reason": reason}, node=node, boot="b1", at_s=at_s)

    def bundle(self) -> bytes:
        return build_bundle(self.storage, self.run_id)

    def _identity(self, node: str, boot: str, at_s: float) -> dict[str, object]:
        return {
            "node_id_hex": node,
            "node_id_short": node[:8],
            "role": "node",
            "run_id": self.run_id,
            "process_start_unix_ms": START_MS + round(at_s * 1000),
            "boot_sequence": 0,
            "boot_id": boot,
        }

    def _post(self, kind: str, body: object, *, node: str, boot: str, at_s: float) -> None:
        number = self._numbers[node, boot, kind] = self._numbers.get((node, boot, kind), 0) + 1
        record = Outgoing(
            kind=RecordKind(kind),
            run_id=self.run_id,
            node_id=node,
            batch_id=batch_id(boot, RecordKind(kind), number),
            body=json.dumps(body).encode(),
        )
        self._ingest.accept(record, START_MS + round(at_s * 1000))


@pytest.fixture
def made() -> MadeRun:
    return MadeRun()


def summary_of(made: MadeRun) -> str:
    return render(load_run(made.bundle()))


def section(summary: str, title: str) -> str:
    return summary.split(f"## {title}\n\n", 1)[1].split("\n\n## ", 1)[0]


def cells(summary: str, title: str) -> list[list[str]]:
    """Return the rows of a section's table, without its head."""
    lines = section(summary, title).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def spawned(label: str, pid: int) -> SubprocessSpawned:
    return SubprocessSpawned(label=label, pid=pid, command="python worker.py", spawn_id=f"s{pid}")


def exited(label: str, pid: int, **facts: object) -> SubprocessExited:
    known: dict[str, object] = {
        "label": label,
        "pid": pid,
        "command": "python worker.py",
        "spawn_id": f"s{pid}",
    }
    return SubprocessExited(**(known | facts))  # type: ignore[arg-type]  # each test names its own fields


def swim(peer: str, to: str, reason: str) -> dict[str, object]:
    return {"type": "SwimTransition", "peer": peer, "from": "Suspect", "to": to, "reason": reason}


def three_stages(made: MadeRun) -> None:
    """A run in which the middle stage's worker was killed and the orchestrator finalized."""
    made.boot(ORCHESTRATOR, role="orchestrator", hostname="head")
    made.boot(RELAY, role="relay", hostname="gate")
    for index, node in enumerate(STAGES):
        made.boot(node, role="stage", stage_index=index, stage_count=3, hostname=f"box-{index}")
    for index, node in enumerate(STAGES[:2]):
        made.events(node, spawned(f"worker-stage-{index}", 100 + index), at_s=1)
    made.events(
        STAGES[1], exited("worker-stage-1", 101, exit_signal=9, uptime_ms=1_000, asked_for=False), at_s=2
    )
    made.events(STAGES[0], swim(STAGES[1], "Dead", "suspicion-timeout"), at_s=9)
    paths = {
        "peers": [{"peer_node_id_hex": STAGES[1], "conn_type": "None"}],
        "relay_session": {"status": "connected", "status_source": "iroh"},
        "scraped_at_ms": START_MS,
    }
    running = {
        "subprocesses": [{"label": "worker-stage-0", "pid": 100, "spawn_id": "s100", "status": "running"}],
        "scraped_at_ms": START_MS,
    }
    made.snapshot(STAGES[0], at_s=10, iroh=paths, subprocess=running)
    made.events(
        ORCHESTRATOR,
        DialStarted(peer=STAGES[1], attempt=1, timeout_ms=5_000),
        DialOutcome(peer=STAGES[1], attempt=1, outcome="Timeout", duration_ms=5_000),
        DialStarted(peer=STAGES[0], attempt=1, timeout_ms=5_000),
        DialOutcome(peer=STAGES[0], attempt=1, outcome="Success", duration_ms=20),
        GossipReceived(source_peer=STAGES[0], payload_kind="swim_piggyback", payload_bytes=120, item_count=3),
        at_s=11,
    )
    made.events(
        RELAY,
        session_closed(opened_s=0, closed_s=2.5),
        at_s=3,
    )
    made.finalize(ORCHESTRATOR, at_s=40, reason="answer complete")


def session_closed(*, opened_s: float, closed_s: float) -> RelaySessionClosed:
    return RelaySessionClosed(
        peer_node_id_hex=STAGES[1],
        opened_at_ms=START_MS + round(opened_s * 1000),
        closed_at_ms=START_MS + round(closed_s * 1000),
        duration_ms=round((closed_s - opened_s) * 1000),
        close_initiator=CloseInitiator.REMOTE,
        close_reason="client_gone",
        bytes_rx=1_000,
        bytes_tx=2_000,
    )


def test_a_tunnel_that_flaps_is_shown_with_its_rate(made: MadeRun) -> None:
    """FC-085."""
    made.boot(RELAY, role="relay")
    for second in range(0, 120, 10):
        made.events(RELAY, session_closed(opened_s=second, closed_s=second + 10), at_s=second + 10)

    text = section(summary_of(made), "Relay sessions")

    assert "after 10.0 s, one of 12 in 2.0 min (6.0 a minute), received" in text


def test_the_whole_summary_of_a_small_run(made: MadeRun) -> None:
    three_stages(made)

    assert summary_of(made) == (GOLDEN / "three_stages.md").read_text()


def test_every_heading_is_there_even_when_nothing_happened(made: MadeRun) -> None:
    made.boot(ORCHESTRATOR, role="orchestrator")

    summary = summary_of(made)

    titles = [line.removeprefix("## ") for line in summary.splitlines() if line.startswith("## ")]
    assert titles == [
        "Run",
        "Nodes",
        "Hosts",
        "Workers",
        "Application events",
        "First peer to go Dead",
        "Relay sessions",
        "Gossip receipts",
        "Per-peer dials",
        "Event totals",
        "Not in this bundle",
    ]
    assert all(section(summary, title).strip() for title in titles)
    assert "SWACTOR_DIAG_COLLECTOR_URL" in section(summary, "Relay sessions")


@pytest.mark.parametrize(
    ("facts", "fate"),
    [
        ({"exit_code": 0, "uptime_ms": 3_200, "asked_for": True}, "exited 0 after 3.2 s (asked)"),
        ({"exit_code": 3, "uptime_ms": 40}, "exited 3 after 40 ms"),
        (
            {"exit_signal": 9, "uptime_ms": 1_000, "asked_for": False},
            "killed by signal 9 after 1.0 s, not by us",
        ),
        (
            {"exit_signal": 9, "asked_for": False, "external": True},
            "killed by signal 9, not by us",
        ),
        (
            {"exit_signal": 9, "asked_for": True, "escalated": False, "external": True},
            "killed by signal 9, not by us while we were stopping it",
        ),
        (
            {
                "exit_signal": 9,
                "asked_for": False,
                "external": True,
                "oom_kills": 1,
                "oom_own_cgroup": True,
            },
            "killed by signal 9, not by us (1 out-of-memory kill in its own cgroup meanwhile)",
        ),
        (
            {
                "exit_signal": 9,
                "asked_for": False,
                "external": True,
                "oom_kills": 0,
                "oom_own_cgroup": False,
            },
            "killed by signal 9, not by us (no out-of-memory kills in its node's cgroup meanwhile)",
        ),
        ({"exit_signal": 15, "asked_for": True, "external": False}, "stopped by us with signal 15"),
        ({"exit_signal": 15, "asked_for": True}, "stopped by us with signal 15"),
        (
            {"exit_signal": 9, "asked_for": True, "escalated": True},
            "killed by us with signal 9: it did not stop when asked",
        ),
        ({"exit_signal": 11}, "killed by signal 11, nobody recorded by whom"),
        ({"uptime_ms": 500}, "ended after 500 ms, its status is not known"),
    ],
)
def test_the_fate_of_a_worker_in_words(made: MadeRun, facts: dict[str, object], fate: str) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0)
    made.events(STAGES[0], spawned("worker", 7), exited("worker", 7, **facts), at_s=1)

    (row,) = cells(summary_of(made), "Workers")

    assert row[5] == fate


def test_workers_with_one_label_are_told_apart(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0)
    made.events(STAGES[0], spawned("worker", 7), spawned("worker", 8), at_s=1)
    made.events(STAGES[0], exited("worker", 8, exit_code=1), at_s=2)

    rows = cells(summary_of(made), "Workers")

    assert [(row[3], row[5].split(" (")[0]) for row in rows] == [
        ("7", "running at last sight"),
        ("8", "exited 1"),
    ]


def test_the_first_of_several_dead_marks_is_the_one_explained(made: MadeRun) -> None:
    for index, node in enumerate(STAGES):
        made.boot(node, role="stage", stage_index=index)
    made.events(STAGES[0], swim(STAGES[2], "Dead", "gossip"), at_s=20)
    made.events(STAGES[1], swim(STAGES[0], "Dead", "probe-timeout"), at_s=10)
    made.events(STAGES[2], swim(STAGES[0], "Suspect", "probe-timeout"), at_s=5)

    dead = section(summary_of(made), "First peer to go Dead")

    assert dead.startswith("- stage-1 marked stage-0 ")
    assert "after this one: 1" in dead


def test_a_peer_that_left_in_order_was_not_lost(made: MadeRun) -> None:
    for index, node in enumerate(STAGES):
        made.boot(node, role="stage", stage_index=index)
    made.events(STAGES[0], swim(STAGES[2], "Dead", "left"), at_s=5)

    assert section(summary_of(made), "First peer to go Dead") == (
        "No node gave a peer up (SwimTransition events to Dead would say so);"
        " peers were seen to leave in order 1 times."
    )


def test_an_exit_without_a_start_is_shown_all_the_same(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0)
    made.events(STAGES[0], exited("worker", 8, exit_code=1), at_s=2)
    still_listed = {
        "subprocesses": [{"label": "worker", "pid": 8, "spawn_id": "s8", "status": "running"}],
        "scraped_at_ms": START_MS,
    }
    made.snapshot(STAGES[0], at_s=3, subprocess=still_listed)

    (row,) = cells(summary_of(made), "Workers")

    assert (row[4], row[5]) == ("?", "exited 1")


def test_a_reused_pid_is_another_worker(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0)
    events = [
        {"type": "SubprocessSpawned", "label": "one", "pid": 7, "command": ""},
        {"type": "SubprocessExited", "label": "one", "pid": 7, "command": "", "exit_code": 1},
        {"type": "SubprocessSpawned", "label": "two", "pid": 7, "command": ""},
        {"type": "SubprocessExited", "label": "two", "pid": 7, "command": "", "exit_code": 2},
    ]
    made.events(STAGES[0], *events, at_s=1)

    assert [(row[2], row[5]) for row in cells(summary_of(made), "Workers")] == [
        ("one", "exited 1"),
        ("two", "exited 2"),
    ]


def test_a_refused_start_and_last_words_are_shown(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0)
    failed = SubprocessSpawnFailed(
        label="worker",
        command="nope",
        spawn_id="s1",
        errno_name="ENOENT",
        role="program",
        path="/bin/nope",
        message="no such program",
    )
    tail = "loading\nTraceback\nValueError: bad weights\n\n"
    made.events(
        STAGES[0], failed, spawned("worker", 8), exited("worker", 8, exit_code=1, stderr_tail=tail), at_s=1
    )

    rows = cells(summary_of(made), "Workers")

    assert [row[5] for row in rows] == ["could not be started", "exited 1"]
    assert "ENOENT" in rows[0][6]
    assert rows[1][6] == "ValueError: bad weights"


def test_what_an_earlier_boot_left_behind_is_shown(made: MadeRun) -> None:
    left = SubprocessLeftBehind(
        label="worker", pid=70, start_time=9, child_alive=False, pids=(71, 72), alive=2, node_pid=60
    )
    made.events(STAGES[0], left, at_s=1)

    (row,) = cells(summary_of(made), "Workers")

    assert (row[2], row[3], row[5]) == ("worker", "70", "of an earlier boot, found alive")
    assert "process 60" in row[6]
    assert "71, 72" in row[6]


def test_a_node_that_fell_silent_is_marked(made: MadeRun) -> None:
    for node, index in ((STAGES[0], 0), (STAGES[1], 1)):
        made.boot(node, role="stage", stage_index=index)
    made.snapshot(STAGES[0], at_s=100)

    rows = {row[0]: row[6] for row in cells(summary_of(made), "Nodes")}

    assert rows == {"stage-0": "-", "stage-1": "silent for the last 100.0 s"}


def test_a_node_whose_records_could_be_misunderstood_is_marked(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0, schema_version=SCHEMA_VERSION)
    made.boot(STAGES[1], role="stage", stage_index=1, schema_version=SCHEMA_VERSION + 1)

    rows = {row[0]: row[6] for row in cells(summary_of(made), "Nodes")}

    assert rows["stage-0"] == "-"
    assert rows["stage-1"].startswith(
        f"wrote schema {SCHEMA_VERSION + 1}, this reader knows {SCHEMA_VERSION}"
    )


def test_a_node_that_started_twice_is_read_in_the_order_of_its_lives(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0, boot="b1", at_s=0)
    made.boot(STAGES[0], role="stage", stage_index=0, boot="b2", at_s=50)
    made.events(STAGES[0], spawned("second life", 8), at_s=51, boot="b2")
    made.events(STAGES[0], spawned("first life", 7), at_s=60, boot="b1")  # spooled, delivered late

    summary = summary_of(made)

    assert [row[2] for row in cells(summary, "Workers")] == ["first life", "second life"]
    assert cells(summary, "Nodes")[0][6] == "started 2 times"


def test_dials_that_failed_as_the_node_itself_was_cut_off_are_told_apart(made: MadeRun) -> None:
    made.boot(ORCHESTRATOR, role="orchestrator")
    for attempt, down in ((1, True), (2, True), (3, UNSET)):
        outcome = DialOutcome(
            peer=STAGES[0], attempt=attempt, outcome="Timeout", duration_ms=1, tunnel_down=down
        )
        made.events(ORCHESTRATOR, outcome, at_s=attempt)

    text = section(summary_of(made), "Per-peer dials")

    assert "| 3 (2 cut off) |" in text
    assert "no tunnel to its relay" in text


def test_dial_errors_cannot_spoil_the_table(made: MadeRun) -> None:
    made.boot(ORCHESTRATOR, role="orchestrator")
    outcome = DialErrorText(error="a|b\n| forged | row |")
    made.events(ORCHESTRATOR, DialOutcome(peer=STAGES[0], attempt=1, outcome=outcome, duration_ms=1), at_s=1)

    lines = section(summary_of(made), "Per-peer dials").splitlines()

    assert len(lines) == 4
    assert all(line.replace("\\|", "").count("|") == 8 for line in lines)


HOSTILE = [
    "a|b",
    "a\n## x",
    "[x](javascript:1)",
    "<img src=x onerror=1>",
    "```",
    "` `` ```",
    "http://example.org",
    "www.example.org",
    "me@example.org",
    "&lt;b&gt;",
    "*bold* _it_ ~~no~~",
    "a\\|b",
    "\u202eevil",
    "x" * 10_000,
    "\x00\x1b[31m",
    " ",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_values_are_inert_wherever_they_appear(made: MadeRun, hostile: str) -> None:
    made.boot(STAGES[0], role=hostile, hostname=hostile, host_ip_public=hostile, git_sha=hostile)
    made.events(
        STAGES[0],
        spawned(hostile, 1),
        exited(hostile, 1, exit_code=1, stderr_tail=hostile),
        {"type": hostile or "x", "field": hostile},
        {"type": "Custom", "kind": hostile, "fields": {hostile: hostile}},
        GossipReceived(source_peer=STAGES[1], payload_kind=hostile, payload_bytes=1, item_count=1),
        at_s=1,
    )
    made.finalize(STAGES[0], at_s=2, reason=hostile)

    summary = summary_of(made)

    assert len(summary) < 20_000
    assert [line for line in summary.splitlines() if line.startswith("#")] == [
        line for line in summary_of(_calm()).splitlines() if line.startswith("#")
    ]
    for title, columns in (
        ("Nodes", 7),
        ("Workers", 7),
        ("Application events", 4),
        ("Gossip receipts", 5),
        ("Event totals", 2),
    ):
        for line in section(summary, title).splitlines():
            if line.startswith("- ") or not line:
                continue  # a list, before its table
            assert line.replace("\\\\", "").replace("\\|", "").count("|") == columns + 1, line
    assert all(char.isprintable() or char == "\n" for char in summary)
    outside = _without_code(summary)
    assert not any(mark in outside for mark in ("](", "<img", "http://", "www.", "@", "**", "~~", "&lt;"))


def _calm() -> MadeRun:
    made = MadeRun()
    made.boot(STAGES[0])
    return made


def _without_code(text: str) -> str:
    """Return ``text`` without its code spans, which show what they hold and do nothing."""
    kept: list[str] = []
    for line in text.splitlines():
        rest = line
        while "`" in rest:
            before, _, after = rest.partition("`")
            fence = 1 + len(after) - len(after.lstrip("`"))
            body = after[fence - 1 :]
            runs = _runs(body)
            end = next((start for start, length in runs if length == fence), None)
            assert end is not None, line
            kept.append(before)
            rest = body[end + fence :]
        kept.append(rest)
    return "\n".join(kept)


def _runs(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    position = 0
    while position < len(text):
        length = len(text[position:]) - len(text[position:].lstrip("`"))
        if length:
            found.append((position, length))
        position += length or 1
    return found


def test_unknown_kinds_are_counted_and_a_wrong_body_is_located(made: MadeRun) -> None:
    made.boot(STAGES[0], role="stage", stage_index=0)
    made.events(
        STAGES[0],
        {"type": "TeleportStarted", "to": "mars"},
        {"type": "SubprocessExited", "label": "w", "pid": 1, "command": "", "exit_code": [1]},
        spawned("w", 2),
        at_s=1,
    )

    summary = summary_of(made)

    assert "TeleportStarted (not declared here: the application's own, or newer)" in section(
        summary, "Event totals"
    )
    assert "stage-0/events/events-000001.json" in section(summary, "Not in this bundle")
    assert [row[3] for row in cells(summary, "Workers")] == ["2"]


@pytest.mark.parametrize(
    "removed", ["MANIFEST.json", "boot.json", "events/", "snapshots/", "finalize.json", ""]
)
def test_a_bundle_with_a_part_missing_says_so_and_shows_the_rest(
    made: MadeRun,
    removed: str,
    unpack: Callable[[bytes], dict[str, bytes]],
    pack: Callable[[dict[str, bytes]], bytes],
) -> None:
    three_stages(made)
    files = {
        name: data for name, data in unpack(made.bundle()).items() if removed == "" or removed not in name
    }

    summary = render(load_run(pack(files if removed else {})))

    assert summary.count("\n## ") == 11
    missing = section(summary, "Not in this bundle")
    assert ("Nothing is known to be missing" not in missing) or removed == ""


def test_the_summary_warns_first_when_the_archive_is_cut_off(made: MadeRun) -> None:
    three_stages(made)
    bundle = made.bundle()

    for length in (len(bundle) // 1000, len(bundle) // 100, len(bundle) // 2, len(bundle) - 4):
        run = load_run(bundle[:length])
        assert run.incomplete
        assert render(run).startswith("> Warning: ")
    assert not load_run(bundle).incomplete
