"""The memory transport keeps the rules of the seam."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from swactor import NodeId
from swactor.cluster.testing import TRANSPORT_CHECKS, Check, TransportPair
from swactor.cluster.transport import PeerAddress

from .conftest import World

ONE, TWO, NOBODY = (PeerAddress(NodeId(digit * 64)) for digit in "120")


@pytest.mark.parametrize("check", TRANSPORT_CHECKS, ids=lambda check: check.__name__)
async def test_the_memory_transport_keeps_the_rules(check: Check, world: World) -> None:
    @asynccontextmanager
    async def make_pair() -> AsyncIterator[TransportPair]:
        one, other = world.hub.transport(ONE.node_id), world.hub.transport(TWO.node_id)
        yield TransportPair(
            loop=world.hub.loop,
            one=one,
            other=other,
            other_address=lambda: TWO,
            stranger=NOBODY,
        )
        await one.close()
        await other.close()

    await check(make_pair)
