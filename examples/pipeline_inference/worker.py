"""The worker program of one stage: reads work from stdin, writes results to stdout, one JSON object a line.

Run by hand: ``python -m examples.pipeline_inference.worker 0 1``, then type
``{"op": "begin", "request_id": "r", "prompt": "What is a relay?"}``. It ends when stdin does.
"""

import sys
from collections.abc import Iterator

import msgspec

from examples.pipeline_inference.model import END, Hidden, ModelSlice
from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Extend,
    Forget,
    Forward,
    Ready,
    Refused,
    Result,
    Sampled,
    Work,
)

REQUESTS_MAX = 1_000
"""Requests a first stage keeps the tokens of; the oldest is forgotten beyond that."""


class Worker:
    """What the program does, without the program: a line in, a line out."""

    def __init__(self, stage: int, stage_count: int) -> None:
        self._stage = stage
        self._stage_count = stage_count
        self._model = ModelSlice.load(stage, stage_count)
        self._tokens: dict[str, list[int]] = {}
        self._decode = msgspec.json.Decoder(Work).decode

    def ready(self) -> bytes:
        """Return the line that says so."""
        return encode(Ready(self._stage, self._stage_count, list(self._model.layers)))

    def handle(self, line: bytes) -> Iterator[bytes]:
        """Yield the lines that answer ``line``; a line that makes no sense is refused, not fatal."""
        try:
            result = self._work(self._decode(line))
        except (msgspec.ValidationError, msgspec.DecodeError, KeyError) as error:
            result = Refused(f"{type(error).__name__}: {error}")
        if result is not None:
            yield encode(result)

    def _work(self, work: Work) -> Result | None:
        match work:
            case Begin(request_id, prompt):
                while len(self._tokens) >= REQUESTS_MAX:
                    del self._tokens[next(iter(self._tokens))]
                self._tokens[request_id] = self._model.vocabulary.encode(prompt)
                return self._advance(request_id, self._model.embed(self._tokens[request_id]))
            case Extend(request_id, token):
                self._tokens[request_id].append(token)
                return self._advance(request_id, self._model.embed(self._tokens[request_id]))
            case Forward(request_id, hidden):
                return self._advance(request_id, hidden)
            case Forget(request_id):
                self._tokens.pop(request_id, None)
                return None

    def _advance(self, request_id: str, hidden: Hidden) -> Result:
        hidden = self._model.forward(hidden)
        if self._stage < self._stage_count - 1:
            return Computed(request_id, hidden)
        token = self._model.sample(hidden)
        text = self._model.vocabulary.decode(token)
        return Sampled(request_id, token, text, final=text == END)


def encode(result: Result) -> bytes:
    """Return ``result`` as one line."""
    return msgspec.json.encode(result) + b"\n"


def serve(stage: int, stage_count: int) -> None:
    """Serve until stdin ends."""
    worker = Worker(stage, stage_count)
    out = sys.stdout.buffer
    out.write(worker.ready())
    out.flush()
    sys.stderr.write(f"worker of stage {stage}/{stage_count} is ready\n")
    for line in sys.stdin.buffer:
        for result in worker.handle(line):
            out.write(result)
        out.flush()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
