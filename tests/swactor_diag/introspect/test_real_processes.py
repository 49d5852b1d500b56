"""Real children, looked at by each way that production has: files that stay open, files by path, psutil."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec import UNSET

from swactor import ActorSystem, SystemClock
from swactor_diag.introspect import (
    IntrospectorActor,
    LinuxProc,
    ProcRoot,
    ProcStat,
    ProcUnits,
    WatchesProcesses,
    kernel_units,
    native_proc,
)
from swactor_diag.introspect._psutil_proc import UNITS, PsutilProc
from swactor_diag.introspect.process import ProcessIntrospector
from swactor_diag.introspect.subprocesses import SubprocessIntrospector
from swactor_diag.schema.blocks import Subprocess, SubprocessStatus
from swactor_process import ProcessExited, ProcessStarted

Started = Callable[..., ProcessStarted]
Exited = Callable[..., ProcessExited]

NAMES_ITSELF = """
import ctypes
ctypes.CDLL(None).prctl(15, b"a) R 1 2 (b", 0, 0, 0)
print("ready", flush=True)
input()
"""
LEADER_ENDS = """
import ctypes, pathlib, threading
def work():
    while ") Z " not in pathlib.Path("/proc/self/stat").read_text():
        pass
    print("ready", flush=True)
    input()
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""
WAITS = "print('ready', flush=True); input()"


class ByPath:
    """The real /proc without a way of its own to watch a process."""

    def __init__(self) -> None:
        self._proc = LinuxProc()
        self.read_text, self.list_dir = self._proc.read_text, self._proc.list_dir


@pytest.fixture(params=["kept open", "by path", "psutil"])
def table(request: pytest.FixtureRequest) -> Iterator[SubprocessIntrospector]:
    ways: dict[str, tuple[ProcRoot, ProcUnits]] = {
        "kept open": (LinuxProc(), kernel_units()),
        "by path": (ByPath(), kernel_units()),
        "psutil": (PsutilProc(), UNITS),
    }
    proc, units = ways[request.param]
    table = SubprocessIntrospector(proc=proc, clock=SystemClock(), units=units)
    yield table
    table.close()


@contextmanager
def child(program: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``program`` once it has said that it is ready, until it is killed and reaped."""
    command = [sys.executable, "-c", program, *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def only(table: SubprocessIntrospector) -> Subprocess:
    (row,) = table.observe().subprocesses
    return row


def open_files() -> int:
    return len(LinuxProc().list_dir("self/fd") or ())


def has_no_numbers(row: Subprocess) -> bool:
    return all(value is UNSET for value in (row.rss_bytes, row.open_fd_count, row.cpu_ms, row.threads))


def test_a_child_has_its_own_figures_each_time_it_is_looked_at(
    table: SubprocessIntrospector, started: Started
) -> None:
    with child(WAITS) as process:
        table.hear(started(pid=process.pid, start_time=None))
        for _ in range(3):
            row = only(table)
            assert (row.status, row.parent_pid, row.open_fd_count) == (
                SubprocessStatus.RUNNING,
                os.getpid(),
                3,
            )
            assert isinstance(row.rss_bytes, int)
            assert 1_000_000 < row.rss_bytes < 1_000_000_000
            assert str(row.cmdline).startswith(sys.executable)


def test_fc026_a_child_that_calls_itself_something_with_parentheses(
    table: SubprocessIntrospector, started: Started
) -> None:
    with child(NAMES_ITSELF) as process:
        table.hear(started(pid=process.pid, start_time=None))
        row = only(table)
        assert (row.status, row.parent_pid, row.threads) == (SubprocessStatus.RUNNING, os.getpid(), 1)


def test_fc028_a_child_that_nobody_has_reaped_is_not_running(
    table: SubprocessIntrospector, started: Started
) -> None:
    with child(WAITS) as process:
        table.hear(started(pid=process.pid, start_time=None))
        command = only(table).cmdline
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        row = only(table)
        assert (row.status, row.reasons, row.cmdline) == (SubprocessStatus.EXITED, ("zombie",), command)
        assert has_no_numbers(row)


def test_fc028_a_child_whose_main_thread_has_ended_runs_as_long_as_another_thread_works(
    table: SubprocessIntrospector, started: Started
) -> None:
    with child(LEADER_ENDS) as process:
        table.hear(started(pid=process.pid, start_time=None))
        row = only(table)
        assert (row.status, row.state, row.threads) == (SubprocessStatus.RUNNING, "Z", 2)
        assert (row.rss_bytes, row.vm_size_bytes, row.open_fd_count) == (UNSET, UNSET, UNSET)
        assert row.reasons == ("leader_ended",)
        assert isinstance(row.cpu_ms, int)


def test_fc027_a_child_that_is_gone_without_a_word_is_unknown(
    table: SubprocessIntrospector, started: Started
) -> None:
    with child(WAITS) as process:
        table.hear(started(pid=process.pid, start_time=None))
        assert only(table).status is SubprocessStatus.RUNNING
        process.kill()
        process.wait()
        row = only(table)
        assert (row.status, row.reasons) == (SubprocessStatus.UNKNOWN, ("vanished",))
        assert has_no_numbers(row)


def test_fc027_a_thousand_snapshots_while_children_come_and_go(started: Started, exited: Exited) -> None:
    table = SubprocessIntrospector(proc=LinuxProc(), clock=SystemClock(), units=kernel_units())
    running: dict[str, subprocess.Popen[bytes]] = {}
    for number in range(1_000):
        if number % 20 == 0:
            name = f"s{number}"
            running[name] = subprocess.Popen(["sleep", "0.02"])
            table.hear(started(name, pid=running[name].pid, start_time=None))
        for name in [name for name, process in running.items() if process.poll() is not None]:
            table.hear(exited(name, pid=running.pop(name).pid))
        rows = table.observe().subprocesses
        assert all(row.status is SubprocessStatus.RUNNING or has_no_numbers(row) for row in rows)
    for process in running.values():
        process.wait()
    table.close()


def test_fc032_nine_huge_arguments_are_cut(table: SubprocessIntrospector, started: Started) -> None:
    with child(WAITS, *["x" * 120_000] * 9) as process:
        table.hear(started(pid=process.pid, start_time=None, command=("python3",)))
        row = only(table)
        assert row.cmdline_cut
        assert len(str(row.cmdline).encode()) < 300


def test_no_file_stays_open_for_a_child_that_ended_or_after_the_end(started: Started, exited: Exited) -> None:
    before = open_files()
    table = SubprocessIntrospector(proc=LinuxProc(), clock=SystemClock(), units=kernel_units())
    with child(WAITS) as first, child(WAITS) as second:
        pipes = open_files()
        table.hear(started("s1", pid=first.pid, start_time=None))
        table.hear(started("s2", pid=second.pid, start_time=None))
        table.observe()
        assert open_files() == pipes + 4
        table.hear(exited("s1", pid=first.pid))
        assert open_files() == pipes + 2
        table.close()
        assert open_files() == pipes
        assert only_running(table) == ["s2"]
        table.close()
    assert open_files() == before


def only_running(table: SubprocessIntrospector) -> list[object]:
    rows = table.observe().subprocesses
    return [row.spawn_id for row in rows if row.status is SubprocessStatus.RUNNING]


def test_more_children_than_files_may_be_kept_are_read_all_the_same() -> None:
    proc = LinuxProc()
    watched = [proc.watch(os.getpid()) for _ in range(130)]
    assert all(process.stat() is not None and process.count_descriptors() for process in watched)
    assert proc.kept == 128
    for process in watched:
        process.close()
    assert proc.kept == 0


async def test_the_actor_of_an_introspector_closes_it_when_it_stops(started: Started) -> None:
    proc = LinuxProc()
    table = SubprocessIntrospector(proc=proc, clock=SystemClock(), units=kernel_units())
    table.hear(started(pid=os.getpid(), start_time=None))
    async with ActorSystem() as system:
        await system.spawn(IntrospectorActor(table))
        table.observe()
        assert proc.kept == 1
    assert proc.kept == 0


def test_this_machine_is_looked_at_in_its_own_way() -> None:
    proc, units = native_proc()
    assert isinstance(proc, WatchesProcesses)
    row = ProcessIntrospector(proc=proc, clock=SystemClock(), pid=os.getpid(), units=units).observe()
    assert isinstance(row.rss_bytes, int)
    assert row.rss_bytes > 1_000_000


def test_psutil_counts_as_the_kernel_does() -> None:
    kernel, psutil = LinuxProc().watch(os.getpid()).stat(), PsutilProc().watch(os.getpid()).stat()
    assert isinstance(kernel, ProcStat)
    assert isinstance(psutil, ProcStat)
    assert (psutil.parent_pid, psutil.threads, psutil.comm) == (
        kernel.parent_pid,
        kernel.threads,
        kernel.comm,
    )
    assert abs(psutil.cpu_ticks - kernel.cpu_ticks * 10) <= 1_000
