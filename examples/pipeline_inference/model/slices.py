"""What one stage has of a model: its layers, and what its place in the pipeline needs besides.

Owns: `ModelSlice` and what a model must provide to be cut, and sampling: from numbers to a token.
Not here: arithmetic (`transformer`), the models themselves (`small`, `gemma`; `catalog` finds them by name).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from examples.pipeline_inference.model.config import Sampling
from examples.pipeline_inference.model.transformer import Array, Head, Layers

OnLayer = Callable[[int, int], None]
"""Hears, while a slice is loaded, how many of its layers are there, and how many there will be."""


class ModelMissingError(Exception):
    """The files of a model are not installed; the message says how to get them."""


class Tokenizer(Protocol):
    """Between text and tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt."""
        ...

    def piece(self, token: int) -> bytes:
        """Return what ``token`` adds to the text, in UTF-8; a character may need several tokens."""
        ...

    def is_end(self, token: int) -> bool:
        """Return whether ``token`` ends the answer."""
        ...


class Embedding(Protocol):
    """From tokens to the activation before the first layer."""

    def rows(self, tokens: Sequence[int]) -> Array:
        """Return one row for each token."""
        ...


@dataclass(frozen=True)
class ModelSlice:
    """Consecutive layers; the first slice also has an embedding, the last one a head."""

    layers: Layers
    tokenizer: Tokenizer | None = None
    embedding: Embedding | None = None
    head: Head | None = None


class Sampler:
    """Takes the tokens of one request; the same seed takes the same ones."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def take(self, logits: Array) -> int:
        """Return the best token, the first one on a tie; or one drawn from the best."""
        if self._sampling.temperature == 0:
            return int(np.argmax(logits))
        top = min(self._sampling.top, len(logits))
        best = np.argpartition(logits, -top)[-top:]
        best = best[np.lexsort((best, -logits[best]))]
        raised = np.exp((logits[best] - logits[best[0]]) / np.float32(self._sampling.temperature))
        drawn = self._random.random() * float(raised.sum())
        return int(best[min(int(np.searchsorted(np.cumsum(raised), drawn)), top - 1)])
