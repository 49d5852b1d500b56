"""Models by name, and the reference: a whole model in this process, which every pipeline must equal."""

from collections.abc import Iterator

from examples.pipeline_inference.model import gemma, small
from examples.pipeline_inference.model.config import GREEDY, Cut, ModelName, Sampling
from examples.pipeline_inference.model.slices import ModelSlice, OnLayer, Sampler

_LOAD = {ModelName.SMALL: small.load, ModelName.GEMMA: gemma.load}


def load(model: ModelName, cut: Cut, on_layer: OnLayer = lambda _loaded, _layers: None) -> ModelSlice:
    """Return the slice ``cut`` of ``model``; only what it needs is read.

    Raises:
        ModelMissingError: the model is not installed.
    """
    return _LOAD[model](cut, on_layer)


def generate(
    model: ModelSlice, prompt: str, *, tokens_max: int, sampling: Sampling = GREEDY
) -> Iterator[int]:
    """Yield the tokens that a whole ``model`` answers ``prompt`` with, the end not included.

    Raises:
        ValueError: ``model`` is a slice.
    """
    if model.tokenizer is None or model.embedding is None or model.head is None:
        raise ValueError("a slice cannot answer alone: load the cut with one stage")
    cache, sampler = model.layers.new_cache(), Sampler(sampling)
    tokens = model.tokenizer.encode(prompt)
    for _ in range(tokens_max):
        activation = model.layers.forward(model.embedding.rows(tokens), cache)
        token = sampler.take(model.head.logits(activation))
        if model.tokenizer.is_end(token):
            return
        yield token
        tokens = [token]


def answer(model: ModelSlice, prompt: str, *, tokens_max: int, sampling: Sampling = GREEDY) -> str:
    """Return what a whole ``model`` answers ``prompt`` with, as text."""
    if model.tokenizer is None:
        raise ValueError("a slice cannot answer alone: load the cut with one stage")
    tokens = generate(model, prompt, tokens_max=tokens_max, sampling=sampling)
    return b"".join(map(model.tokenizer.piece, tokens)).decode(errors="replace")
