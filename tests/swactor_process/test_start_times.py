"""Kernel start times: what the kernel says, whether or not it was asked."""

import os
from pathlib import Path

import pytest

from swactor_process._start_times import StartTimes
from swactor_process.testing import RecordingListener

from .conftest import Node, sh

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Kernel:
    """A kernel whose clock stands still unless told otherwise."""

    def __init__(self, start_time: int | None) -> None:
        self.start_time = start_time
        self.asked = 0
        self.now_ns = 5 * TICK_NS

    def ask(self, pid: int) -> int | None:
        self.asked += 1
        return self.start_time

    def times(self) -> StartTimes:
        return StartTimes(now_ns=lambda: self.now_ns, ask=self.ask)


def shown_by_the_kernel(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rindex(")") + 2 :].split()[19])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_each_child_has_the_start_time_that_the_kernel_shows(node: Node) -> None:
    for _ in range(20):
        child = node.spawner.spawn(sh("exec sleep 30"), listener := RecordingListener(node.system.loop))
        assert child.start_time == shown_by_the_kernel(child.pid)
        child.signal(9)
        await listener.until_over()
        child.reap()
        child.close()


def test_only_the_first_child_is_asked_for_while_the_clock_shows_one_tick() -> None:
    kernel = Kernel(5)
    times = kernel.times()

    assert [times.of(pid, kernel.now_ns) for pid in (70, 71, 72)] == [5, 5, 5]
    assert kernel.asked == 1


def test_a_start_during_which_the_tick_changes_is_asked_for() -> None:
    kernel = Kernel(5)
    times = kernel.times()
    times.of(70, kernel.now_ns)

    began_ns, kernel.now_ns, kernel.start_time = kernel.now_ns, 6 * TICK_NS, 6

    assert times.of(71, began_ns) == 6
    assert kernel.asked == 2


@pytest.mark.parametrize("start_time", [4, 6, 0, None])
def test_a_kernel_that_counts_otherwise_is_asked_each_time(start_time: int | None) -> None:
    kernel = Kernel(start_time)
    times = kernel.times()

    assert [times.of(pid, kernel.now_ns) for pid in (70, 71)] == [start_time, start_time]
    assert kernel.asked == 2
