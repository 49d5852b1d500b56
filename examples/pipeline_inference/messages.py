"""What the actors of the pipeline say to each other, within a node and across the cluster.

Owns: the message types. `WIRE` lists those that may come from another node; nothing else is accepted there.

One request goes round like this, once for the prompt and then once per token::

    orchestrator --StartRequest--> stage-0 --Activation--> ... --> last stage --Token--> orchestrator
    orchestrator --NextToken-----> stage-0 --Activation--> ... --> last stage --Token--> orchestrator ...
    orchestrator --EndRequest----> every stage
"""

import msgspec

from examples.pipeline_inference.model.config import GREEDY, Sampling
from swactor import Request


class StartRequest(msgspec.Struct, frozen=True):
    """To the first stage: compute the first token after ``prompt``."""

    request_id: str
    prompt: str
    sampling: Sampling


class NextToken(msgspec.Struct, frozen=True):
    """To the first stage: this token was taken, compute the one after it."""

    request_id: str
    token: int


class Activation(msgspec.Struct, frozen=True):
    """To the next stage: the positions from ``position`` on, as the layers before it have computed them.

    ``rows`` are float32 as they lie in memory. A long prompt comes in pieces, all but the last with ``more``.
    """

    request_id: str
    position: int
    rows: bytes
    more: bool
    sampling: Sampling


class Token(msgspec.Struct, frozen=True):
    """To the orchestrator: the last stage has taken a token; ``final`` ends the answer.

    ``piece`` are the bytes of text that it adds; a character may need several tokens.
    """

    request_id: str
    token: int
    piece: bytes
    final: bool


class EndRequest(msgspec.Struct, frozen=True):
    """To every stage: nothing more will be asked of this request, whatever its end was."""

    request_id: str


class RequestRefused(msgspec.Struct, frozen=True):
    """To the orchestrator: ``stage`` cannot work on this request; others are not affected."""

    request_id: str
    stage: str
    why: str


class StageFailed(msgspec.Struct, frozen=True):
    """To the orchestrator: the stage has lost its worker, and with it every request under way.

    It is being restarted, unless it is ``gone``: then nothing more is to be expected of it.
    """

    stage: str
    why: str
    gone: bool = False


class Response(msgspec.Struct, frozen=True):
    """A complete answer."""

    request_id: str
    text: str
    tokens: tuple[int, ...]


class Generate(msgspec.Struct, Request[Response], frozen=True, kw_only=True):
    """To the orchestrator of this node: answer ``prompt`` with at most ``tokens_max`` tokens.

    The asker chooses the ``request_id``, so that it can `Cancel`. The time counts from when the stages
    begin to work on it. What can go wrong is in `errors`.
    """

    request_id: str
    prompt: str
    tokens_max: int
    timeout_s: float
    sampling: Sampling = GREEDY


class Cancel(msgspec.Struct, frozen=True):
    """To the orchestrator of this node: nobody wants this answer any more; nothing if it is over."""

    request_id: str


class Interrupt(msgspec.Struct, frozen=True):
    """To the orchestrator of this node: cancel everything, and take nothing more."""


class Shutdown(msgspec.Struct, frozen=True):
    """To a stage of this node: stop the worker, then yourself."""


WIRE = (StartRequest, NextToken, Activation, Token, EndRequest, RequestRefused, StageFailed)
