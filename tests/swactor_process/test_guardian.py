"""The orphan guard: what is left of a node that was killed, and that the guard itself goes too."""

import os
import signal
from pathlib import Path

from swactor_process import ProcessOutput, Stop
from swactor_process._guardian_program import (
    is_same_group,
    kill_groups,
    living_members,
    parse_lines,
    parse_stat,
    read_stat,
)

from .conftest import Node, eventually, is_alive, python, sh


async def test_nothing_is_left_of_a_node_that_was_killed(node: Node) -> None:
    """FC-017: within 2 s; one child obeys TERM, one does not, one has a grandchild."""
    owned = await node.start(python("owning_node.py", guarded=False))
    started = await owned.started()
    await eventually(lambda: len(owned.lines()) == 5)
    pids = {int(line) for line in owned.lines()}
    assert len(pids) == 4  # the second script says its own process id, which the start said too
    assert all(is_alive(pid) for pid in pids)

    os.kill(started.pid, signal.SIGKILL)

    await eventually(lambda: not any(is_alive(pid) for pid in pids), timeout_s=2.0)
    assert (await owned.exited()).signal == signal.SIGKILL


async def test_the_guard_ends_with_the_node(node: Node) -> None:
    await (await node.start(sh("true"))).exited()
    guard = node.spawner.guardian_pid
    assert guard is not None
    assert is_alive(guard)

    node.spawner.close()

    assert not is_alive(guard)
    assert node.spawner.guardian_pid is None


async def test_the_guard_is_out_of_reach_of_a_ctrl_c_and_holds_nothing_of_the_node(node: Node) -> None:
    """FC-016."""
    await (await node.start(sh("true"))).exited()
    guard = node.spawner.guardian_pid
    assert guard is not None
    await eventually(lambda: bool(_ignored_signals(guard) & 1 << signal.SIGTERM - 1))

    assert os.getsid(guard) == guard
    held = _held_descriptors(guard)
    assert all(target == "/dev/null" or target.startswith(("pipe:", "anon_inode:")) for target in held)
    assert sum(target.startswith("pipe:") for target in held) == 1


async def test_a_guard_that_was_killed_is_started_again(node: Node) -> None:
    await (await node.start(sh("true"))).exited()
    first = node.spawner.guardian_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: not is_alive(first))

    owned = await node.start(sh("sleep 30"))

    assert (await owned.started()).guarded
    assert node.spawner.guardian_pid not in {None, first}
    await owned.process.ask(Stop())


async def test_without_a_guarded_child_there_is_no_guard(node: Node) -> None:
    owned = await node.start(sh("exit 0", guarded=False))

    assert not (await owned.started()).guarded
    assert node.spawner.guardian_pid is None


async def test_closing_the_spawner_kills_what_is_left_of_guarded_groups(node: Node) -> None:
    owned = await node.start(sh("sleep 30 >/dev/null 2>&1 & echo $!"))
    await owned.exited()
    (output,) = owned.all(ProcessOutput)
    assert is_alive(int(output.text))

    node.spawner.close()

    assert not is_alive(int(output.text))


async def test_a_group_number_that_was_given_to_somebody_else_is_left_alone(node: Node) -> None:
    owned = await node.start(sh("sleep 30", guarded=False))
    started = await owned.started()
    assert started.start_time is not None

    kill_groups({started.pid: started.start_time - 1})

    assert living_members(started.pid)
    assert not is_same_group(started.pid, started.start_time - 1)
    assert is_same_group(started.pid, started.start_time)


def test_a_process_may_call_itself_anything() -> None:
    line = b"77 (a) R 1 (b) S 1 70 60 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 6 7"

    assert parse_stat(line) == ("S", 70, 60, 12345)


def test_the_guard_skips_what_it_does_not_understand() -> None:
    changes, rest = parse_lines(b"+12 34\n+x\n\n-12\n+7\n+1 1\n?9 9\n+55")

    assert changes == [(12, 34, True), (12, None, False), (7, None, True)]
    assert rest == b"+55"


def test_a_process_that_is_not_there_has_no_stat() -> None:
    assert read_stat(2**22 + 1) is None


def _held_descriptors(pid: int) -> list[str]:
    return [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def _ignored_signals(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)
