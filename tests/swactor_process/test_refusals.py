"""What the owner hears when nothing could be started: who or what to look at. Real refusals of the kernel."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swactor import Event
from swactor_process import ProcessSpec, SpawnFailed, SpawnRole
from swactor_process.events import SubprocessSpawnFailed

from .conftest import Node, sh

NOBODY = 65_534


def _file(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def _refused(node: Node, spec: ProcessSpec) -> SpawnFailed:
    owned = await node.start(spec)
    failed = await owned.failed()
    assert owned.heard == [failed]
    return failed


async def test_fc_013_a_missing_program(node: Node) -> None:
    failed = await _refused(node, ProcessSpec(program="no-such-program", label="x"))

    assert (failed.errno_name, failed.role, failed.path) == ("ENOENT", SpawnRole.PROGRAM, "no-such-program")


async def test_fc_013_a_missing_directory(node: Node, tmp_path: Path) -> None:
    cwd = str(tmp_path / "nowhere")

    failed = await _refused(node, sh("true", cwd=cwd))

    assert (failed.errno_name, failed.role, failed.path) == ("ENOENT", SpawnRole.CWD, cwd)


async def test_fc_013_a_directory_that_is_a_file(node: Node, tmp_path: Path) -> None:
    cwd = _file(tmp_path / "file", "")

    failed = await _refused(node, sh("true", cwd=cwd))

    assert (failed.errno_name, failed.role, failed.path) == ("ENOTDIR", SpawnRole.CWD, cwd)


@pytest.mark.parametrize("kind", ["no x bit", "directory"])
async def test_fc_013_something_that_may_not_be_executed(node: Node, tmp_path: Path, kind: str) -> None:
    program = _file(tmp_path / "file", "#!/bin/sh\n", 0o644) if kind == "no x bit" else str(tmp_path)

    failed = await _refused(node, ProcessSpec(program=program, label="x"))

    assert (failed.errno_name, failed.role, failed.path) == ("EACCES", SpawnRole.PERMISSION, program)


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """A directory that this process may not search, with a program in it; root is somebody else meanwhile."""
    directory = tmp_path / "forbidden"
    directory.mkdir()
    _file(directory / "program", "#!/bin/sh\n")
    directory.chmod(0)
    if os.geteuid() == 0:
        os.setresuid(NOBODY, NOBODY, 0)
        yield directory
        os.setresuid(0, 0, 0)
    else:
        yield directory
    directory.chmod(0o755)


async def test_fc_013_what_may_not_even_be_looked_at(node: Node, forbidden: Path) -> None:
    """To find out what to blame must not fail on what made the kernel refuse."""
    program, cwd = str(forbidden / "program"), str(forbidden / "directory")
    plain: dict[str, Any] = {"label": "x", "guarded": False}

    told = [
        await _refused(node, ProcessSpec(program=program, **plain)),
        await _refused(node, ProcessSpec(program="true", cwd=cwd, **plain)),
        await _refused(node, ProcessSpec(program="true", cwd=str(forbidden), **plain)),
        await _refused(node, ProcessSpec(program="program", env={"PATH": str(forbidden)}, **plain)),
    ]

    assert [(failed.errno_name, failed.role, failed.path) for failed in told] == [
        ("EACCES", SpawnRole.PERMISSION, program),
        ("EACCES", SpawnRole.CWD, cwd),
        ("EACCES", SpawnRole.CWD, str(forbidden)),
        ("EACCES", SpawnRole.PERMISSION, "program"),
    ]


@pytest.mark.parametrize("changes", [{}, {"start_timeout_s": 60.0}], ids=["plain", "launched"])
@pytest.mark.parametrize("long", ["/" + "a" * 5_000, "/tmp/" + "a" * 300], ids=["path", "name"])
async def test_fc_013_what_is_too_long_to_be_looked_at(
    node: Node, long: str, changes: dict[str, Any]
) -> None:
    program = await _refused(node, ProcessSpec(program=long, label="x", **changes))
    cwd = await _refused(node, sh("true", cwd=long, **changes))

    assert (program.errno_name, program.role, program.path) == ("ENAMETOOLONG", SpawnRole.PROGRAM, long)
    assert (cwd.errno_name, cwd.role, cwd.path) == ("ENAMETOOLONG", SpawnRole.CWD, long)
    assert node.own_children() == []


@pytest.mark.parametrize("text", ["echo hi\n", ""])
async def test_fc_014_a_script_without_a_first_line(node: Node, tmp_path: Path, text: str) -> None:
    program = _file(tmp_path / "script", text)

    failed = await _refused(node, ProcessSpec(program=program, label="x"))

    assert (failed.errno_name, failed.role, failed.path) == ("ENOEXEC", SpawnRole.FORMAT, program)
    assert "no #! line" in failed.message


async def test_fc_014_a_script_whose_interpreter_is_missing(node: Node, tmp_path: Path) -> None:
    """The script itself does exist."""
    program = _file(tmp_path / "script", "#!/nope/interp\n")

    failed = await _refused(node, ProcessSpec(program=program, label="x"))

    assert (failed.errno_name, failed.role, failed.path) == ("ENOENT", SpawnRole.INTERPRETER, program)
    assert "#! line" in failed.message


async def test_fc_013_an_argument_that_is_too_large(node: Node) -> None:
    failed = await _refused(node, ProcessSpec(program="true", args=("x" * 200_000,), label="x"))

    assert (failed.errno_name, failed.role) == ("E2BIG", SpawnRole.SIZE)


async def test_fc_013_the_owner_goes_on_after_a_refusal(node: Node) -> None:
    await _refused(node, ProcessSpec(program="no-such-program", label="x"))

    assert (await (await node.start(sh("exit 0"))).exited()).exit_code == 0


class Seen:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


async def test_observers_hear_of_it_without_the_arguments_which_may_be_secret(node: Node) -> None:
    seen = Seen()
    node.system.attach(seen)

    await _refused(node, ProcessSpec(program="no-such-program", args=("--token", "s3cret"), label="x"))

    (event,) = [event for event in seen.events if isinstance(event, SubprocessSpawnFailed)]
    assert (event.label, event.command, event.errno_name) == ("x", "no-such-program", "ENOENT")
    assert "s3cret" not in repr(event)
