"""The main job as its users run it: real processes, real endpoints, and the ways in which it can end.

Every process of a run carries a mark in its environment, so that a test can find each of them, whoever
started it, and show that none is left.
"""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from time import monotonic
from typing import Any

import anyio
import psutil
import pytest
from msgspec import structs

from examples.pipeline_inference.demo import Demo, DemoOptions
from examples.pipeline_inference.output import Output
from examples.pipeline_inference.requests import UNDER_WAY_MAX
from sim.scenario import load
from sim.world import simulate
from swactor_diag.postproc.load import Run, load_run
from swactor_diag.schema.events import SubprocessExited
from swactor_diag.schema.reading import UnknownEvent

ROOT = Path(__file__).parents[2]
MARK = "SWACTOR_TEST_MARK"
DEADLINE_S = 50.0


class DemoProcess:
    """``swactor demo run`` with its output read as it comes."""

    def __init__(self, out: Path, arguments: list[str]) -> None:
        self.out = out
        self.mark = uuid.uuid4().hex
        self.text = ""
        self._chunks: Queue[str] = Queue()
        self._reads = True
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.pipeline_inference", "run", "--out", str(out), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, MARK: self.mark, "COLUMNS": "200"},
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while self._reads and (chunk := os.read(output.fileno(), 65_536)):
                self._chunks.put(chunk.decode())

    def stop_reading(self) -> None:
        """Close the pipe of its output, after the next piece."""
        self._reads = False

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match of ``pattern`` in the output."""
        ends = monotonic() + DEADLINE_S
        while (found := re.search(pattern, self.text)) is None:
            try:
                self.text += self._chunks.get(timeout=max(0.0, ends - monotonic()))
            except Empty:
                pytest.fail(f"{pattern!r} did not come: {self.text}")
        return found

    def wait(self) -> int:
        """Wait for the end; return the exit status."""
        status = self._process.wait(timeout=DEADLINE_S)
        while not self._chunks.empty():
            self.text += self._chunks.get()
        return status

    def signal(self, number: signal.Signals) -> None:
        """Signal the launcher."""
        self._process.send_signal(number)

    def find(self, *words: str) -> psutil.Process:
        """Return the one process of the run whose command line has all ``words``."""
        (found,) = self._having(*words)
        return found

    def count(self, *words: str) -> int:
        """Return how many processes of the run have all ``words`` in their command lines."""
        return len(self._having(*words))

    def _having(self, *words: str) -> list[psutil.Process]:
        return [process for process in self.living() if set(words) <= set(command_line(process))]

    def living(self) -> list[psutil.Process]:
        """Return every process of this run, the launcher included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def ports(self) -> list[int]:
        """Return the ports that were printed."""
        return [int(port) for port in re.findall(r"listens on http://127\.0\.0\.1:(\d+)", self.text)]

    def bundle(self) -> Run:
        """Return the bundle, read."""
        (path,) = self.out.glob("*/*.tar.gz")
        return load_run(path)

    def destroy(self) -> None:
        """End whatever a failed test left."""
        for process in self.living():
            process.kill()
        self._process.wait()


def command_line(process: psutil.Process) -> list[str]:
    """Return it, or nothing of a process that has just ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def until(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Poll ``condition``: processes of others can only be looked at."""
    ends = monotonic() + within_s
    while not condition():
        if monotonic() > ends:
            return False
        threading.Event().wait(0.05)
    return True


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., DemoProcess]]:
    started: list[DemoProcess] = []

    def start(*arguments: str) -> DemoProcess:
        started.append(DemoProcess(tmp_path / "runs", list(arguments)))
        return started[-1]

    yield start
    for demo in started:
        demo.destroy()


def assert_nothing_is_left(demo: DemoProcess) -> None:
    """No process, no port, no temporary folder."""
    assert until(lambda: demo.living() == [], within_s=3.0), [process.cmdline() for process in demo.living()]
    for port in demo.ports():
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    for run in demo.out.glob("*"):
        assert {path.name for path in run.iterdir()} <= {f"{run.name}.tar.gz", "summary.md", "logs"}


def fates(run: Run) -> list[tuple[str, int | None, int | None]]:
    """Return label, exit code and signal of each child that ended, from the events of all nodes."""
    exits = [record.event for node in run.nodes for record in node.records]
    return [
        (event.label, event.exit_code, event.exit_signal)
        for event in exits
        if isinstance(event, SubprocessExited)
    ]


def responses(run: Run) -> list[dict[str, Any]]:
    """Return what the orchestrator recorded of each request that ended."""
    events = [record.event for node in run.nodes for record in node.records]
    return [
        event.body
        for event in events
        if isinstance(event, UnknownEvent) and event.kind == "InferenceResponseSent"
    ]


def outcomes(run: Run) -> dict[str, str]:
    """Return how each request ended, by its name."""
    return {event["request_id"]: event["send_outcome"] for event in responses(run)}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """One run that went well, over."""
    demo = DemoProcess(tmp_path_factory.mktemp("answered") / "runs", ["What is a bundle?"])
    assert demo.wait() == 0, demo.text
    yield demo
    demo.destroy()


@pytest.mark.xdist_group("answered")
@pytest.mark.timeout(90)
def test_it_answers_and_leaves_one_bundle_that_names_every_worker(answered: DemoProcess) -> None:
    assert "A bundle is one file that says what happened on every node of a run" in answered.text
    run = answered.bundle()
    labels = sorted(node.label for node in run.nodes)
    assert labels == ["collector", "launcher", "orchestrator", "relay", "stage-0", "stage-1", "stage-2"]
    assert run.manifest is not None
    assert run.manifest.finalize_received
    assert all(node.identities and node.records and node.snapshots for node in run.nodes)
    assert {"worker-0", "worker-1", "worker-2", "stage-0", "stage-1", "stage-2"} <= {
        label for label, _, _ in fates(run)
    }
    _, _, end = answered.text.rpartition("logs ")
    assert re.search(r"What is a bundle\? A bundle is one file .*\n\nAnswered: 1 of 1, \d+ tokens in", end)
    (summary,) = answered.out.glob("*/summary.md")
    for stage in range(3):
        assert re.search(rf"stage-{stage} \| \S+ \| worker-{stage} \| \d+ \|", summary.read_text())
    assert str(summary) in answered.text.replace("\n", "")
    assert_nothing_is_left(answered)


@pytest.mark.xdist_group("answered")
@pytest.mark.timeout(90)
def test_a_simulated_run_has_no_field_and_no_kind_that_the_real_one_lacks(answered: DemoProcess) -> None:
    scenario = load(ROOT / "sim" / "scenarios" / "three_stages.toml")
    simulated, _ = simulate(structs.replace(scenario, duration_s=60.0), seed=1)
    (real,) = answered.out.glob("*/*.tar.gz")
    only_simulated = shape(simulated.archive) - shape(real.read_bytes())
    # The demo's relay has an address in numbers, the simulated one a name that is looked up.
    assert {field for field in only_simulated if not field.startswith("snapshot.body.host.dns[]")} == set()


def shape(archive: bytes) -> set[str]:
    """Return every event kind and every field of every record, ``sim/`` left out."""
    found: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            _run, *folders = Path(member.name).parent.parts or ("",)
            if file is None or "sim" in folders:
                continue
            record = json.load(file)
            if "events" in folders:
                for event in record:
                    kind = event.pop("type")
                    found |= {f"{kind}({event['kind']})" if kind == "Custom" else kind}
                    found |= set(fields(event, kind))
            else:
                found |= set(fields(record, Path(member.name).stem.split("-")[0]))
    return found


def fields(value: object, path: str) -> Iterator[str]:
    """Yield the path of every leaf of ``value``."""
    match value:
        case dict():
            for key, inner in value.items():
                yield from fields(inner, f"{path}.{key}")
        case list():
            for inner in value:
                yield from fields(inner, f"{path}[]")
        case _:
            yield path


@pytest.mark.timeout(90)
def test_a_killed_worker_fails_one_request_and_the_restarted_one_serves_the_next(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("--times", "3", "Tell me a story.")
    demo.wait_for("Once a node")
    demo.find("examples.pipeline_inference.worker_program", "1").kill()
    demo.wait_for(r"request-1 failed: stage-1: worker was killed by SIGKILL after [\d.]+ s, not by us")
    assert demo.wait() == 1
    while_it_ran, _, _ = demo.text.partition(" Run demo-")
    assert while_it_ran.count("Now one file tells the story.") == 2, demo.text
    run = demo.bundle()
    assert ("worker-1", None, signal.SIGKILL) in fates(run)
    assert outcomes(run) == {"request-1": "stage_failed", "request-2": "answered", "request-3": "answered"}
    took_ms = next(event["duration_ms"] for event in responses(run) if event["request_id"] == "request-2")
    assert took_ms < 30_000
    assert len([label for label, _, _ in fates(run) if label == "worker-1"]) == 2
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_a_run_that_lost_a_worker_before_it_was_asked_anything_is_no_success(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("Tell me a story.")
    demo.wait_for("nodes started")
    assert until(lambda: demo.count("examples.pipeline_inference.worker_program", "1") == 1, within_s=20.0)
    demo.find("examples.pipeline_inference.worker_program", "1").kill()
    assert demo.wait() == 1, demo.text
    assert "The run failed: ended unasked: worker-1 by signal 9\n" in demo.text
    assert "Answered: 1 of 1" in demo.text
    assert ("worker-1", None, signal.SIGKILL) in fates(demo.bundle())
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_a_worker_that_stands_still_is_named_and_replaced_and_the_summary_tells_it(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("--times", "4", "Tell me a story.")
    demo.wait_for("stage-1 is ready")
    worker = demo.find("examples.pipeline_inference.worker_program", "1")
    demo.wait_for("Once a node")
    worker.suspend()
    demo.wait_for(r"request-\d failed: stage-1: worker runs, has work, and said nothing for 10 s")
    assert demo.wait() == 1
    run = demo.bundle()
    assert fates(run).count(("worker-1", None, signal.SIGTERM)) == 2  # the second one at the end of the run
    assert sorted(outcomes(run).values()) == [*3 * ["answered"], "stage_failed"]
    (summary,) = demo.out.glob("*/summary.md")
    assert re.search(r"worker-1 \| .* \| stopped by us with signal 15 after \d\d\.\d s", summary.read_text())
    assert re.search(r"worker\S*silent \| stage-1 \|", summary.read_text())
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("fault", "row"),
    [
        ("never-spawned", r"stage-1 \| \S+ \| - \| - \| - \| never asked to spawn \| -"),
        ("exits", r"stage-1 \| .* \| exited 3 after [\d.]+ m?s \| drill: this worker ends at once"),
        (
            "silent",
            r"stage-1 \| .* \| stopped by us with signal 15 after [\d.]+ s \| last heard: not\\?_ready",
        ),
    ],
)
def test_the_summary_alone_tells_why_a_stage_produced_nothing(
    start: Callable[..., DemoProcess], fault: str, row: str
) -> None:
    demo = start("--fault", f"stage-1={fault}", "Hello.")
    assert demo.wait() == 1, demo.text
    (summary,) = demo.out.glob("*/summary.md")
    assert re.search(row, summary.read_text()), summary.read_text()
    assert re.search(r"send_outcome stage_failed, .* stage stage-1, why", summary.read_text())
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_a_stage_that_is_left_to_be_started_by_hand_is_waited_for_and_recorded(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("--by-hand", "1", "Who are you?")
    command = demo.wait_for(r"\nSWACTOR_DIAG_.* node \S+stage-1\.node").group().strip()
    stage = subprocess.Popen(f"exec env {command}", shell=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        assert demo.wait() == 0, demo.text
        stage.send_signal(signal.SIGINT)
        assert stage.wait(timeout=30) == 0
    finally:
        stage.kill()
    assert "Answered: 1 of 1" in demo.text
    (by_hand,) = [node for node in demo.bundle().nodes if node.label == "stage-1"]
    assert [record for record in by_hand.records if record.kind == "SubprocessSpawned"]
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_a_killed_orchestrator_leaves_a_bundle_that_was_never_finalized(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("--times", "200", "Tell me a story.")
    demo.wait_for("Once a node")
    next(process for process in demo.living() if process.cmdline()[-1].endswith("orchestrator.node")).kill()
    assert demo.wait() == 1
    assert "failed: orchestrator was killed by SIGKILL" in demo.text
    run = demo.bundle()
    assert run.manifest is not None
    assert not run.manifest.finalize_received
    assert ("orchestrator", None, signal.SIGKILL) in fates(run)
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "moment",
    ["collector listens", "relay listens", "nodes started", "Once a node"],
    ids=lambda text: text.split()[0],
)
def test_ctrl_c_at_any_moment_cleans_up_and_still_yields_the_bundle(
    start: Callable[..., DemoProcess], moment: str
) -> None:
    demo = start("--times", "200", "Tell me a story.")
    demo.wait_for(moment)
    demo.signal(signal.SIGINT)
    assert demo.wait() == 130, demo.text
    assert "launcher" in {node.label for node in demo.bundle().nodes}
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_ctrl_c_before_the_collector_is_up_ends_with_one_clear_line(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("Tell me a story.")
    assert until(
        lambda: any(command_line(process)[3:4] == ["collector"] for process in demo.living()), within_s=20
    )
    demo.signal(signal.SIGINT)
    assert demo.wait() == 130
    assert demo.text.splitlines()[-1] == "The run was interrupted."
    assert "dead letter" not in demo.text
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_a_second_ctrl_c_kills_everything_at_once(start: Callable[..., DemoProcess]) -> None:
    demo = start("--times", "200", "Tell me a story.")
    demo.wait_for("Once a node")
    demo.signal(signal.SIGINT)
    demo.wait_for("once more kills at once")
    demo.signal(signal.SIGINT)
    assert demo.wait() == 130
    assert "killed; what is left: only " in demo.text
    assert_nothing_is_left(demo)


@pytest.mark.timeout(90)
def test_it_ends_in_order_with_its_bundle_when_nobody_reads_its_output_any_more(
    start: Callable[..., DemoProcess],
) -> None:
    demo = start("--times", "200", "Tell me a story.")
    demo.wait_for("Once a node")
    demo.stop_reading()
    assert demo.wait() == 1
    assert {"orchestrator", "stage-0", "stage-1", "stage-2"} <= {node.label for node in demo.bundle().nodes}
    assert_nothing_is_left(demo)


class GoneAtTheSummary(io.StringIO):
    """A terminal that closes as the summary comes."""

    descriptor: int

    def write(self, text: str, /) -> int:
        if "Workers" in text:
            raise BrokenPipeError
        return super().write(text)

    def fileno(self) -> int:
        return self.descriptor


@pytest.mark.timeout(90)
def test_output_that_is_lost_when_the_run_is_over_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = DemoOptions(prompts=("Tell me a story.",), stage_count=1, tokens_max=3, out=tmp_path)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        stream = GoneAtTheSummary()
        stream.descriptor = nowhere.fileno()
        assert anyio.run(Demo(options, Output(stream)).run) == 0
    assert "Answered" in stream.getvalue()
    assert "dead letter" not in caplog.text


@pytest.mark.timeout(90)
def test_a_killed_collector_leaves_a_bundle_of_what_it_had_stored(start: Callable[..., DemoProcess]) -> None:
    demo = start("--times", "200", "Tell me a story.")
    demo.wait_for("Once a node")
    demo.find("swactor_diag.cli.main", "collector").kill()
    assert demo.wait() == 1
    assert "the collector gave no bundle: cannot reach" in demo.text
    assert "this one is made of what it had stored" in demo.text
    assert "failed: collector was killed by SIGKILL" in demo.text
    assert {"relay", "stage-0", "stage-1", "stage-2"} <= {node.label for node in demo.bundle().nodes}
    assert_nothing_is_left(demo)


@pytest.mark.parametrize("parallel", [1, 3, 64])
def test_the_limit_of_a_run_leaves_every_answer_its_time(parallel: int, tmp_path: Path) -> None:
    prompts = 100 * ("Tell me a story.",)
    options = DemoOptions(prompts, stage_count=3, tokens_max=3, out=tmp_path, parallel=parallel, timeout_s=50)
    assert options.run_timeout_s > 50 * len(prompts) / min(parallel, UNDER_WAY_MAX)


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    program = (sys.executable, "-m", "swactor_diag.cli.entry", "demo", "run", "--out", str(tmp_path / "file"))
    ended = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
    why = f"swactor: Invalid value for --out: cannot write to {tmp_path / 'file'}: Not a directory\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", why)


@pytest.mark.parametrize("option", ["--timeout=inf", f"--seed={2**63}", "--tokens=1000001", "--times=1001"])
def test_an_absurd_number_is_refused_before_anything_is_started(option: str) -> None:
    program = (sys.executable, "-m", "swactor_diag.cli.entry", "demo", "run", option)
    ended = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.match(
        rf"swactor: Invalid value for '{option.partition('=')[0]}': .* less than or equal", ended.stderr
    )


def test_a_prompt_that_is_no_text_is_refused_before_anything_is_started() -> None:
    program = (sys.executable, "-m", "swactor_diag.cli.entry", "demo", "run", b"a\xff")
    ended = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "swactor: Invalid value for PROMPTS: 'a\\udcff' is no valid UTF-8\n",
    )


@pytest.mark.timeout(90)
def test_a_killed_launcher_takes_every_process_along(start: Callable[..., DemoProcess]) -> None:
    demo = start("--times", "200", "Tell me a story.")
    demo.wait_for("Once a node")
    demo.signal(signal.SIGKILL)
    assert demo.wait() == -signal.SIGKILL
    assert until(lambda: demo.living() == [], within_s=3.0), [process.cmdline() for process in demo.living()]
