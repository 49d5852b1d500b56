"""Which claim wins, and how often a claim is told."""

import itertools

import pytest

from swactor import NodeId
from swactor.cluster.claims import (
    Claim,
    Rumours,
    SwimKind,
    SwimMessage,
    decode_swim,
    encode_swim,
    precedence,
)
from swactor.cluster.events import MemberState
from swactor.cluster.wire import WireError

ALIVE, SUSPECT, DEAD = MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEAD
ONE, TWO = NodeId("1" * 64), NodeId("2" * 64)
NEWER_WINS_AT_EQUAL_INCARNATION = {(ALIVE, SUSPECT), (ALIVE, DEAD), (SUSPECT, DEAD)}


@pytest.mark.parametrize(("held", "heard"), list(itertools.product((ALIVE, SUSPECT, DEAD), repeat=2)))
@pytest.mark.parametrize("heard_incarnation", [4, 5, 6])
def test_higher_incarnation_wins_then_dead_over_suspect_over_alive(
    held: MemberState, heard: MemberState, heard_incarnation: int
) -> None:
    wins = precedence(1, heard_incarnation, heard) > precedence(1, 5, held)

    if heard_incarnation == 5:
        assert wins == ((held, heard) in NEWER_WINS_AT_EQUAL_INCARNATION)
    else:
        assert wins == (heard_incarnation > 5)


def test_a_newer_life_wins_over_any_incarnation() -> None:
    assert precedence(2, 0, ALIVE) > precedence(1, 100, DEAD)


def test_each_claim_is_told_a_bounded_number_of_times() -> None:
    rumours = Rumours()
    rumours.add(Claim(ONE, 1, 0, DEAD))

    told = [rumours.take(8, times_max=3) for _ in range(5)]

    assert [len(claims) for claims in told] == [1, 1, 1, 0, 0]


def test_the_least_told_claim_goes_first_and_room_is_kept() -> None:
    rumours = Rumours()
    rumours.add(Claim(ONE, 1, 0, DEAD))
    rumours.take(1, times_max=9)
    rumours.add(Claim(TWO, 1, 0, ALIVE))

    assert [claim.node for claim in rumours.take(1, times_max=9)] == [TWO]


def test_a_newer_claim_replaces_what_was_told_about_the_node() -> None:
    rumours = Rumours()
    rumours.add(Claim(ONE, 1, 0, DEAD))
    rumours.add(Claim(ONE, 1, 1, ALIVE))

    assert rumours.take(8, times_max=9) == (Claim(ONE, 1, 1, ALIVE),)


def test_a_ping_without_gossip_is_tiny() -> None:
    ping = SwimMessage(SwimKind.PING, 1_700_000_000_000, 3, 77)

    assert len(encode_swim(ping)) < 20
    assert decode_swim(encode_swim(ping)) == ping


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"{}",
        encode_swim(SwimMessage(SwimKind.PING, 1, -1)),
        encode_swim(SwimMessage(SwimKind.PING, 1, 1, 1, NodeId("zz"))),
        encode_swim(SwimMessage(SwimKind.PING, 1, 1, claims=(Claim(ONE, 1, 1, MemberState.UNKNOWN),))),
        encode_swim(SwimMessage(SwimKind.PING, 1, 1, claims=(Claim(ONE, 1, 1, ALIVE),) * 300)),
    ],
)
def test_what_is_no_swim_message_is_an_error(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_swim(body)
