"""The small model that is shipped: six layers over bytes, trained by `training` on a hundred lines.

Owns: the file of its weights, and its tokenizer. Its sizes are in `config`.
Not here: arithmetic (`transformer`), how the weights were found (`training`).
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from examples.pipeline_inference.model.config import SMALL, Cut
from examples.pipeline_inference.model.slices import ModelSlice, OnLayer
from examples.pipeline_inference.model.transformer import Array, Head, HeadWeights, Layers, LayerWeights

WEIGHTS = Path(__file__).with_name("small.npz")
"""The weights in half precision, 1.3 MB; they are computed with in single precision."""
END = ord("\n")
"""The byte that ends an answer."""
TOKENS = "tokens"
FINAL_NORM = "final_norm"
LAYER_PARTS = tuple(field.name for field in fields(LayerWeights))


def layer_name(layer: int, part: str) -> str:
    """Return the name in the file of one part of ``layer``, which is counted from 0."""
    return f"layer.{layer}.{part}"


class Bytes:
    """The tokenizer: a token is a byte of UTF-8."""

    def encode(self, text: str) -> list[int]:
        """Return the bytes of ``text``."""
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        """Return what ``token`` adds to the text."""
        return bytes([token])

    def is_end(self, token: int) -> bool:
        """Return whether ``token`` ends the answer."""
        return token == END


def load(cut: Cut, on_layer: OnLayer, *, path: Path = WEIGHTS) -> ModelSlice:
    """Return the slice of ``cut``; only what it needs is read from the file."""
    with np.load(path) as file:

        def read(name: str) -> Array:
            array: Array = file[name].astype(np.float32)
            return array

        numbers, layers = cut.layers(SMALL), {}
        for number in numbers:
            layers[number] = LayerWeights(**{part: read(layer_name(number, part)) for part in LAYER_PARTS})
            on_layer(len(layers), len(numbers))
        tokens = read(TOKENS) if cut.is_first or cut.is_last else None
        head = HeadWeights(read(FINAL_NORM), tokens) if cut.is_last and tokens is not None else None
    return ModelSlice(
        layers=Layers(SMALL, layers),
        tokenizer=Bytes() if cut.is_first or cut.is_last else None,
        embedding=Table(tokens) if cut.is_first and tokens is not None else None,
        head=None if head is None else Head(SMALL, head),
    )


class Table:
    """The embedding of a model whose tokens all fit into memory."""

    def __init__(self, rows: Array) -> None:
        self._rows = rows * np.float32(rows.shape[1] ** 0.5)

    def rows(self, tokens: Sequence[int]) -> Array:
        """Return the activation before the first layer, one row for each token."""
        return self._rows[list(tokens)]
