"""What the processes of a run say on standard output, one JSON object a line, for the launcher.

Owns: the records. What is meant for people goes to standard error instead.
"""

import sys
from typing import TypeAlias

import msgspec


class Listening(msgspec.Struct, frozen=True, tag_field="event", tag="listening"):
    """From collector and relay: ready, at this address."""

    url: str


class StageLoading(msgspec.Struct, frozen=True, tag_field="event", tag="stage_loading"):
    """From a stage: its worker has loaded so many of its layers."""

    stage: str
    loaded: int
    layers: int


class StageFound(msgspec.Struct, frozen=True, tag_field="event", tag="stage_found"):
    """From the orchestrator: this stage is ready to work."""

    stage: str


class StageLost(msgspec.Struct, frozen=True, tag_field="event", tag="stage_lost"):
    """From the orchestrator: this stage has lost its worker, or its node; unless ``gone`` it may be back."""

    stage: str
    why: str
    gone: bool


class Prompt(msgspec.Struct, frozen=True, tag_field="event", tag="prompt"):
    """From the orchestrator: it begins to answer this prompt."""

    request_id: str
    text: str


class Text(msgspec.Struct, frozen=True, tag_field="event", tag="text"):
    """From the orchestrator: the text of one more token; empty while a character is incomplete."""

    request_id: str
    text: str


class Answer(msgspec.Struct, frozen=True, tag_field="event", tag="answer"):
    """From the orchestrator: the answer is complete."""

    request_id: str
    text: str


class RequestFailed(msgspec.Struct, frozen=True, tag_field="event", tag="request_failed"):
    """From the orchestrator: no answer to this prompt will come; the next one is answered all the same."""

    request_id: str
    why: str


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    """From any node: it cannot go on."""

    why: str


Spoken: TypeAlias = StageLoading | StageFound | StageLost | Prompt | Text | Answer | RequestFailed
"""What the nodes of the pipeline say while they work."""
Line: TypeAlias = Listening | Spoken | Failed


def say(line: Line) -> None:
    """Write one line, at once."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()
