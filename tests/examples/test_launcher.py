"""The launcher with scripted processes in virtual time: whichever ends first, and in whatever phase."""

import asyncio
import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples.pipeline_inference.launcher import (
    COLLECTOR,
    ORCHESTRATOR,
    RELAY,
    Launcher,
    LauncherMessage,
    Outcome,
    Plan,
    RunEndedError,
    StartNodes,
    StartServices,
    StopAll,
    StopCollector,
)
from examples.pipeline_inference.lines import Answer, Failed, Line, Listening, Spoken
from sim.clock import WorldClock
from sim.loop import VirtualLoop
from swactor import Actor, ActorRef, ActorSystem, Context
from swactor_process import ProcessExited, ProcessSpec, ProcessStarted
from swactor_process.testing import Exit, Say, Script, ScriptedSpawner

RUN_TIMEOUT_S = 210.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


def line(said: Line) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def says(*steps: Line | bytes, then: Exit | None = None, after_s: float = 0.5) -> Script:
    spoken = [Say(step if isinstance(step, bytes) else line(step), after_s=after_s) for step in steps]
    return Script(begin=(*spoken, *(() if then is None else (then,))))


class Heard(Actor[object]):
    """Stands for diagnostics: keeps what is forwarded."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def on_message(self, ctx: Context[object], message: object) -> None:
        assert isinstance(message, ProcessStarted | ProcessExited)
        self.labels.append(f"{type(message).__name__} {message.label}")


class Run:
    """A launcher and its scripted children."""

    def __init__(self, logs: Path, scripts: dict[str, Script]) -> None:
        self.people: list[str] = []
        self.spoken: list[Spoken] = []
        self.heard = Heard()
        self._logs = logs
        self.nodes: Callable[[str], dict[str, tuple[str, ...]]] = lambda _url: {
            ORCHESTRATOR: (),
            "stage-0": (),
        }
        self._scripts = {
            COLLECTOR: says(Listening("http://collector")),
            RELAY: says(Listening("http://relay")),
            ORCHESTRATOR: says(Answer("request-1", "done"), then=Exit(0, after_s=1.0)),
            "stage-0": Script(),
        } | scripts

    def _program(self, spec: ProcessSpec) -> Script:
        return self._scripts[spec.label]

    async def outcome(self, act: Callable[[ActorRef[LauncherMessage]], None] | None = None) -> Outcome:
        """Start everything, do ``act`` in between, and return how it ended."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = WorldClock(loop, 1_700_000_000_000)
        async with ActorSystem(clock=clock) as system:
            spawner = ScriptedSpawner(system.loop, clock, programs={sys.executable: self._program})
            plan = Plan(
                services={COLLECTOR: (), RELAY: ()},
                nodes=self.nodes,
                environ={},
                folder=self._logs,
                log_folder=self._logs,
                timeout_s=RUN_TIMEOUT_S,
            )
            launcher = await system.spawn(
                Launcher(plan, spawner=spawner, tell_people=self.people.append, on_spoken=self.spoken.append)
            )
            heard = await system.spawn(self.heard)
            assert await launcher.ask(StartServices(), timeout_s=60.0) == "http://collector"
            if act is not None:
                act(launcher)
            outcome = await launcher.ask(StartNodes(heard), timeout_s=2 * RUN_TIMEOUT_S)
            await launcher.ask(StopCollector(), timeout_s=60.0)
            assert spawner.living() == ()
            return outcome


async def test_a_run_that_answers_stops_nodes_first_then_the_relay(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, {})
    assert await run.outcome() == Outcome(None)
    assert run.spoken == [Answer("request-1", "done")]
    assert run.heard.labels == [
        "ProcessStarted collector",
        "ProcessStarted relay",
        "ProcessStarted orchestrator",
        "ProcessStarted stage-0",
        "ProcessExited orchestrator",
        "ProcessExited stage-0",
        "ProcessExited relay",
    ]


@pytest.mark.parametrize(
    ("scripts", "why"),
    [
        ({ORCHESTRATOR: says(Failed("stage-0: no luck"), then=Exit(1))}, "stage-0: no luck"),
        ({ORCHESTRATOR: says(then=Exit(signal=9, after_s=1.0))}, "orchestrator was killed by SIGKILL"),
        ({"stage-0": says(then=Exit(3, after_s=0.1))}, "stage-0 exited with 3"),
        ({RELAY: says(then=Exit(1, after_s=1.0))}, "relay exited with 1"),
        ({COLLECTOR: says(Listening("http://collector"), then=Exit(signal=9, after_s=0.6))}, "collector was"),
        ({ORCHESTRATOR: Script()}, f"not done within {RUN_TIMEOUT_S:g} s"),
    ],
    ids=["failed", "killed", "stage", "relay", "collector", "silent"],
)
async def test_whatever_ends_first_ends_the_run_with_its_reason(
    tmp_path: Path, scripts: dict[str, Script], why: str
) -> None:
    orchestrator = {ORCHESTRATOR: Script()} if ORCHESTRATOR not in scripts else {}
    outcome = await Run(tmp_path, orchestrator | scripts).outcome()
    assert (outcome.why or "answered").startswith(why)


async def test_an_end_between_the_phases_starts_nothing_more(tmp_path: Path) -> None:
    run = Run(tmp_path, {})
    assert await run.outcome(lambda launcher: launcher.tell(StopAll("interrupted"))) == Outcome("interrupted")
    assert run.heard.labels == ["ProcessStarted collector"]


async def test_an_end_before_the_collector_is_up_fails_the_start(tmp_path: Path) -> None:
    run = Run(tmp_path, {COLLECTOR: says(then=Exit(2, after_s=0.2))})
    with pytest.raises(RunEndedError, match="collector exited with 2"):
        await run.outcome()


async def test_what_is_no_line_for_the_launcher_goes_to_the_log(tmp_path: Path) -> None:
    run = Run(tmp_path, {"stage-0": says(b"a stray print\n", b"\xff\xfe\n")})
    assert await run.outcome() == Outcome(None)
    assert (tmp_path / "stage-0.log").read_bytes() == b"a stray print\n\xff\xfe\n"


async def test_a_disk_that_is_full_ends_the_run_with_that_as_its_reason(tmp_path: Path) -> None:
    def full(url: str) -> dict[str, tuple[str, ...]]:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = Run(tmp_path, {})
    run.nodes = full
    why = "the nodes' settings cannot be written: [Errno 28] No space left on device"
    assert await run.outcome() == Outcome(why)
    assert run.heard.labels == ["ProcessStarted collector", "ProcessStarted relay", "ProcessExited relay"]


async def test_a_log_that_cannot_be_written_costs_the_log_only_and_is_said_once(tmp_path: Path) -> None:
    run = Run(tmp_path, {"stage-0": says(b"one\n", b"two\n")})
    (tmp_path / "stage-0.log").mkdir()
    assert await run.outcome() == Outcome(None)
    (told,) = [line for line in run.people if "logs" in line]
    assert told.startswith("logs are incomplete: [Errno 21] Is a directory")
