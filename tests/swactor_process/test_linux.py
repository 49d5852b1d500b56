"""What only real children can show: who may be signalled until when, how much a pipe holds."""

import os
import signal

import pytest

from swactor_process import Child, Chunks, CloseStdin, ExitStatus, ProcessExited, ProcessOutput, Stream
from swactor_process.testing import RecordingListener

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
