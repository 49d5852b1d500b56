"""Whatever a client sends, and however far it got: it ends its own session at most.

``fuzz.py`` beside this file does the same for as long as one likes, led by what the inputs reach.
"""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from swactor.relay import RelayConfig, RelaySessionClosed
from swactor.relay.server import RelayServer
from swactor.relay.testing import RelayClient, RelayEvents

from .attack import Stage, attack, framed

BYSTANDER_SEED = 1
BYSTANDER = Ed25519PrivateKey.from_private_bytes(BYSTANDER_SEED.to_bytes(32, "big")).public_key()

frames = st.one_of(
    st.binary(max_size=120),
    st.builds(
        lambda kind, key, rest: bytes([kind]) + key + rest,
        st.integers(0, 15),
        st.sampled_from([bytes(32), b"\xff" * 32, BYSTANDER.public_bytes_raw()]),
        st.binary(max_size=40),
    ),
    st.sampled_from([66_000, 70_000]).map(bytes),
)
heads = st.sampled_from([0x82, 0x82, 0x82, 0x81, 0x02, 0x00, 0x80, 0x88, 0x89, 0x8A, 0x83, 0xC2, 0xF2])
pieces = st.one_of(st.binary(max_size=200), st.builds(lambda p, h: framed(p, head=h), frames, heads))
"""Raw bytes, or messages of every kind: text, fragments, closes, pings, reserved and compressed ones."""


async def run_attack(stage: Stage, sent: list[bytes]) -> None:
    events = RelayEvents()
    async with RelayServer(RelayConfig(port=0, goodbye_timeout_s=0.5), emit=events.emit) as relay:
        bystander = await RelayClient(relay.url, BYSTANDER_SEED).open()
        await attack(relay, events, bystander, stage=stage, pieces=sent)
        await bystander.drop()


@pytest.mark.parametrize("stage", list(Stage))
@settings(max_examples=100)
@given(sent=st.lists(pieces, min_size=1, max_size=8))
def test_whatever_a_client_sends_ends_only_its_own_session(stage: Stage, sent: list[bytes]) -> None:
    asyncio.run(run_attack(stage, sent))


def test_a_message_of_endless_fragments_is_not_collected() -> None:
    async def send() -> list[RelaySessionClosed]:
        events = RelayEvents()
        async with RelayServer(RelayConfig(port=0, goodbye_timeout_s=0.5), emit=events.emit) as relay:
            bystander = await RelayClient(relay.url, BYSTANDER_SEED).open()
            fragments = [framed(bytes(1000), head=0x02), *[framed(bytes(1000), head=0x00)] * 10_000]
            await attack(relay, events, bystander, stage=Stage.PROVEN, pieces=fragments)
            await bystander.drop()
        return events.of(RelaySessionClosed)

    closed = asyncio.run(send())[0]

    assert closed.close_reason == "protocol_error"
    assert "exceeds limit" in str(closed.detail)
