"""Reverse-mode differentiation of the few operations that the model is made of, in NumPy.

Owns: `Tape`, on which each operation leaves how a gradient goes back through it.
Not here: the model (`network`), its optimizer (`train`). The arithmetic is that of `model.transformer`, for
whole batches: arrays are ``(batch, position, ...)`` and keep the type of what they are made from.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


class Variable:
    """A value, and the gradient of the loss with respect to it."""

    def __init__(self, value: Array) -> None:
        self.value = value
        self.gradient = np.zeros_like(value)


class Tape:
    """Operations in the order in which they were done; `back` goes through them in reverse."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def back(self) -> None:
        """Add the gradient of the loss to each variable that it depends on."""
        for step in reversed(self._steps):
            step()

    def embed(self, table: Variable, tokens: NDArray[np.integer], *, scale: float) -> Variable:
        """Return the rows of ``table`` for ``tokens``, times ``scale``."""
        out = Variable(table.value[tokens] * scale)
        self._steps.append(lambda: np.add.at(table.gradient, tokens, out.gradient * scale))
        return out

    def add(self, left: Variable, right: Variable) -> Variable:
        """Return the sum."""
        out = Variable(left.value + right.value)

        def back() -> None:
            left.gradient += out.gradient
            right.gradient += out.gradient

        self._steps.append(back)
        return out

    def linear(self, x: Variable, weight: Variable) -> Variable:
        """Return ``x`` times ``weight`` transposed: a weight has one row for each output."""
        rows = x.value.reshape(-1, x.value.shape[-1])
        out = Variable((rows @ weight.value.T).reshape(*x.value.shape[:-1], -1))

        def back() -> None:
            gradient = out.gradient.reshape(len(rows), -1)
            x.gradient += (gradient @ weight.value).reshape(x.value.shape)
            weight.gradient += gradient.T @ rows

        self._steps.append(back)
        return out

    def norm(self, x: Variable, weight: Variable, *, epsilon: float) -> Variable:
        """Return ``x`` divided by its root mean square, times ``weight`` (Zhang and Sennrich 2019)."""
        inverse = 1 / np.sqrt(np.mean(x.value * x.value, axis=-1, keepdims=True) + epsilon)
        unit = x.value * inverse
        out = Variable(unit * weight.value)

        def back() -> None:
            weight.gradient += (out.gradient * unit).reshape(-1, unit.shape[-1]).sum(axis=0)
            direct = out.gradient * weight.value
            x.gradient += inverse * (direct - unit * np.mean(direct * unit, axis=-1, keepdims=True))

        self._steps.append(back)
        return out

    def heads(self, x: Variable, count: int) -> Variable:
        """Return ``x`` with its last axis split into ``count`` heads."""
        out = Variable(x.value.reshape(*x.value.shape[:-1], count, -1))

        def back() -> None:
            x.gradient += out.gradient.reshape(x.value.shape)

        self._steps.append(back)
        return out

    def rotate(self, x: Variable, cosine: Array, sine: Array) -> Variable:
        """Return the heads of ``x`` turned by the angles of their positions (Su and others 2021)."""
        out = Variable(_rotated(x.value, cosine, sine))

        def back() -> None:
            x.gradient += _rotated(out.gradient, cosine, -sine)

        self._steps.append(back)
        return out

    def attend(self, query: Variable, key: Variable, value: Variable) -> Variable:
        """Return what each position reads from those up to itself; a key head serves several queries."""
        batch, length, heads, width = query.value.shape
        kv_heads = key.value.shape[2]
        shape = (batch, length, kv_heads, heads // kv_heads, width)
        q = query.value.reshape(shape).transpose(0, 2, 3, 1, 4)
        k = key.value.transpose(0, 2, 1, 3)[:, :, None]
        v = value.value.transpose(0, 2, 1, 3)[:, :, None]
        scale = width**-0.5
        scores = q @ k.swapaxes(-1, -2) * scale
        scores[..., np.triu(np.ones((length, length), dtype=bool), 1)] = -np.inf
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        read = weights @ v
        out = Variable(read.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads * width))

        def back() -> None:
            gradient = out.gradient.reshape(shape).transpose(0, 2, 3, 1, 4)
            wanted = gradient @ v.swapaxes(-1, -2)
            wanted = weights * (wanted - (wanted * weights).sum(axis=-1, keepdims=True)) * scale
            query.gradient += (wanted @ k).transpose(0, 3, 1, 2, 4).reshape(query.value.shape)
            key.gradient += (wanted.swapaxes(-1, -2) @ q).sum(axis=2).transpose(0, 2, 1, 3)
            value.gradient += (weights.swapaxes(-1, -2) @ gradient).sum(axis=2).transpose(0, 2, 1, 3)

        self._steps.append(back)
        return out

    def gate(self, gate: Variable, up: Variable) -> Variable:
        """Return ``gelu(gate) * up``, with the tanh form of the GELU (Hendrycks and Gimpel 2016)."""
        x = gate.value
        inner = np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))
        open_ = 0.5 * x * (1 + inner)
        out = Variable(open_ * up.value)

        def back() -> None:
            slope = 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * 0.7978845608 * (1 + 0.134145 * x * x)
            gate.gradient += out.gradient * up.value * slope
            up.gradient += out.gradient * open_

        self._steps.append(back)
        return out

    def loss(self, logits: Variable, targets: NDArray[np.integer], counts: NDArray[np.bool_]) -> float:
        """Return the mean surprise, in nats, at the ``targets`` that count; the root of `back`."""
        shifted = logits.value - logits.value.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        picked = np.take_along_axis(shifted - log_sum, targets[..., None], axis=-1)[..., 0]
        total = counts.sum()

        def back() -> None:
            gradient = np.exp(shifted - log_sum)
            hit = np.take_along_axis(gradient, targets[..., None], axis=-1) - 1
            np.put_along_axis(gradient, targets[..., None], hit, axis=-1)
            logits.gradient += gradient * (counts / total)[..., None].astype(gradient.dtype)

        self._steps.append(back)
        return float(-(picked * counts).sum() / total)


def _rotated(x: Array, cosine: Array, sine: Array) -> Array:
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    return np.concatenate((low * cosine - high * sine, high * cosine + low * sine), axis=-1)
