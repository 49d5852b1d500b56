"""The spawner that needs no pidfd: what its threads do, and which spawner is chosen."""

import os
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from swactor import ActorSystem
from swactor_process import (
    LinuxSpawner,
    PortableSpawner,
    ProcessExited,
    ProcessStarted,
    SpawnError,
    SpawnRole,
    Stop,
    default_spawner,
)
from swactor_process.testing import RecordingListener
from tests.descriptors import no_more_descriptors

from .conftest import Node, eventually, is_alive, sh


@pytest.fixture
async def portable() -> AsyncIterator[Node]:
    async with ActorSystem() as system:
        with PortableSpawner(system.loop) as spawner:
            yield Node(system, spawner)
            await system.shutdown()


def waiting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("swactor child")]


async def test_fc_005_a_hundred_children_that_end_at_once_are_all_told_in_order(portable: Node) -> None:
    all_owned = [await portable.start(sh("exit 11")) for _ in range(100)]

    exits = [await owned.exited() for owned in all_owned]

    assert Counter(exited.exit_code for exited in exits) == {11: 100}
    assert all(
        [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessExited] for owned in all_owned
    )
    await eventually(lambda: not waiting())
    assert portable.own_children() == []


async def test_fc_002_a_stop_ends_the_whole_group_also_when_its_leader_is_gone_first(portable: Node) -> None:
    owned = await portable.start(sh("(trap '' TERM; echo $$; exec sleep 60) & echo $!; wait"))
    await eventually(lambda: len(owned.lines()) == 2)
    pids = {int(line) for line in owned.lines()}
    started = await owned.started()

    exited = await owned.process.ask(Stop(grace_s=0.05))

    assert isinstance(exited, ProcessExited)
    assert (exited.signal, exited.survivors, exited.asked_for) == (signal.SIGTERM, (), True)
    assert not any(is_alive(pid) for pid in pids | {started.pid})


async def test_fc_021_a_kill_from_outside_was_not_asked_for(portable: Node) -> None:
    owned = await portable.start(sh("exec sleep 30"))
    started = await owned.started()

    os.kill(started.pid, signal.SIGKILL)

    exited = await owned.exited()
    assert (exited.signal, exited.asked_for) == (signal.SIGKILL, False)


async def test_one_thread_waits_for_each_child_and_ends_with_it(portable: Node) -> None:
    owned = [await portable.start(sh("exec sleep 30")) for _ in range(3)]
    pids = [(await each.started()).pid for each in owned]

    assert sorted(thread.name for thread in waiting()) == sorted(f"swactor child {pid}" for pid in pids)
    assert all(thread.daemon for thread in waiting())  # they do not keep the interpreter from ending

    for each in owned:
        await each.process.ask(Stop())
    await eventually(lambda: not waiting())


async def test_fc_015_a_child_for_which_there_is_no_thread_is_refused_and_does_not_live(
    portable: Node,
) -> None:
    """Nothing is left of it, and the next one can be started."""
    loop = portable.system.loop
    stack_bytes = threading.stack_size(1 << 60)  # more than there is
    try:
        with pytest.raises(SpawnError) as refused:
            portable.spawner.spawn(sh("sleep 30", guarded=False), listener := RecordingListener(loop))
    finally:
        threading.stack_size(stack_bytes)

    assert (refused.value.errno_name, refused.value.role) == ("EAGAIN", SpawnRole.LIMIT)
    assert portable.own_children() == []
    child = portable.spawner.spawn(sh("exit 0", guarded=False), later := RecordingListener(loop))
    assert (await later.until_over()).exit_code == 0
    assert listener.heard == []
    child.reap()
    child.close()


def test_a_child_that_outlives_the_loop_is_reaped(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    async def leave_one() -> int:
        async with ActorSystem() as system:
            spawner = PortableSpawner(system.loop)
            child = spawner.spawn(sh("exec sleep 30", guarded=False), RecordingListener(system.loop))
            child.close()
            return child.pid

    name, options = anyio_backend
    pid = anyio.run(leave_one, backend=name, backend_options=options)
    (thread,) = waiting()

    os.kill(pid, signal.SIGKILL)

    thread.join(timeout=10)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_pidfds_are_used_where_there_are_any() -> None:
    async with ActorSystem() as system:
        assert type(default_spawner(system.loop)) is LinuxSpawner

        with no_more_descriptors():
            spawner = default_spawner(system.loop)

        assert type(spawner) is PortableSpawner
        child = spawner.spawn(sh("exit 4", guarded=False), listener := RecordingListener(system.loop))
        assert (await listener.until_over()).exit_code == 4
        child.reap()
        child.close()
