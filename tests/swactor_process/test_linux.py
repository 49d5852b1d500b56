"""What only real children can show: who may be signalled until when, how much a pipe holds."""

import os
import signal
import subprocess
from collections.abc import Callable
from typing import cast

import pytest

from swactor.abc import Cancellable, Loop
from swactor_process import Child, Chunks, CloseStdin, ExitStatus, ProcessExited, ProcessOutput, Stream
from swactor_process._exits import Ended
from swactor_process._real_child import RealChild
from swactor_process._watches import Watches
from swactor_process.linux import _Exit
from swactor_process.testing import RecordingListener
from tests.descriptors import open_descriptors

from .conftest import Node, eventually, is_alive, python, sh


async def test_fc_007_a_dead_leader_holds_its_number_until_it_is_reaped_and_is_not_signalled_after(
    node: Node,
) -> None:
    listener = RecordingListener(node.system.loop)
    child = node.spawner.spawn(sh("sleep 30 >/dev/null 2>&1 & echo $!; exit 0"), listener)
    assert await listener.until_over() == ExitStatus(exit_code=0)
    member = int(listener.data[Stream.STDOUT])
    assert child.state() == "Z"

    survivors = child.reap()
    child.signal(signal.SIGKILL)

    assert survivors == (member,)
    assert child.state() is None
    with pytest.raises(TimeoutError):  # a signal would have been effective by then
        await eventually(lambda: not is_alive(member), timeout_s=0.1)
    os.kill(member, signal.SIGKILL)
    child.close()


class Hesitant(RecordingListener):
    """Stops reading whenever something was read."""

    child: Child

    def output(self, stream: Stream, data: bytes) -> None:
        self.child.pause(Stream.STDOUT)
        super().output(stream, data)


async def test_a_child_that_fills_its_pipe_gets_one_that_holds_more(node: Node) -> None:
    """Then more is read at once. The second word comes only when there is room for all before it."""
    script = "head -c 65536 /dev/zero; printf one >&2; head -c 262144 /dev/zero; printf two >&2"
    listener = Hesitant(node.system.loop)
    listener.child = node.spawner.spawn(sh(script, stdout=Chunks()), listener)
    listener.child.pause(Stream.STDOUT)
    await listener.until(lambda: listener.data[Stream.STDERR] == b"one")

    listener.child.resume(Stream.STDOUT)

    await listener.until(lambda: listener.data[Stream.STDERR] == b"onetwo")
    assert len(listener.data[Stream.STDOUT]) == 65_536
    await listener.until(lambda: listener.status is not None)
    listener.child.resume(Stream.STDOUT)
    await listener.until(lambda: len(listener.data[Stream.STDOUT]) == 65_536 + 262_144)
    assert listener.heard.count("output stdout") == 2
    listener.child.reap()
    listener.child.close()


async def test_the_end_of_a_child_is_told_when_whoever_traces_it_lets_go(node: Node) -> None:
    """Until then its pidfd says that it has ended, and the kernel does not say how."""
    traced = await node.start(sh("exec sleep 60"))
    pid = (await traced.started()).pid
    tracer = await node.start(python("tracer.py", str(pid)))
    said = (await tracer.first(ProcessOutput)).text
    if said != "traced":
        pytest.skip(f"nobody may trace here: {said}")
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))
    assert traced.all(ProcessExited) == []

    tracer.process.tell(CloseStdin())

    assert (await traced.exited()).signal == signal.SIGKILL


async def test_a_child_that_is_closed_before_it_is_reaped_leaves_nothing_open(node: Node) -> None:
    descriptors = None
    for _ in range(2):  # with the first comes the guard
        listener = RecordingListener(node.system.loop)
        child = node.spawner.spawn(sh("exit 0"), listener)
        await listener.until_over()

        child.close()
        child.reap()

        before, descriptors = descriptors, open_descriptors()
    assert before == descriptors


class Fakes:
    """A loop, watches and a child in one: they keep what they are told."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.timers = 0
        self.told: list[Ended] = []
        self.look: Callable[[], None]

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers += 1

    def watch_readable(self, descriptor: int, callback: Callable[[], None], *, once: bool) -> "Fakes":
        self.look = callback
        return self

    def cancel(self) -> None:
        """Of the watch."""

    def on_ended(self, ended: Ended, watch: Cancellable) -> None:
        self.told.append(ended)


def test_a_look_that_was_meant_for_another_child_changes_nothing_and_an_exit_is_told_once() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        fakes = Fakes(sleeper.pid)
        pidfd = os.pidfd_open(sleeper.pid)
        exit_ = _Exit(cast("Loop", fakes), cast("Watches", fakes), cast("RealChild", fakes), pidfd)
        fakes.look()
        assert (fakes.told, fakes.timers) == ([], 0)

        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        fakes.look()
        fakes.look()

        assert fakes.told == [Ended(ExitStatus(signal=signal.SIGKILL))]
        exit_.cancel()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(pidfd)
