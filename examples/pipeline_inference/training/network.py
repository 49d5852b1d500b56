"""The small model as it is trained: whole batches on a `Tape`, the weights by their names in the file.

Owns: fresh weights, and the loss of a batch. What it computes must be what `model.transformer` computes.
"""

import numpy as np
from numpy.typing import NDArray

from examples.pipeline_inference.model.config import ModelConfig
from examples.pipeline_inference.model.small import FINAL_NORM, LAYER_PARTS, TOKENS, layer_name
from examples.pipeline_inference.model.transformer import frequencies
from examples.pipeline_inference.training.differentiation import Array, Tape, Variable

RESIDUAL_SCALE = 0.3
"""What a layer adds at first, beside what passes it by: small, so that a deep stack can begin to learn."""


def fresh_weights(config: ModelConfig, random: np.random.Generator) -> dict[str, Array]:
    """Return the weights before training, by name."""
    attention, kv = config.heads * config.head_width, config.kv_heads * config.head_width
    shapes = {
        "attention_norm": (config.width,),
        "query": (attention, config.width),
        "key": (kv, config.width),
        "value": (kv, config.width),
        "query_norm": (config.head_width,),
        "key_norm": (config.head_width,),
        "output": (config.width, attention),
        "after_attention_norm": (config.width,),
        "hidden_norm": (config.width,),
        "gate": (config.hidden, config.width),
        "up": (config.hidden, config.width),
        "down": (config.width, config.hidden),
        "after_hidden_norm": (config.width,),
    }

    def fresh(part: str, shape: tuple[int, ...]) -> Array:
        if len(shape) == 1:
            return np.full(shape, RESIDUAL_SCALE if part.startswith("after") else 1.0, np.float32)
        drawn: Array = random.standard_normal(shape) * shape[1] ** -0.5
        return drawn.astype(np.float32)

    weights = {
        layer_name(layer, part): fresh(part, shapes[part])
        for layer in range(config.layers)
        for part in LAYER_PARTS
    }
    tokens = random.standard_normal((config.vocabulary, config.width)) * config.width**-0.5
    weights[TOKENS] = tokens.astype(np.float32)
    weights[FINAL_NORM] = np.ones(config.width, np.float32)
    return weights


def surprise(
    config: ModelConfig,
    variables: dict[str, Variable],
    tokens: NDArray[np.integer],
    counts: NDArray[np.bool_],
) -> tuple[float, Tape]:
    """Return the loss at predicting each of ``tokens`` from those before it, and the tape that leads back.

    ``tokens`` is ``(batch, position)``; ``counts`` says of each but the first whether it is to be learned.
    """
    tape, epsilon = Tape(), config.norm_epsilon
    length = tokens.shape[1] - 1
    angles = np.arange(length)[:, None, None] * frequencies(config, is_global=True)
    dtype = variables[TOKENS].value.dtype
    cosine, sine = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)

    x = tape.embed(variables[TOKENS], tokens[:, :-1], scale=config.width**0.5)
    for layer in range(config.layers):
        w = {part: variables[layer_name(layer, part)] for part in LAYER_PARTS}

        def turned(source: Variable, part: str, heads: int, w: dict[str, Variable] = w) -> Variable:
            split = tape.heads(tape.linear(source, w[part]), heads)
            return tape.rotate(tape.norm(split, w[f"{part}_norm"], epsilon=epsilon), cosine, sine)

        before = tape.norm(x, w["attention_norm"], epsilon=epsilon)
        read = tape.attend(
            turned(before, "query", config.heads),
            turned(before, "key", config.kv_heads),
            tape.heads(tape.linear(before, w["value"]), config.kv_heads),
        )
        read = tape.norm(tape.linear(read, w["output"]), w["after_attention_norm"], epsilon=epsilon)
        x = tape.add(x, read)
        before = tape.norm(x, w["hidden_norm"], epsilon=epsilon)
        hidden = tape.gate(tape.linear(before, w["gate"]), tape.linear(before, w["up"]))
        hidden = tape.norm(tape.linear(hidden, w["down"]), w["after_hidden_norm"], epsilon=epsilon)
        x = tape.add(x, hidden)
    logits = tape.linear(tape.norm(x, variables[FINAL_NORM], epsilon=epsilon), variables[TOKENS])
    return tape.loss(logits, tokens[:, 1:], counts), tape
