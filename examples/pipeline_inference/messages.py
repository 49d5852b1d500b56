"""What the actors of the pipeline say to each other, within a node and across the cluster.

Owns: the message types. `WIRE` lists those that may come from another node; nothing else is accepted there.

One request goes round like this, once per token::

    orchestrator --StartRequest--> stage-0 --Activation--> ... --> last stage --Token--> orchestrator
    orchestrator --NextToken--> stage-0 --Activation--> ... --> last stage --Token--> orchestrator ...
"""

import msgspec

from swactor import Request


class StartRequest(msgspec.Struct, frozen=True):
    """To the first stage: compute the first token after ``prompt``."""

    request_id: str
    prompt: str


class NextToken(msgspec.Struct, frozen=True):
    """To the first stage: this token was sampled, compute the one after it."""

    request_id: str
    token: int


class EndRequest(msgspec.Struct, frozen=True):
    """To the first stage: nothing more will be asked of this request."""

    request_id: str


class Activation(msgspec.Struct, frozen=True):
    """To the next stage: the hidden state of one position.

    ``payload`` is msgpack of `model.Hidden`, so that only the stages know what a model's states look like.
    """

    request_id: str
    payload: bytes


class Token(msgspec.Struct, frozen=True):
    """To the orchestrator: the last stage has sampled a token; ``final`` ends the answer."""

    request_id: str
    token: int
    text: str
    final: bool


class StageFailed(msgspec.Struct, frozen=True):
    """To the orchestrator: this stage cannot go on."""

    stage: str
    why: str


class Shutdown(msgspec.Struct, frozen=True):
    """To a stage of this node: stop the worker, then yourself."""


class Interrupt(msgspec.Struct, frozen=True):
    """To the orchestrator of this node: give the request up."""


class Generate(msgspec.Struct, Request[str], frozen=True):
    """To the orchestrator of this node: answer ``prompt`` with at most ``tokens_max`` tokens."""

    prompt: str
    tokens_max: int


WIRE = (StartRequest, NextToken, EndRequest, Activation, Token, StageFailed)
