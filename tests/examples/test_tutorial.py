"""The README of the example can be followed: its commands are understood, its code and files are there."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from examples.pipeline_inference.command import app

FOLDER = Path(__file__).parents[2] / "examples" / "pipeline_inference"
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ python -m examples\.pipeline_inference (.*)$", TEXT, flags=re.MULTILINE)
LINKS = re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", TEXT)


def test_it_shows_how_to_run_everything() -> None:
    shown = {shlex.split(command)[0] for command in COMMANDS}
    assert {"--help", "run", "worker"} <= shown


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "--help"])
def test_a_command_that_it_shows_is_one_that_the_program_takes(command: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    name, *arguments = shlex.split(command, comments=True)
    group.commands[name].make_context(name, arguments)  # a usage error is raised


@pytest.mark.parametrize("link", sorted(set(LINKS)))
def test_a_file_that_it_links_to_is_there(link: str) -> None:
    assert (FOLDER / link).exists()


def test_the_code_that_it_shows_is_that_of_the_stage() -> None:
    stage = (FOLDER / "stage.py").read_text(encoding="utf-8").splitlines()
    (block,) = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    shown = [line for line in block.splitlines() if line.strip() not in {"", "..."}]
    assert [line for line in shown if line not in stage] == []


def test_every_file_of_the_example_has_its_place_in_the_last_table() -> None:
    _, _, table = TEXT.rpartition("## Where things are")
    files = {path.name for path in FOLDER.glob("*.py") if not path.name.startswith("__")}
    assert {name for name in files if f"`{name}`" not in table} == set()
