"""The kit for tests of programs that own processes: scripted children, and the checks for spawners.

Owns: the public names, and the scripted programs that the checks start.
Not here: real children (``linux``, ``portable``).

Use of the checks: write a fixture that yields a `SpawnerSetup`, and run::

    @pytest.mark.parametrize("check", SPAWNER_CHECKS, ids=lambda check: check.__name__)
    async def test_my_spawner(check, setup): await check(setup)

A spawner of real processes runs `REAL_CHECKS` as well.
"""

from collections.abc import Iterable, Mapping

from swactor_process._checking import (
    FLOOD_BYTES,
    RealPrograms,
    RecordingListener,
    Refused,
    SpawnerCheckError,
    SpawnerSetup,
    StandardPrograms,
    StartedChild,
)
from swactor_process._real_checks import REAL_CHECKS
from swactor_process._scripted import (
    Exit,
    Listen,
    MakeFile,
    Program,
    Refusal,
    Say,
    Script,
    ScriptedChild,
    ScriptedSpawner,
    Step,
)
from swactor_process._signals import KILL, TERM
from swactor_process._spawner_checks import SPAWNER_CHECKS, Check
from swactor_process.spawner import SpawnRole
from swactor_process.spec import ProcessSpec, Stream

__all__ = [
    "FLOOD_BYTES",
    "REAL_CHECKS",
    "SCRIPTED_PROGRAMS",
    "SCRIPTED_STANDARD",
    "SPAWNER_CHECKS",
    "Check",
    "Exit",
    "Listen",
    "MakeFile",
    "Program",
    "RealPrograms",
    "RecordingListener",
    "Refusal",
    "Refused",
    "Say",
    "Script",
    "ScriptedChild",
    "ScriptedSpawner",
    "SpawnerCheckError",
    "SpawnerSetup",
    "StandardPrograms",
    "StartedChild",
    "Step",
    "check_spawner",
]


async def check_spawner(setup: SpawnerSetup) -> None:
    """Run all checks that apply, one after the other; in a test of your own rather make each a test.

    Raises:
        SpawnerCheckError: the spawner does not do what the driver builds upon.
    """
    for check in SPAWNER_CHECKS if setup.real is None else (*SPAWNER_CHECKS, *REAL_CHECKS):
        await check(setup)


def _scripted_standard() -> Mapping[str, Program]:
    def echo(line: bytes) -> Iterable[Step]:
        return (Say(line + b"\n", after_s=0.001),)

    def show(spec: ProcessSpec) -> Script:
        word = "" if spec.env is None else spec.env["WORD"]
        return Script(begin=(Say(f"{word} {spec.cwd}\n".encode()), Exit()))

    speaks = (Say(b"out\n"), Say(b"err", stream=Stream.STDERR), Exit(7, after_s=0.001))
    blocks = tuple(Say(b"x" * (FLOOD_BYTES // 30)) for _ in range(30))
    floods: tuple[Step, ...] = (
        Say(b"go", stream=Stream.STDERR),
        *blocks,
        Say(b"done", stream=Stream.STDERR),
        Exit(3),
    )
    stays = (Exit(after_s=60.0),)
    return {
        "exits-with": lambda spec: Script(begin=(Exit(int(spec.args[0])),)),
        "exits-with-7": lambda _: Script(begin=speaks),
        "floods": lambda _: Script(begin=floods),
        "shows": show,
        "echoes": lambda _: Script(on_line=echo),
        "stays": lambda _: Script(begin=stays),
        "ignores-term": lambda _: Script(begin=(Say(b"ready\n"), *stays), ignores=frozenset({TERM})),
        "kills-itself": lambda _: Script(begin=(Exit(signal=KILL),)),
        "not-executable": lambda spec: Refusal(
            errno_name="EACCES", role=SpawnRole.PERMISSION, path=spec.program
        ),
    }


def _spec(program: str, *args: str) -> ProcessSpec:
    return ProcessSpec(program=program, args=args, label=program)


SCRIPTED_STANDARD: Mapping[str, Program] = _scripted_standard()
SCRIPTED_PROGRAMS = StandardPrograms(
    exits_with=lambda code: _spec("exits-with", str(code)),
    speaks=_spec("exits-with-7"),
    floods=_spec("floods"),
    shows=_spec("shows"),
    echoes=_spec("echoes"),
    stays=_spec("stays"),
    ignores_term=_spec("ignores-term"),
    kills_itself=_spec("kills-itself"),
    refused=(
        Refused(spec=_spec("missing"), errno_name="ENOENT", role=SpawnRole.PROGRAM, path="missing"),
        Refused(
            spec=_spec("not-executable"),
            errno_name="EACCES",
            role=SpawnRole.PERMISSION,
            path="not-executable",
        ),
    ),
)
