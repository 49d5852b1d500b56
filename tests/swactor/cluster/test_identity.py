"""Keys and the node ids that belong to them."""

import pytest

from sim.streams import SimRandom
from swactor.cluster.identity import NodeKey


def test_a_key_has_the_node_id_that_the_standard_says() -> None:
    # RFC 8032, section 7.1, test 1
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")

    assert NodeKey(secret).node_id == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def test_the_text_of_a_key_does_not_show_the_secret() -> None:
    key = NodeKey(b"\x01" * 32)

    assert key.secret.hex() not in repr(key)
    assert key.node_id in repr(key)


def test_a_generated_key_follows_its_random_stream() -> None:
    assert (
        NodeKey.generate(SimRandom(1).stream("key")).node_id
        == NodeKey.generate(SimRandom(1).stream("key")).node_id
    )


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        NodeKey(b"short")
