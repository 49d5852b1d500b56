"""How large a model is, and how its layers are cut over stages. Pure, and known without NumPy.

Owns: which models there are, `ModelConfig`, the `Cut`, and how a token is to be taken.
Not here: weights and arithmetic (`transformer`), where a model's files are (`small`, `gemma`).
"""

import enum
from typing import Annotated

from msgspec import Meta, Struct

STAGES_MAX = 6


class ModelName(enum.StrEnum):
    """The models that the example can serve."""

    SMALL = "small"
    """Trained for the example on a hundred lines, and shipped with it."""
    GEMMA = "gemma3-270m"
    """Gemma 3 270M, of Google; needs ``swactor[gemma]``."""


class Sampling(Struct, frozen=True):
    """How the next token is taken: the best one at temperature 0, else drawn from the ``top`` best."""

    temperature: Annotated[float, Meta(ge=0, le=10)] = 0.0
    top: Annotated[int, Meta(ge=1)] = 40
    seed: Annotated[int, Meta(ge=0)] = 0


GREEDY = Sampling()
"""Always the best token."""


class Role(enum.StrEnum):
    """What a stage has besides its layers."""

    FIRST = "first"
    """The tokenizer and the embedding of tokens."""
    MIDDLE = "middle"
    LAST = "last"
    """The head: it turns the last activation into the next token."""


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The sizes of a transformer of the Gemma 3 family.

    Every ``global_every``-th layer looks back without limit, with ``rope_base``; the others see the last
    ``window`` positions, with ``rope_base_local``. The head costs as much as ``head_layers`` layers.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    positions_max: int
    rope_base: float = 10_000.0
    rope_base_local: float = 10_000.0
    window: int = 1 << 30
    global_every: int = 1
    norm_epsilon: float = 1e-6
    head_layers: int = 0

    def is_global(self, layer: int) -> bool:
        """Return whether ``layer``, counted from 0, looks back without limit."""
        return (layer + 1) % self.global_every == 0


SMALL = ModelConfig(
    layers=6,
    width=96,
    heads=4,
    kv_heads=2,
    head_width=24,
    hidden=256,
    vocabulary=256,
    positions_max=512,
)
"""The sizes of the small model. A token of it is a byte."""


class Cut(Struct, frozen=True):
    """One stage of a model that is cut into ``count`` stages."""

    stage: int
    count: int

    def __post_init__(self) -> None:
        """Refuse a stage that cannot be."""
        if not 1 <= self.count <= STAGES_MAX:
            raise ValueError(f"a model is cut into 1 to {STAGES_MAX} stages, not {self.count}")
        if not 0 <= self.stage < self.count:
            raise ValueError(f"stage {self.stage} of {self.count} does not exist")

    @property
    def is_first(self) -> bool:
        """Whether prompts come in here."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether tokens come out here."""
        return self.stage == self.count - 1

    @property
    def role(self) -> Role:
        """What it has besides its layers; the only stage of a model is its last one."""
        if self.is_last:
            return Role.LAST
        return Role.FIRST if self.is_first else Role.MIDDLE

    def layers(self, config: ModelConfig) -> range:
        """Return the layers of this stage: all stages together have each exactly once, in order.

        The shares cost about the same; a stage has one layer at least, so a heavy head leaves the last stage
        one layer and the others an even share of the rest.
        """
        if self.count == 1:
            return range(config.layers)
        fair = round((config.layers + config.head_layers) / self.count)
        rest = config.layers - max(1, fair - config.head_layers)
        bounds = [rest * cut // (self.count - 1) for cut in range(self.count)]
        return range(bounds[self.stage], config.layers if self.is_last else bounds[self.stage + 1])
