"""What a worker owes its stage: to which requests it has to say something.

Owns: which work is answered by which result. Pure: how long a worker may be silent is up to the stage.
"""

from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Extend,
    Forward,
    Refused,
    Result,
    Sampled,
    Work,
)


class Owed:
    """The requests whose last piece of work has no result yet."""

    def __init__(self) -> None:
        self._requests: set[str] = set()

    def __len__(self) -> int:
        """How many they are."""
        return len(self._requests)

    def give(self, work: Work) -> None:
        """Note work that the worker was given; only the last piece of a prompt has a result in any case."""
        match work:
            case Begin(request_id) | Extend(request_id) | Forward(request_id, more=False):
                self._requests.add(request_id)

    def take(self, result: Result) -> None:
        """Note what the worker has said."""
        match result:
            case Computed(request_id, more=False) | Sampled(request_id) | Refused(str(request_id)):
                self._requests.discard(request_id)
