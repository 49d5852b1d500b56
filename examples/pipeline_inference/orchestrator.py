"""The orchestrator: turns a prompt into a stream of tokens by driving the ring of stages.

Owns: which request is under way, when an answer is complete, and what a failure means for the asker.
Not here: any computation; the stages do that.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from examples.pipeline_inference.lines import Prompt, StageFound, Text
from examples.pipeline_inference.messages import (
    EndRequest,
    Generate,
    Interrupt,
    NextToken,
    StageFailed,
    StartRequest,
    Token,
)
from examples.pipeline_inference.stage import stage_name
from swactor import Actor, ActorRef, Context, Down, Reply, SwactorError
from swactor.cluster import Cluster

LOOK_PERIOD_S = 0.1
"""How often a stage that is not known yet is looked for."""


class Look(msgspec.Struct, frozen=True):
    """Time to look for the stages that are missing."""


class JoinOverdue(msgspec.Struct, frozen=True):
    """The stages have had their time to appear."""


OrchestratorMessage: TypeAlias = Generate | Token | StageFailed | Interrupt | Look | JoinOverdue | Down


class PipelineFailedError(SwactorError):
    """No answer will come; the message says which part failed and why."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(f"{part}: {why}")
        self.part, self.why = part, why


class Orchestrator(Actor[OrchestratorMessage]):
    """Answers one `Generate` at a time; ``say`` hears of each stage, prompt and token."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        stage_count: int,
        join_timeout_s: float,
        say: Callable[[StageFound | Prompt | Text], None],
    ) -> None:
        self._cluster = cluster
        self._names = tuple(stage_name(index) for index in range(stage_count))
        self._join_timeout_s = join_timeout_s
        self._say = say
        self._stages: dict[str, ActorRef[Any]] = {}
        self._served = 0
        self._asked: Generate | None = None
        self._reply: Reply[str] | None = None
        self._text: list[str] = []

    def on_message(self, ctx: Context[OrchestratorMessage], message: OrchestratorMessage) -> None:
        """Look for stages, start a request, take the next token, or fail."""
        match message:
            case Generate():
                self._accept(ctx, message)
            case Look():
                self._look(ctx)
            case Token():
                self._take(message)
            case JoinOverdue():
                missing = [name for name in self._names if name not in self._stages]
                self._fail(", ".join(missing), f"not found within {self._join_timeout_s:g} s")
            case StageFailed(stage, why):
                self._fail(stage, why)
            case Down(ref, reason):
                lost = next((name for name, stage in self._stages.items() if stage == ref), str(ref))
                self._stages.pop(lost, None)  # the next request looks for it again
                # The news overtakes messages. What the stage itself said last explains more: hear that first.
                ctx.ref.tell(StageFailed(lost, f"gone: {reason}"))
            case Interrupt():
                self._fail("orchestrator", "interrupted")

    def _accept(self, ctx: Context[OrchestratorMessage], asked: Generate) -> None:
        reply = ctx.defer()
        if self._reply is not None:
            reply.fail(PipelineFailedError("orchestrator", "another request is under way"))
            return
        self._served += 1
        self._asked, self._reply, self._text = asked, reply, []
        ctx.send_after(self._join_timeout_s, JoinOverdue())
        self._look(ctx)

    def _look(self, ctx: Context[OrchestratorMessage]) -> None:
        """Find the stages that are missing; once all are here, start."""
        if self._reply is None or self._asked is None:
            return
        for name in self._names:
            stage = None if name in self._stages else self._cluster.whereis(name)
            if stage is not None:
                self._stages[name] = stage
                ctx.monitor(stage)
                self._say(StageFound(name))
        if len(self._stages) < len(self._names):
            ctx.send_after(LOOK_PERIOD_S, Look())
        else:
            ctx.cancel(JoinOverdue())  # a timer's key is its message
            self._say(Prompt(self._asked.prompt))
            self._first_stage.tell(StartRequest(self._request_id, self._asked.prompt))

    @property
    def _first_stage(self) -> ActorRef[StartRequest | NextToken | EndRequest]:
        return self._stages[self._names[0]]

    @property
    def _request_id(self) -> str:
        return f"request-{self._served}"

    def _take(self, token: Token) -> None:
        if self._reply is None or self._asked is None or token.request_id != self._request_id:
            return  # the rest of a request that is over
        if not token.final:
            self._text.append(token.text)
            self._say(Text(token.text))
        if token.final or len(self._text) >= self._asked.tokens_max:
            self._first_stage.tell(EndRequest(self._request_id))
            self._reply.send("".join(self._text))
            self._reply = None
        else:
            self._first_stage.tell(NextToken(self._request_id, token.token))

    def _fail(self, part: str, why: str) -> None:
        if self._reply is not None:
            self._reply.fail(PipelineFailedError(part, why))
            self._reply = None
