"""What the example adds to the flight recorder: events of its own, declared like any other.

Owns: how a request ended, and what a stage says of its worker.
"""

import enum
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from swactor import Event
from swactor_diag.schema.events import Custom


class Outcome(enum.StrEnum):
    """How a request ended."""

    ANSWERED = "answered"
    STAGE_FAILED = "stage_failed"
    """A stage lost its worker, or is not there."""
    REFUSED = "refused"
    """A stage could not work on it, or too many requests wait already."""
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class InferenceResponseSent(Event, frozen=True, kw_only=True):
    """A request has ended and its asker was told; exactly once per request."""

    target_peer: Annotated[str, Meta(description="The node that asked.")]
    request_id: str
    byte_size: Annotated[int, Meta(description="Of the text, as far as it had come.")]
    send_outcome: Outcome
    tokens: int | UnsetType = UNSET
    duration_ms: Annotated[int | UnsetType, Meta(description="Accepted to ended, monotonic.")] = UNSET
    stage: Annotated[str | UnsetType, Meta(description="Which one was at fault.")] = UNSET
    why: str | UnsetType = UNSET


def worker_ready(stage: str, *, role: str, model: str, layers: tuple[int, ...], after_ms: int) -> Custom:
    """Return the event of a worker that has loaded its layers, ``after_ms`` after its start."""
    return Custom(
        kind="worker_ready",
        fields={"stage": stage, "role": role, "model": model, "layers": layers, "after_ms": after_ms},
    )


def worker_not_ready(stage: str, *, after_ms: int) -> Custom:
    """Return the event of a worker that runs but was not ready in time."""
    return Custom(kind="worker_not_ready", fields={"stage": stage, "after_ms": after_ms})


def worker_silent(stage: str, *, requests: int, silent_s: float) -> Custom:
    """Return the event of a worker that has work for so many requests and has said nothing for too long."""
    return Custom(
        kind="worker_silent",
        fields={"stage": stage, "requests": requests, "silent_ms": int(silent_s * 1000)},
    )
