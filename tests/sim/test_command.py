"""The command: what it prints and writes, and how it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.command import app
from swactor_diag.cli.console import CommandError, Exit


def test_a_run_prints_its_digest_and_writes_bundle_and_summary(apps: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "here"

    result = CliRunner().invoke(
        app, ["run", str(apps / "small.toml"), "--seed", "7", "--out", str(out), "--summary"]
    )

    assert result.exit_code == 0
    assert "seed      7" in result.output
    assert "virtual   60 s" in result.output
    assert "of the tar" in result.stdout
    assert (out / "bundle.tar.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert "# Run small-7" in (out / "summary.md").read_text(encoding="utf-8")


def test_without_out_the_bundle_lies_below_runs(
    apps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert CliRunner().invoke(app, ["run", str(apps / "small.toml"), "--seed", "3"]).exit_code == 0
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")} == {
        Path("runs/small-3/bundle.tar.gz"),
        Path("runs/small-3/nodes.log"),
    }


def test_a_scenario_that_cannot_be_read_is_wrong_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(tmp_path / "nothing.toml")])

    assert isinstance(result.exception, CommandError)
    assert result.exception.status is Exit.WRONG_INPUT
    assert "nothing.toml: file: No such file" in str(result.exception)


def test_a_bundle_that_cannot_be_written_is_a_failure(apps: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")

    result = CliRunner().invoke(app, ["run", str(apps / "small.toml"), "--out", str(tmp_path / "taken")])

    assert isinstance(result.exception, CommandError)
    assert result.exception.status is Exit.FAILURE


def test_a_node_that_fails_is_told(apps: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    good = (apps / "small.toml").read_text(encoding="utf-8")
    broken.write_text(re.sub(r"(boot = \")[^\"]*", r"\1os.path:join", good, count=1), encoding="utf-8")

    result = CliRunner().invoke(app, ["run", str(broken), "--out", str(tmp_path / "out")])

    assert result.exit_code == 0
    assert re.search(r"failed    [\w-]+: TypeError: ", result.output)


def test_what_nodes_log_goes_to_a_file(tmp_path: Path) -> None:
    ended = run_with_boot("logging.getLogger('app').warning('odd')", tmp_path)
    assert (ended.returncode, "odd\n" in ended.stderr) == (0, False)
    assert (tmp_path / "out" / "nodes.log").read_text(encoding="utf-8") == "odd\n"


def test_what_nodes_logged_before_a_run_broke_down_is_kept(tmp_path: Path) -> None:
    fails = "asyncio.get_running_loop().call_soon(lambda: 1 / 0)"
    ended = run_with_boot(f"logging.getLogger('app').warning('odd \\udcff'); {fails}", tmp_path)
    assert (ended.returncode, "nobody caught ZeroDivisionError" in ended.stderr) == (1, True)
    assert (tmp_path / "out" / "nodes.log").read_text(encoding="utf-8").startswith("odd \\udcff\n")


def test_the_log_of_an_earlier_run_is_not_taken_for_that_of_a_later_one(tmp_path: Path) -> None:
    run_with_boot("logging.getLogger('app').warning('odd')", tmp_path)
    run_with_boot("pass", tmp_path)
    assert (tmp_path / "out" / "nodes.log").read_text(encoding="utf-8") == ""


def run_with_boot(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a scenario as a program, with this in the boot function of its only node."""
    (folder / "own_boot.py").write_text(
        f"import asyncio, logging\n\n\nasync def boot(ports, config):\n    {body}\n", encoding="utf-8"
    )
    scenario = folder / "one.toml"
    scenario.write_text(
        'name = "one"\nduration_s = 5\n[[node]]\nname = "own"\nrole = "own"\nboot = "own_boot:boot"\n',
        encoding="utf-8",
    )
    program = [sys.executable, "-m", "sim", "run", str(scenario), "--out", str(folder / "out")]
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    return subprocess.run(
        program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False
    )
