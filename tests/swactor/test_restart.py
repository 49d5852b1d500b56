"""The decisions of a supervisor, as pure functions: each combination against what is written here by hand."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swactor import Backoff, ExitKind, ExitReason, RestartBudget, RestartKind, Strategy
from swactor._restart import RestartHistory, affected, wants_restart

S = 1_000_000_000
"""Nanoseconds in a second."""

COMES_BACK = {
    (RestartKind.PERMANENT, ExitKind.COMPLETED),
    (RestartKind.PERMANENT, ExitKind.FAILED),
    (RestartKind.PERMANENT, ExitKind.KILLED),
    (RestartKind.PERMANENT, ExitKind.NODE_DOWN),
    (RestartKind.TRANSIENT, ExitKind.FAILED),
    (RestartKind.TRANSIENT, ExitKind.KILLED),
    (RestartKind.TRANSIENT, ExitKind.NODE_DOWN),
}
"""Of all combinations these and no others are restarted."""

TOGETHER = {
    (Strategy.ONE_FOR_ONE, "a"): "a",
    (Strategy.ONE_FOR_ONE, "b"): "b",
    (Strategy.ONE_FOR_ONE, "c"): "c",
    (Strategy.ONE_FOR_ALL, "a"): "abc",
    (Strategy.ONE_FOR_ALL, "b"): "abc",
    (Strategy.ONE_FOR_ALL, "c"): "abc",
    (Strategy.REST_FOR_ONE, "a"): "abc",
    (Strategy.REST_FOR_ONE, "b"): "bc",
    (Strategy.REST_FOR_ONE, "c"): "c",
}
"""Who of a, b, c is restarted when one of them is."""


@pytest.mark.parametrize("more", [{}, {"error": ValueError()}, {"value": "result"}], ids=str)
def test_kind_and_end_alone_decide_whether_a_child_comes_back(more: dict[str, Any]) -> None:
    all_ways = itertools.product(RestartKind, ExitKind)
    assert {
        (kind, end) for kind, end in all_ways if wants_restart(kind, ExitReason(end, **more))
    } == COMES_BACK


def test_the_strategy_decides_who_comes_back_with_it() -> None:
    children = {"a": 1, "b": 2, "c": 3}  # a supervisor hands over what it holds them in
    all_ways = itertools.product(Strategy, children)
    assert {(way, ended): "".join(affected(way, children, ended)) for way, ended in all_ways} == TOGETHER


# -- backoff ---------------------------------------------------------------------------------------------


def test_a_delay_doubles_up_to_its_limit() -> None:
    backoff = Backoff(first_s=0.5, limit_s=5.0, jitter=0.0)
    assert [backoff.delay_s(attempt, 0.0) for attempt in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_no_attempt_is_too_late_for_a_delay() -> None:
    assert Backoff(first_s=1e-9, limit_s=30.0, jitter=0.0).delay_s(1_000_000, 0.0) == 30.0


def test_a_first_delay_above_the_limit_is_the_limit() -> None:
    assert Backoff(first_s=10.0, limit_s=1.0, jitter=0.0).delay_s(0, 0.0) == 1.0


@given(
    first_s=st.floats(0.001, 60.0),
    limit_s=st.floats(0.001, 600.0),
    jitter=st.floats(0.0, 1.0),
    attempt=st.integers(0, 100),
    draw=st.floats(0.0, 1.0, exclude_max=True),
)
def test_jitter_takes_off_its_share_at_most(
    first_s: float, limit_s: float, jitter: float, attempt: int, draw: float
) -> None:
    full_s = Backoff(first_s, limit_s, jitter=0.0).delay_s(attempt, draw)
    delay_s = Backoff(first_s, limit_s, jitter).delay_s(attempt, draw)
    assert full_s * (1.0 - jitter) - 1e-9 <= delay_s <= full_s <= limit_s
    assert Backoff(first_s, limit_s, jitter).delay_s(attempt, 0.0) == full_s


# -- budget ----------------------------------------------------------------------------------------------


def test_the_restart_after_the_last_one_allowed_is_refused() -> None:
    history = RestartHistory(RestartBudget(restarts_max=3, period_s=10.0))
    assert [history.admit("a", second * S, None) for second in range(5)] == [0, 1, 2, None, None]


def test_a_budget_of_nothing_refuses_the_first() -> None:
    assert RestartHistory(RestartBudget(restarts_max=0)).admit("a", 0, None) is None


def test_a_restart_counts_until_it_is_as_old_as_the_period() -> None:
    history = RestartHistory(RestartBudget(restarts_max=2, period_s=10.0))
    assert history.admit("a", 0, None) == 0
    assert history.admit("a", 4 * S, None) == 1
    assert history.admit("a", 10 * S - 1, None) is None
    assert history.admit("a", 10 * S, None) == 1  # the first is out of the period, the second still in
    assert history.admit("a", 14 * S - 1, None) is None
    assert history.admit("a", 14 * S, None) == 1


def test_after_a_quiet_period_the_count_begins_again() -> None:
    history = RestartHistory(RestartBudget(restarts_max=5, period_s=10.0))
    assert [history.admit("a", second * S, None) for second in (0, 1, 2)] == [0, 1, 2]
    assert history.admit("a", 12 * S, None) == 0


def test_each_child_is_counted_by_itself_but_all_spend_one_budget() -> None:
    history = RestartHistory(RestartBudget(restarts_max=4, period_s=10.0))
    assert [history.admit(child, 0, None) for child in "aabaa"] == [0, 1, 0, 2, None]


@given(
    restarts_max=st.integers(0, 5),
    period_s=st.integers(1, 20),
    failures=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 15)), max_size=40),
)
def test_no_period_ever_sees_more_restarts_than_the_budget(
    restarts_max: int, period_s: int, failures: list[tuple[str, int]]
) -> None:
    history = RestartHistory(RestartBudget(restarts_max, float(period_s)))
    admitted: list[tuple[str, int]] = []
    now_s = 0
    for child, pause_s in failures:
        now_s += pause_s
        recent = [earlier for earlier, then_s in admitted if now_s - then_s < period_s]
        number = history.admit(child, now_s * S, None)
        assert number == (recent.count(child) if len(recent) < restarts_max else None)
        if number is not None:
            admitted.append((child, now_s))


# -- the story -------------------------------------------------------------------------------------------


def test_the_story_of_one_failure_is_that_failure() -> None:
    history = RestartHistory(RestartBudget(restarts_max=0))
    error = ValueError("only")
    assert history.story(error) is error


def test_the_story_of_several_failures_is_a_group_in_order() -> None:
    history = RestartHistory(RestartBudget(restarts_max=2))
    errors = [ValueError("first"), KeyError("second"), OSError("last")]
    history.admit("a", 0, errors[0])
    history.admit("a", 1, errors[1])
    assert history.admit("a", 2, errors[2]) is None
    story = history.story(errors[2])
    assert isinstance(story, ExceptionGroup)
    assert list(story.exceptions) == errors


def test_what_is_older_than_the_period_is_no_part_of_the_story() -> None:
    history = RestartHistory(RestartBudget(restarts_max=1, period_s=10.0))
    history.admit("a", 0, ValueError("long ago"))
    recent, last = ValueError("recent"), ValueError("last")
    assert history.admit("a", 11 * S, recent) == 0
    assert history.admit("a", 12 * S, last) is None
    story = history.story(last)
    assert isinstance(story, ExceptionGroup)
    assert list(story.exceptions) == [recent, last]


def test_ends_without_an_error_are_restarts_but_no_part_of_the_story() -> None:
    history = RestartHistory(RestartBudget(restarts_max=2))
    error = ValueError("only")
    history.admit("a", 0, None)
    history.admit("a", 1, error)
    assert history.admit("a", 2, None) is None
    assert history.story(None) is error
    assert RestartHistory(RestartBudget()).story(None) is None


def test_a_long_story_tells_the_latest_failures() -> None:
    history = RestartHistory(RestartBudget(restarts_max=100, period_s=60.0))
    errors = [RuntimeError(str(number)) for number in range(40)]
    for number, error in enumerate(errors):
        history.admit("a", number, error)
    story = history.story(RuntimeError("last"))
    assert isinstance(story, ExceptionGroup)
    assert [str(error) for error in story.exceptions] == [str(number) for number in range(24, 40)] + ["last"]
