"""Why a request was not answered: one error for each thing that an asker can do about it."""

from typing import ClassVar

from examples.pipeline_inference.events import Outcome
from swactor import SwactorError


class RequestFailedError(SwactorError):
    """No answer will come. ``why`` is for people; ``stage`` is who was at fault, if anybody in particular."""

    outcome: ClassVar[Outcome]

    def __init__(self, why: str, *, stage: str | None = None) -> None:
        super().__init__(why if stage is None else f"{stage}: {why}")
        self.why, self.stage = why, stage


class StageFailedError(RequestFailedError):
    """The stage has lost its worker and is being restarted. Asking again is safe."""

    outcome = Outcome.STAGE_FAILED


class PipelineDownError(RequestFailedError):
    """A stage is not there, or is gone for good. Asking again does not help until somebody mends it."""

    outcome = Outcome.STAGE_FAILED


class RequestRefusedError(RequestFailedError):
    """A stage cannot work on this request, such as a prompt that is too long. Others are not affected."""

    outcome = Outcome.REFUSED


class PipelineFullError(RequestFailedError):
    """Too many requests wait already. Asking again later is safe."""

    outcome = Outcome.REFUSED


class RequestTimeoutError(RequestFailedError):
    """The answer was not complete in time."""

    outcome = Outcome.TIMED_OUT


class RequestCancelledError(RequestFailedError):
    """Somebody asked for the end."""

    outcome = Outcome.CANCELLED
