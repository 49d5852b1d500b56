"""Children in snapshots and events: identity, gaps, hostile names, and never a number that was not read."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from msgspec import UNSET

from swactor import ActorSystem, SystemClock
from swactor.abc import Clock
from swactor_diag.introspect import EmptyProc, LinuxProc, ProcReadError, ProcRoot
from swactor_diag.introspect.process import ProcessIntrospector
from swactor_diag.introspect.subprocesses import CHILDREN_A_STEP, SubprocessIntrospector
from swactor_diag.schema.blocks import Subprocess, SubprocessBlock, SubprocessStatus
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Error, SubprocessExited, SubprocessSpawned
from swactor_diag.supervisor import Diagnostics
from swactor_process import OomEvidence, ProcessExited, ProcessStarted

Started = Callable[..., ProcessStarted]
Exited = Callable[..., ProcessExited]


class Proc(ProcRoot, Protocol):
    files: dict[str, str | ProcReadError]
    folders: dict[str, tuple[str, ...] | ProcReadError]
    reads: list[str]

    def add_process(self, pid: int, *, start: int = 500, state: str = "S", name: str = "worker") -> None: ...
    def remove_process(self, pid: int) -> None: ...


class SettableClock(Clock, Protocol):
    now_ms: int


@pytest.fixture
def table(proc: Proc, clock: SettableClock) -> SubprocessIntrospector:
    return SubprocessIntrospector(proc=proc, clock=clock)


def only(table: SubprocessIntrospector) -> Subprocess:
    (row,) = table.observe().subprocesses
    return row


def has_no_numbers(row: Subprocess) -> bool:
    return all(
        value is UNSET
        for value in (row.rss_bytes, row.vm_size_bytes, row.open_fd_count, row.cpu_ms, row.threads)
    )


def test_a_running_child_has_its_numbers(table: SubprocessIntrospector, proc: Proc, started: Started) -> None:
    proc.add_process(42)
    table.hear(started())
    row = only(table)
    assert (row.status, row.label, row.pid, row.spawn_id) == (SubprocessStatus.RUNNING, "worker", 42, "s1")
    assert (row.rss_bytes, row.vm_size_bytes, row.open_fd_count) == (250 * 4096, 4_096_000, 3)
    assert (row.cpu_ms, row.threads, row.state, row.parent_pid) == (5_000, 3, "S", 7)
    assert row.cmdline == "python3 worker.py --stage 1"


def test_start_and_exit_are_each_reported_exactly_once(
    table: SubprocessIntrospector, started: Started, exited: Exited
) -> None:
    for message in (started(), started(), exited(), exited(), started()):
        table.hear(message)
    spawned, ended = table.take_events()
    assert isinstance(spawned, SubprocessSpawned)
    assert isinstance(ended, SubprocessExited)
    assert (ended.exit_code, ended.exit_signal, ended.uptime_ms) == (3, None, 1_250)
    assert ended.stderr_tail == "cannot open device"
    assert table.take_events() == []


def test_an_ended_child_stays_with_its_fate_and_proc_is_not_read_again(
    table: SubprocessIntrospector, proc: Proc, started: Started, exited: Exited
) -> None:
    proc.add_process(42)
    table.hear(started())
    table.hear(exited(exit_code=None, signal=9))
    proc.reads.clear()
    row = only(table)
    assert (row.status, row.exit_signal, row.exit_code) == (SubprocessStatus.EXITED, 9, UNSET)
    assert row.exit_at_ms == 1_700_000_001_250
    assert has_no_numbers(row)
    assert proc.reads == []


def test_fc_021_an_exit_event_says_whose_signal_it_was_and_what_the_kernel_counted(
    table: SubprocessIntrospector, exited: Exited
) -> None:
    """And nothing where there is nothing to say."""
    oom = OomEvidence(2, own_cgroup=True)
    table.hear(exited("killed", exit_code=None, signal=9, external=True, oom=oom))
    table.hear(exited("stopped", exit_code=None, signal=15, asked_for=True))
    table.hear(exited("finished"))

    events = [event for event in table.take_events() if isinstance(event, SubprocessExited)]

    facts = [(event.external, event.oom_kills, event.oom_own_cgroup) for event in events]
    assert facts == [(True, 2, True), (False, UNSET, UNSET), (UNSET, UNSET, UNSET)]


def test_an_exit_that_nobody_announced_is_told_under_what_it_says(
    table: SubprocessIntrospector, exited: Exited
) -> None:
    table.hear(exited(label="", command=(), pid=77))
    row = only(table)
    assert (row.label, row.status, row.spawn_at_ms) == ("unknown-pid-77", SubprocessStatus.EXITED, UNSET)
    (event,) = table.take_events()
    assert isinstance(event, SubprocessExited)
    assert (event.label, event.command) == ("unknown-pid-77", "")


def test_other_messages_are_ignored(table: SubprocessIntrospector) -> None:
    table.hear("hello")
    assert table.observe().subprocesses == ()


def test_fc025_two_children_with_one_label_are_two(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    proc.add_process(43)
    table.hear(started("s1", pid=42))
    table.hear(started("s2", pid=43))
    assert [(row.label, row.spawn_id) for row in table.observe().subprocesses] == [
        ("worker", "s1"),
        ("worker", "s2"),
    ]


def test_fc025_a_pid_that_is_used_again_is_another_child(
    table: SubprocessIntrospector, proc: Proc, started: Started, exited: Exited
) -> None:
    table.hear(started("s1", start_time=500))
    table.hear(exited("s1"))
    proc.add_process(42, start=900)
    table.hear(started("s2", start_time=900))
    rows = table.observe().subprocesses
    assert [(row.spawn_id, row.status.value) for row in rows] == [("s1", "exited"), ("s2", "running")]


def test_fc026_a_name_with_blanks_and_parentheses_shifts_nothing(
    clock: Clock, captured: Path, started: Started
) -> None:
    table = SubprocessIntrospector(proc=LinuxProc(str(captured)), clock=clock)
    table.hear(started(pid=102, start_time=189968))
    row = only(table)
    assert (row.status, row.state, row.parent_pid) == (SubprocessStatus.RUNNING, "S", 20996)
    assert (row.rss_bytes, row.vm_size_bytes, row.cpu_ms) == (3431 * 4096, 17149952, 50)


def test_fc027_a_process_that_vanishes_between_two_reads_changes_its_own_entry_only(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    proc.add_process(43)
    table.hear(started("s1", pid=42))
    table.hear(started("s2", pid=43))
    proc.remove_process(42)
    gone, alive = table.observe().subprocesses
    assert (gone.status, gone.reasons) == (SubprocessStatus.UNKNOWN, ("vanished",))
    assert has_no_numbers(gone)
    assert alive.status is SubprocessStatus.RUNNING


def test_fc027_files_that_vanish_after_stat_leave_what_was_read(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    table.hear(started())
    proc.folders.clear()
    proc.files.pop("42/cmdline")
    row = only(table)
    assert (row.open_fd_count, row.cmdline) == (UNSET, "python3 worker.py")
    assert row.rss_bytes == 250 * 4096


def test_the_memory_of_a_child_that_hangs_in_the_kernel_is_not_touched(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    """A driver that hangs may hold the lock of its caller's memory: to read ``cmdline`` would hang, too."""
    proc.add_process(42, state="D")
    table.hear(started())
    rows = [only(table) for _ in range(100)]
    assert (rows[-1].state, rows[-1].cmdline) == ("D", "python3 worker.py")
    assert rows[-1].rss_bytes == 250 * 4096
    assert "42/cmdline" not in proc.reads
    proc.add_process(42, state="S")
    assert only(table).cmdline == "python3 worker.py --stage 1"


def test_fc028_a_zombie_has_no_memory_and_keeps_its_command(
    clock: Clock, captured: Path, started: Started
) -> None:
    table = SubprocessIntrospector(proc=LinuxProc(str(captured)), clock=clock)
    table.hear(started(pid=103, start_time=189999))
    row = only(table)
    assert (row.status, row.state, row.reasons) == (SubprocessStatus.EXITED, "Z", ("zombie",))
    assert has_no_numbers(row)
    assert row.cmdline == "python3 worker.py"


def test_fc029_numbers_of_a_stranger_are_never_reported(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42, start=9_999)
    table.hear(started(start_time=500))
    row = only(table)
    assert (row.status, row.reasons) == (SubprocessStatus.EXITED, ("pid_reused",))
    assert has_no_numbers(row)


def test_fc029_a_start_time_the_driver_did_not_know_is_read_at_once(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42, start=500)
    table.hear(started(start_time=None))
    proc.add_process(42, start=9_999)
    assert only(table).reasons == ("pid_reused",)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_fc030_a_wall_clock_that_jumps_changes_no_status(
    table: SubprocessIntrospector,
    *,
    proc: Proc,
    clock: SettableClock,
    started: Started,
    exited: Exited,
    jump_ms: int,
) -> None:
    proc.add_process(42)
    table.hear(started())
    clock.now_ms += jump_ms
    assert only(table).status is SubprocessStatus.RUNNING
    table.hear(exited(uptime_ms=10, exited_at_ms=clock.now_ms))
    event = table.take_events()[-1]
    assert isinstance(event, SubprocessExited)
    assert (event.uptime_ms, event.exited_at_ms) == (10, clock.now_ms)


def test_fc031_what_is_denied_is_absent_with_its_reason_and_the_rest_is_there(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    proc.folders["42/fd"] = ProcReadError("42/fd", "EACCES")
    table.hear(started())
    row = only(table)
    assert (row.status, row.open_fd_count, row.reasons) == (SubprocessStatus.RUNNING, UNSET, ("fd: EACCES",))
    assert row.rss_bytes == 250 * 4096


def test_fc031_only_registered_pids_are_read(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    proc.add_process(1)
    table.hear(started())
    table.observe()
    assert {path.split("/")[0] for path in proc.reads} == {"42"}


def test_fc032_a_huge_command_line_is_cut_and_flagged(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    proc.files["42/cmdline"] = "python3\0script.py\0" + "ä" * 1_000_000 + "\0\0\0"
    table.hear(started())
    row = only(table)
    assert (row.cmdline, row.cmdline_cut) == ("python3 script.py…", True)


def test_fc032_a_command_line_is_read_again_when_the_program_changes_its_name_and_now_and_then(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42, name="sh")
    table.hear(started())
    assert only(table).cmdline == "python3 worker.py --stage 1"
    proc.add_process(42, name="worker")
    proc.files["42/cmdline"] = "worker\0--ready\0"
    assert only(table).cmdline == "worker --ready"
    proc.files["42/cmdline"] = "worker: idle\0\0\0\0"
    shown = [only(table).cmdline for _ in range(60)]
    assert (shown[0], shown[-1]) == ("worker --ready", "worker: idle")


def test_fc033_cpu_time_that_goes_back_is_stored_as_read_and_marked(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    table.hear(started())
    assert only(table).cpu_reset is False
    text = proc.files["42/stat"]
    assert isinstance(text, str)
    proc.files["42/stat"] = text.replace(" 300 200 ", " 100 200 ")
    row = only(table)
    assert (row.cpu_ms, row.cpu_reset) == (3_000, True)


@pytest.mark.parametrize(
    "case",
    [
        (21, -1, "rss_bytes", "rss: negative"),
        (20, 2**64 - 4096, "vm_size_bytes", "vm_size: wrapped"),
        (11, 2**64 - 1, "cpu_ms", "cpu: wrapped"),
        (12, -5, "cpu_ms", "cpu: negative"),
        (17, -1, "threads", "threads: negative"),
    ],
)
def test_fc033_what_cannot_have_been_measured_is_absent_and_says_so(
    table: SubprocessIntrospector, proc: Proc, clock: Clock, started: Started, case: tuple[int, int, str, str]
) -> None:
    field, bad, absent, reason = case
    proc.add_process(42)
    table.hear(started())
    whole = msgspec.to_builtins(only(table))
    before = str(proc.files["42/stat"])
    fields = before[before.rfind(")") + 2 :].split()
    fields[field] = str(bad)
    proc.files["42/stat"] = "42 (worker) " + " ".join(fields)
    rest = {name: value for name, value in whole.items() if name != absent}
    assert msgspec.to_builtins(only(table)) == {**rest, "reasons": (reason,)}
    own = ProcessIntrospector(proc=proc, clock=clock, pid=42).observe()
    assert (getattr(own, absent), own.reasons) == (UNSET, (reason,))
    proc.files["42/stat"] = before
    assert msgspec.to_builtins(only(table)) == whole


def test_fc034_without_proc_the_status_is_unknown_and_one_diagnostic_names_the_cause(
    clock: Clock, started: Started
) -> None:
    table = SubprocessIntrospector(proc=EmptyProc(), clock=clock)
    table.hear(started("s1"))
    table.hear(started("s2", pid=43))
    for _ in range(3):
        rows = table.observe().subprocesses
        assert {(row.status.value, row.reasons) for row in rows} == {("unknown", ("no_proc",))}
        assert all(has_no_numbers(row) for row in rows)
    assert [type(event) for event in table.take_events()].count(Error) == 1


def test_a_malformed_stat_line_costs_one_entry(
    table: SubprocessIntrospector, proc: Proc, started: Started
) -> None:
    proc.add_process(42)
    table.hear(started())
    proc.files["42/stat"] = "42 (worker"
    row = only(table)
    assert (row.status, row.reasons) == (SubprocessStatus.UNKNOWN, ("stat: malformed",))


def test_ended_children_are_kept_up_to_a_limit_and_a_late_duplicate_says_nothing_new(
    proc: Proc, clock: Clock, started: Started, exited: Exited
) -> None:
    table = SubprocessIntrospector(proc=proc, clock=clock, exited_kept_max=2)
    for number in range(5):
        table.hear(started(f"s{number}"))
        table.hear(exited(f"s{number}"))
    table.take_events()
    table.hear(exited("s0"))
    block = table.observe()
    assert [row.spawn_id for row in block.subprocesses] == ["s3", "s4"]
    assert block.exited_forgotten == 3
    assert table.take_events() == []


class EmptyMachine:
    """A ``/proc`` on which each child has vanished; it counts how often it is asked in a turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.asked: Counter[int] = Counter()

    def read_text(self, path: str) -> str | None:
        self.asked[self.turn] += path.endswith("/stat") and path != "self/stat"
        return "" if path == "self/stat" else None

    def list_dir(self, path: str) -> None:
        pass


async def test_a_thousand_children_are_not_looked_at_in_one_turn_of_the_loop(
    identity: Identity, started: Started
) -> None:
    machine = EmptyMachine()
    table = SubprocessIntrospector(proc=machine, clock=SystemClock())
    for number in range(1000):
        table.hear(started(f"s{number}", pid=number + 2))

    async def count_turns() -> None:
        while True:
            machine.turn += 1
            await checkpoint()

    async with ActorSystem() as system, anyio.create_task_group() as tasks:
        diag = await Diagnostics.start(system, identity, introspectors=[table])
        tasks.start_soon(count_turns)
        snapshot = await diag.snapshot()
        tasks.cancel_scope.cancel()
    assert isinstance(snapshot.body.subprocess, SubprocessBlock)
    assert len(snapshot.body.subprocess.subprocesses) == machine.asked.total() == 1000
    assert max(machine.asked.values()) <= CHILDREN_A_STEP
