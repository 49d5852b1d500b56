"""The ``swactor`` command as people and scripts meet it: real processes, exit statuses, one line of error."""

import gzip
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swactor_diag.collector.ingest import Ingest
from swactor_diag.collector.storage import LocalStorage
from swactor_diag.delivery.disk_spool import DiskSpool
from swactor_diag.delivery.spool_folder import open_disk_spool
from swactor_diag.schema.submission import Outgoing, RecordKind

NODE = "a1" * 32
WAIT_S = 20


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SWACTOR_")}
    return clean | {"COLUMNS": "200"} | more


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "swactor_diag.cli.entry", *arguments]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment(**env),
        check=False,
    )


class Services:
    """Long-running commands; whatever a test leaves behind is killed."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **env: str) -> tuple[subprocess.Popen[str], str]:
        """Start a command and return it with the address that its ready line names."""
        process = subprocess.Popen(
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**env),
        )
        self._running.append(process)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "listening"
        return process, ready["url"]

    def stop(self, process: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Ask a command to stop; return its exit status and what it wrote since its ready line."""
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)
        return process.returncode, out, err

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def services() -> Iterator[Services]:
    found = Services()
    yield found
    found.end()


def stage(root: Path) -> None:
    """Put one record of one run into a collector's folder."""
    body = json.dumps({"role": "stage", "stage_index": 0, "node_id_hex": NODE}).encode()
    record = Outgoing(
        kind=RecordKind.BOOT, run_id="run-1", node_id=NODE, batch_id="b1-boot-000001", body=body
    )
    Ingest(LocalStorage(root)).accept(record, 1_000)


def test_help_names_the_commands() -> None:
    result = run("--help")

    assert result.returncode == 0
    assert all(name in result.stdout for name in ("collector", "relay", "bundle", "schema"))


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from swactor_diag.cli.main import build_app; build_app();"
        "print(sorted({'aiohttp', 'httpx', 'iroh', 'trio', 'swactor.cluster'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True
    )

    assert result.stdout.strip() == "[]"


def test_commands_of_other_packages_are_added_and_missing_ones_left_out(tmp_path: Path) -> None:
    (tmp_path / "added.py").write_text(
        "import typer\napp = typer.Typer()\n"
        "@app.callback(invoke_without_command=True)\ndef hello():\n    print('hello')\n"
    )
    facts = tmp_path / "added-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[swactor.commands]\ngreet = added:app\ngone = nowhere:app\n")
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])

    assert run("greet", PYTHONPATH=path).stdout == "hello\n"
    assert run("gone", PYTHONPATH=path).returncode == 2
    assert "greet" in run("--help", PYTHONPATH=path).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_collector_says_where_it_listens_and_stops_when_asked(
    services: Services, tmp_path: Path, number: int
) -> None:
    process, url = services.start("collector", "--port", "0", "--root", str(tmp_path / "root"))

    assert run("bundle", "fetch", url, "nothing").returncode == 1
    status, out, err = services.stop(process, number)

    assert (status, out) == (0, "")
    assert "listens on" in err
    assert "Traceback" not in err


def test_a_collector_that_is_told_a_run_is_a_node_of_it(services: Services, tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "run-1.tar.gz"
    process, url = services.start(
        "collector", "--port", "0", "--root", str(root), SWACTOR_DIAG_RUN_ID="run-1"
    )
    services.stop(process)

    assert run("bundle", "from-dir", str(root), "run-1", "-o", str(file)).returncode == 0
    summary = run("bundle", "summary", str(file)).stdout

    assert url.startswith("http://127.0.0.1:")
    (line,) = [line for line in summary.splitlines() if line.startswith("| collector |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "collector"
    assert int(cells[4]) >= 1  # a snapshot was taken on the way out


def test_a_relay_is_a_node_of_its_run_to_its_end(services: Services, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    collector, url = services.start("collector", "--port", "0", "--root", str(tmp_path / "root"))
    relay, relay_url = services.start(
        "relay", "--port", "0", SWACTOR_DIAG_COLLECTOR_URL=url, SWACTOR_DIAG_RUN_ID="run-1"
    )

    status, _, err = services.stop(relay)
    fetched = run("bundle", "fetch", url, "run-1", "-o", str(file))
    summary = run("bundle", "summary", str(file)).stdout
    services.stop(collector)

    assert (status, fetched.returncode) == (0, 0)
    assert "Traceback" not in err
    assert f"relay `{relay_url}`" in summary
    assert "relay: active 0, opened 0, closed 0" in summary


def test_with_a_token_a_download_needs_it(services: Services, tmp_path: Path) -> None:
    secret, file = tmp_path / "token", tmp_path / "out.tar.gz"
    secret.write_text("correct-horse-battery\n")
    stage(tmp_path / "root")
    _, url = services.start(
        "collector", "--port", "0", "--root", str(tmp_path / "root"), "--token-file", str(secret)
    )

    refused = run("bundle", "fetch", url, "run-1", "-o", str(file))
    allowed = run("bundle", "fetch", url, "run-1", "-o", str(file), "--token-file", str(secret))

    assert (refused.returncode, allowed.returncode) == (1, 0)
    assert "token" in refused.stderr
    assert allowed.stdout == f"{file}\n"
    assert file.read_bytes().startswith(b"\x1f\x8b")


def test_a_summary_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    stage(tmp_path / "root")
    file = tmp_path / "b.tar.gz"
    run("bundle", "from-dir", str(tmp_path / "root"), "run-1", "-o", str(file))

    result = run("bundle", "summary", str(file), "-o", str(tmp_path / "out"))

    assert result.returncode == 0
    assert result.stdout == f"{tmp_path / 'out' / 'summary.md'}\n"
    assert (tmp_path / "out" / "summary.md").read_text().startswith("# Run run-1\n")


def test_on_a_terminal_a_summary_is_a_page_and_in_a_pipe_it_is_markdown(tmp_path: Path) -> None:
    stage(tmp_path / "root")
    file = tmp_path / "b.tar.gz"
    run("bundle", "from-dir", str(tmp_path / "root"), "run-1", "-o", str(file))
    terminal, end = os.openpty()
    shown = subprocess.run(
        command("bundle", "summary", str(file)), stdout=end, env=environment(TERM="xterm"), check=False
    )
    os.close(end)
    with os.fdopen(terminal, "rb") as output:
        page = output.read1(1_000_000).decode()
    assert shown.returncode == 0
    assert "Run run-1" in page
    assert "## Workers" not in page
    assert "## Workers" in run("bundle", "summary", str(file)).stdout


def test_a_cut_bundle_has_a_summary_and_its_own_exit_status(tmp_path: Path) -> None:
    stage(tmp_path / "root")
    file = tmp_path / "b.tar.gz"
    run("bundle", "from-dir", str(tmp_path / "root"), "run-1", "-o", str(file))
    file.write_bytes(file.read_bytes()[:-4])

    result = run("bundle", "summary", str(file))

    assert result.returncode == 3
    assert result.stdout.startswith("> Warning: ")
    assert "stage-0" in result.stdout


def test_a_bundle_is_checked_by_its_manifest_and_a_folder_by_its_records(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "b.tar.gz"
    stage(root)
    run("bundle", "from-dir", str(root), "run-1", "-o", str(file))
    segment = root / "run-1" / "@log" / "main-000001.seg"

    sound = [run("bundle", "check", str(target)).returncode for target in (file, root)]
    segment.write_bytes(segment.read_bytes().replace(b"stage_index", b"stage_Index"))
    folder = run("bundle", "check", str(root))
    unpacked = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(unpacked.replace(b'"stage_index": 0', b'"stage_index": 7')))
    archive = run("bundle", "check", str(file))

    assert sound == [0, 0]
    assert (folder.returncode, archive.returncode) == (3, 3)
    assert "b1-boot-000001" in folder.stdout
    assert "stage-0/boot.json: not the bytes" in archive.stdout


def test_a_spool_is_handed_in_by_hand(services: Services, tmp_path: Path) -> None:
    spool = DiskSpool(tmp_path / "spool")
    for number in (1, 2):
        spool.put(
            Outgoing(
                kind=RecordKind.EVENTS,
                run_id="run-1",
                node_id=NODE,
                batch_id=f"b1-events-{number:06d}",
                body=b"[]" if number == 1 else b"{nope",
            )
        )
    _, url = services.start("collector", "--port", "0", "--root", str(tmp_path / "root"))

    result = run("spool", "push", str(tmp_path / "spool"), url)
    again = run("spool", "push", str(tmp_path / "spool"), url)

    assert (result.returncode, result.stdout) == (3, "1 records sent, 1 refused and set aside\n")
    assert (again.returncode, again.stdout) == (0, "0 records sent, 0 refused and set aside\n")


def test_the_spool_of_a_node_that_runs_is_not_handed_in(tmp_path: Path) -> None:
    spool = open_disk_spool(tmp_path, NODE)
    result = run("spool", "push", str(tmp_path / NODE), "http://127.0.0.1:1")
    spool.close()
    assert result.returncode != 0
    assert "a node that runs uses the spool" in result.stderr


def test_settings_are_shown_and_trims_are_foretold(tmp_path: Path) -> None:
    root = tmp_path / "root"
    stage(root)
    segment = root / "run-1" / "@log" / "main-000001.seg"
    os.utime(segment, (1, 1))

    shown = run("collector", "--print-config", "--set", "disk_bytes_max=5", SWACTOR_DIAG_PORT="77")
    trims = run("collector", "--trim-dry-run", "--root", str(root))

    assert "disk_bytes_max = 5\n" in shown.stdout
    assert "port = 77\n" in shown.stdout
    assert json.loads(trims.stdout)["run_id"] == "run-1"
    assert segment.exists()


def test_the_schema_is_json() -> None:
    result = run("schema")

    assert result.returncode == 0
    assert "SubprocessExited" in json.loads(result.stdout)["$defs"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["no-such-command"], 2),
        (["collector", "--no-such-option"], 2),
        (["collector", "--port", "99999"], 2),
        (["collector", "--port", "soon"], 2),
        (["collector", "--host", "0.0.0.0", "--port", "0"], 2),
        (["collector", "--port", "0", "--token-file", "/nowhere/token"], 2),
        (["collector", "--port", "0", "--root", "/dev/null/x"], 2),
        (["collector", "--port", "0", "--run-id", "../x"], 2),
        (["collector", "--set", "no_such=1"], 2),
        (["collector", "--set", "port"], 2),
        (["bundle", "check", "/nowhere"], 2),
        (["spool", "push", "/nowhere", "http://127.0.0.1:9"], 2),
        (["spool", "push", "/", "not-an-address"], 2),
        (["relay", "--host", "0.0.0.0", "--port", "0"], 2),
        (["relay", "--port", "0", "--token-file", "/nowhere/token"], 2),
        (["relay", "--port", "0", "--run-id", "../x"], 2),
        (["relay", "--port", "0", "--collector-url", "collector:9080"], 2),
        (["bundle", "summary"], 2),
        (["bundle", "summary", "/nowhere/b.tar.gz"], 2),
        (["bundle", "summary", "/"], 2),
        (["bundle", "fetch", "ftp://x", "run-1"], 2),
        (["bundle", "fetch", "http://127.0.0.1:9", "run-1"], 1),
        (["bundle", "fetch", "http://127.0.0.1:9", "../x"], 2),
        (["bundle", "from-dir", "/nowhere", "run-1"], 2),
        (["bundle", "from-dir", "/nowhere", "a/b"], 2),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], status: int, tmp_path: Path) -> None:
    result = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(Path.cwd())),
        check=False,
    )

    assert result.returncode == status
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("swactor: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("service", ["collector", "relay"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"SWACTOR_DIAG_COLLECTOR_URL": "nonsense"},
        {"SWACTOR_DIAG_STAGE_INDEX": "1", "SWACTOR_DIAG_COLLECTOR_URL": "http://127.0.0.1:9"},
    ],
)
def test_a_wrong_variable_is_said_in_one_line(service: str, wrong: dict[str, str], tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)] if service == "collector" else []

    result = run(service, "--port", "0", "--run-id", "run-1", *root, **wrong)

    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("swactor: ")
    assert len(result.stderr.splitlines()) == 1, result.stderr


def test_a_port_in_use_is_said_in_one_line(services: Services, tmp_path: Path) -> None:
    _, url = services.start("collector", "--port", "0", "--root", str(tmp_path))
    port = url.rsplit(":", 1)[1]

    for name in ("collector", "relay"):
        result = run(name, "--port", port)

        assert result.returncode == 2
        assert result.stderr.startswith("swactor: cannot listen on 127.0.0.1:")
        assert len(result.stderr.splitlines()) == 1


def test_a_reader_that_stops_reading_is_no_error() -> None:
    piped = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m swactor_diag.cli.main schema | head -1"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment(),
        check=True,
    )

    assert piped.stdout == "{\n"
    assert piped.stderr == ""


def test_output_that_cannot_be_written_is_one_line_of_error() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command("schema"), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "swactor: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_command_that_was_started_without_output_does_its_work(closed: str) -> None:
    shell = f"{shlex.join(command('schema'))} {closed}"
    ended = subprocess.run(shell, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_an_encoding_does_not_have_is_written_as_its_number() -> None:
    ended = run("spool", "push", "no-\N{BULLET}", "http://127.0.0.1:9", PYTHONIOENCODING="ascii:strict")
    assert (ended.returncode, ended.stderr) == (2, "swactor: there is no folder no-\\u2022\n")


def test_ctrl_c_while_it_is_still_being_imported_needs_no_words() -> None:
    interrupts = (
        "import os, signal, sys; from swactor_diag.cli import entry;"
        "find = type('F', (), {'find_spec': staticmethod("
        "lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'typer' else None)});"
        "sys.meta_path.insert(0, find); entry.main()"
    )
    ended = subprocess.run([sys.executable, "-c", interrupts], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
