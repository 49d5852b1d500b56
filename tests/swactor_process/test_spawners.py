"""What every spawner promises, for each of them on each event loop: one check, one test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from swactor import ActorSystem
from swactor_process import LinuxSpawner, PortableSpawner, ProcessSpec, SpawnRole
from swactor_process.testing import (
    REAL_CHECKS,
    SCRIPTED_PROGRAMS,
    SCRIPTED_STANDARD,
    SPAWNER_CHECKS,
    Check,
    RealPrograms,
    Refused,
    ScriptedSpawner,
    SpawnerSetup,
    StandardPrograms,
)

from .conftest import Node, sh


def _standard(refused: tuple[Refused, ...]) -> StandardPrograms:
    return StandardPrograms(
        exits_with=lambda code: sh(f"exit {code}"),
        speaks=sh("echo out; printf err >&2; exit 7"),
        floods=sh("printf go >&2; head -c 300000 /dev/zero | tr '\\0' x; printf done >&2; exit 3"),
        shows=sh('echo "$WORD $PWD"'),
        echoes=ProcessSpec(program="cat", label="echoes"),
        stays=sh("exec sleep 60"),
        ignores_term=sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"),
        kills_itself=sh("kill -9 $$"),
        refused=refused,
    )


REAL = RealPrograms(
    has_descriptor=lambda number: sh(f"[ -e /dev/fd/{number} ]"),
    leaves_one=sh("sleep 60 >/dev/null 2>&1 & echo $!"),
    wraps_one=sh("sleep 60 & echo $!; wait"),
)


@pytest.fixture
def refused(tmp_path: Path) -> tuple[Refused, ...]:
    """What the kernel does not start, and why."""

    def file(name: str, text: str, mode: int = 0o755) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def program(path: str, errno_name: str, role: SpawnRole) -> Refused:
        spec = ProcessSpec(program=path, label="refused")
        return Refused(spec=spec, errno_name=errno_name, role=role, path=path)

    nowhere = str(tmp_path / "nowhere")
    return (
        program("no-such-program", "ENOENT", SpawnRole.PROGRAM),
        program(nowhere, "ENOENT", SpawnRole.PROGRAM),
        program(file("plain", "#!/bin/sh\n", 0o644), "EACCES", SpawnRole.PERMISSION),
        program(str(tmp_path), "EACCES", SpawnRole.PERMISSION),
        program(file("first-line", "echo hi\n"), "ENOEXEC", SpawnRole.FORMAT),
        program(file("interpreter", "#!/nope/interp\n"), "ENOENT", SpawnRole.INTERPRETER),
        Refused(spec=sh("true", cwd=nowhere), errno_name="ENOENT", role=SpawnRole.CWD, path=nowhere),
        Refused(
            spec=ProcessSpec(program="/bin/sh", args=("x" * 200_000,), label="refused"),
            errno_name="E2BIG",
            role=SpawnRole.SIZE,
            path="/bin/sh",
        ),
    )


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem() as running:
        yield running


@pytest.fixture(params=[LinuxSpawner, PortableSpawner], ids=["linux", "portable"])
def real(
    request: pytest.FixtureRequest, system: ActorSystem, refused: tuple[Refused, ...]
) -> Iterator[SpawnerSetup]:
    with request.param(system.loop) as spawner:
        yield SpawnerSetup(spawner=spawner, loop=system.loop, programs=_standard(refused), real=REAL)


@pytest.fixture
def scripted(system: ActorSystem) -> SpawnerSetup:
    spawner = ScriptedSpawner(system.loop, system.clock, programs=SCRIPTED_STANDARD)
    return SpawnerSetup(spawner=spawner, loop=system.loop, programs=SCRIPTED_PROGRAMS)


def name(check: Check) -> str:
    return check.__name__


@pytest.mark.parametrize("check", [*SPAWNER_CHECKS, *REAL_CHECKS], ids=name)
async def test_real_children_keep_the_promise(check: Check, real: SpawnerSetup) -> None:
    await check(real)


async def test_a_spawner_that_is_closed_starts_nothing_any_more(
    real: SpawnerSetup, system: ActorSystem
) -> None:
    assert isinstance(real.spawner, LinuxSpawner | PortableSpawner)
    real.spawner.close()

    owned = await Node(system, real.spawner).start(sh("true"))

    failed = await owned.failed()
    assert (failed.errno_name, failed.role) == ("ECANCELED", SpawnRole.STOPPED)
    assert real.spawner.guardian_pid is None


@pytest.mark.parametrize("check", SPAWNER_CHECKS, ids=name)
async def test_scripted_children_keep_the_promise(check: Check, scripted: SpawnerSetup) -> None:
    await check(scripted)
