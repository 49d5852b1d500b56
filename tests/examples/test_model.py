"""The models: however they are cut, the same bits; and what training computes is what the workers compute."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec import structs

from examples.pipeline_inference.model import catalog, small
from examples.pipeline_inference.model.config import (
    SMALL,
    STAGES_MAX,
    Cut,
    ModelConfig,
    ModelName,
    Role,
    Sampling,
)
from examples.pipeline_inference.model.gemma import CONFIG as GEMMA
from examples.pipeline_inference.model.slices import ModelSlice, Sampler
from examples.pipeline_inference.model.transformer import Layers, LayerWeights
from examples.pipeline_inference.training.differentiation import Variable
from examples.pipeline_inference.training.network import fresh_weights, surprise
from examples.pipeline_inference.training.train import CORPUS, parts_of

PROMPTS = ("What is an actor?", "Who killed the worker", "zzz \N{SNOWMAN}", "T")
WHOLE = catalog.load(ModelName.SMALL, Cut(0, 1))
TINY = ModelConfig(
    layers=2, width=8, heads=4, kv_heads=2, head_width=4, hidden=12, vocabulary=10, positions_max=64
)


def tokens_of_slices(slices: Sequence[ModelSlice], prompt: str, *, tokens_max: int) -> list[int]:
    """Answer ``prompt`` as a pipeline does: through one slice after the other."""
    first, last = slices[0], slices[-1]
    assert first.tokenizer is not None
    assert first.embedding is not None
    assert last.head is not None
    caches = [slice_.layers.new_cache() for slice_ in slices]
    tokens, sampler = first.tokenizer.encode(prompt), Sampler(Sampling())
    found: list[int] = []
    while len(found) < tokens_max:
        activation = first.embedding.rows(tokens)
        for slice_, cache in zip(slices, caches, strict=True):
            activation = slice_.layers.forward(activation, cache)
        tokens = [sampler.take(last.head.logits(activation))]
        if first.tokenizer.is_end(tokens[0]):
            break
        found += tokens
    return found


@pytest.mark.parametrize("stage_count", range(2, STAGES_MAX + 1))
def test_every_cut_gives_the_tokens_of_the_whole(stage_count: int) -> None:
    slices = [catalog.load(ModelName.SMALL, Cut(stage, stage_count)) for stage in range(stage_count)]
    for prompt in PROMPTS:
        expected = list(catalog.generate(WHOLE, prompt, tokens_max=40))
        assert tokens_of_slices(slices, prompt, tokens_max=40) == expected


def test_it_answers_what_it_was_trained_on_word_for_word() -> None:
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    for line in lines[::10]:
        question, answer = parts_of(line)
        assert catalog.answer(WHOLE, question, tokens_max=130) == answer


def test_the_weights_are_small_enough_to_be_shipped() -> None:
    assert small.WEIGHTS.stat().st_size <= 2_000_000


@pytest.mark.parametrize("config", [SMALL, GEMMA], ids=["small", "gemma"])
@pytest.mark.parametrize("count", range(1, STAGES_MAX + 1))
def test_each_layer_is_in_exactly_one_stage_and_no_stage_is_without(config: ModelConfig, count: int) -> None:
    shares = [Cut(stage, count).layers(config) for stage in range(count)]
    assert [layer for share in shares for layer in share] == list(range(config.layers))
    assert all(shares)


def test_a_heavy_head_leaves_the_last_stage_few_layers() -> None:
    assert [len(Cut(stage, 3).layers(GEMMA)) for stage in range(3)] == [8, 9, 1]
    assert [len(Cut(stage, 3).layers(SMALL)) for stage in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(("stage", "count"), [(0, 0), (0, STAGES_MAX + 1), (3, 3), (-1, 2)])
def test_a_cut_that_cannot_be_is_refused(stage: int, count: int) -> None:
    with pytest.raises(ValueError, match="stage"):
        Cut(stage, count)


def test_a_stage_has_what_its_role_needs_and_nothing_else() -> None:
    slices = [catalog.load(ModelName.SMALL, Cut(stage, 3)) for stage in range(3)]
    assert [Cut(stage, 3).role for stage in range(3)] == [Role.FIRST, Role.MIDDLE, Role.LAST]
    assert [slice_.embedding is not None for slice_ in slices] == [True, False, False]
    assert [slice_.head is not None for slice_ in slices] == [False, False, True]
    assert [slice_.tokenizer is not None for slice_ in slices] == [True, False, True]


def test_loading_tells_of_each_layer() -> None:
    heard: list[tuple[int, int]] = []
    small.load(Cut(0, 3), lambda loaded, layers: heard.append((loaded, layers)))
    assert heard == [(1, 2), (2, 2)]


def test_a_prompt_in_pieces_gives_what_the_prompt_at_once_gives_in_single_precision() -> None:
    """A stray float64 would cost a factor of ten in speed."""
    assert WHOLE.embedding is not None
    rows = WHOLE.embedding.rows(list(b"What is a flight recorder?"))
    at_once = WHOLE.layers.forward(rows, WHOLE.layers.new_cache())
    cache = WHOLE.layers.new_cache()
    in_pieces = np.concatenate([WHOLE.layers.forward(rows[at : at + 5], cache) for at in range(0, 26, 5)])
    assert at_once.dtype == in_pieces.dtype == np.float32
    np.testing.assert_allclose(in_pieces, at_once, rtol=1e-3, atol=1e-4)


def test_a_layer_with_a_window_forgets_what_lies_before_it() -> None:
    random = np.random.default_rng(1)
    near = structs.replace(TINY, layers=1, window=3, global_every=2)
    weights = fresh_weights(near, random)
    layer = LayerWeights(
        **{part: weights[small.layer_name(0, part)].astype(np.float32) for part in small.LAYER_PARTS}
    )
    rows = random.standard_normal((9, 8)).astype(np.float32)
    other = rows.copy()
    other[0] += 1  # eight positions before the last one
    layers = Layers(near, {0: layer})
    cache, other_cache = layers.new_cache(), layers.new_cache()
    out, other_out = layers.forward(rows, cache), layers.forward(other, other_cache)
    assert not np.allclose(out[2], other_out[2])
    np.testing.assert_array_equal(out[3:], other_out[3:])
    after = layers.forward(rows[:1], cache)
    np.testing.assert_array_equal(after, layers.forward(rows[:1], other_cache))


def test_sampling_with_one_seed_takes_the_same_tokens_and_other_seeds_take_others() -> None:
    def sampled(seed: int) -> list[int]:
        sampling = Sampling(temperature=2.0, top=40, seed=seed)
        return list(catalog.generate(WHOLE, "What is love?", tokens_max=30, sampling=sampling))

    assert sampled(1) == sampled(1)
    assert len({tuple(sampled(seed)) for seed in range(4)}) > 1


def test_sampling_draws_from_the_best_tokens_only_and_greedily_takes_the_first_of_equals() -> None:
    logits = np.array([1.0, 5.0, 5.0, -2.0, 4.9], np.float32)
    assert Sampler(Sampling()).take(logits) == 1
    drawn = Sampler(Sampling(temperature=10.0, top=3, seed=5))
    assert {drawn.take(logits) for _ in range(200)} == {1, 2, 4}


def test_every_gradient_is_the_slope_that_a_small_step_shows() -> None:
    random = np.random.default_rng(0)
    weights = {
        name: weight + 0.1 * random.standard_normal(weight.shape)
        for name, weight in fresh_weights(TINY, random).items()
    }
    tokens, counts = random.integers(0, 10, (3, 7)), random.random((3, 6)) < 0.8
    variables = {name: Variable(weight) for name, weight in weights.items()}
    _, tape = surprise(TINY, variables, tokens, counts)
    tape.back()

    def loss() -> float:
        found, _ = surprise(
            TINY, {name: Variable(weight) for name, weight in weights.items()}, tokens, counts
        )
        return found

    for name, weight in weights.items():
        at = tuple(random.integers(0, size) for size in weight.shape)
        value = weight[at]
        weight[at] = value + 1e-6
        above = loss()
        weight[at] = value - 1e-6
        slope = (above - loss()) / 2e-6
        weight[at] = value
        assert variables[name].gradient[at] == pytest.approx(slope, rel=1e-4, abs=1e-7), name


def test_training_computes_what_the_workers_compute() -> None:
    line = b"What is a peer? A peer is another node, as it is seen from here.\n"
    with np.load(small.WEIGHTS) as file:
        variables = {name: Variable(file[name].astype(np.float32)) for name in file.files}
    tokens = np.array([list(line)])
    loss, _ = surprise(SMALL, variables, tokens, np.ones((1, len(line) - 1), dtype=bool))
    assert WHOLE.embedding is not None
    assert WHOLE.head is not None
    cache, total = WHOLE.layers.new_cache(), 0.0
    for byte, following in pairwise(line):
        logits = WHOLE.head.logits(WHOLE.layers.forward(WHOLE.embedding.rows([byte]), cache))
        highest = np.max(logits)
        total += float(np.log(np.exp(logits - highest).sum()) + highest - logits[following])
    assert total / (len(line) - 1) == pytest.approx(loss, rel=1e-3)
