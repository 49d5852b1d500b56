"""One stage of the pipeline: an actor that owns one worker process.

Owns: the worker's life, and what goes into and comes out of it.
Not here: the computation (`worker`), who starts a failed stage again (its supervisor, in `node`), who else is
in the cluster (`swactor.cluster`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import msgspec

from examples.pipeline_inference import worker_protocol as pipe  # what goes to the worker and comes from it
from examples.pipeline_inference.events import worker_not_ready, worker_ready, worker_silent
from examples.pipeline_inference.faults import Fault
from examples.pipeline_inference.frames import FrameError, FrameReader
from examples.pipeline_inference.lines import StageLoading
from examples.pipeline_inference.messages import (
    Activation,
    EndRequest,
    NextToken,
    RequestRefused,
    Shutdown,
    StageFailed,
    StartRequest,
    Token,
)
from examples.pipeline_inference.owed import Owed
from swactor import Actor, ActorRef, Context, SwactorError
from swactor.cluster import Cluster
from swactor_process import (
    MarkReady,
    ProcessChunk,
    ProcessCommand,
    ProcessExited,
    ProcessOutput,
    ProcessReady,
    ProcessReadyOverdue,
    ProcessSpec,
    ProcessStarted,
    ProcessStillAlive,
    Spawner,
    SpawnFailed,
    Stop,
    WriteStdin,
    spawn_process,
)

ORCHESTRATOR = "orchestrator"
LOOK_PERIOD_S = 0.1
"""How often somebody who is not known yet is looked for."""
SILENCE_MAX_S = 20.0
"""How long a worker that has work may say nothing."""
GIVE_UP_GRACE_S = 1.0
"""For a worker that is given up: it has nothing to save, and those who wait hear of it when it has ended."""


def stage_name(index: int) -> str:
    """Return the name that stage ``index`` has in the cluster."""
    return f"stage-{index}"


@dataclass(frozen=True)
class StagePlace:
    """Where in the pipeline a stage stands."""

    index: int
    count: int

    @property
    def name(self) -> str:
        """Its own name in the cluster."""
        return stage_name(self.index)

    @property
    def next_name(self) -> str:
        """Who takes what this stage has computed: the next stage, or the orchestrator after the last one."""
        return stage_name(self.index + 1) if self.index + 1 < self.count else ORCHESTRATOR


class WorkerLostError(SwactorError):
    """The stage has no worker that works; its supervisor decides whether it gets another one."""


class Join(msgspec.Struct, frozen=True):
    """Time to see whether the next stage is there, so that this one can take its name."""


class Unheard(msgspec.Struct, frozen=True):
    """The worker has work, and has said nothing for a while."""


FromCluster: TypeAlias = StartRequest | NextToken | EndRequest | Activation
FromWorker: TypeAlias = (
    ProcessStarted
    | ProcessReady
    | ProcessReadyOverdue
    | ProcessChunk
    | ProcessOutput
    | ProcessExited
    | ProcessStillAlive
    | SpawnFailed
)
StageMessage: TypeAlias = FromCluster | FromWorker | Shutdown | Join | Unheard


class Stage(Actor[StageMessage]):
    """Passes work to its worker and the worker's results to the next stage.

    Its life: start the worker; when that is ready and the next stage has its name, take the own name in the
    cluster (so whoever finds the first stage finds a pipeline that works); serve; at the end stop the worker
    and go with it.

    It fails with its worker: every request that the worker knew is lost with it. The orchestrator is told at
    once; then the supervisor makes a new `Stage`, with a new worker, behind the same reference: a new life.
    What arrives meanwhile waits in the mailbox, which both lives share.

    A worker that lives and is of no use is ended first, then it is the same: it was not ready in time, said
    nonsense, or has work and said nothing for ``silence_max_s``.

    The node tells it `Shutdown` when it is asked to end. ``say`` hears how far the worker has loaded.
    """

    def __init__(
        self,
        place: StagePlace,
        worker: ProcessSpec,
        *,
        spawner: Spawner,
        cluster: Cluster,
        subprocesses: ActorRef[ProcessStarted | ProcessExited],
        say: Callable[[StageLoading], None],
        silence_max_s: float = SILENCE_MAX_S,
        fault: Fault | None = None,
    ) -> None:
        self._place = place
        self._spec = worker
        self._spawner = spawner
        self._cluster = cluster
        self._subprocesses = subprocesses
        self._say = say
        self._silence_max_s = silence_max_s
        self._fault = fault
        self._worker: ActorRef[ProcessCommand] | None = None
        self._frames = FrameReader()
        self._said_ready: pipe.Ready | None = None
        self._owed = Owed()
        self._unheard = 0
        self._failure: str | None = None
        self._stopping = False

    def on_start(self, ctx: Context[StageMessage]) -> None:
        """Start the worker, unless a drill forbids it; everything about it arrives as messages."""
        if self._fault is not Fault.NEVER_SPAWNED:
            self._worker = spawn_process(ctx, self._spec, spawner=self._spawner)

    def on_message(self, ctx: Context[StageMessage], message: StageMessage) -> None:
        """Handle one message from the cluster, from the worker's driver, or from this node."""
        match message:
            # News of the worker, from the actor that drives its process.
            case ProcessStarted() | ProcessExited():
                # All that diagnostics needs of an owner: to hear of starts and exits.
                self._subprocesses.tell(message)
                if isinstance(message, ProcessExited) and message.process == self._worker:
                    self._worker_ended(ctx, message.describe())
            case SpawnFailed():
                self._worker_ended(ctx, message.describe())
            case ProcessStillAlive(process=process, pid=pid):
                if process == self._worker:
                    self._worker_ended(ctx, f"{pid} does not end")  # the next life has another one
            case ProcessChunk(process=process, data=data):
                if process == self._worker:  # a former life's worker may still be heard
                    self._worker_wrote(ctx, data)
            case ProcessOutput():
                pass  # stderr, line by line, is for people: its last lines are in the exit that is forwarded
            case ProcessReady(after_ms=after_ms):
                self._worker_is_ready(ctx, after_ms)
            case ProcessReadyOverdue(after_ms=after_ms):
                ctx.emit(worker_not_ready(self._place.name, after_ms=after_ms))
                self._give_up(f"worker runs, but was not ready within {after_ms / 1000:.0f} s")
            # Work, from the orchestrator or the stage before this one.
            case StartRequest(request_id, prompt, sampling):
                self._work_on(ctx, pipe.Begin(request_id, prompt, sampling))
            case NextToken(request_id, token):
                self._work_on(ctx, pipe.Extend(request_id, token))
            case Activation(request_id, position, rows, more, sampling):
                self._work_on(ctx, pipe.Forward(request_id, position, rows, more, sampling))
            case EndRequest(request_id):
                self._work_on(ctx, pipe.Forget(request_id))
            # From itself, and from the node that it is on.
            case Unheard():
                self._worker_is_silent(ctx)
            case Join():
                self._join(ctx)
            case Shutdown():
                self._shut_down(ctx)

    # -- serving --------------------------------------------------------------------------------------------

    def _work_on(self, ctx: Context[StageMessage], work: pipe.Work) -> None:
        """Give it to the worker; one that is still loading finds it in its pipe when it is done."""
        if self._worker is None:
            return
        self._worker.tell(WriteStdin(pipe.framed(work)))
        owed_nothing = not self._owed
        self._owed.give(work)
        if owed_nothing:
            self._listen(ctx)

    def _worker_wrote(self, ctx: Context[StageMessage], data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                result = pipe.decode_result(body)
                self._owed.take(result)
                self._worker_said(result)
        except (FrameError, msgspec.DecodeError) as error:
            self._give_up(f"worker said something that is no result: {error}")
        self._listen(ctx)

    def _worker_said(self, result: pipe.Result) -> None:
        match result:
            case pipe.Loading(loaded, layers):
                self._say(StageLoading(self._place.name, loaded, layers))
            case pipe.Ready():
                self._said_ready = result
                if self._worker is not None:
                    self._worker.tell(MarkReady())  # answers with ProcessReady, which knows how long it took
            case pipe.Computed(request_id, position, rows, more, sampling):
                self._pass_on(Activation(request_id, position, rows, more, sampling))
            case pipe.Sampled(request_id, token, piece, final):
                self._pass_on(Token(request_id, token, piece, final))
            case pipe.Refused(request_id, why) if request_id is not None:
                self._tell_orchestrator(RequestRefused(request_id, self._place.name, why))
            case pipe.Refused(why=why):
                self._give_up(f"worker refused its work: {why}")
            case _:
                assert_never(result)

    def _listen(self, ctx: Context[StageMessage]) -> None:
        """Wait anew for a word of the worker, if it owes one; while it loads, a deadline of its own runs."""
        self._unheard = 0
        if self._owed and self._said_ready is not None:
            ctx.send_after(self._silence_max_s / 2, Unheard())
        else:
            ctx.cancel(Unheard())

    def _worker_is_silent(self, ctx: Context[StageMessage]) -> None:
        # Twice: after a pause of this node the first timer is overdue, before what the worker said is read.
        self._unheard += 1
        if self._unheard < 2:
            ctx.send_after(self._silence_max_s / 2, Unheard())
            return
        ctx.emit(worker_silent(self._place.name, requests=len(self._owed), silent_s=self._silence_max_s))
        self._give_up(f"worker runs, has work, and said nothing for {self._silence_max_s:g} s")

    def _worker_is_ready(self, ctx: Context[StageMessage], after_ms: int) -> None:
        ready = self._said_ready
        if ready is not None:
            ctx.emit(
                worker_ready(
                    self._place.name,
                    role=ready.role,
                    model=ready.model,
                    layers=ready.layers,
                    after_ms=after_ms,
                )
            )
            self._join(ctx)

    def _join(self, ctx: Context[StageMessage]) -> None:
        if self._worker is None or self._failure is not None:
            return  # failing, or its worker is gone: it is of no use to anybody any more
        if self._cluster.whereis(self._place.next_name) is None:
            ctx.send_after(LOOK_PERIOD_S, Join())
        else:
            self._cluster.register(self._place.name, ctx.ref)

    def _pass_on(self, message: Activation | Token) -> None:
        next_stage = self._cluster.whereis(self._place.next_name)
        if next_stage is not None:
            next_stage.tell(message)
        else:
            why = f"{self._place.next_name} is not known here"
            self._tell_orchestrator(RequestRefused(message.request_id, self._place.name, why))

    def _tell_orchestrator(self, message: RequestRefused | StageFailed) -> None:
        """Tell it if it is there. If it is not, nobody waits for an answer."""
        orchestrator = self._cluster.whereis(ORCHESTRATOR)
        if orchestrator is not None:
            orchestrator.tell(message)

    # -- the end --------------------------------------------------------------------------------------------

    def _give_up(self, why: str) -> None:
        """End the worker, and fail once it has ended. Only the first reason is news."""
        if self._failure is None and self._worker is not None:
            self._failure = why
            self._worker.tell(Stop(grace_s=GIVE_UP_GRACE_S))

    def _worker_ended(self, ctx: Context[StageMessage], how: str) -> None:
        """Go with the worker: in order if that was asked for, else say why and fail.

        Raises:
            WorkerLostError: the supervisor may make a new life.
        """
        self._worker = None
        if self._stopping:
            ctx.stop()
            return
        why = self._failure or f"worker {how}"
        self._tell_orchestrator(StageFailed(self._place.name, why))
        raise WorkerLostError(why)

    def _shut_down(self, ctx: Context[StageMessage]) -> None:
        ctx.cancel(Join())
        ctx.cancel(Unheard())
        self._stopping = True
        if self._worker is None:
            ctx.stop()
        else:
            self._worker.tell(Stop())  # its exit then ends this actor too
