"""What the watch on the transport tells membership about this node's own tunnel."""

import msgspec

from swactor import parse_node_id
from swactor.cluster.membership import TunnelSeen
from swactor.cluster.paths import LOOK_PERIOD_S, PathWatch
from swactor.cluster.transport import (
    ConnType,
    FactSource,
    PathFacts,
    TransportFacts,
    TunnelFacts,
    TunnelStatus,
)
from swactor.cluster.transport.memory import MemoryHub, MemoryTransport

from .conftest import Collector, World

NEAR, FAR = (parse_node_id(digit * 64) for digit in "ab")


class StatedTransport(MemoryTransport):
    """A transport whose facts about its tunnel and its paths are stated by the test."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub, NEAR)
        self.status = TunnelStatus.CONNECTED
        self.conn_type = ConnType.RELAY

    def facts(self) -> TransportFacts:
        """See `Transport.facts`."""
        return msgspec.structs.replace(
            super().facts(),
            tunnel=TunnelFacts("http://relay.example/", self.status, FactSource.DERIVED),
            peers=(PathFacts(FAR, self.conn_type, FactSource.DERIVED),),
        )


async def test_membership_hears_of_the_tunnel_at_the_start_and_at_every_change(world: World) -> None:
    node = await world.node(1)
    transport = StatedTransport(world.hub)
    membership = Collector()
    membership_ref = await node.system.spawn(membership)
    await node.system.spawn(PathWatch(transport, membership_ref))
    changes = [
        (TunnelStatus.CONNECTED, ConnType.RELAY),
        (TunnelStatus.DISCONNECTED, ConnType.RELAY),
        (TunnelStatus.DISCONNECTED, ConnType.DIRECT),
        (TunnelStatus.CONNECTED, ConnType.DIRECT),
        (TunnelStatus.CONNECTED, ConnType.RELAY),  # The silence of FAR is excused from here on.
    ]

    for transport.status, transport.conn_type in changes:
        await world.run_for(3 * LOOK_PERIOD_S)

    direct = frozenset({FAR})
    assert membership.messages == [
        TunnelSeen(False, frozenset()),
        TunnelSeen(True, frozenset()),
        TunnelSeen(True, direct),
        TunnelSeen(False, direct),
        TunnelSeen(False, frozenset()),
    ]


async def test_a_watch_that_starts_while_the_tunnel_is_down_says_so(world: World) -> None:
    node = await world.node(1)
    transport = StatedTransport(world.hub)
    transport.status = TunnelStatus.DISCONNECTED
    membership = Collector()
    membership_ref = await node.system.spawn(membership)

    await node.system.spawn(PathWatch(transport, membership_ref))
    await world.run_for(LOOK_PERIOD_S / 2)

    assert membership.messages == [TunnelSeen(True, frozenset())]
