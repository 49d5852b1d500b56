"""What runs behind a callback."""

import pytest

from swactor._behind import Behind


def test_what_is_added_meanwhile_runs_behind_it_in_order_and_nothing_later() -> None:
    behind, ran = Behind(), list[str]()

    def callback() -> None:
        assert behind.add(lambda: ran.append("first"))
        assert behind.add(lambda: ran.append("second"))
        ran.append("callback")

    assert not behind.add(lambda: ran.append("nothing is under way"))
    behind.run(callback)

    assert ran == ["callback", "first", "second"]
    assert not behind.add(lambda: ran.append("nothing is under way"))


def test_it_runs_also_when_the_callback_raises() -> None:
    behind, ran = Behind(), list[str]()

    def callback() -> None:
        behind.add(lambda: ran.append("behind"))
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        behind.run(callback)

    assert ran == ["behind"]
