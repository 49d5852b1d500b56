"""Random streams: values are pinned, streams are independent, bounds hold."""

import pytest

from sim.streams import SimRandom, Substream


def test_values_are_pinned() -> None:
    stream = Substream(1, "link", "stage-0", "relay")

    assert [stream.u64() for _ in range(3)] == [
        7349556109970597066,
        3609267285054227686,
        14657885180525071801,
    ]
    assert Substream(1, "x").token(12).hex() == "b0c4380ba2313974973e77bc"
    assert [Substream(2, "x").below(1000) for _ in range(2)] == [521, 521]


def test_a_key_is_its_parts_and_not_their_concatenation() -> None:
    assert Substream(1, "ab", "c").u64() != Substream(1, "a", "bc").u64()
    assert Substream(1, "a").u64() != Substream(1, "a", "").u64()


def test_equal_keys_give_equal_streams_and_draws_do_not_shift_others() -> None:
    random = SimRandom(7)
    other_before = random.stream("other").u64()
    busy = random.stream("busy")
    for _ in range(1_000):
        busy.u64()

    assert random.stream("other").u64() == other_before
    assert random.stream("busy").u64() == SimRandom(7).stream("busy").u64()
    assert SimRandom(8).stream("other").u64() != other_before


def test_a_family_below_a_key_is_that_key_in_front() -> None:
    assert SimRandom(1, "a").below_key("b").stream("c").u64() == SimRandom(1).stream("a", "b", "c").u64()


def test_below_stays_below_and_reaches_everything() -> None:
    stream = Substream(3, "dice")

    assert {stream.below(6) for _ in range(200)} == set(range(6))
    assert stream.below(1) == 0


@pytest.mark.parametrize("bound", [0, -1, (1 << 64) + 1])
def test_a_bound_outside_the_range_is_refused(bound: int) -> None:
    with pytest.raises(ValueError, match="bound must be"):
        Substream(1).below(bound)


@pytest.mark.parametrize("n_bytes", [0, 1, 8, 9, 32])
def test_a_token_has_the_length_asked_for(n_bytes: int) -> None:
    assert len(Substream(1).token(n_bytes)) == n_bytes
