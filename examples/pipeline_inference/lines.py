"""What the processes of a run say on standard output, one JSON object a line, for the launcher.

Owns: the records. What is meant for people goes to standard error instead.
"""

import sys
from typing import TypeAlias

import msgspec


class Listening(msgspec.Struct, frozen=True, tag_field="event", tag="listening"):
    """From collector and relay: ready, at this address."""

    url: str


class StageFound(msgspec.Struct, frozen=True, tag_field="event", tag="stage_found"):
    """From the orchestrator: this stage is ready to work."""

    stage: str


class Prompt(msgspec.Struct, frozen=True, tag_field="event", tag="prompt"):
    """From the orchestrator: it begins to answer this prompt."""

    text: str


class Text(msgspec.Struct, frozen=True, tag_field="event", tag="text"):
    """From the orchestrator: the text of one more token."""

    text: str


class Answer(msgspec.Struct, frozen=True, tag_field="event", tag="answer"):
    """From the orchestrator: the answer is complete."""

    text: str


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="failed"):
    """From any node: it cannot go on."""

    why: str


Spoken: TypeAlias = StageFound | Prompt | Text | Answer
"""What the orchestrator says while all is well."""
Line: TypeAlias = Listening | Spoken | Failed


def say(line: Line) -> None:
    """Write one line, at once."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()
