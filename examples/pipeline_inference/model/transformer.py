"""A slice of a transformer of the Gemma 3 family, computed in NumPy: float32 throughout.

Owns: the arithmetic of layers and head, and the cache of keys and values that each request has.
Not here: where weights come from (`small`, `gemma`), tokens as text, which token is taken (`slices`).

A slice of layers turns activations into activations, whoever computed the ones before: however a model is
cut, the same operations run on the same numbers, so every cut gives the same bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from examples.pipeline_inference.model.config import ModelConfig

Array = NDArray[np.float32]

FIRST_CAPACITY = 64
"""Positions for which a cache has room at first; it doubles as needed."""


@dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer; a matrix has one row for each output."""

    attention_norm: Array
    query: Array
    key: Array
    value: Array
    query_norm: Array
    key_norm: Array
    output: Array
    after_attention_norm: Array
    hidden_norm: Array
    gate: Array
    up: Array
    down: Array
    after_hidden_norm: Array


@dataclass(frozen=True)
class HeadWeights:
    """What turns the activation of a position into one number for each token."""

    norm: Array
    tokens: Array


class LayerCache:
    """Keys and values of all positions of one request so far, in one layer."""

    def __init__(self, config: ModelConfig) -> None:
        self._keys = np.empty((config.kv_heads, FIRST_CAPACITY, config.head_width), np.float32)
        self._values = np.empty_like(self._keys)
        self.length = 0

    def append(self, keys: Array, values: Array) -> tuple[Array, Array]:
        """Take keys and values of the next positions; return those of all, ``(head, position, width)``."""
        end = self.length + keys.shape[1]
        if end > self._keys.shape[1]:
            self._keys = _grown(self._keys, end)
            self._values = _grown(self._values, end)
        self._keys[:, self.length : end] = keys
        self._values[:, self.length : end] = values
        self.length = end
        return self._keys[:, :end], self._values[:, :end]


Cache = list[LayerCache]
"""One request's cache in one slice: an entry for each layer."""


class Layers:
    """Consecutive layers of a model."""

    def __init__(self, config: ModelConfig, weights: Mapping[int, LayerWeights]) -> None:
        self.config = config
        self.numbers = tuple(sorted(weights))
        self._layers = [
            _Layer(config, weights[number], is_global=config.is_global(number)) for number in self.numbers
        ]

    def new_cache(self) -> Cache:
        """Return the cache of a request that has not begun."""
        return [LayerCache(self.config) for _ in self._layers]

    def forward(self, activation: Array, cache: Cache) -> Array:
        """Return what comes out for the next positions, one row each; the cache then knows them too."""
        for layer, known in zip(self._layers, cache, strict=True):
            activation = layer.forward(activation, known)
        return activation


class Head:
    """The end of a model."""

    def __init__(self, config: ModelConfig, weights: HeadWeights) -> None:
        self._epsilon = config.norm_epsilon
        self._weights = weights

    def logits(self, activation: Array) -> Array:
        """Return one number for each token that may follow the last row of ``activation``."""
        return self._weights.tokens @ _norm(activation[-1], self._weights.norm, self._epsilon)


class _Layer:
    """Attention, then a gated hidden layer; each is normalized before and after, and added to its input."""

    def __init__(self, config: ModelConfig, weights: LayerWeights, *, is_global: bool) -> None:
        self._config = config
        self._weights = weights
        self._window = config.positions_max if is_global else min(config.window, config.positions_max)
        self._frequencies = frequencies(config, is_global=is_global)

    def forward(self, activation: Array, cache: LayerCache) -> Array:
        w, epsilon = self._weights, self._config.norm_epsilon
        read = self._attend(_norm(activation, w.attention_norm, epsilon), cache)
        activation = activation + _norm(read, w.after_attention_norm, epsilon)
        x = _norm(activation, w.hidden_norm, epsilon)
        hidden = _gelu(x @ w.gate.T) * (x @ w.up.T)
        return activation + _norm(hidden @ w.down.T, w.after_hidden_norm, epsilon)

    def _attend(self, x: Array, cache: LayerCache) -> Array:
        """Return what each row reads from the positions up to its own. A key head serves several queries."""
        config, w = self._config, self._weights
        count, start = len(x), cache.length
        angles = np.arange(start, start + count, dtype=np.float32)[:, None, None] * self._frequencies
        cosine, sine = np.cos(angles), np.sin(angles)
        query = (x @ w.query.T).reshape(count, config.heads, config.head_width)
        query = _rotated(_norm(query, w.query_norm, config.norm_epsilon), cosine, sine)
        key = (x @ w.key.T).reshape(count, config.kv_heads, config.head_width)
        key = _rotated(_norm(key, w.key_norm, config.norm_epsilon), cosine, sine)
        value = (x @ w.value.T).reshape(count, config.kv_heads, config.head_width)
        keys, values = cache.append(key.transpose(1, 0, 2), value.transpose(1, 0, 2))

        first = max(0, start + 1 - self._window)
        keys, values = keys[:, None, first:], values[:, None, first:]
        grouped = query.transpose(1, 0, 2).reshape(config.kv_heads, -1, count, config.head_width)
        scores = grouped @ keys.swapaxes(-1, -2) * np.float32(config.head_width**-0.5)
        if count > 1:
            scores = np.where(self._visible(first, start, count), scores, np.float32(-np.inf))
        read = _softmax(scores) @ values
        joined: Array = read.reshape(config.heads, count, -1).transpose(1, 0, 2).reshape(count, -1)
        return joined @ w.output.T

    def _visible(self, first: int, start: int, count: int) -> NDArray[np.bool_]:
        own = np.arange(start, start + count)[:, None]
        other = np.arange(first, start + count)[None, :]
        return (other <= own) & (other > own - self._window)


def frequencies(config: ModelConfig, *, is_global: bool) -> Array:
    """Return by how much each pair of a head turns from one position to the next, in radians."""
    base = config.rope_base if is_global else config.rope_base_local
    pairs = np.arange(0, config.head_width, 2, dtype=np.float64) / config.head_width
    return (base**-pairs).astype(np.float32)


def _grown(array: Array, positions: int) -> Array:
    capacity = array.shape[1]
    while capacity < positions:
        capacity *= 2
    larger = np.empty((array.shape[0], capacity, array.shape[2]), np.float32)
    larger[:, : array.shape[1]] = array
    return larger


def _norm(x: Array, weight: Array, epsilon: float) -> Array:
    root: Array = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon))
    normed: Array = x / root * weight
    return normed


def _rotated(x: Array, cosine: Array, sine: Array) -> Array:
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    return np.concatenate((low * cosine - high * sine, high * cosine + low * sine), axis=-1)


def _gelu(x: Array) -> Array:
    opened: Array = 1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x))
    return np.float32(0.5) * x * opened


def _softmax(scores: Array) -> Array:
    raised: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Array = raised / raised.sum(axis=-1, keepdims=True)
    return shares
