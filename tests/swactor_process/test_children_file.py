"""What a boot finds of the children of the boots before it: recognised for certain, or not claimed at all."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swactor_process import (
    ChildrenFileError,
    LinuxSpawner,
    PortableSpawner,
    ProcessOutput,
    Stop,
    SubprocessLeftBehind,
    _children_file,
)
from swactor_process._children_file import PIDS_MAX, PROCESSES_MAX, RECORD_BYTES, ChildrenFile, Entry
from swactor_process._guardian_program import RECORD_BYTES as GROUP_BYTES
from swactor_process._guardian_program import read_stat
from swactor_process._slots import Slots

from .conftest import Node, Owned, eventually, is_alive, python, sh


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "children"


@pytest.mark.parametrize("kind", ["linux", "portable"])
async def test_fc_017_the_next_boot_reports_what_a_killed_node_has_left_behind(
    node: Node, path: Path, kind: str
) -> None:
    """Twenty children that nobody guards, some of which wrap another process."""
    owned = await node.start(python("owning_node.py", kind, str(path), guarded=False))
    started = await owned.started()
    await eventually(lambda: len(owned.lines()) == 20 + 7 + 6)
    pids = {int(line) for line in owned.lines()}
    os.kill(started.pid, signal.SIGKILL)
    await owned.exited()

    with LinuxSpawner(node.system.loop, children_file=path) as spawner:
        left = spawner.left_behind

    assert (len(left), {each.label for each in left}) == (20, {"child"})
    assert {each.node_pid for each in left} == {started.pid}
    assert all(each.child_alive and each.pid in each.pids for each in left)
    assert pids <= {pid for each in left for pid in each.pids}
    assert all(each.alive == len(each.pids) for each in left)
    _kill(pid for each in left for pid in each.pids)
    await eventually(lambda: not any(is_alive(pid) for pid in pids))
    assert found_at_boot(path) == ()


async def test_what_a_child_has_left_in_its_group_is_recognised_without_it(node: Node, path: Path) -> None:
    with LinuxSpawner(node.system.loop, children_file=path) as spawner:
        owned = await Node(node.system, spawner).start(
            sh("sleep 60 >/dev/null 2>&1 & echo $!", label="leaves one", guarded=False)
        )
        exited = await owned.exited()
        (output,) = owned.all(ProcessOutput)

    (left,) = found_at_boot(path)

    assert (left.label, left.pid, left.child_alive) == ("leaves one", exited.pid, False)
    assert left.pids == exited.survivors == (int(output.text),)
    assert str(output.text) in left.describe()
    _kill(left.pids)


async def test_it_stays_reported_until_it_has_ended(node: Node, path: Path) -> None:
    owned = await _start_unguarded(node, path)

    first, second = found_at_boot(path), found_at_boot(path)

    assert [each.pid for each in first] == [(await owned.started()).pid]
    assert second == first
    await owned.process.ask(Stop())
    assert found_at_boot(path) == ()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda owner, entry: entry["processes"][0].__setitem__(1, 7), id="other start time"),
        pytest.param(lambda owner, entry: owner.update(machine="another boot"), id="machine started again"),
        pytest.param(lambda owner, entry: entry.update(child=[0, 7], processes=[[0, 7]]), id="no process id"),
        pytest.param(lambda owner, entry: entry.pop("label"), id="no such record"),
        pytest.param(lambda owner, entry: entry.update(cgroup="/sys/\0"), id="no control group"),
    ],
)
async def test_a_number_alone_names_nobody(
    node: Node, path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]
) -> None:
    owned = await _start_unguarded(node, path)
    _falsify(path, change)

    assert found_at_boot(path) == ()
    await owned.process.ask(Stop())


def _falsify(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    owner, entry = (json.loads(line) for line in path.read_text().splitlines())
    change(owner, entry)
    path.write_text("".join(json.dumps(record).rjust(RECORD_BYTES - 1) + "\n" for record in (owner, entry)))


async def test_two_nodes_do_not_share_a_file(node: Node, path: Path) -> None:
    with (
        PortableSpawner(node.system.loop, children_file=path),
        pytest.raises(ChildrenFileError, match=f"{path}.*process {os.getpid()} uses it"),
    ):
        LinuxSpawner(node.system.loop, children_file=path)


async def test_a_node_in_another_container_is_refused_the_file_of_one_that_runs(
    node: Node, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees neither the boot nor the process of the owner, only the file."""
    with LinuxSpawner(node.system.loop, children_file=path) as spawner:
        owned = await Node(node.system, spawner).start(sh("exec sleep 60"))
        await owned.started()
        written = _size(path)
        monkeypatch.setattr(_children_file, "_machine", lambda: "another")

        with pytest.raises(ChildrenFileError, match=f"process {os.getpid()} uses it"):
            found_at_boot(path)

        assert _size(path) == written == 2 * RECORD_BYTES
        await owned.process.ask(Stop())


def test_of_nodes_that_start_at_once_one_gets_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first has read the old file, and has not written its own."""
    refusals = []
    begin = ChildrenFile._begin

    def begin_after_another_node(file: ChildrenFile, entries: list[Entry]) -> Slots:
        monkeypatch.undo()
        with pytest.raises(ChildrenFileError) as refusal:
            found_at_boot(path)
        refusals.append(refusal.value)
        return begin(file, entries)

    monkeypatch.setattr(ChildrenFile, "_begin", begin_after_another_node)
    first = ChildrenFile(path, pid=os.getpid(), start_time=None)

    assert [refusal.rule for refusal in refusals] == ["not that of another node, another process uses it"]
    with pytest.raises(ChildrenFileError, match=f"process {os.getpid()} uses it"):
        found_at_boot(path)
    first.close()
    assert found_at_boot(path) == ()


def test_who_waited_for_a_file_that_was_replaced_looks_at_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its opening and its locking of the file the owner ended, and another node began."""
    owners = [ChildrenFile(path, pid=os.getpid(), start_time=None)]
    flock = fcntl.flock

    def flock_too_late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        owners.pop().close()
        owners.append(ChildrenFile(path, pid=os.getpid(), start_time=None))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_too_late)

    with pytest.raises(ChildrenFileError, match="uses it"):
        found_at_boot(path)

    owners.pop().close()
    assert _size(path) is None


def test_the_end_of_a_node_removes_no_file_but_its_own(path: Path, tmp_path: Path) -> None:
    file = ChildrenFile(path, pid=os.getpid(), start_time=None)
    restored = tmp_path / "restored"
    shutil.copy(path, restored)
    restored.replace(path)

    file.close()

    assert _size(path) == RECORD_BYTES


def test_a_file_that_a_fork_of_a_dead_node_holds_is_refused_as_such(path: Path) -> None:
    """The lock is shared by whoever the node forked without exec."""
    gone = 4_000_000  # above what the kernel gives to anybody
    file = ChildrenFile(path, pid=gone, start_time=77)

    with pytest.raises(ChildrenFileError, match=f"process {gone} has ended, but one that it forked"):
        found_at_boot(path)

    file.close()
    assert found_at_boot(path) == ()


def test_a_file_of_somebody_else_is_left_alone(path: Path) -> None:
    path.write_text("my notes\n")

    with pytest.raises(ChildrenFileError, match="written by a node before, or none"):
        found_at_boot(path)

    assert path.read_text() == "my notes\n"


def test_only_a_regular_file_is_taken(path: Path) -> None:
    """Anything else would be replaced by one, and removed at the end."""
    os.mkfifo(path)

    with pytest.raises(ChildrenFileError, match=f"{path}.*a regular file"):
        found_at_boot(path)

    assert path.is_fifo()


def test_a_link_leads_to_the_file_and_stays(path: Path, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    target = tmp_path / "volume" / "children"
    path.symlink_to(target)

    first = ChildrenFile(path, pid=os.getpid(), start_time=None)
    assert _size(target) == RECORD_BYTES
    with pytest.raises(ChildrenFileError, match="uses it"):
        found_at_boot(target)
    first.close()

    assert path.readlink() == target
    assert list(target.parent.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(path: Path) -> None:
    with pytest.raises(ChildrenFileError, match=r"nowhere.*may write \(No such file or directory\)"):
        found_at_boot(path / "nowhere" / "children")


async def test_the_file_is_as_long_as_there_are_children_at_once_and_goes_with_the_last(
    node: Node, path: Path
) -> None:
    with LinuxSpawner(node.system.loop, children_file=path) as spawner:
        inner = Node(node.system, spawner)
        for _ in range(10):
            await (await inner.start(sh("exit 0"))).exited()
        assert _size(path) == 2 * RECORD_BYTES

    assert _size(path) is None


@pytest.mark.parametrize("kind", [LinuxSpawner, PortableSpawner])
async def test_what_is_kept_of_children_that_left_somebody_goes_when_those_have_ended(
    node: Node, path: Path, kind: type[LinuxSpawner | PortableSpawner]
) -> None:
    """By the records of the file and of the orphan guard; one whose rest lives stays in both."""
    with kind(node.system.loop, children_file=path) as spawner:
        inner = Node(node.system, spawner)
        stays = await inner.start(sh("sleep 60 >/dev/null 2>&1 &", label="stays"))
        (survivor,) = (await stays.exited()).survivors
        for _ in range(20):
            owned = await inner.start(sh("sleep 60 >/dev/null 2>&1 &"))
            pids = (await owned.exited()).survivors
            _kill(pids)
            await eventually(partial(_all_gone, pids))

        assert (_size(path) or 0) <= 5 * RECORD_BYTES
        assert _bytes_for_the_guard() <= 4 * GROUP_BYTES
        assert is_alive(survivor)
        assert "stays" in _labels(path)

    await eventually(lambda: not is_alive(survivor))


def _all_gone(pids: Iterable[int]) -> bool:
    return not any(is_alive(pid) for pid in pids)


def _labels(path: Path) -> list[str]:
    lines = path.read_text().splitlines()[1:]
    return [json.loads(line)["label"] for line in lines if line.strip()]


def _bytes_for_the_guard() -> int:
    """Return how long the longest of the lists is that this process shares with orphan guards."""
    sizes = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # what was open only to list them
            if "process groups" in str(path.readlink()):
                sizes.append(path.stat().st_size)
    return max(sizes)


async def test_a_record_has_room_for_the_longest_label_and_many_survivors(node: Node, path: Path) -> None:
    label = "\U0001f600" * 200
    children = PIDS_MAX + PROCESSES_MAX
    with LinuxSpawner(node.system.loop, children_file=path) as spawner:
        script = f"for i in $(seq {children}); do sleep 60 >/dev/null 2>&1 & done"
        owned = await Node(node.system, spawner).start(sh(script, label=label, guarded=False))
        survivors = (await owned.exited()).survivors

    (left,) = found_at_boot(path)

    assert (left.label, left.alive, len(left.pids)) == (label, children, PIDS_MAX)
    assert f"and {PROCESSES_MAX} more" in left.describe()
    _kill(survivors)


async def test_a_spawner_without_a_file_finds_nothing(node: Node) -> None:
    assert node.spawner.left_behind == ()


def found_at_boot(path: Path) -> tuple[SubprocessLeftBehind, ...]:
    """Be the next boot, and end at once."""
    file = ChildrenFile(path, pid=os.getpid(), start_time=None)
    file.close()
    return file.left_behind


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


async def _start_unguarded(node: Node, path: Path) -> Owned:
    """Start a child and close its spawner, as if the node had ended."""
    with LinuxSpawner(node.system.loop, children_file=path) as spawner:
        owned = await Node(node.system, spawner).start(sh("exec sleep 60", guarded=False))
        await owned.started()
    return owned


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        if read_stat(pid) is not None:
            os.kill(pid, signal.SIGKILL)
