"""The main job, seen by a person: start everything, stream the answer, fetch the bundle, show its summary.

Owns: the folder of a run, the secrets of its nodes, what is shown. Not here: processes (`launcher`).

Everything but the bundle, its summary and the logs is removed at the end, however the run ended.
"""

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

import anyio
import msgspec
from rich.console import Console
from rich.markup import escape

from examples.pipeline_inference.faults import Fault
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
from examples.pipeline_inference.model.config import GREEDY, ModelName, Sampling
from examples.pipeline_inference.node import NodeFile, OrchestratorConfig, RunConfig, StageConfig
from examples.pipeline_inference.output import Output
from examples.pipeline_inference.requests import UNDER_WAY_MAX
from examples.pipeline_inference.screen import Screen
from examples.pipeline_inference.stage import stage_name
from swactor import ActorRef, ActorSystem, SwactorError, SystemClock, SystemRandom
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import PeerAddress
from swactor_diag.cli.console import CommandError, say, write_file, write_pieces
from swactor_diag.cli.fetch import download
from swactor_diag.cli.page import THEME, Page
from swactor_diag.collector.bundle import Bundle, BundleError
from swactor_diag.collector.staging import Staging
from swactor_diag.collector.storage import LocalStorage, StorageError
from swactor_diag.identity import identity_from_env, new_boot_id
from swactor_diag.ports import production_ports
from swactor_diag.postproc import load, summary
from swactor_diag.postproc.load import Run
from swactor_diag.schema.events import SubprocessExited
from swactor_diag.supervisor import Diagnostics
from swactor_process import default_spawner

ROOT = Path(__file__).parents[2]
CLI = ("-m", "swactor_diag.cli.main")
EXAMPLE = "examples.pipeline_inference"
FINALIZE_WAIT_S = "1.5"
"""Every node is stopped in order right after the end of a run, and then sends its last snapshot anyway."""
INTERRUPTED = "interrupted"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
UNSEEN = "nobody reads its output any more"
DRILL_READY_S, DRILL_JOIN_S = 3.0, 8.0
"""How long, in a drill, the worker that fails may load, and the stages may take to appear."""
RUN_MARGIN_S, STOP_MARGIN_S = 60.0, 120.0
"""What a run may take beyond the times of its answers, and the end of all processes after that."""
BY_HAND_JOIN_S = 300.0
"""How long a person may take to start the stage that is left to be started by hand."""


@dataclass(frozen=True)
class DemoOptions:
    """What the command line says."""

    prompts: tuple[str, ...]
    stage_count: int
    tokens_max: int
    out: Path
    model: ModelName = ModelName.SMALL
    parallel: int = 1
    timeout_s: float = 120.0
    sampling: Sampling = GREEDY
    fault: tuple[int, Fault] | None = None
    by_hand: int | None = None
    """The stage that is not started; how to do that is shown instead."""

    @property
    def load_timeout_s(self) -> float:
        """How long a worker may load its layers."""
        return 20.0 if self.model is ModelName.SMALL else 180.0

    @property
    def silence_max_s(self) -> float:
        """How long a worker that has work may say nothing: many times what it takes for one piece."""
        return 10.0 if self.model is ModelName.SMALL else 60.0

    @property
    def join_timeout_s(self) -> float:
        """How long the stages may take to appear; in a drill nobody waits long for the one that will not."""
        if self.by_hand is not None:
            return BY_HAND_JOIN_S
        return self.load_timeout_s + 10.0 if self.fault is None else DRILL_JOIN_S

    @property
    def run_timeout_s(self) -> float:
        """How long the run may take if every answer takes its time."""
        rounds = -(-len(self.prompts) // min(self.parallel, UNDER_WAY_MAX))
        return self.join_timeout_s + rounds * self.timeout_s + RUN_MARGIN_S


class Demo:
    """One run; makes its folder.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, options: DemoOptions, output: Output) -> None:
        self._options = options
        self._output = output
        console = self._console = Console(file=cast("TextIO", output), theme=THEME)
        self._clock = SystemClock()
        self._secrets = SystemRandom().stream("demo")
        self.run_id = f"demo-{self._clock.wall_ms() // 1000}-{self._secrets.token(2).hex()}"
        self._folder = options.out / self.run_id
        self._work = self._folder / "work"
        self._logs = self._folder / "logs"
        self._screen = Screen(console, self._clock, streams=options.parallel == 1)
        self._collector_url: str | None = None
        self._work.mkdir(parents=True)
        self._logs.mkdir()

    async def run(self) -> int:
        """Do it all; return the exit status."""
        try:
            outcome = await self._run_processes()
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        return self._show(outcome)

    # -- the processes --------------------------------------------------------------------------------------

    async def _run_processes(self) -> Outcome:
        async with ActorSystem(name="launcher") as system:
            with default_spawner(system.loop) as spawner:
                launcher = await system.spawn(
                    Launcher(
                        self._plan(),
                        spawner=spawner,
                        tell_people=self._screen.tell,
                        on_spoken=self._screen.speak,
                    ),
                    name="launcher",
                )
                self._output.on_lost = lambda: launcher.tell(StopAll(UNSEEN))
                async with anyio.create_task_group() as group:
                    group.start_soon(self._stop_on_signal, launcher, spawner.close)
                    outcome = await self._run_nodes(system, launcher)
                    group.cancel_scope.cancel()
                await system.shutdown()  # before the spawner goes: what it guards would be killed
            return outcome

    async def _run_nodes(self, system: ActorSystem, launcher: ActorRef[LauncherMessage]) -> Outcome:
        try:
            url = await launcher.ask(StartServices(), timeout_s=60.0)
        except SwactorError as error:
            await self._stop_collector(launcher)
            ended = isinstance(error, RunEndedError)
            return Outcome(str(error) if ended else f"the collector did not come up: {error}")
        self._collector_url = url
        diagnostics = await self._record(system)
        start = StartNodes(diagnostics.subprocesses)
        try:
            outcome = await launcher.ask(start, timeout_s=self._options.run_timeout_s + STOP_MARGIN_S)
        except SwactorError as error:
            outcome = Outcome(str(error))
        await diagnostics.stop()
        trouble = await anyio.to_thread.run_sync(self._fetch, url)
        await self._stop_collector(launcher)
        if trouble is not None:
            self._screen.tell(f"{trouble}; {await anyio.to_thread.run_sync(self._build)}")
        return outcome

    async def _stop_collector(self, launcher: ActorRef[LauncherMessage]) -> None:
        self._output.on_lost = lambda: None  # the run is over, and the launcher ends with this
        with suppress(SwactorError):  # leaving the system ends it in any case
            await launcher.ask(StopCollector(), timeout_s=30.0)

    def _fetch(self, url: str) -> str | None:
        """Fetch the bundle; return why there is none."""
        try:
            download(url, self.run_id, target=self._bundle, token_file=None)
        except (CommandError, OSError) as error:
            return f"the collector gave no bundle: {error}"
        return None

    def _build(self) -> str:
        """Make the bundle of what a collector that is gone has stored; return what has come of it."""
        try:
            bundle = Bundle(Staging(LocalStorage(self._work / COLLECTOR)), self.run_id)
            write_pieces(self._bundle, bundle.stream())
        except (CommandError, BundleError, StorageError) as error:
            return f"none can be made of what it had stored: {error}"
        return "this one is made of what it had stored"

    async def _record(self, system: ActorSystem) -> Diagnostics:
        """Make this process a node of the run too: it saw how the others ended."""
        ports = production_ports(self._environ(), pid=os.getpid())
        identity = identity_from_env(
            ports.environ,
            NodeKey.generate(self._secrets).node_id,
            clock=self._clock,
            boot_id=new_boot_id(self._secrets),
            role="launcher",
            run_id=self.run_id,
            machine=ports.machine,
        )
        return await Diagnostics.from_ports(system, identity, ports=ports)

    async def _stop_on_signal(
        self, launcher: ActorRef[LauncherMessage], kill_all: Callable[[], None]
    ) -> None:
        # What is ignored stays so: under nohup, a terminal that closes is no reason to end.
        asked = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        with anyio.open_signal_receiver(*asked) as signals:
            async for _ in signals:
                launcher.tell(StopAll(INTERRUPTED))
                self._screen.tell("stopping everything; once more kills at once")
                break
            async for _ in signals:
                kill_all()  # so that nobody writes into the folder any more
                shutil.rmtree(self._work, ignore_errors=True)
                left = self._bundle if self._bundle.exists() else f"only {self._logs}"
                self._screen.tell(f"killed; what is left: {left}")
                os._exit(130)

    # -- what they are given --------------------------------------------------------------------------------

    def _settings(self) -> dict[str, str]:
        """Return what every node of the run is told by its environment."""
        settings = {
            "SWACTOR_DIAG_RUN_ID": self.run_id,
            "SWACTOR_DIAG_SPOOL_DIR": str(self._work.resolve() / "spool"),
        }
        if self._collector_url is not None:
            settings["SWACTOR_DIAG_COLLECTOR_URL"] = self._collector_url
        return settings

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self._settings()}

    def _plan(self) -> Plan:
        run = ("--run-id", self.run_id)
        return Plan(
            services={
                COLLECTOR: (
                    *CLI,
                    "collector",
                    "--port",
                    "0",
                    "--root",
                    str(self._work.resolve() / COLLECTOR),
                    "--finalize-wait-s",
                    FINALIZE_WAIT_S,
                    *run,
                ),
                RELAY: (*CLI, "relay", "--port", "0", *run),
            },
            nodes=self._node_files,
            environ=self._environ(),
            folder=ROOT,
            log_folder=self._logs,
            timeout_s=self._options.run_timeout_s,
        )

    def _node_files(self, relay_url: str) -> dict[str, tuple[str, ...]]:
        """Write what each node is given; return how each is started, orchestrator first."""
        count = self._options.stage_count
        keys = [NodeKey.generate(self._secrets) for _ in range(count + 1)]
        token = self._secrets.token(32)
        shared = RunConfig(run_id=self.run_id, token=token, stage_count=count, relay_url=relay_url)
        joining = msgspec.structs.replace(shared, seeds=(PeerAddress(keys[0].node_id, relay_url),))
        options = self._options
        orchestrator = OrchestratorConfig(
            run=shared,
            prompts=options.prompts,
            tokens_max=options.tokens_max,
            parallel=options.parallel,
            sampling=options.sampling,
            join_timeout_s=options.join_timeout_s,
            answer_timeout_s=options.timeout_s,
        )
        stages = [self._stage_config(joining, index) for index in range(count)]
        files = {ORCHESTRATOR: NodeFile(config=orchestrator, secret_key=keys[0].secret)}
        for stage, key in zip(stages, keys[1:], strict=True):
            files[stage_name(stage.index)] = NodeFile(config=stage, secret_key=key.secret)
        commands: dict[str, tuple[str, ...]] = {
            name: ("-m", EXAMPLE, "node", str(self._write(name, file))) for name, file in files.items()
        }
        if options.by_hand is not None:
            self._leave(stage_name(options.by_hand), commands.pop(stage_name(options.by_hand)))
        return commands

    def _leave(self, name: str, command: tuple[str, ...]) -> None:
        """Leave a node to be started by hand: say how, with what its environment has to say."""
        settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in self._settings().items())
        self._screen.tell(f"{name} is yours to start, from {ROOT}, within {BY_HAND_JOIN_S:.0f} s:")
        self._console.print(
            f"{settings} {shlex.join((sys.executable, *command))}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )

    def _stage_config(self, run: RunConfig, index: int) -> StageConfig:
        options = self._options
        worker = (sys.executable, "-m", f"{EXAMPLE}.worker_program", str(index), str(options.stage_count))
        fault = options.fault[1] if options.fault is not None and options.fault[0] == index else None
        drill = () if fault is None or fault is Fault.NEVER_SPAWNED else ("--fault", fault)
        return StageConfig(
            run=run,
            index=index,
            worker=(*worker, "--model", options.model, *drill),
            ready_timeout_s=options.load_timeout_s if fault is None else DRILL_READY_S,
            silence_max_s=options.silence_max_s,
            fault=fault,
        )

    def _write(self, name: str, file: NodeFile) -> Path:
        path = self._work.resolve() / f"{name}.node"
        path.touch(mode=0o600)
        path.write_bytes(msgspec.msgpack.encode(file))
        return path

    # -- what people see ------------------------------------------------------------------------------------

    @property
    def _bundle(self) -> Path:
        return self._folder / f"{self.run_id}.tar.gz"

    def _show(self, outcome: Outcome) -> int:
        self._screen.end()
        if self._bundle.exists():
            run = load.load_run(self._bundle)
            self._show_summary(run)
            outcome = Outcome(outcome.why or lost_processes(run))
        elif outcome.why is None:
            outcome = Outcome("there is no bundle of it")
        self._screen.recall()
        figures = self._screen.figures(asked=len(self._options.prompts))
        self._console.print(f"\n[bold green]Answered:[/bold green] {figures}", highlight=False)
        if outcome.why is None:
            return 0
        if outcome.why == INTERRUPTED:
            self._console.print("[bold red]The run was interrupted.[/bold red]")
            return 130
        if outcome.why == UNSEEN:
            with suppress(OSError):
                say(f"swactor: {UNSEEN}; what happened is in {self._folder}")
        self._console.print(f"[bold red]The run failed:[/bold red] {escape(outcome.why)}", highlight=False)
        return 1

    def _show_summary(self, run: Run) -> None:
        text = summary.render(run)
        page = self._folder / "summary.md"
        try:
            write_file(page, text.encode())
        except CommandError as error:
            self._screen.tell(str(error))
        # Everything happened today: on a screen the date would only take room from what differs.
        day = datetime.fromtimestamp(self._clock.wall_ms() / 1000, tz=UTC).date().isoformat()
        self._console.print(Page(text.replace(f"{day} ", "")))
        self._console.print()
        for what, where in (("bundle", self._bundle), ("summary", page), ("logs", self._logs)):
            self._console.print(f"{what:8} {where}", highlight=False, soft_wrap=True)


def lost_processes(run: Run) -> str | None:
    """Return which processes of ``run`` ended badly and unasked, even if others took their place."""
    exits = (record.event for node in run.nodes for record in node.records)
    lost = ", ".join(
        f"{exited.label} by signal {exited.exit_signal}"
        if exited.exit_signal is not None
        else f"{exited.label} with exit code {exited.exit_code}"
        for exited in exits
        if isinstance(exited, SubprocessExited) and exited.asked_for is False and exited.exit_code != 0
    )
    return f"ended unasked: {lost}" if lost else None
