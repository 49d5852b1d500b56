"""Control groups for children: what is written where, what is removed. A directory plays the hierarchy."""

import os
import shutil
from pathlib import Path

import pytest

from swactor_process import Cgroup, OomEvidence
from swactor_process._cgroups import Cgroups, members_of
from swactor_process._guardian_program import read_stat

PID = 4_000_000
"""Above what the kernel gives to anybody."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    return tmp_path


def groups_below(root: Path) -> Cgroups:
    return Cgroups(PID, 77, root=root, remove=shutil.rmtree)


def directories(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def test_a_group_is_held_to_what_was_wished_and_to_nothing_else(root: Path) -> None:
    groups = groups_below(root)

    group = groups.make(Cgroup(memory_max_bytes=1_000_000, pids_max=20, cpus=1.5))
    free = groups.make(Cgroup())

    written = {path.name: path.read_text() for path in group.path.iterdir()}
    assert written == {"memory.max": "1000000", "pids.max": "20", "cpu.max": "150000 100000"}
    assert list(free.path.iterdir()) == []
    assert group.path != free.path


def test_only_controllers_that_are_off_and_needed_are_switched_on(root: Path) -> None:
    groups_below(root).make(Cgroup(memory_max_bytes=1, pids_max=20))

    assert (root / "cgroup.subtree_control").read_text() == "+pids"


def test_memory_is_counted_where_that_is_possible(root: Path) -> None:
    (root / "cgroup.subtree_control").write_text("")

    groups_below(root).make(Cgroup())

    assert (root / "cgroup.subtree_control").read_text() == "+memory"


def test_a_controller_that_is_not_to_be_had_refuses_the_group_and_leaves_nothing(root: Path) -> None:
    (root / "cgroup.controllers").write_text("memory\n")

    with pytest.raises(OSError, match="cpu, pids are not to be had"):
        groups_below(root).make(Cgroup(pids_max=1, cpus=1))

    assert directories(root) == []


def test_a_group_goes_when_it_is_released_and_an_occupied_one_at_the_end(root: Path) -> None:
    occupied: set[Path] = set()

    def remove(path: Path) -> None:
        if path in occupied:
            raise OSError("busy")
        shutil.rmtree(path)

    groups = Cgroups(PID, 77, root=root, remove=remove)
    empty, held = groups.make(Cgroup()), groups.make(Cgroup())
    occupied.add(held.path)

    groups.release(empty)
    groups.release(held)
    assert directories(root) == [held.path.name]
    occupied.clear()
    groups.close()
    groups.release(held)

    assert directories(root) == []


def test_groups_of_nodes_that_are_gone_are_removed_those_of_the_living_are_not(root: Path) -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    gone, alive, with_a_number_of_today, other = (
        f"swactor-{PID - 1}-77-7",
        f"swactor-{os.getpid()}-{stat.start_time}-1",
        f"swactor-{os.getpid()}-{stat.start_time - 1}-1",
        "swactor-of-somebody-else",
    )
    for name in (gone, alive, with_a_number_of_today, other):
        (root / name).mkdir()

    made = groups_below(root).make(Cgroup())

    assert directories(root) == sorted([alive, other, made.path.name])


def test_members_and_kills_are_read_from_the_group(root: Path) -> None:
    group = groups_below(root).make(Cgroup())
    assert (group.members(), group.oom_kills()) == ((), None)

    (group.path / "cgroup.procs").write_text("30\n20\n")
    (group.path / "memory.events").write_text("oom 1\noom_kill 2\n")
    (group.path / "cgroup.kill").write_text("")
    group.kill()

    assert group.members() == (20, 30)
    assert group.oom_kills() == OomEvidence(2, own_cgroup=True)
    assert (group.path / "cgroup.kill").read_text() == "1"


def test_processes_that_have_no_number_here_are_no_members(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("30\n0\n0\n")

    assert members_of(tmp_path) == (30,)


@pytest.mark.parametrize("name", ["gone", "\0", "\ud800"])
def test_a_directory_that_cannot_be_has_no_members(tmp_path: Path, name: str) -> None:
    assert members_of(tmp_path / name) == ()
