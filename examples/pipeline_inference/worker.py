"""What the worker of one stage does: a piece of work in, results out.

Owns: what a request needs from one piece of work to the next (its cache, its sampler), and its limits.
Not here: pipes and the program (`worker_program`), the records (`worker_protocol`), the arithmetic (`model`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from examples.pipeline_inference.model.config import Sampling
from examples.pipeline_inference.model.slices import ModelSlice, Sampler
from examples.pipeline_inference.model.transformer import Array, Cache
from examples.pipeline_inference.worker_protocol import (
    Begin,
    Computed,
    Extend,
    Forget,
    Forward,
    Refused,
    Result,
    Sampled,
    Work,
)

REQUESTS_MAX = 64
"""Requests that a worker keeps a cache for; one more is refused."""
POSITIONS_AT_ONCE = 64
"""A longer prompt goes through the stages in pieces, so that they work at the same time."""


class RefusedError(Exception):
    """The work makes no sense here; the worker goes on."""


@dataclass
class Request:
    """What is kept of one request."""

    cache: Cache
    sampler: Sampler
    sampling: Sampling
    position: int = 0


class Worker:
    """Works for any number of requests in turn, up to `REQUESTS_MAX`."""

    def __init__(self, model: ModelSlice) -> None:
        self._model = model
        self._requests: dict[str, Request] = {}

    def handle(self, work: Work) -> Iterator[Result]:
        """Yield the results; work that makes no sense is refused, and ends its request only."""
        try:
            yield from self._do(work)
        except RefusedError as error:
            self._requests.pop(work.request_id, None)
            yield Refused(work.request_id, str(error))

    def _do(self, work: Work) -> Iterator[Result]:
        match work:
            case Begin(request_id, prompt, sampling):
                yield from self._begin(request_id, prompt, sampling)
            case Extend(request_id, token):
                request = self._known(request_id)
                yield from self._advance(request_id, request, self._embed([token]), more=False)
            case Forward(request_id, position, activation, more, sampling):
                request = self._new(request_id, sampling) if position == 0 else self._known(request_id)
                if position != request.position:
                    raise RefusedError(f"position {request.position} comes next, not {position}")
                yield from self._advance(request_id, request, self._rows(activation), more=more)
            case Forget(request_id):
                self._requests.pop(request_id, None)

    def _begin(self, request_id: str, prompt: str, sampling: Sampling) -> Iterator[Result]:
        if self._model.tokenizer is None or self._model.embedding is None:
            raise RefusedError("only the first stage begins a request")
        tokens = self._model.tokenizer.encode(prompt)
        if not tokens:
            raise RefusedError("the prompt is empty")
        limit = self._model.layers.config.positions_max
        if len(tokens) > limit:
            raise RefusedError(f"the prompt has {len(tokens)} tokens, the model takes {limit}")
        request = self._new(request_id, sampling)
        for start in range(0, len(tokens), POSITIONS_AT_ONCE):
            end = start + POSITIONS_AT_ONCE
            rows = self._embed(tokens[start:end])
            yield from self._advance(request_id, request, rows, more=end < len(tokens))

    def _new(self, request_id: str, sampling: Sampling) -> Request:
        if request_id not in self._requests and len(self._requests) >= REQUESTS_MAX:
            raise RefusedError(f"{REQUESTS_MAX} requests are under way here already")
        request = Request(self._model.layers.new_cache(), Sampler(sampling), sampling)
        self._requests[request_id] = request
        return request

    def _known(self, request_id: str) -> Request:
        request = self._requests.get(request_id)
        if request is None:
            raise RefusedError("the request is not known here: it is over, or this worker began after it")
        return request

    def _embed(self, tokens: list[int]) -> Array:
        vocabulary = self._model.layers.config.vocabulary
        if self._model.embedding is None or not all(0 <= token < vocabulary for token in tokens):
            raise RefusedError("only the first stage takes tokens, and those of its vocabulary")
        return self._model.embedding.rows(tokens)

    def _rows(self, activation: bytes) -> Array:
        width = self._model.layers.config.width
        if not activation or len(activation) % (4 * width):
            raise RefusedError(f"an activation is rows of {width} numbers, not {len(activation)} bytes")
        return np.frombuffer(activation, dtype="<f4").reshape(-1, width)

    def _advance(self, request_id: str, request: Request, rows: Array, *, more: bool) -> Iterator[Result]:
        """Put ``rows`` through the layers; at the end of a prompt the last stage takes a token."""
        position, limit = request.position, self._model.layers.config.positions_max
        if position + len(rows) > limit:
            raise RefusedError(f"the model takes {limit} positions")
        activation = self._model.layers.forward(rows, request.cache)
        request.position += len(rows)
        if self._model.head is None or self._model.tokenizer is None:
            sent = activation.astype("<f4", copy=False).tobytes()
            yield Computed(request_id, position, sent, more, request.sampling)
        elif not more:
            token = request.sampler.take(self._model.head.logits(activation))
            final = self._model.tokenizer.is_end(token)
            yield Sampled(request_id, token, b"" if final else self._model.tokenizer.piece(token), final)
