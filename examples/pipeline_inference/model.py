"""A very small language model whose layers can be cut over any number of stages.

Owns: the vocabulary, the layers, and how a slice of layers turns a hidden state into the next.
Not here: where the slices run (`worker`), how states travel (`stage`).

Layer ``n`` has counted, in a text, which character follows each run of ``n`` characters. To predict, every
layer adds its votes, longer runs weighing more, and the last stage takes the character with the most votes:
greedy decoding of an additive back-off model (Chen and Goodman 1999, without the smoothing). All integers, so
that every machine and every cut of the layers gives the same answer.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

LAYERS = 12
"""Longest run of characters that a layer looks back on; layers are numbered from 1."""
END = "\n"
"""The character that ends an answer."""
_SHARE = 1 << 16
"""The votes one layer has to give away, before its weight."""


class Hidden(msgspec.Struct, frozen=True, array_like=True):
    """What passes from stage to stage for one position: the recent characters and the votes so far."""

    context: list[int]
    votes: list[int]


@dataclass(frozen=True)
class Vocabulary:
    """The characters that the model knows, in a fixed order; a token is an index into it."""

    characters: str

    def encode(self, text: str) -> list[int]:
        """Return ``text`` as tokens; a character that the model does not know becomes a blank."""
        blank = self.characters.index(" ")
        known = {character: token for token, character in enumerate(self.characters)}
        return [known.get(character, blank) for character in text]

    def decode(self, token: int) -> str:
        """Return the character of a token."""
        return self.characters[token]


class ModelSlice:
    """The consecutive layers that one stage computes."""

    def __init__(self, text: str, layers: Sequence[int]) -> None:
        self.vocabulary = Vocabulary("".join(sorted(set(text))))
        self.layers = tuple(layers)
        tokens = self.vocabulary.encode(text)
        self._counts = {layer: _count(tokens, layer) for layer in layers}

    @classmethod
    def load(cls, stage: int, stage_count: int) -> "ModelSlice":
        """Return the slice of stage ``stage`` of ``stage_count``, counted from the text beside this file."""
        text = Path(__file__).with_name("corpus.txt").read_text(encoding="utf-8")
        return cls(text, layers_of(stage, stage_count))

    def embed(self, tokens: Sequence[int]) -> Hidden:
        """Return the hidden state before the first layer, after all ``tokens``."""
        return Hidden(context=list(tokens[-LAYERS:]), votes=[0] * len(self.vocabulary.characters))

    def forward(self, hidden: Hidden) -> Hidden:
        """Add the votes of these layers."""
        votes = list(hidden.votes)
        for layer in self.layers:
            followers = self._counts[layer].get(tuple(hidden.context[-layer:]))
            if followers is None or len(hidden.context) < layer:
                continue
            total = followers.total()
            for token, count in followers.items():
                votes[token] += (_SHARE * count // total) << (2 * layer)
        return Hidden(context=hidden.context, votes=votes)

    def sample(self, hidden: Hidden) -> int:
        """Return the token with the most votes, the smallest one on a tie."""
        return max(range(len(hidden.votes)), key=lambda token: (hidden.votes[token], -token))


def layers_of(stage: int, stage_count: int) -> range:
    """Return the layers of stage ``stage``: an even share of all of them, in order.

    Raises:
        ValueError: there are fewer layers than stages, or no such stage.
    """
    if not 1 <= stage_count <= LAYERS:
        raise ValueError(
            f"the model has {LAYERS} layers, it can be cut into 1 to {LAYERS} stages, not {stage_count}"
        )
    if not 0 <= stage < stage_count:
        raise ValueError(f"stage {stage} of {stage_count} does not exist")
    bounds = [1 + LAYERS * cut // stage_count for cut in range(stage_count + 1)]
    first, end = list(pairwise(bounds))[stage]
    return range(first, end)


def _count(tokens: Sequence[int], layer: int) -> dict[tuple[int, ...], Counter[int]]:
    """Return which token follows each run of ``layer`` tokens, and how often."""
    counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for position in range(layer, len(tokens)):
        run = tuple(tokens[position - layer : position])
        counts[run][tokens[position]] += 1
    return counts


def answer(prompt: str, *, tokens_max: int, stage_count: int = 1) -> str:
    """Return what the model answers, computed in this process: the reference that a pipeline must equal."""
    slices = [ModelSlice.load(stage, stage_count) for stage in range(stage_count)]
    first, last = slices[0], slices[-1]
    tokens = first.vocabulary.encode(prompt)
    text = ""
    while len(text) < tokens_max:
        hidden = first.embed(tokens)
        for part in slices:
            hidden = part.forward(hidden)
        token = last.sample(hidden)
        if last.vocabulary.decode(token) == END:
            break
        tokens.append(token)
        text += last.vocabulary.decode(token)
    return text
