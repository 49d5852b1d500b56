"""One stage of the pipeline: an actor that owns one worker process.

Owns: the worker's life, and what goes into and comes out of it.
Not here: the computation (`worker`), who else is in the cluster (`swactor.cluster`).
"""

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from examples.pipeline_inference.messages import (
    Activation,
    EndRequest,
    NextToken,
    Shutdown,
    StageFailed,
    StartRequest,
    Token,
)
from examples.pipeline_inference.model import Hidden
from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Extend,
    Forget,
    Forward,
    Ready,
    Refused,
    Result,
    Sampled,
    Work,
)
from swactor import Actor, ActorRef, Context
from swactor.cluster import Cluster
from swactor_diag.schema.events import Custom
from swactor_process import (
    ProcessCommand,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    SpawnFailed,
    Stop,
    Stream,
    WriteStdin,
    spawn_process,
)

FromCluster: TypeAlias = StartRequest | NextToken | EndRequest | Activation
FromWorker: TypeAlias = ProcessStarted | ProcessOutput | ProcessExited | SpawnFailed


ORCHESTRATOR = "orchestrator"
LOOK_PERIOD_S = 0.1
"""How often somebody who is not known yet is looked for."""
LOOKS_MAX = 100
"""How often a failing stage looks again for the orchestrator (10 s): it may fail before that has joined."""


def stage_name(index: int) -> str:
    """Return the name that stage ``index`` has in the cluster."""
    return f"stage-{index}"


@dataclass(frozen=True)
class StagePlace:
    """Where in the pipeline a stage stands."""

    index: int
    count: int

    @property
    def next_name(self) -> str:
        """Who gets what this stage computes."""
        return stage_name(self.index + 1) if self.index + 1 < self.count else ORCHESTRATOR


class Join(msgspec.Struct, frozen=True):
    """Time to see whether the next stage is there, so that this one can take its name."""


class LookForOrchestrator(msgspec.Struct, frozen=True):
    """Time to see whether the orchestrator is there, so that it can hear why this stage fails."""

    looks_left: int


StageMessage: TypeAlias = FromCluster | FromWorker | Shutdown | Join | LookForOrchestrator


class Stage(Actor[StageMessage]):
    """Passes work to its worker and the worker's results to the next stage.

    Its life: start the worker; when that is ready and the next stage has its name, take the own name in the
    cluster (so whoever finds the first stage finds a pipeline that works); serve; at the end stop the worker
    and go with it. A stage that fails tells the orchestrator first and ends with the reason as its value.
    """

    def __init__(
        self,
        place: StagePlace,
        worker: ProcessSpec,
        *,
        spawner: Spawner,
        cluster: Cluster,
        subprocesses: ActorRef[ProcessStarted | ProcessExited],
    ) -> None:
        self._place = place
        self._name = stage_name(place.index)
        self._spec = worker
        self._spawner = spawner
        self._cluster = cluster
        self._subprocesses = subprocesses
        self._worker: ActorRef[ProcessCommand] | None = None
        self._failure: str | None = None

    def on_start(self, ctx: Context[StageMessage]) -> None:
        """Start the worker; everything about it arrives as messages."""
        self._worker = spawn_process(ctx, self._spec, spawner=self._spawner)

    def on_message(self, ctx: Context[StageMessage], message: StageMessage) -> None:
        """Handle one message from the cluster, from the worker's driver, or from this node."""
        match message:
            case ProcessStarted() | ProcessExited():
                self._subprocesses.tell(
                    message
                )  # diagnostics: an owner reports starts and exits, nothing else
                if isinstance(message, ProcessExited):
                    self._worker_ended(ctx, message)
            case SpawnFailed():
                self._worker = None
                self._give_up(ctx, f"worker {message.describe()}")
            case ProcessOutput(stream=Stream.STDOUT):
                self._worker_said(ctx, message.line)
            case ProcessOutput():
                pass  # stderr is for people: its last lines are in the exit that is forwarded
            case StartRequest(request_id, prompt):
                self._work_on(Begin(request_id, prompt))
            case NextToken(request_id, token):
                self._work_on(Extend(request_id, token))
            case EndRequest(request_id):  # only the first stage keeps anything of a request
                self._work_on(Forget(request_id))
            case Activation(request_id, payload):
                self._work_on(Forward(request_id, msgspec.msgpack.decode(payload, type=Hidden)))
            case Join():
                self._join(ctx)
            case LookForOrchestrator(looks_left):
                self._tell_orchestrator_and_end(ctx, looks_left)
            case Shutdown():
                self._shut_down(ctx)

    # -- serving --------------------------------------------------------------------------------------------

    def _work_on(self, work: Work) -> None:
        if self._worker is not None:  # else the request fails with this stage
            self._worker.tell(WriteStdin(msgspec.json.encode(work) + b"\n"))

    def _worker_said(self, ctx: Context[StageMessage], line: bytes) -> None:
        try:
            result: Result = msgspec.json.decode(line, type=Result)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._give_up(ctx, f"worker said something that is no result: {error}")
            return
        match result:
            case Ready():
                ctx.emit(Custom(kind="worker_ready", fields={"stage": self._name, "layers": result.layers}))
                self._join(ctx)
            case Computed(request_id, hidden):
                self._pass_on(ctx, Activation(request_id, msgspec.msgpack.encode(hidden)))
            case Sampled(request_id, token, text, final):
                self._pass_on(ctx, Token(request_id, token, text, final))
            case Refused(why):
                self._give_up(ctx, f"worker refused its work: {why}")

    def _join(self, ctx: Context[StageMessage]) -> None:
        if self._worker is None or self._failure is not None:
            return  # failing, or its worker is gone: it is of no use to anybody any more
        if self._cluster.whereis(self._place.next_name) is None:
            ctx.send_after(LOOK_PERIOD_S, Join())
        else:
            self._cluster.register(self._name, ctx.ref)

    def _pass_on(self, ctx: Context[StageMessage], message: Activation | Token) -> None:
        next_stage = self._cluster.whereis(self._place.next_name)
        if next_stage is None:
            self._give_up(ctx, f"{self._place.next_name} is not known here")
        else:
            next_stage.tell(message)

    # -- the end --------------------------------------------------------------------------------------------

    def _worker_ended(self, ctx: Context[StageMessage], exited: ProcessExited) -> None:
        self._worker = None
        if exited.asked_for:
            ctx.stop(self._failure)
        else:
            self._give_up(ctx, f"worker {exited.describe()}")

    def _give_up(self, ctx: Context[StageMessage], why: str) -> None:
        """Have the orchestrator know, then end. The first reason counts, what follows from it does not."""
        if self._failure is None:
            self._failure = why
            self._tell_orchestrator_and_end(ctx, looks_left=LOOKS_MAX)

    def _tell_orchestrator_and_end(self, ctx: Context[StageMessage], looks_left: int) -> None:
        """Look until it is there or the looks are used up; end either way."""
        orchestrator = self._cluster.whereis(ORCHESTRATOR)
        if orchestrator is None and looks_left:
            ctx.send_after(LOOK_PERIOD_S, LookForOrchestrator(looks_left - 1))
            return
        if orchestrator is not None and self._failure is not None:
            orchestrator.tell(StageFailed(self._name, self._failure))
        self._shut_down(ctx)

    def _shut_down(self, ctx: Context[StageMessage]) -> None:
        ctx.cancel(Join())
        if self._worker is None:
            ctx.stop(self._failure)
        else:
            self._worker.tell(Stop())  # its exit then ends this actor too
