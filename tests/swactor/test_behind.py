"""What runs behind a callback."""

from collections.abc import Callable

import pytest

from swactor._behind import BEHIND_MAX_S, Behind


class Bench:
    """A clock that the test moves, and the callbacks that wait for the next turn of the loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.ran: list[str] = []
        self.behind = Behind(time_s=lambda: self.now_s, call_soon=self.soon.append)

    def say(self, text: str) -> Callable[[], None]:
        return lambda: self.ran.append(text)

    def turn(self) -> None:
        soon, self.soon[:] = self.soon[:], []
        for callback in soon:
            callback()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_added_meanwhile_runs_behind_it_in_order_and_nothing_later(bench: Bench) -> None:
    def callback() -> None:
        assert bench.behind.add(bench.say("first"))
        assert bench.behind.add(bench.say("second"))
        bench.ran.append("callback")

    assert not bench.behind.add(bench.say("nothing is under way"))
    bench.behind.run(callback)

    assert bench.ran == ["callback", "first", "second"]
    assert not bench.behind.add(bench.say("nothing is under way"))
    assert bench.soon == []


def test_it_runs_also_when_the_callback_raises(bench: Bench) -> None:
    def callback() -> None:
        bench.behind.add(bench.say("behind"))
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        bench.behind.run(callback)

    assert bench.ran == ["behind"]


def test_one_that_raises_keeps_none_of_the_others_from_running(bench: Bench) -> None:
    def broken() -> None:
        raise ValueError("a defect")

    def callback() -> None:
        bench.behind.add(broken)
        bench.behind.add(bench.say("behind it"))

    with pytest.raises(ValueError, match="a defect"):
        bench.behind.run(callback)
    bench.turn()

    assert bench.ran == ["behind it"]


def test_what_takes_long_leaves_the_loop_its_chance(bench: Bench) -> None:
    """Many descriptors may be ready at once, and behind each of them there may be much to do."""
    taken: list[bool] = []

    def takes(seconds: float) -> Callable[[], None]:
        def work() -> None:
            bench.now_s += seconds

        return lambda: taken.append(bench.behind.add(work))

    for _ in range(4):
        bench.behind.run(takes(0.6 * BEHIND_MAX_S))
    assert taken == [True, True, False, False]

    bench.turn()
    bench.behind.run(takes(0.0))
    assert taken[-1]
