"""What a stage and its worker process say to each other: one JSON object a line.

Owns: the records on the worker's stdin (``op``) and stdout (``event``). stderr is for people.
"""

from typing import TypeAlias

import msgspec

from examples.pipeline_inference.model import Hidden


class Begin(msgspec.Struct, frozen=True, tag_field="op", tag="begin"):
    """To the first stage: compute the first position after ``prompt``."""

    request_id: str
    prompt: str


class Extend(msgspec.Struct, frozen=True, tag_field="op", tag="extend"):
    """To the first stage: ``token`` was sampled, compute the position after it."""

    request_id: str
    token: int


class Forward(msgspec.Struct, frozen=True, tag_field="op", tag="forward"):
    """To any later stage: add your layers to ``hidden``."""

    request_id: str
    hidden: Hidden


class Forget(msgspec.Struct, frozen=True, tag_field="op", tag="forget"):
    """To the first stage: the request is over."""

    request_id: str


Work: TypeAlias = Begin | Extend | Forward | Forget


class Ready(msgspec.Struct, frozen=True, tag_field="event", tag="worker_ready"):
    """The model slice is loaded; work is taken from now on."""

    stage: int
    stage_count: int
    layers: list[int]


class Computed(msgspec.Struct, frozen=True, tag_field="event", tag="hidden"):
    """What the next stage needs."""

    request_id: str
    hidden: Hidden


class Sampled(msgspec.Struct, frozen=True, tag_field="event", tag="token"):
    """From the last stage: the next token; ``final`` when it ends the answer."""

    request_id: str
    token: int
    text: str
    final: bool


class Refused(msgspec.Struct, frozen=True, tag_field="event", tag="refused"):
    """This line could not be worked on. The worker goes on; its stage takes it as a failure."""

    why: str


Result: TypeAlias = Ready | Computed | Sampled | Refused
