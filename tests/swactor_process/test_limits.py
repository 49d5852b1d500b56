"""What the kernel holds a child to, and starts through the launcher. Real children, every event loop."""

import fcntl
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swactor import ActorSystem
from swactor_process import (
    Cgroup,
    InvalidSpecError,
    Limits,
    LinuxSpawner,
    Null,
    PortableSpawner,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    SpawnFailed,
    SpawnRole,
    Stop,
    WriteStdin,
)

from .conftest import Node, eventually, is_alive, sh, standard_streams_closed

TOO_MANY = int(Path("/proc/sys/fs/nr_open").read_text()) + 1
LAUNCHED: dict[str, Any] = {"start_timeout_s": 60.0}


@pytest.fixture(params=[LinuxSpawner, PortableSpawner], ids=["linux", "portable"])
async def node(request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    """A node with each spawner of real children."""
    async with ActorSystem() as system:
        with request.param(system.loop) as spawner:
            yield Node(system, spawner)
            await system.shutdown()


@pytest.fixture
def held_back(tmp_path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """A program that the kernel does not load until somebody lets go of its file, and who does."""
    program = tmp_path / "held-back"
    shutil.copy("/bin/true", program)
    descriptor = os.open(program, os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # unless told otherwise, a lease's end kills us
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as exc:
        pytest.skip(f"no leases on files in {tmp_path}: {exc}")
    yield str(program), lambda: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(descriptor)


async def test_limits_are_in_force_from_the_first_instruction(node: Node) -> None:
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 1, 19)
    limits = Limits(open_files=77, core_bytes=0, file_bytes=512_000, nice=nice)
    owned = await node.start(sh("ulimit -n; ulimit -Hc; ulimit -f; nice", limits=limits))

    assert (await owned.exited()).exit_code == 0
    assert owned.lines() == ["77", "0", "1000", str(nice)]


async def test_a_child_that_is_launched_is_like_one_that_is_not(node: Node, tmp_path: Path) -> None:
    """Directory, environment, signals, descriptors, standard input; and the order of what is told."""
    script = "pwd; env | sort; grep Sig[BIC] /proc/self/status; ls /proc/self/fd; read word; echo $word"
    env = {"PATH": os.environ["PATH"], "WORD": "x y"}
    plain = await node.start(sh(script, cwd=str(tmp_path), env=env))
    launched = await node.start(sh(script, cwd=str(tmp_path), env=env, **LAUNCHED))
    for owned in (plain, launched):
        owned.process.tell(WriteStdin(b"hello\n"))

    exited = await launched.exited()

    assert (await plain.exited()).exit_code == exited.exit_code == 0
    assert launched.lines() == plain.lines()
    assert launched.lines()[-1] == "hello"
    kinds = [type(heard) for heard in launched.heard]
    assert kinds == [ProcessStarted, *[ProcessOutput] * len(launched.lines()), ProcessExited]
    started = await launched.started()
    assert (started.pid, started.start_time) == (exited.pid, exited.start_time)


async def test_fc_013_what_cannot_be_launched_is_refused_as_precisely(node: Node, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("echo hi\n")
    (tmp_path / "plain").chmod(0o755)
    nowhere = str(tmp_path / "nowhere")
    specs = [
        ProcessSpec(program="no-such-program", label="l", **LAUNCHED),
        ProcessSpec(program=str(tmp_path / "plain"), label="l", **LAUNCHED),
        sh("true", cwd=nowhere, **LAUNCHED),
    ]

    told = [await (await node.start(spec)).failed() for spec in specs]

    assert [(failed.errno_name, failed.role, failed.path) for failed in told] == [
        ("ENOENT", SpawnRole.PROGRAM, "no-such-program"),
        ("ENOEXEC", SpawnRole.FORMAT, str(tmp_path / "plain")),
        ("ENOENT", SpawnRole.CWD, nowhere),
    ]
    assert node.own_children() == []


@pytest.mark.parametrize("kind", ["gone", "no x bit"])
async def test_a_python_of_this_node_that_cannot_be_run_is_blamed_itself(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The program is there."""
    python = tmp_path / "python"
    if kind == "no x bit":
        python.touch(0o644)
    monkeypatch.setattr(sys, "executable", str(python))
    launched = {"guarded": False, **LAUNCHED}

    failed = await (await node.start(sh("true", **launched))).failed()

    assert failed.errno_name == ("ENOENT" if kind == "gone" else "EACCES")
    assert (failed.role, failed.path) == (SpawnRole.UNKNOWN, str(python))
    assert "this node's Python" in failed.message


async def test_what_is_too_large_for_the_launcher_is_too_large_for_the_program(node: Node) -> None:
    failed = await (await node.start(sh("x" * 200_000, **LAUNCHED))).failed()

    assert (failed.errno_name, failed.role, failed.path) == ("E2BIG", SpawnRole.SIZE, shutil.which("sh"))


async def test_limits_beyond_those_of_the_node_refuse_the_start(node: Node) -> None:
    """No more open files than the kernel allows anybody, whatever the privileges."""
    failed = await (await node.start(sh("true", limits=Limits(open_files=TOO_MANY)))).failed()

    assert (failed.errno_name, failed.role) == ("EPERM", SpawnRole.LIMITS)
    assert "limits.open_files" in failed.message


async def test_fc_018_a_program_that_does_not_load_holds_nobody_and_is_given_up(
    node: Node, held_back: tuple[str, Callable[[], object]]
) -> None:
    """Another child starts, speaks and ends meanwhile; the late one is killed and reaped."""
    slow = await node.start(ProcessSpec(program=held_back[0], label="slow", start_timeout_s=1.0))
    other = await node.start(sh("echo hello"))

    await other.exited()
    assert slow.heard == []
    failed = await slow.failed()

    assert (failed.errno_name, failed.role, failed.path) == (
        "ETIMEDOUT",
        SpawnRole.START_TIMEOUT,
        held_back[0],
    )
    assert slow.heard == [failed]
    await eventually(lambda: node.own_children() == [])


async def test_fc_018_a_program_that_loads_late_but_in_time_runs(
    node: Node, held_back: tuple[str, Callable[[], object]]
) -> None:
    program, let_go = held_back
    slow = await node.start(ProcessSpec(program=program, label="slow", start_timeout_s=30.0))
    await (await node.start(sh("true", **LAUNCHED))).exited()
    assert slow.heard == []

    let_go()

    assert (await slow.exited()).exit_code == 0
    assert [type(heard) for heard in slow.heard] == [ProcessStarted, ProcessExited]


async def test_fc_004_a_stop_ends_a_start_that_takes_long(
    node: Node, held_back: tuple[str, Callable[[], object]]
) -> None:
    slow = await node.start(ProcessSpec(program=held_back[0], label="slow", start_timeout_s=30.0))

    result = await slow.process.ask(Stop())

    assert isinstance(result, SpawnFailed)
    assert (result.errno_name, result.role) == ("ECANCELED", SpawnRole.STOPPED)
    await eventually(lambda: node.own_children() == [])


async def test_fc_005_many_launched_children_are_all_told_in_order(node: Node) -> None:
    all_owned = [await node.start(sh("echo x; exit 11", **LAUNCHED)) for _ in range(20)]

    for owned in all_owned:
        assert (await owned.exited()).exit_code == 11
        kinds = [type(heard) for heard in owned.heard]
        assert kinds == [ProcessStarted, ProcessOutput, ProcessExited]
    assert node.own_children() == []


async def test_a_cgroup_that_is_not_to_be_had_is_refused_or_stated(tmp_path: Path) -> None:
    """As the spec says; the directory given is no control group."""
    async with ActorSystem() as system:
        with LinuxSpawner(system.loop, cgroup_root=tmp_path) as spawner:
            node = Node(system, spawner)
            failed = await (await node.start(sh("true", cgroup=Cgroup(pids_max=9)))).failed()
            without = await node.start(sh("exit 4", cgroup=Cgroup(pids_max=9, required=False)))

            assert (failed.errno_name, failed.role) == ("ENOENT", SpawnRole.CGROUP)
            assert failed.path.startswith(str(tmp_path))
            assert (await without.exited()).exit_code == 4
            place = (await without.started()).cgroup
            assert place is not None
            assert (place.path, str(tmp_path) in place.why_none) == (None, True)


async def test_a_real_cgroup_holds_all_that_a_child_starts_and_is_removed(real_cgroup: Path) -> None:
    """Whoever left the process group is found and killed there."""
    async with ActorSystem() as system:
        with LinuxSpawner(system.loop, cgroup_root=real_cgroup) as spawner:
            node = Node(system, spawner)
            script = "grep ^0:: /proc/self/cgroup; setsid sleep 60 & echo $!; wait"
            owned = await node.start(sh(script, cgroup=Cgroup()))
            await eventually(lambda: len(owned.lines()) == 2)
            where, member = owned.lines()
            place = (await owned.started()).cgroup
            assert place is not None
            assert place.path is not None
            assert where.endswith(f"/{Path(place.path).name}")

            result = await owned.process.ask(Stop())

            assert isinstance(result, ProcessExited)
            assert result.survivors == ()
            assert not is_alive(int(member))
            await eventually(lambda: place.path not in _directories(real_cgroup))


def _directories(group: Path) -> list[str]:
    return [str(path) for path in group.iterdir() if path.is_dir()]


@pytest.fixture
def real_cgroup() -> Iterator[Path]:
    """A control group of version 2 that may be divided, as far as this machine and user allow."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            group = Path(left.split()[4]) / f"test-{os.getpid()}"
            try:
                group.mkdir()
            except OSError as exc:
                pytest.skip(f"no control group can be made here: {exc}")
            yield group
            group.rmdir()
            return
    pytest.skip("no control groups of version 2 are mounted here")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Limits(open_files=3), r"limits\.open_files: a whole number, 4 to "),
        (lambda: Limits(address_space_bytes=2**20 - 1), r"limits\.address_space_bytes: .* 1048576 to "),
        (lambda: Limits(stack_bytes=8_192), r"limits\.stack_bytes: .* 16384 to "),
        (lambda: Limits(processes=-1), r"limits\.processes: .* 0 to "),
        (lambda: Limits(cpu_s=0), r"limits\.cpu_s: .* 1 to "),
        (lambda: Limits(cpu_s=2**63), r"limits\.cpu_s"),
        (lambda: Limits(nice=20), r"limits\.nice"),
        (lambda: Cgroup(memory_max_bytes=0), r"cgroup\.memory_max_bytes"),
        (lambda: Cgroup(pids_max=-1), r"cgroup\.pids_max"),
        (lambda: Cgroup(cpus=0), r"cgroup\.cpus"),
        (lambda: Cgroup(cpus=float("nan")), r"cgroup\.cpus"),
        (lambda: sh("true", start_timeout_s=0), "start_timeout_s"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidSpecError, match=field):
        make()


WRONG = ["5", True, 5.5, float("nan"), b"5", (), -1]
LIMITS = [field for field in Limits.__struct_fields__ if field != "nice"]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_limit_of_the_wrong_type_is_refused_where_it_is_made_up(value: Any) -> None:
    """Every field by its own name; with none of them anything is started."""
    for field in LIMITS:
        with pytest.raises(InvalidSpecError, match=rf"^limits\.{field}: a whole number"):
            Limits(**{field: value})
    for field in ("memory_max_bytes", "pids_max"):
        with pytest.raises(InvalidSpecError, match=rf"^cgroup\.{field}: a whole number"):
            Cgroup(**{field: value})


def test_niceness_processors_and_flags_refuse_wrong_types_as_well() -> None:
    wrong: Any
    for wrong in ("5", True, 5.5, float("nan")):
        with pytest.raises(InvalidSpecError, match=r"^limits\.nice: a whole number, -20 to 19"):
            Limits(nice=wrong)
    for wrong in ("0.5", True, float("inf"), -1.0, 10**400):
        with pytest.raises(InvalidSpecError, match=r"^cgroup\.cpus: a number, 0\.01 to 10000"):
            Cgroup(cpus=wrong)
    for wrong in (1, "no", None):
        with pytest.raises(InvalidSpecError, match=r"^cgroup\.required: True or False"):
            Cgroup(required=wrong)


@pytest.mark.parametrize(
    "limits", [Limits(open_files=4), Limits(stack_bytes=16_384)], ids=["open files", "stack"]
)
async def test_with_the_least_that_is_allowed_a_program_starts(node: Node, limits: Limits) -> None:
    assert (await (await node.start(sh("exit 7", limits=limits))).exited()).exit_code == 7


async def test_a_launch_is_heard_of_by_a_node_without_standard_streams(node: Node) -> None:
    spec = sh("exit 3", stdin=False, stdout=Null(), stderr=Null(), guarded=False, **LAUNCHED)
    await (await node.start(spec)).exited()  # what the node opens once, it has
    async with standard_streams_closed():
        exited = await (await node.start(spec)).exited()

    assert exited.exit_code == 3
