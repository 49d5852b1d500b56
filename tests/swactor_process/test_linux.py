"""What only real children can show: who may be signalled until when."""

import os
import signal

import pytest

from swactor_process import ExitStatus, Stream
from swactor_process.testing import RecordingListener

from .conftest import Node, eventually, is_alive, sh


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
