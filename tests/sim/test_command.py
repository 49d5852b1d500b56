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


def test_what_nodes_log_goes_to_a_file(apps: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs_a_warning.py"
    logs.write_text(
        "import logging\n\n\nasync def boot(ports, config):\n    logging.getLogger('app').warning('odd')\n",
        encoding="utf-8",
    )
    scenario = tmp_path / "odd.toml"
    good = (apps / "small.toml").read_text(encoding="utf-8")
    scenario.write_text(
        re.sub(r"(boot = \")[^\"]*", r"\1logs_a_warning:boot", good, count=1), encoding="utf-8"
    )
    program = [sys.executable, "-m", "sim", "run", str(scenario), "--out", str(tmp_path / "out")]
    path = os.pathsep.join([str(tmp_path), str(apps), str(Path(__file__).parents[2])])
    ended = subprocess.run(
        program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    assert "odd" not in ended.stderr.replace(str(tmp_path), "")
    assert "odd\n" in (tmp_path / "out" / "nodes.log").read_text(encoding="utf-8")
