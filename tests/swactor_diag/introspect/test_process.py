"""This process about itself, and the real /proc."""

import os
from pathlib import Path

import pytest
from msgspec import UNSET

from swactor import SystemClock
from swactor.abc import Clock
from swactor_diag.introspect import EmptyProc, LinuxProc, ProcReadError, kernel_units
from swactor_diag.introspect.process import ProcessIntrospector, python_facts


def test_the_figures_of_this_very_process() -> None:
    block = ProcessIntrospector(
        proc=LinuxProc(), clock=SystemClock(), pid=os.getpid(), units=kernel_units(), interpreter=python_facts
    ).observe()
    assert isinstance(block.rss_bytes, int)
    assert block.rss_bytes > 1_000_000
    assert isinstance(block.open_fd_count, int)
    assert block.open_fd_count >= 3
    assert block.reasons == ()
    assert block.python == python_facts()


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
