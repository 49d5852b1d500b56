"""This process about itself, and the real /proc."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import anyio
import pytest
from msgspec import UNSET

from swactor import SystemClock
from swactor.abc import Cancellable, Clock, Loop
from swactor_diag.introspect import EmptyProc, LinuxProc, ProcReadError, kernel_units
from swactor_diag.introspect.process import LoopLag, ProcessIntrospector, python_facts
from swactor_diag.schema.blocks import PythonFacts


def test_the_figures_of_this_very_process() -> None:
    block = ProcessIntrospector(
        proc=LinuxProc(), clock=SystemClock(), pid=os.getpid(), units=kernel_units(), interpreter=python_facts
    ).observe()
    assert isinstance(block.rss_bytes, int)
    assert block.rss_bytes > 1_000_000
    assert isinstance(block.open_fd_count, int)
    assert block.open_fd_count >= 3
    assert block.reasons == ()
    assert isinstance(block.python, PythonFacts)
    assert block.python.implementation == sys.implementation.name


class HeldLoop:
    """A loop that is held: its timers come when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[Callable[[], None]] = []

    def time_s(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        self.due.clear()

    def turn(self, *, at_s: float) -> None:
        self.now_s = at_s
        due, self.due = self.due, []
        for callback in due:
            callback()


def test_the_lag_is_the_worst_since_the_last_look_also_of_a_timer_that_has_not_come() -> None:
    held = HeldLoop()
    lag = LoopLag(cast("Loop", held))  # as much of a loop as it needs
    assert lag.take() is UNSET
    held.turn(at_s=0.25)
    held.turn(at_s=0.8)
    held.turn(at_s=1.05)
    assert lag.take() == 300
    held.now_s = 3.3
    assert lag.take() == 2_000


def test_nothing_is_measured_when_nobody_looks_any_more() -> None:
    held = HeldLoop()
    lag = LoopLag(cast("Loop", held))
    lag.take()
    for turn in range(1_000):
        held.turn(at_s=turn * 0.25)
    assert held.due == []
    lag.take()
    lag.close()
    assert held.due == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_tasks_of_the_loop_are_counted_on_every_backend(backend: str) -> None:
    async def count() -> tuple[object, object]:
        async with anyio.create_task_group() as tasks:
            before = python_facts().tasks
            for _ in range(3):
                tasks.start_soon(anyio.sleep_forever)
            after = python_facts().tasks
            tasks.cancel_scope.cancel()
        return before, after

    before, after = anyio.run(count, backend=backend)
    assert isinstance(before, int)
    assert after == before + 3
    assert python_facts().tasks is UNSET


def test_fc034_without_proc_the_figures_are_absent_and_the_reason_is_given(clock: Clock) -> None:
    block = ProcessIntrospector(proc=EmptyProc(), clock=clock, pid=1).observe()
    assert (block.rss_bytes, block.cpu_ms, block.open_fd_count, block.python) == (UNSET,) * 4
    assert block.reasons == ("stat: no such file",)


def test_a_file_that_is_gone_is_none_and_a_folder_is_not_a_file(tmp_path: Path) -> None:
    proc = LinuxProc(str(tmp_path))
    (tmp_path / "folder").mkdir()
    assert proc.read_text("4242/stat") is None
    assert proc.list_dir("4242/fd") is None
    with pytest.raises(ProcReadError, match="EISDIR"):
        proc.read_text("folder")


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"x" * 1_000_000)
    assert len(LinuxProc(str(tmp_path)).read_text("huge") or "") == 256 * 1024
