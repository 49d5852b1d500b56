"""Who is let in, and which of two connections stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swactor import NodeId
from swactor.cluster.events import RefusalReason
from swactor.cluster.handshake import HELLO_BYTES, Hello, check_hello, make_hello
from swactor.cluster.session import Inbound, Own, judge_inbound

TOKEN = b"the cluster's secret"
ONE, TWO, THREE = (NodeId(digit * 64) for digit in "123")


def test_a_hello_with_the_right_token_says_which_life_it_is() -> None:
    hello = make_hello(TOKEN, sender=ONE, receiver=TWO, boot=77)

    assert len(hello) == HELLO_BYTES
    assert check_hello(hello, TOKEN, sender=ONE, receiver=TWO) == Hello(1, 77)


@pytest.mark.parametrize(
    ("token", "sender", "receiver"),
    [(b"another secret", ONE, TWO), (TOKEN, THREE, TWO), (TOKEN, ONE, THREE), (TOKEN, TWO, ONE)],
    ids=["token", "sender", "receiver", "turned round"],
)
def test_a_hello_is_of_no_use_to_anybody_else(token: bytes, sender: NodeId, receiver: NodeId) -> None:
    hello = make_hello(TOKEN, sender=ONE, receiver=TWO, boot=77)

    assert check_hello(hello, token, sender=sender, receiver=receiver) is RefusalReason.PROOF


@given(st.integers(min_value=0, max_value=HELLO_BYTES - 1), st.integers(min_value=1, max_value=255))
def test_a_hello_with_one_byte_changed_is_refused(at: int, change: int) -> None:
    hello = bytearray(make_hello(TOKEN, sender=ONE, receiver=TWO, boot=77))
    hello[at] ^= change

    assert isinstance(check_hello(bytes(hello), TOKEN, sender=ONE, receiver=TWO), RefusalReason)


@given(st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_garbage_is_no_hello(data: bytes) -> None:
    assert isinstance(check_hello(data, TOKEN, sender=ONE, receiver=TWO), RefusalReason)


def test_of_two_dials_at_once_the_lower_ids_stays() -> None:
    assert judge_inbound(Own.DIALLING, here_is_lower=True, same_life=False) is Inbound.HOLD
    assert judge_inbound(Own.DIALLING, here_is_lower=False, same_life=False) is Inbound.ADOPT


def test_the_peers_lost_attempt_does_not_replace_a_fresh_link() -> None:
    assert judge_inbound(Own.FRESH_DIALLED, here_is_lower=True, same_life=True) is Inbound.HOLD


@pytest.mark.parametrize(
    ("own", "lower", "same_life"),
    [
        (Own.OTHER, True, True),
        (Own.OTHER, False, True),
        (Own.FRESH_DIALLED, True, False),
        (Own.NOTHING, True, False),
    ],
)
def test_otherwise_the_peer_knows_why_it_dials(own: Own, lower: bool, same_life: bool) -> None:
    assert judge_inbound(own, here_is_lower=lower, same_life=same_life) is Inbound.ADOPT
