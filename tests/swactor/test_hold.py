"""How long the tasks of asynchronous actors may hold the event loop, by a clock that the test moves."""

from swactor._runqueue import (
    BATCH_MESSAGES,
    DRAIN_BUDGET_NS,
    FAST_BATCH_MESSAGES,
    FAST_MESSAGE_NS,
    HOLD_BATCHES,
    Hold,
)


def test_a_hold_ends_when_its_budget_is_spent() -> None:
    hold = Hold()
    assert not hold.ends(1, 1_000)
    assert not hold.ends(1, 1_000 + DRAIN_BUDGET_NS - 1)
    assert hold.ends(1, 1_000 + DRAIN_BUDGET_NS)
    assert not hold.ends(1, 1_000 + DRAIN_BUDGET_NS), "the next hold has a budget of its own"


def test_a_hold_ends_after_so_many_batches_while_the_clock_stands_still() -> None:
    hold = Hold()
    assert [hold.ends(1, 5) for _ in range(2 * HOLD_BATCHES)].count(True) == 2


def test_batches_are_long_only_while_messages_are_fast() -> None:
    """A long batch of slow messages would keep others waiting far beyond the budget."""
    hold, now_ns = Hold(), 10**12
    sizes = [hold.batch_max]
    for message_ns in (FAST_MESSAGE_NS - 1, FAST_MESSAGE_NS - 1, FAST_MESSAGE_NS, FAST_MESSAGE_NS - 1):
        now_ns += message_ns * hold.batch_max
        hold.ends(hold.batch_max, now_ns)
        sizes.append(hold.batch_max)
    short, long = BATCH_MESSAGES, FAST_BATCH_MESSAGES
    assert sizes == [short, short, long, short, long], "nothing is known of the first batch"
