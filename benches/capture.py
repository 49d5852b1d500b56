"""Capture: what it costs to look at the children of a node, beside the least that could be done and psutil.

The *floor* keeps two descriptors a child open, and per child reads ``stat`` once, asks for the size of the
descriptor folder, and takes the same figures out of both into a tuple: no status, no reasons, no record.

The children sleep. One that has run since the last look says something else, which has to be parsed: such a
child costs the product half as much again.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import psutil

from benches.report import Row
from benches.turns import Run, Step, Way, compare
from benches.workloads import Bar
from swactor import ActorRef, SystemClock
from swactor_diag.introspect import LinuxProc, kernel_units
from swactor_diag.introspect.subprocesses import SubprocessIntrospector
from swactor_process import ProcessStarted

CHILDREN = 100
PASSES = 10
"""Snapshots of one slice."""
TITLE = f"{CHILDREN} children"


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """Yield the pids of ``count`` children that do nothing; they are killed in the end."""
    with ExitStack() as stack:
        pids: list[int] = []
        for _ in range(count):
            child = stack.enter_context(subprocess.Popen(["sleep", "600"]))
            stack.callback(child.kill)
            pids.append(child.pid)
        yield pids


def sleeper_started(pid: int) -> ProcessStarted:
    """Return what the owner of such a child would have been told."""
    return ProcessStarted(
        process=cast("ActorRef[Any]", None),  # nobody talks to it here
        spawn_id=f"s{pid}",
        label=f"worker-{pid}",
        pid=pid,
        parent_pid=os.getpid(),
        start_time=None,
        command=("sleep", "600"),
        started_at_ms=0,
        guarded=True,
    )


class Floor:
    """Kept descriptors and nothing else."""

    def __init__(self, pids: list[int], stack: ExitStack) -> None:
        self._files: list[tuple[int, int]] = []
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._tick_ms = 1000 // os.sysconf("SC_CLK_TCK")
        for pid in pids:
            pair = os.open(f"/proc/{pid}/stat", os.O_RDONLY), os.open(f"/proc/{pid}/fd", os.O_RDONLY)
            for descriptor in pair:
                stack.callback(os.close, descriptor)
            self._files.append(pair)

    def look(self) -> object:
        return [self._child(*pair) for pair in self._files]

    def _child(self, stat: int, folder: int) -> tuple[str, int, int, int, int]:
        text = os.pread(stat, 1024, 0).decode()
        fields = text[text.rfind(")") + 2 :].split()
        return (
            fields[0],
            int(fields[21]) * self._page_bytes,
            os.fstat(folder).st_size,
            (int(fields[11]) + int(fields[12])) * self._tick_ms,
            int(fields[17]),
        )


class Psutil:
    """The same figures, with what psutil recommends for several at once."""

    def __init__(self, pids: list[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]

    def look(self) -> object:
        return [self._child(process) for process in self._processes]

    @staticmethod
    def _child(process: psutil.Process) -> tuple[object, ...]:
        with process.oneshot():
            times = process.cpu_times()
            return (
                process.status(),
                process.memory_info().rss,
                process.num_fds(),
                times.user + times.system,
                process.num_threads(),
            )


def _product(pids: list[int]) -> SubprocessIntrospector:
    table = SubprocessIntrospector(proc=LinuxProc(), clock=SystemClock(), units=kernel_units())
    for pid in pids:
        table.hear(sleeper_started(pid))
    return table


def _turn(look: Callable[[], object]) -> Callable[[], Any]:
    async def turn() -> float:
        began = time.perf_counter()
        for _ in range(PASSES):
            look()
        return (time.perf_counter() - began) / PASSES / CHILDREN

    return turn


async def children(run: Run) -> list[Row]:
    """Look at many children: the figures of each, as a snapshot has them."""
    with sleepers(CHILDREN) as pids, ExitStack() as stack:
        product = Way("product", "introspector", _turn(_product(pids).observe))
        floor = Way("floor", "kept descriptors", _turn(Floor(pids, stack).look), Bar(1.3, at_most=True))
        slower = await compare(run, (product, floor), section="capture", title=TITLE)
        peer = Way("psutil", "psutil", _turn(Psutil(pids).look), Bar(5))
        faster = await compare(run, (product, peer), section="capture-speed", title=TITLE, faster=True)
    return slower + faster


STEPS: dict[str, tuple[str, Step]] = {
    "children": (f"look at {CHILDREN} children that run", children),
}
"""What can be measured, by name: what it is, and the step."""
HEADINGS = {
    "capture": "CAPTURE, beside the least that can be done: how many times as long; less is better",
    "capture-speed": "CAPTURE, beside a library: how many times as fast; more is better",
}
