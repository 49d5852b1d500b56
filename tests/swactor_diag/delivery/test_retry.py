"""When nodes come back: never all at once."""

from collections import Counter

import pytest

from sim.streams import SimRandom
from swactor_diag.delivery.retry import CAP_MS, RETRY_AFTER_MAX_S, retry_delay_ms, slow_delay_ms


def test_fc055_after_an_outage_no_second_holds_more_than_a_twentieth_of_the_retries() -> None:
    retries: Counter[int] = Counter()
    for node in range(200):
        random = SimRandom(1).stream("node", str(node))
        at_ms, failures = 0, 1
        while at_ms < 120_000:
            at_ms += retry_delay_ms(failures, random)
            failures += 1
            retries[at_ms // 1000] += 1
    assert max(retries.values()) <= 0.05 * retries.total()


def test_fc055_the_first_retry_and_the_ones_at_the_cap_are_spread_too() -> None:
    random = SimRandom(1).stream("x")
    first = {retry_delay_ms(1, random) for _ in range(500)}
    late = {retry_delay_ms(60, random) for _ in range(500)}
    assert (min(first) < 100, max(first) > 4_500) == (True, True)
    assert (min(late) < CAP_MS / 10, max(late) > CAP_MS * 0.9) == (True, True)
    assert max(late) <= CAP_MS


def test_fc055_retry_after_is_a_lower_bound() -> None:
    random = SimRandom(1).stream("x")
    assert all(retry_delay_ms(1, random, retry_after_s=20) >= 20_000 for _ in range(200))


@pytest.mark.parametrize("asked_s", [1e9, float("inf")])
def test_fc055_an_absurd_retry_after_does_not_silence_a_node(asked_s: float) -> None:
    random = SimRandom(1).stream("x")
    longest_ms = 1000 * RETRY_AFTER_MAX_S + CAP_MS
    assert 300_000 <= retry_delay_ms(1, random, retry_after_s=asked_s) <= longest_ms


def test_what_a_person_must_mend_is_tried_slowly() -> None:
    random = SimRandom(1).stream("x")
    assert all(CAP_MS / 2 <= slow_delay_ms(random) <= CAP_MS for _ in range(200))
