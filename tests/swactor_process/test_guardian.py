"""The orphan guard: what is left of a node that was killed, and that the guard itself goes too."""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from swactor_process import Null, ProcessOutput, Stop, _guardian_program, guardian
from swactor_process._guardian_program import (
    RECORD_BYTES,
    format_record,
    is_same_group,
    kill_groups,
    living_by_proc,
    living_by_ps,
    living_members,
    parse_records,
    parse_stat,
    read_stat,
)
from swactor_process._slots import Slots
from swactor_process.guardian import STARTS_MAX, Guardian

from .conftest import Node, eventually, is_alive, python, sh, standard_streams_closed


@pytest.mark.parametrize("spawner", ["linux", "portable"])
async def test_fc_017_nothing_is_left_of_a_node_that_was_killed(node: Node, spawner: str) -> None:
    """Of twenty children, within 2 s: a third obeys TERM, a third does not, the others have a grandchild."""
    owned = await node.start(python("owning_node.py", spawner, guarded=False))
    started = await owned.started()
    await eventually(lambda: len(owned.lines()) == 20 + 7 + 6)
    pids = {int(line) for line in owned.lines()}
    assert len(pids) == 20 + 6  # those that do not obey say their own process ids, which the starts said too
    assert all(is_alive(pid) for pid in pids)

    os.kill(started.pid, signal.SIGKILL)

    await eventually(lambda: not any(is_alive(pid) or living_members(pid) for pid in pids), timeout_s=2.0)
    assert (await owned.exited()).signal == signal.SIGKILL


async def test_the_guard_ends_with_the_node(node: Node) -> None:
    await (await node.start(sh("true"))).exited()
    guard = node.spawner.guardian_pid
    assert guard is not None
    assert is_alive(guard)

    node.spawner.close()

    assert not is_alive(guard)
    assert node.spawner.guardian_pid is None


async def test_fc_016_the_guard_is_out_of_reach_of_a_ctrl_c_and_holds_nothing_of_the_node(node: Node) -> None:
    await (await node.start(sh("true"))).exited()
    guard = node.spawner.guardian_pid
    assert guard is not None
    await eventually(lambda: bool(_ignored_signals(guard) & 1 << signal.SIGTERM - 1))
    await eventually(lambda: "anon_inode" in _held_kinds(guard))  # only now it watches the node

    assert os.getsid(guard) == guard
    # The node's end, the guard's own end, whatever it does not want to say, the node, the list of groups.
    assert _held_kinds(guard) == ["/dev/null", "/memfd", "anon_inode", "pipe", "pipe"]


async def test_a_guard_that_was_killed_is_started_again(node: Node) -> None:
    await (await node.start(sh("true"))).exited()
    first = node.spawner.guardian_pid
    assert first is not None
    owned = await node.start(sh("sleep 30"))
    started = await owned.started()

    os.kill(first, signal.SIGKILL)

    await eventually(lambda: node.spawner.guardian_pid not in {None, first})
    node.spawner.close()
    exited = await owned.exited()
    assert (started.guarded, exited.signal) == (True, signal.SIGKILL)


async def test_a_guard_that_is_killed_again_and_again_is_given_up(node: Node) -> None:
    await (await node.start(sh("true"))).exited()
    killed: list[int] = []
    while (guard := node.spawner.guardian_pid) is not None:
        os.kill(guard, signal.SIGKILL)
        killed.append(guard)
        await eventually(lambda: node.spawner.guardian_pid not in killed)

    owned = await node.start(sh("exit 0"))

    assert not (await owned.started()).guarded
    assert len(killed) == STARTS_MAX


async def test_a_number_that_is_guarded_a_second_time_is_that_of_the_second_group(node: Node) -> None:
    groups = Guardian(node.system.loop)
    owned = await node.start(sh("sleep 30", guarded=False))
    started = await owned.started()
    assert started.start_time is not None
    groups.guard(1_000_000_000, None)
    groups.guard(started.pid, started.start_time - 1)
    groups.release(1_000_000_000)
    assert groups.guard(started.pid, started.start_time)

    groups.close()

    assert (await owned.exited()).signal == signal.SIGKILL


async def test_a_group_that_was_released_is_left_alone(node: Node) -> None:
    groups = Guardian(node.system.loop)
    one, other = await node.start(sh("sleep 30", guarded=False)), await node.start(sh("sleep 30"))
    first, second = await one.started(), await other.started()
    assert groups.guard(first.pid, first.start_time)
    assert groups.guard(second.pid, second.start_time)
    groups.release(first.pid)
    groups.release(first.pid)

    groups.close()

    assert (await other.exited()).signal == signal.SIGKILL
    assert is_alive(first.pid)
    await one.process.ask(Stop())


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


async def test_the_guard_knows_the_groups_of_a_node_without_standard_streams(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    unguarded: list[dict[int, int | None]] = []
    monkeypatch.setattr(guardian, "kill_groups", unguarded.append)
    async with standard_streams_closed():
        owned = await node.start(sh("sleep 30", stdin=False, stdout=Null(), stderr=Null()))
        started = await owned.started()
        node.spawner.close()
        exited = await owned.exited()

    assert (started.guarded, exited.signal, unguarded) == (True, signal.SIGKILL, [])


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_closing_the_spawner_ends_guarded_children_without_the_help_of_the_guard(
    node: Node, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The guard cannot act, or is gone and the node has not heard of that."""
    monkeypatch.setattr(guardian, "CLOSE_TIMEOUT_S", 0.1)
    owned = await node.start(sh("sleep 30 & sleep 30"))
    started = await owned.started()
    guard = node.spawner.guardian_pid
    assert guard is not None
    os.kill(guard, number)

    node.spawner.close()

    assert not living_members(started.pid)
    assert not is_alive(guard)
    assert (await owned.exited()).signal == signal.SIGKILL


async def test_closing_the_spawner_ends_guarded_children_after_the_guard_was_given_up(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian, "STARTS_MAX", 1)
    guarded, free = await node.start(sh("sleep 30")), await node.start(sh("sleep 30", guarded=False))
    one, other = await guarded.started(), await free.started()
    guard = node.spawner.guardian_pid
    assert guard is not None
    os.kill(guard, signal.SIGKILL)
    await eventually(lambda: node.spawner.guardian_pid is None)

    node.spawner.close()

    assert not living_members(one.pid)
    assert is_alive(other.pid)
    await free.process.ask(Stop())


async def test_a_group_number_that_was_given_to_somebody_else_is_left_alone(node: Node) -> None:
    owned = await node.start(sh("sleep 30", guarded=False))
    started = await owned.started()
    assert started.start_time is not None

    kill_groups({started.pid: started.start_time - 1})

    assert living_members(started.pid)
    assert not is_same_group(started.pid, started.start_time - 1)
    assert is_same_group(started.pid, started.start_time)


async def test_all_groups_are_killed_before_it_is_looked_what_is_left_of_them(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes long where there are thousands of processes; and one look serves for all groups."""
    owned = [await node.start(sh("sleep 30 & sleep 30", guarded=False)) for _ in range(3)]
    groups = {started.pid: started.start_time for started in [await one.started() for one in owned]}
    died: list[bool] = []

    def look() -> list[tuple[int, int]]:
        deadline_s = time.monotonic() + 5.0  # a process that was killed is gone soon, not at once
        while any(map(is_alive, groups)) and time.monotonic() < deadline_s:
            pass
        died.append(not any(map(is_alive, groups)))
        return living_by_proc()

    monkeypatch.setattr(_guardian_program, "living_processes", look)

    kill_groups(groups)

    assert died == [True]
    assert [(await one.exited()).signal for one in owned] == [signal.SIGKILL] * 3


async def test_ps_shows_the_same_members_of_a_group_as_the_kernel(node: Node) -> None:
    """For systems without ``/proc``. One of the three is dead, and not reaped by its parent."""
    owned = await node.start(sh("sleep 30 & sleep 0 & echo $!; exec sleep 30"))
    await eventually(lambda: bool(owned.lines()))
    await eventually(lambda: not is_alive(int(owned.lines()[0])))
    group = (await owned.started()).pid

    members = [pid for pid, its_group in living_by_ps() or () if its_group == group]

    assert tuple(members) == living_members(group)
    assert (len(members), members[0]) == (2, group)
    await owned.process.ask(Stop())
    assert group not in {its_group for _, its_group in living_by_ps() or ()}


def test_a_process_may_call_itself_anything() -> None:
    line = b"77 (a) R 1 (b) S 1 70 60 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 6 7"

    assert parse_stat(line) == ("S", 70, 60, 12345)


def test_the_list_of_groups_has_records_of_one_length() -> None:
    with tempfile.TemporaryFile() as file:
        slots = Slots(file.fileno(), RECORD_BYTES)
        for group, start_time in ((2**32 - 1, 2**64 - 1), (8, 1), (7, None)):
            slots.put(group, format_record(group, start_time))
        slots.strike(8)

        records = file.read()

    assert len(records) == 3 * RECORD_BYTES
    assert parse_records(records) == {2**32 - 1: 2**64 - 1, 7: None}


def test_the_guard_skips_what_it_does_not_understand() -> None:
    assert parse_records(b"12 34\nx\n\n12 y\n7\n1 1\n-9 9\n\0\0\n55 5") == {12: 34, 7: None, 55: 5}


def test_a_process_that_is_not_there_has_no_stat() -> None:
    assert read_stat(2**22 + 1) is None


def _held_kinds(pid: int) -> list[str]:
    held = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return sorted(target.split(":")[0].split()[0] for target in held)


def _ignored_signals(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)
