"""The orchestrator: turns prompts into streams of tokens by driving the ring of stages.

Owns: how a request begins and ends, and what the failure of a stage means for those who wait.
Not here: any computation (the stages do that), limits and order of requests (`requests`).

Every request ends exactly once: with a `Response` or with one of the `errors`; and every end is an event.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from examples.pipeline_inference.errors import (
    PipelineDownError,
    PipelineFullError,
    RequestCancelledError,
    RequestFailedError,
    RequestRefusedError,
    RequestTimeoutError,
    StageFailedError,
)
from examples.pipeline_inference.events import InferenceResponseSent, Outcome
from examples.pipeline_inference.lines import Prompt, StageFound, StageLost, Text
from examples.pipeline_inference.messages import (
    Cancel,
    EndRequest,
    Generate,
    Interrupt,
    NextToken,
    RequestRefused,
    StageFailed,
    StartRequest,
    Token,
)
from examples.pipeline_inference.requests import Requests, Ticket
from examples.pipeline_inference.stage import LOOK_PERIOD_S, stage_name
from swactor import Actor, ActorRef, Context, Down
from swactor.cluster import Cluster


class Look(msgspec.Struct, frozen=True):
    """Time to look for the stages that are missing."""


class JoinOverdue(msgspec.Struct, frozen=True):
    """The stages have had their time to appear."""


class Overdue(msgspec.Struct, frozen=True):
    """A request has had its time."""

    request_id: str


OrchestratorMessage: TypeAlias = (
    Generate | Cancel | Token | RequestRefused | StageFailed | Interrupt | Look | JoinOverdue | Overdue | Down
)


class Orchestrator(Actor[OrchestratorMessage]):
    """Answers `Generate`, several at a time; ``say`` hears of each stage, prompt and token."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        stage_count: int,
        join_timeout_s: float,
        say: Callable[[StageFound | StageLost | Prompt | Text], None],
    ) -> None:
        self._cluster = cluster
        self._names = tuple(stage_name(index) for index in range(stage_count))
        self._join_timeout_s = join_timeout_s
        self._say = say
        self._stages: dict[str, ActorRef[Any]] = {}
        self._troubles: dict[str, str] = {}
        self._requests = Requests()
        self._looking = False
        self._down: RequestFailedError | None = None

    def on_message(self, ctx: Context[OrchestratorMessage], message: OrchestratorMessage) -> None:
        """Take a request, look for stages, take the next token, or let requests fail."""
        match message:
            case Generate():
                self._accept(ctx, message)
            case Token():
                self._take(ctx, message)
            case Cancel(request_id):
                self._fail(ctx, request_id, RequestCancelledError("cancelled"))
            case Overdue(request_id):
                self._overdue(ctx, request_id)
            case RequestRefused(request_id, stage, why):
                self._fail(ctx, request_id, RequestRefusedError(why, stage=stage))
            case StageFailed(stage, why, gone):
                self._stage_failed(ctx, stage, why, gone=gone)
            case Down(ref, reason):
                lost = next((name for name, stage in self._stages.items() if stage == ref), str(ref))
                self._stages.pop(lost, None)
                # The news overtakes messages. What the stage itself said last explains more: hear that first.
                ctx.ref.tell(StageFailed(lost, f"gone: {reason}"))
            case Look():
                self._look(ctx)
            case JoinOverdue():
                self._give_up(ctx, self._missing())
            case Interrupt():
                self._give_up(ctx, RequestCancelledError("interrupted"))

    # -- a request ------------------------------------------------------------------------------------------

    def _accept(self, ctx: Context[OrchestratorMessage], asked: Generate) -> None:
        ticket = Ticket(asked, ctx.defer(), began_ns=ctx.clock.monotonic_ns())
        if self._down is not None:
            self._end(ctx, ticket, self._down)
        elif asked.request_id in self._requests:
            self._end(ctx, ticket, RequestRefusedError(f"{asked.request_id} is under way already"))
        elif self._requests.is_full:
            self._end(ctx, ticket, PipelineFullError(f"{len(self._requests)} requests wait already"))
        else:
            self._requests.add(ticket)
            self._go_on(ctx)

    def _go_on(self, ctx: Context[OrchestratorMessage]) -> None:
        """Start what there is room for; look for stages first, if some are missing."""
        if self._down is not None or not len(self._requests):
            return
        if len(self._stages) < len(self._names):
            if not self._looking:
                self._looking = True
                ctx.send_after(self._join_timeout_s, JoinOverdue())
                self._look(ctx)
            return
        while (ticket := self._requests.start_next()) is not None:
            asked = ticket.asked
            ctx.send_after(asked.timeout_s, Overdue(asked.request_id))
            self._say(Prompt(asked.request_id, asked.prompt))
            self._first_stage.tell(StartRequest(asked.request_id, asked.prompt, asked.sampling))

    @property
    def _first_stage(self) -> ActorRef[StartRequest | NextToken]:
        return self._stages[self._names[0]]

    def _take(self, ctx: Context[OrchestratorMessage], token: Token) -> None:
        ticket = self._requests.under_way(token.request_id)
        if ticket is None:
            return  # the rest of a request that is over
        if not token.final:
            self._say(Text(ticket.request_id, ticket.take(token.token, token.piece)))
        if token.final or ticket.is_complete:
            self._finish(ctx, ticket, None)
        else:
            self._first_stage.tell(NextToken(token.request_id, token.token))

    def _overdue(self, ctx: Context[OrchestratorMessage], request_id: str) -> None:
        ticket = self._requests.under_way(request_id)
        if ticket is not None:
            why = f"not answered within {ticket.asked.timeout_s:g} s, {len(ticket.tokens)} tokens had come"
            self._finish(ctx, ticket, RequestTimeoutError(why))

    def _fail(self, ctx: Context[OrchestratorMessage], request_id: str, error: RequestFailedError) -> None:
        ticket = self._requests.under_way(request_id) or self._requests.waiting(request_id)
        if ticket is not None:
            self._finish(ctx, ticket, error)

    def _finish(
        self, ctx: Context[OrchestratorMessage], ticket: Ticket, error: RequestFailedError | None
    ) -> None:
        """End a request that was accepted: the stages forget it, and the next one has its place."""
        self._requests.remove(ticket.request_id)
        ctx.cancel(Overdue(ticket.request_id))  # a timer's key is its message
        for stage in self._stages.values():
            stage.tell(EndRequest(ticket.request_id))
        self._end(ctx, ticket, error)
        self._go_on(ctx)

    def _end(
        self, ctx: Context[OrchestratorMessage], ticket: Ticket, error: RequestFailedError | None
    ) -> None:
        """Tell the asker, and the flight recorder."""
        response = ticket.response()
        ctx.emit(
            InferenceResponseSent(
                target_peer=str(self._cluster.node_id),
                request_id=ticket.request_id,
                byte_size=len(response.text.encode()),
                send_outcome=Outcome.ANSWERED if error is None else error.outcome,
                tokens=len(response.tokens),
                duration_ms=(ctx.clock.monotonic_ns() - ticket.began_ns) // 1_000_000,
                stage=UNSET if error is None or error.stage is None else error.stage,
                why=UNSET if error is None else error.why,
            )
        )
        if error is None:
            ticket.reply.send(response)
        else:
            ticket.reply.fail(error)

    # -- the stages -----------------------------------------------------------------------------------------

    def _look(self, ctx: Context[OrchestratorMessage]) -> None:
        """Find the stages that are missing; once all are here, start."""
        for name in self._names:
            stage = None if name in self._stages else self._cluster.whereis(name)
            if stage is not None:
                self._stages[name] = stage
                ctx.monitor(stage)
                self._say(StageFound(name))
        if len(self._stages) < len(self._names):
            ctx.send_after(LOOK_PERIOD_S, Look())
        else:
            self._looking = False
            ctx.cancel(JoinOverdue())
            self._go_on(ctx)

    def _stage_failed(self, ctx: Context[OrchestratorMessage], stage: str, why: str, *, gone: bool) -> None:
        """Let every request under way fail: its cache in that stage is lost. Those that wait wait on."""
        self._say(StageLost(stage, why, gone))
        self._troubles[stage] = why
        if gone:
            self._give_up(ctx, PipelineDownError(why, stage=stage))
            return
        for ticket in self._requests.all_under_way():
            self._fail(ctx, ticket.request_id, StageFailedError(why, stage=stage))
        self._go_on(ctx)

    def _missing(self) -> PipelineDownError:
        """Return the error that names the stage which did not appear: each one waits for the one after it."""
        *waiting, late = [name for name in self._names if name not in self._stages]
        why = f"not found within {self._join_timeout_s:g} s"
        if late in self._troubles:
            why += f", {self._troubles[late]}"
        if waiting:
            why += f"; for it wait {', '.join(waiting)}"
        why += "".join(f"; {name}: {self._troubles[name]}" for name in waiting if name in self._troubles)
        return PipelineDownError(why, stage=late)

    def _give_up(self, ctx: Context[OrchestratorMessage], error: RequestFailedError) -> None:
        """Let everything fail that was asked, and whatever will be. The first reason counts."""
        if self._down is None:
            self._down = error
        for timer in (Look(), JoinOverdue()):
            ctx.cancel(timer)
        for ticket in self._requests.all():
            self._fail(ctx, ticket.request_id, self._down)
