"""Whose silence is excused while a node's own tunnel is down, and for how long afterwards."""

import pytest

from swactor import NodeId, parse_node_id
from swactor.cluster.cutoff import PATIENCE_NS, RETURN_NS_MAX, CutOff

RELAYED, DIRECT = (parse_node_id(digit * 64) for digit in "ab")
S = 1_000_000_000


def cut_off_at(second: int, *direct: NodeId) -> CutOff:
    cut_off = CutOff()
    cut_off.look(is_down=True, direct=frozenset(direct), now_ns=second * S)
    return cut_off


def test_with_a_tunnel_nobody_is_excused() -> None:
    cut_off = CutOff()
    cut_off.look(is_down=False, direct=frozenset(), now_ns=100 * S)

    assert not cut_off.excuses(RELAYED, 100 * S)


def test_without_one_only_those_are_judged_that_are_reached_directly() -> None:
    cut_off = cut_off_at(100, DIRECT)

    assert cut_off.excuses(RELAYED, 101 * S)
    assert not cut_off.excuses(DIRECT, 101 * S)


def test_it_is_no_excuse_for_ever() -> None:
    cut_off = cut_off_at(100)
    cut_off.look(is_down=True, direct=frozenset(), now_ns=130 * S)

    assert cut_off.excuses(RELAYED, 100 * S + PATIENCE_NS - 1)
    assert not cut_off.excuses(RELAYED, 100 * S + PATIENCE_NS)


@pytest.mark.parametrize(("outage_s", "excused_s"), [(2, 2), (50, RETURN_NS_MAX // S)])
def test_others_have_as_long_to_come_back_as_the_outage_was_up_to_a_limit(
    outage_s: int, excused_s: int
) -> None:
    cut_off = cut_off_at(100)
    back_ns = (100 + outage_s) * S
    for look_ns in (back_ns, back_ns + S):  # The second one changes nothing.
        cut_off.look(is_down=False, direct=frozenset(), now_ns=look_ns)

    assert cut_off.excuses(RELAYED, back_ns + excused_s * S - 1)
    assert not cut_off.excuses(RELAYED, back_ns + excused_s * S)


def test_a_tunnel_that_flaps_is_one_outage_with_one_patience() -> None:
    cut_off = CutOff()
    for start_s in range(0, 300, 25):  # 15 s without a tunnel, 10 s with one.
        for is_down, second in ((True, start_s), (False, start_s + 15)):
            cut_off.look(is_down=is_down, direct=frozenset(), now_ns=second * S)

    cut_off.look(is_down=True, direct=frozenset(), now_ns=300 * S)

    assert not cut_off.excuses(RELAYED, 301 * S)


def test_the_second_of_two_outages_has_what_the_first_left_of_the_patience() -> None:
    cut_off = cut_off_at(100)
    cut_off.look(is_down=False, direct=frozenset(), now_ns=130 * S)
    cut_off.look(is_down=True, direct=frozenset(), now_ns=140 * S)

    assert cut_off.excuses(RELAYED, 100 * S + PATIENCE_NS - 1)
    assert not cut_off.excuses(RELAYED, 100 * S + PATIENCE_NS)


def test_after_a_whole_return_the_next_outage_has_a_patience_of_its_own() -> None:
    cut_off = cut_off_at(100)
    cut_off.look(is_down=False, direct=frozenset(), now_ns=130 * S)
    cut_off.look(is_down=True, direct=frozenset(), now_ns=130 * S + RETURN_NS_MAX)

    assert cut_off.excuses(RELAYED, 130 * S + RETURN_NS_MAX + PATIENCE_NS - 1)
