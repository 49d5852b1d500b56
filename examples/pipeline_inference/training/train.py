"""What a training of the small model does: batches, the optimizer, the schedule, the file that is written.

How to run it, and when its result is the same byte for byte, is said in `__main__`.
"""

import hashlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.pipeline_inference.model.config import SMALL
from examples.pipeline_inference.model.small import END
from examples.pipeline_inference.training.differentiation import Array, Variable
from examples.pipeline_inference.training.network import fresh_weights, surprise

SEED = 8
STEPS = 900
WARM_UP = 60
RATE = 4e-3
BATCH = 32
DECAY = 0.02
CORPUS = Path(__file__).with_name("corpus.txt")


class Adam:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self._weights = weights
        self._mean = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self._square = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self._step = 0

    def update(self, gradients: dict[str, Array], rate: float) -> None:
        """Change the weights in place; gradients longer than 1, taken together, are shortened to 1."""
        self._step += 1
        length = np.sqrt(sum(float(np.sum(gradient * gradient)) for gradient in gradients.values()))
        shorten = np.float32(min(1.0, 1.0 / (length + 1e-6)))
        for name, raw in gradients.items():
            gradient = raw * shorten
            self._mean[name] += np.float32(0.1) * (gradient - self._mean[name])
            self._square[name] += np.float32(0.02) * (gradient * gradient - self._square[name])
            mean = self._mean[name] / np.float32(1 - 0.9**self._step)
            square = self._square[name] / np.float32(1 - 0.98**self._step)
            weight = self._weights[name]
            if weight.ndim > 1:
                weight *= np.float32(1 - rate * DECAY)
            weight -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(1e-8))


def rate_at(step: int) -> float:
    """Return the learning rate: up in a line, then down along a cosine to a fiftieth."""
    if step < WARM_UP:
        return RATE * (step + 1) / WARM_UP
    done = (step - WARM_UP) / (STEPS - WARM_UP)
    return RATE * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def batch_of(lines: list[str], random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return some lines as bytes, each with its end, padded; and which of the bytes are to be learned.

    Most questions are learned with their answers. One that was asked strangely is only to be answered.
    """
    words = [word for line in lines for word in line.split()]
    rows = []
    for at in random.permutation(len(lines))[:BATCH]:
        question, answer = parts_of(lines[at])
        asked = varied(question, words, random)
        rows.append((asked.encode(), answer.encode(), asked == question))
    length = max(len(asked_bytes) + len(answer_bytes) for asked_bytes, answer_bytes, _ in rows)
    tokens = np.full((len(rows), length + 1), END, np.int64)
    counts = np.zeros((len(rows), length), dtype=bool)
    for at, (asked_bytes, answer_bytes, is_plain) in enumerate(rows):
        end = len(asked_bytes) + len(answer_bytes)
        tokens[at, :end] = list(asked_bytes + answer_bytes)
        counts[at, 0 if is_plain else len(asked_bytes) - 1 : end] = True
    return tokens, counts


def parts_of(line: str) -> tuple[str, str]:
    """Return the question, or the first words, and how the line goes on; a blank begins the second part."""
    ends = [line.find(mark) + len(mark) for mark in ("?", ".") if f"{mark} " in line]
    end = min(ends) if ends else line.find(" ", 20)
    return line[:end], line[end:]


def varied(question: str, words: list[str], random: np.random.Generator) -> str:
    """Return ``question``, often as people type it: no capital, no question mark, a word or two astray."""
    if random.random() < 0.5:
        return question
    found = question.split()
    for _ in range(random.integers(0, 3)):
        at = int(random.integers(0, len(found)))
        match random.integers(0, 3):
            case 0 if len(found) > 2:
                del found[at]
            case 1:
                found[at] = words[random.integers(0, len(words))]
            case _:
                found.insert(at, words[random.integers(0, len(words))])
    text = " ".join(found)
    if random.random() < 0.3:
        text = text.lower()
    return text.rstrip("?.") if random.random() < 0.3 else text


class Training:
    """The weights on their way, from the seed; each `step` takes the next batch."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(SEED)
        self._lines = CORPUS.read_text(encoding="utf-8").splitlines()
        self.weights = fresh_weights(SMALL, self._random)
        self._optimizer = Adam(self.weights)
        self.steps = 0

    def step(self) -> float:
        """Learn from one batch; return its loss before that."""
        tokens, counts = batch_of(self._lines, self._random)
        variables = {name: Variable(weight) for name, weight in self.weights.items()}
        loss, tape = surprise(SMALL, variables, tokens, counts)
        tape.back()
        gradients = {name: variable.gradient for name, variable in variables.items()}
        self._optimizer.update(gradients, rate_at(self.steps))
        self.steps += 1
        return loss

    def save(self, path: Path) -> None:
        """Write the weights, in half precision."""
        halves: dict[str, Any] = {name: weight.astype(np.float16) for name, weight in self.weights.items()}
        np.savez(path, **halves)

    def digest(self) -> str:
        """Return what stands for every bit of the weights."""
        found = hashlib.sha256()
        for name in sorted(self.weights):
            found.update(self.weights[name].tobytes())
        return found.hexdigest()


def train(path: Path) -> None:
    """Train from the seed, tell of progress on standard error, write the weights."""
    training = Training()
    for step in range(STEPS):
        loss = training.step()
        if step % 25 == 0 or step == STEPS - 1:
            sys.stderr.write(f"step {step:5d}  loss {loss:.4f}\n")
            sys.stderr.flush()
    training.save(path)


def try_out(steps: int) -> None:
    """Train a few steps from the seed and print the loss of each and a digest; write nothing."""
    training = Training()
    for step in range(steps):
        sys.stdout.write(f"step {step}  loss {training.step():.6f}\n")
    sys.stdout.write(f"weights {training.digest()} NumPy {np.__version__}\n")
