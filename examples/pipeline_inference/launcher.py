"""The launcher: one actor that owns every process of a run, and knows in which order they come and go.

Owns: starting collector and relay, then the nodes; noticing whichever ends first; stopping the rest.
Not here: what is shown to people (`demo`), what the processes do.

The order of an end is: orchestrator, stages, relay; the collector last, when the bundle has been fetched.
"""

import enum
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from examples.pipeline_inference.lines import Failed, Line, Listening, Spoken
from swactor import Actor, ActorRef, Context, Reply, Request, SwactorError
from swactor_process import (
    ProcessCommand,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    ProcessStillAlive,
    Spawner,
    SpawnFailed,
    Stop,
    Stream,
    spawn_process,
)

COLLECTOR, RELAY, ORCHESTRATOR = "collector", "relay", "orchestrator"
STOP_GRACE_S = 12.0
"""For a node that stops on request: its worker, its farewells, its last records."""
REPORT_GRACE_S = 3.0
"""How long the orchestrator may take to say why, once a stage has ended."""


class Phase(enum.Enum):
    """How far the run has come."""

    SERVICES = "services"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True)
class Outcome:
    """How the run ended; ``why`` is None when everything was answered."""

    why: str | None = None


class RunEndedError(SwactorError):
    """The run was over before it had begun; ``why`` says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class StartServices(msgspec.Struct, Request[str], frozen=True):
    """Start the collector, then answer with its address."""


class StartNodes(msgspec.Struct, Request[Outcome], frozen=True):
    """Start the relay and all nodes; answer when everything but the collector has ended."""

    subprocesses: ActorRef[object]


class StopAll(msgspec.Struct, frozen=True):
    """End the run, whatever its phase."""

    why: str


class StopCollector(msgspec.Struct, Request[None], frozen=True):
    """The bundle is fetched: end the collector too."""


class ReportOverdue(msgspec.Struct, frozen=True):
    """A stage ended a while ago and nobody has said why."""

    why: str


FromChild: TypeAlias = ProcessStarted | ProcessOutput | ProcessExited | SpawnFailed | ProcessStillAlive
LauncherMessage: TypeAlias = StartServices | StartNodes | StopAll | StopCollector | ReportOverdue | FromChild

_DECODE = msgspec.json.Decoder(Line).decode


@dataclass
class Plan:
    """What the launcher starts: services at once, nodes once the relay's address is known."""

    services: Mapping[str, tuple[str, ...]]
    nodes: Callable[[str], Mapping[str, tuple[str, ...]]]
    """Given the relay's URL, the program arguments of each node, orchestrator first; may raise OSError."""
    environ: Mapping[str, str]
    folder: Path
    """Where the processes run: imports are found from here."""
    log_folder: Path
    timeout_s: float
    """How long the run may take. The nodes keep times of their own: this one is for a node that hangs."""


class Launcher(Actor[LauncherMessage]):
    """Owns the processes of one run; ``tell_people`` hears of progress, ``on_spoken`` what the model says."""

    def __init__(
        self,
        plan: Plan,
        *,
        spawner: Spawner,
        tell_people: Callable[[str], None],
        on_spoken: Callable[[Spoken], None],
    ) -> None:
        self._plan = plan
        self._spawner = spawner
        self._tell_people = tell_people
        self._on_spoken = on_spoken
        self._phase = Phase.SERVICES
        self._environ = dict(plan.environ)
        self._living: dict[str, ActorRef[ProcessCommand]] = {}
        self._early: list[ProcessStarted | ProcessExited] = []
        self._subprocesses: ActorRef[object] | None = None
        self._collector_waits: Reply[str] | None = None
        self._end_waits: Reply[Outcome] | None = None
        self._collector_end_waits: Reply[None] | None = None
        self._why: str | None = None
        self._log_failed = False

    def on_message(self, ctx: Context[LauncherMessage], message: LauncherMessage) -> None:
        """Handle a request of the demo, or news of a child."""
        match message:
            case StartServices():
                self._collector_waits = ctx.defer()
                self._spawn(ctx, COLLECTOR, self._plan.services[COLLECTOR])
            case StartNodes(subprocesses):
                self._end_waits = ctx.defer()
                self._report_to(subprocesses)
                if self._phase is Phase.SERVICES:
                    timeout_s = self._plan.timeout_s
                    ctx.send_after(timeout_s, StopAll(f"not done within {timeout_s:g} s"))
                    self._spawn(ctx, RELAY, self._plan.services[RELAY])
                self._settle(ctx)
            case StopAll(why):
                self._end(ctx, why)
            case ReportOverdue(why):
                self._end(ctx, self._why or why)
            case StopCollector():
                self._collector_end_waits = ctx.defer()
                self._subprocesses = None  # the recorder has stopped by now
                self._stop(COLLECTOR)
                self._settle(ctx)
            case ProcessStarted() | ProcessExited():
                self._forward(message)
                if isinstance(message, ProcessExited):
                    self._exited(ctx, message)
            case ProcessOutput():
                self._said(ctx, message)
            case SpawnFailed():
                self._gone(ctx, message.label, message.describe())
            case ProcessStillAlive():
                self._gone(ctx, message.label, f"{message.pid} does not end")

    # -- children -------------------------------------------------------------------------------------------

    def _spawn(self, ctx: Context[LauncherMessage], label: str, args: tuple[str, ...]) -> None:
        spec = ProcessSpec(
            program=sys.executable, args=args, label=label, env=self._environ, cwd=str(self._plan.folder)
        )
        self._living[label] = spawn_process(ctx, spec, spawner=self._spawner)

    def _stop(self, label: str) -> None:
        process = self._living.get(label)
        if process is not None:
            process.tell(Stop(grace_s=STOP_GRACE_S, deadline_s=STOP_GRACE_S + 3.0))

    def _report_to(self, subprocesses: ActorRef[object]) -> None:
        """There is a recorder now: it also hears what happened before it was there."""
        self._subprocesses = subprocesses
        early, self._early = self._early, []
        for notification in early:
            subprocesses.tell(notification)

    def _forward(self, notification: ProcessStarted | ProcessExited) -> None:
        if self._subprocesses is not None:
            self._subprocesses.tell(notification)
        elif self._phase is Phase.SERVICES:
            self._early.append(notification)

    def _said(self, ctx: Context[LauncherMessage], output: ProcessOutput) -> None:
        label = next((label for label, process in self._living.items() if process == output.process), None)
        if label is None:
            return
        try:
            line: Line | None = None if output.stream is Stream.STDERR else _DECODE(output.line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            line = None  # not meant for us
        match line:
            case None:
                self._log(label, output.line)
            case Listening(url):
                self._service_ready(ctx, label, url)
            case Failed(why):
                self._why = self._why or why
            case _:
                self._on_spoken(line)

    def _log(self, label: str, line: bytes) -> None:
        """Keep what was meant for people; a disk that is full costs the log, and not the run."""
        try:
            with (self._plan.log_folder / f"{label}.log").open("ab") as log:
                log.write(line + b"\n")
        except OSError as error:
            if not self._log_failed:
                self._tell_people(f"logs are incomplete: {error}")
            self._log_failed = True

    def _service_ready(self, ctx: Context[LauncherMessage], label: str, url: str) -> None:
        self._tell_people(f"{label} listens on {url}")
        if label == COLLECTOR and self._collector_waits is not None:
            self._environ["SWACTOR_DIAG_COLLECTOR_URL"] = url
            self._collector_waits.send(url)
        elif label == RELAY and self._phase is Phase.SERVICES:
            try:
                nodes = self._plan.nodes(url)
            except OSError as error:
                self._end(ctx, f"the nodes' settings cannot be written: {error}")
                return
            self._phase = Phase.RUNNING
            for node, args in nodes.items():
                self._spawn(ctx, node, args)
            self._tell_people(f"{len(self._living) - 2} nodes started, waiting for their workers")

    # -- the end --------------------------------------------------------------------------------------------

    def _exited(self, ctx: Context[LauncherMessage], exited: ProcessExited) -> None:
        label = exited.label
        self._living.pop(label, None)
        if self._phase in {Phase.SERVICES, Phase.RUNNING}:
            if label == ORCHESTRATOR:
                answered = exited.exit_code == 0 and self._why is None
                self._end(ctx, None if answered else self._why or f"orchestrator {exited.describe()}")
            elif label in {COLLECTOR, RELAY}:
                self._end(ctx, f"{label} {exited.describe()}")
            else:
                # The orchestrator knows better what this means; but it may be gone itself.
                ctx.send_after(REPORT_GRACE_S, ReportOverdue(f"{label} {exited.describe()}"))
        self._settle(ctx)

    def _gone(self, ctx: Context[LauncherMessage], label: str, what: str) -> None:
        """Nothing more is to be expected of this one."""
        self._living.pop(label, None)
        self._end(ctx, f"{label} {what}")
        self._settle(ctx)

    def _end(self, ctx: Context[LauncherMessage], why: str | None) -> None:
        """Begin to stop what is left, once; the first reason is the one that counts."""
        if self._phase in {Phase.STOPPING, Phase.DONE}:
            return
        self._phase = Phase.STOPPING
        self._why = why
        if self._collector_waits is not None:
            self._collector_waits.fail(RunEndedError(why or "stopped"))
        self._stop(ORCHESTRATOR)
        self._settle(ctx)

    def _settle(self, ctx: Context[LauncherMessage]) -> None:
        """Stop whoever is next in the order of an end; answer who waits for it."""
        if self._phase is Phase.STOPPING and ORCHESTRATOR not in self._living:
            nodes = [label for label in self._living if label not in {COLLECTOR, RELAY}]
            for label in nodes:
                self._stop(label)
            if not nodes:
                self._stop(RELAY)
            if not nodes and RELAY not in self._living:
                self._phase = Phase.DONE
        if self._phase is Phase.DONE and self._end_waits is not None:
            self._end_waits.send(Outcome(self._why))
        if COLLECTOR not in self._living and self._collector_end_waits is not None:
            self._collector_end_waits.send(None)
            ctx.stop()
