"""From looks at connections to how a peer is reached."""

import pytest

from swactor import NodeId
from swactor.cluster.events import IrohConnTypeChanged
from swactor.cluster.transport import ConnType
from swactor.cluster.transport._base import AddressUse
from swactor.cluster.transport._iroh_peers import (
    ADDRESSES_MAX,
    PEERS_MAX,
    ConnectionLook,
    PathLook,
    PeerLedger,
)

PEER = NodeId("ab" * 32)
DIRECT = PathLook("10.0.0.2:4000", is_relay=False, is_selected=True, rtt_ms=3)
RELAYED = PathLook("http://relay.example/", is_relay=True, is_selected=False, rtt_ms=40)


@pytest.mark.parametrize(
    ("paths", "conn_type"),
    [((DIRECT,), ConnType.DIRECT), ((RELAYED,), ConnType.RELAY), ((RELAYED, DIRECT), ConnType.MIXED)],
)
def test_open_paths_decide_the_connection_type(paths: tuple[PathLook, ...], conn_type: ConnType) -> None:
    peers = PeerLedger()

    events = peers.observe(PEER, [ConnectionLook(paths)], at_ms=5)

    assert events == [IrohConnTypeChanged(peer=PEER, old=ConnType.NONE, new=conn_type)]
    assert peers.observe(PEER, [ConnectionLook(paths)], at_ms=6) == []
    assert peers.facts()[0].conn_type is conn_type


def test_a_peer_without_connection_stays_listed_with_its_addresses_and_totals() -> None:
    peers = PeerLedger()
    peers.observe(PEER, [ConnectionLook((RELAYED, DIRECT), tx_bytes=10, rx_bytes=20)], at_ms=1)
    peers.connection_ended(PEER, ConnectionLook((RELAYED, DIRECT), tx_bytes=11, rx_bytes=20))
    peers.observe(PEER, [], at_ms=2)
    peers.observe(PEER, [ConnectionLook((DIRECT,), tx_bytes=5, rx_bytes=0)], at_ms=3)
    peers.connection_ended(PEER, ConnectionLook((DIRECT,), tx_bytes=5, rx_bytes=0))
    peers.observe(PEER, [], at_ms=4)

    (facts,) = peers.facts()

    assert facts.conn_type is ConnType.NONE
    assert facts.rtt_ms is None
    assert (facts.tx_bytes, facts.rx_bytes) == (16, 20)
    assert (facts.last_used_at_ms, facts.last_received_at_ms) == (3, 1)
    assert facts.direct_addresses == (AddressUse("10.0.0.2:4000", active=False),)
    assert facts.relay_urls == (AddressUse("http://relay.example/", active=False),)


def test_the_round_trip_time_is_that_of_the_selected_path() -> None:
    peers = PeerLedger()
    peers.observe(PEER, [ConnectionLook((RELAYED, DIRECT))], at_ms=1)

    assert peers.facts()[0].rtt_ms == 3


def test_addresses_of_a_peer_are_bounded_and_the_one_in_use_stays() -> None:
    peers = PeerLedger()
    for port in range(100):
        path = PathLook(f"10.0.0.2:{port}", is_relay=False, is_selected=True, rtt_ms=0)
        peers.observe(PEER, [ConnectionLook((path,))], at_ms=port)

    addresses = peers.facts()[0].direct_addresses

    assert len(addresses) == ADDRESSES_MAX
    assert addresses[-1] == AddressUse("10.0.0.2:99", active=True)


def test_peers_are_bounded_and_connected_ones_stay() -> None:
    peers = PeerLedger()
    connected = NodeId(f"{0:064x}")
    peers.observe(connected, [ConnectionLook((DIRECT,))], at_ms=0)
    for number in range(1, PEERS_MAX + 10):
        peers.observe(NodeId(f"{number:064x}"), [], at_ms=number)

    facts = peers.facts()

    assert len(facts) == PEERS_MAX
    assert facts[0].peer == connected
