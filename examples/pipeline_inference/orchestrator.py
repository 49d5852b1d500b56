"""The orchestrator: turns a prompt into a stream of tokens by driving the ring of stages.

Owns: which request is under way, when an answer is complete, and what a failure means for the asker.
Not here: any computation; the stages do that.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from examples.pipeline_inference.messages import EndRequest, Generate, NextToken, StageFailed, StartRequest, Token
from swactor import Actor, ActorRef, Context, Down, Reply, SwactorError

OrchestratorMessage: TypeAlias = Generate | Token | StageFailed | Down


class PipelineFailedError(SwactorError):
    """A stage failed, so no answer will come; the message says which and why."""

    def __init__(self, stage: str, why: str) -> None:
        super().__init__(f"{stage} failed: {why}")
        self.stage, self.why = stage, why


class Orchestrator(Actor[OrchestratorMessage]):
    """Answers one `Generate` at a time; ``on_text`` hears each token's text as it comes."""

    def __init__(self, stages: Sequence[ActorRef[StartRequest | NextToken | EndRequest]], on_text: Callable[[str], None]) -> None:
        self._stages = tuple(stages)
        self._on_text = on_text
        self._served = 0
        self._asked: Generate | None = None
        self._reply: Reply[str] | None = None
        self._text: list[str] = []

    def on_start(self, ctx: Context[OrchestratorMessage]) -> None:
        """Watch every stage: one that is lost ends the request."""
        for stage in self._stages:
            ctx.monitor(stage)

    def on_message(self, ctx: Context[OrchestratorMessage], message: OrchestratorMessage) -> None:
        """Start a request, take the next token, or fail."""
        match message:
            case Generate():
                self._begin(ctx, message)
            case Token():
                self._take(message)
            case StageFailed(stage, why):
                self._fail(PipelineFailedError(stage, why))
            case Down(ref, reason):
                lost = f"stage-{self._stages.index(ref)}" if ref in self._stages else str(ref)
                self._fail(PipelineFailedError(lost, f"its actor is gone: {reason}"))

    @property
    def _request_id(self) -> str:
        return f"request-{self._served}"

    def _begin(self, ctx: Context[OrchestratorMessage], asked: Generate) -> None:
        reply = ctx.defer()
        if self._reply is not None:
            reply.fail(PipelineFailedError("orchestrator", "another request is under way"))
            return
        self._served += 1
        self._asked, self._reply, self._text = asked, reply, []
        self._stages[0].tell(StartRequest(self._request_id, asked.prompt))

    def _take(self, token: Token) -> None:
        if self._reply is None or self._asked is None or token.request_id != self._request_id:
            return  # the rest of a request that is over
        if not token.final:
            self._text.append(token.text)
            self._on_text(token.text)
        if token.final or len(self._text) >= self._asked.tokens_max:
            self._stages[0].tell(EndRequest(self._request_id))
            self._reply.send("".join(self._text))
            self._reply = None
        else:
            self._stages[0].tell(NextToken(self._request_id, token.token))

    def _fail(self, error: PipelineFailedError) -> None:
        if self._reply is not None:
            self._reply.fail(error)
            self._reply = None
