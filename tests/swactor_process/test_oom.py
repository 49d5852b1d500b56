"""FC-021: killed from outside, for memory or not? Evidence from the kernel's counters, no claim without."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swactor import ActorSystem
from swactor_process import Cgroup, OomEvidence, ProcessSpec, SpawnFailed, SpawnRole, Stop
from swactor_process._cgroup_paths import oom_counter_file, own_cgroup, parse_mounts, parse_oom_kills
from swactor_process._oom import NodeOomCounter
from swactor_process.testing import Exit, Script, ScriptedSpawner

from .conftest import Node, Owned, Owner, eventually, python, sh

EVENTS = b"low 0\nhigh 12\nmax 7\noom 3\noom_kill %d\noom_group_kill 9\n"
EATER = ("-I", "-S", "-c", "x = b'x' * (1 << 30)")
MEMORY_BYTES = 134_217_728


async def test_fc_021_a_kill_by_hand_is_external_and_nothing_is_claimed(node: Node) -> None:
    owned = await node.start(sh("exec sleep 30"))
    started = await owned.started()

    os.kill(started.pid, signal.SIGKILL)

    exited = await owned.exited()
    assert (exited.signal, exited.external, exited.asked_for, exited.escalated) == (9, True, False, False)
    assert exited.oom is None or (exited.oom.kills, exited.oom.own_cgroup) == (0, False)
    assert "not by us" in exited.describe()


async def test_fc_021_our_own_kill_is_not_external_and_needs_no_evidence(node: Node) -> None:
    owned = await node.start(sh("trap '' TERM; echo up; while :; do sleep 0.01; done"))
    await owned.line("up")

    await owned.process.ask(Stop(grace_s=0.05))

    exited = await owned.exited()
    assert (exited.signal, exited.external, exited.escalated, exited.oom) == (9, False, True, None)
    assert "as asked" in exited.describe()


async def test_fc_021_a_kill_from_elsewhere_while_it_is_being_stopped_is_external() -> None:
    """A stop was asked for, and still it was not our signal."""
    async with ActorSystem() as system:
        oom = OomEvidence(1, own_cgroup=True)
        script = Script(begin=(Exit(signal=9, after_s=0.05, oom=oom),), ignores=frozenset({signal.SIGTERM}))
        spawner = ScriptedSpawner(system.loop, system.clock, programs={"sh": lambda _: script})
        owned = Owned()
        await system.spawn(Owner(owned, sh("x"), spawner, ()))

        await owned.started()
        await owned.process.ask(Stop(grace_s=30.0, deadline_s=30.0))

        exited = await owned.exited()
        assert (exited.external, exited.asked_for, exited.oom) == (True, True, oom)
        assert exited.describe().endswith(
            "not by us (1 out-of-memory kill in its own control group meanwhile)"
        )


async def test_fc_021_an_exit_that_is_no_kill_carries_no_evidence(node: Node) -> None:
    exits = [await (await node.start(sh(script))).exited() for script in ("exit 9", "kill -TERM $$")]

    assert [(exited.external, exited.oom) for exited in exits] == [(False, None), (True, None)]


async def test_fc_021_a_child_killed_for_memory_in_the_group_of_its_node_has_evidence(
    node: Node, small_group: Path
) -> None:
    owned = await node.start(python("hungry_child_owner.py", str(small_group)))

    exited = await owned.exited()

    assert (exited.exit_code, exited.stderr_tail) == (0, "")
    assert owned.lines() == ["9 True (1, False)"]


async def test_fc_021_a_child_killed_for_memory_in_its_own_group_has_evidence(node: Node) -> None:
    """Needs a group of version 2 with the memory controller, which this node may divide."""
    limits = Cgroup(memory_max_bytes=MEMORY_BYTES)
    spec = ProcessSpec(program=sys.executable, args=EATER, label="hungry", cgroup=limits)
    owned = await node.start(spec)
    await eventually(lambda: bool(owned.heard))
    if owned.all(SpawnFailed) and owned.all(SpawnFailed)[0].role is SpawnRole.CGROUP:
        pytest.skip(owned.all(SpawnFailed)[0].message)

    exited = await owned.exited()

    assert (exited.signal, exited.external) == (9, True)
    assert exited.oom is not None
    assert exited.oom.kills >= 1
    assert exited.oom.own_cgroup


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A group of version 1 whose members share little memory, as far as this machine and user allow."""
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    points = [mount.point for mount in mounts if mount.version == 1 and "memory" in mount.controllers]
    if not points:
        pytest.skip("no memory controller of version 1 here")
    group = Path(points[0]) / f"swactor-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
    except OSError as exc:
        pytest.skip(f"no control group can be made here: {exc}")
    yield group
    group.rmdir()


# where the counter is, and what it says


UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
CONTAINER = "40 39 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


@pytest.mark.parametrize(
    ("cgroups", "mountinfo", "directory"),
    [
        ("0::/user.slice/a b.scope\n", UNIFIED, "/sys/fs/cgroup/user.slice/a b.scope"),
        ("4:memory:/x\n0::/y\n", HYBRID, "/sys/fs/cgroup/unified/y"),
        ("0::/\n", UNIFIED, "/sys/fs/cgroup"),
        ("0::/docker/abc/inner\n", CONTAINER, "/sys/fs/cgroup/inner"),
        ("0::/docker/other\n", CONTAINER, None),
        ("0::/../sibling\n", UNIFIED, None),
        ("4:memory:/x\n", HYBRID, None),
        ("0::/x\n", "", None),
        ("", UNIFIED, None),
        ("nonsense\n", "nonsense - cgroup2\n - \n", None),
    ],
)
def test_the_group_of_this_process_is_found_where_it_can_be_seen(
    cgroups: str, mountinfo: str, directory: str | None
) -> None:
    found = own_cgroup(cgroups, mountinfo)

    assert (None if found is None else str(found[0])) == directory


def test_blanks_in_a_mount_point_are_read_as_the_kernel_writes_them() -> None:
    (mount,) = parse_mounts(r"1 2 0:3 / /mnt/a\040b rw - cgroup2 c rw")

    assert mount.point == "/mnt/a b"


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        (EVENTS % 4, 4),
        (b"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
        (b"low 0\noom 1\noom_group_kill 7\n", None),
        (b"low 0\noom_kill many\n", None),
        (b"", None),
    ],
)
def test_the_counter_is_read_or_unknown(text: bytes, kills: int | None) -> None:
    assert parse_oom_kills(text) == kills


class FakeOwn:
    """A ``/proc/self`` and a hierarchy of control groups, both in a directory."""

    def __init__(self, root: Path) -> None:
        self.proc, self.groups = root / "proc", root / "groups"
        self.proc.mkdir()
        (self.groups / "node").mkdir(parents=True)
        (self.proc / "mountinfo").write_text(f"1 2 0:3 / {self.groups} rw - cgroup2 cgroup2 rw\n")
        self.lie_in("/node")
        self.count(5)

    def lie_in(self, path: str) -> None:
        (self.proc / "cgroup").write_text(f"0::{path}\n")

    def count(self, kills: int) -> None:
        (self.groups / "node" / "memory.events").write_bytes(EVENTS % kills)


def test_evidence_is_the_change_of_the_counter(tmp_path: Path) -> None:
    own = FakeOwn(tmp_path)
    counter = NodeOomCounter(own.proc)
    before = counter.read()
    assert counter.since(before) == OomEvidence(0, own_cgroup=False)

    own.count(7)

    assert counter.since(before) == OomEvidence(2, own_cgroup=False)
    counter.close()


def test_there_is_no_evidence_where_the_counter_says_nothing_of_the_child(tmp_path: Path) -> None:
    """The node was moved, the counter went back, was not there at the start, or is not there at all."""
    own = FakeOwn(tmp_path)
    counter = NodeOomCounter(own.proc)
    before = counter.read()
    assert counter.since(b"") is None
    own.count(4)
    assert counter.since(before) is None
    own.count(9)
    own.lie_in("/elsewhere")
    assert counter.since(before) is None
    counter.close()
    assert counter.since(before) is None

    nowhere = NodeOomCounter(tmp_path / "no-proc")
    assert nowhere.read() == b""
    assert nowhere.since(nowhere.read()) is None


def test_a_group_without_a_counter_is_none(tmp_path: Path) -> None:
    own = FakeOwn(tmp_path)
    (own.groups / "node" / "memory.events").unlink()

    texts = [(own.proc / name).read_text() for name in ("cgroup", "mountinfo")]

    assert oom_counter_file(*texts) is None
