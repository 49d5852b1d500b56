"""Transport, member table and names, as a cluster's view shows them."""

from typing import NoReturn

from msgspec import UNSET

from swactor import NodeId, parse_node_id
from swactor.abc import Clock
from swactor.cluster import (
    ClusterNotRunningError,
    ConnectionView,
    LinksView,
    MemberState,
    MemberView,
    NamesView,
    SwimConfig,
    SwimView,
)
from swactor.cluster.claims import SwimKind
from swactor.cluster.names import Entry
from swactor.cluster.transport import (
    AddressUse,
    ConnType,
    FactSource,
    PathFacts,
    PeerAddress,
    TransportCounter,
    TransportFacts,
    TunnelFacts,
    TunnelStatus,
)
from swactor.cluster.views import RecentMessageView
from swactor_diag.introspect.registry import RegistryIntrospector
from swactor_diag.introspect.swim import SwimIntrospector
from swactor_diag.introspect.transport import TransportIntrospector
from swactor_diag.schema.cluster_blocks import RelaySession

ME, PEER = parse_node_id("aa" * 32), parse_node_id("bb" * 32)


def member(peer: NodeId) -> MemberView:
    return MemberView(
        peer=peer,
        state=MemberState.SUSPECT,
        boot=9,
        incarnation=4,
        since_ms=5,
        address=PeerAddress(peer),
        suspect_started_at_ms=5,
    )


class Running:
    """A cluster of two, frozen."""

    def __init__(self, *, tunnel: TunnelFacts | None = None) -> None:
        self._tunnel = tunnel

    def swim_view(self) -> SwimView:
        return SwimView(
            config=SwimConfig(),
            self_node_id=ME,
            self_boot=1,
            self_incarnation=2,
            self_health=0,
            members=(member(PEER),),
            recent_messages=(RecentMessageView(SwimKind.PING, PEER, 3, 8),),
            anomalies=0,
        )

    def names_view(self) -> NamesView:
        return NamesView(
            (Entry("stage-0", PEER, 1, "/stage", 3, 1, 12), Entry("gone", PEER, 1, "/x", 4, 1, 13, True)), 14
        )

    def links_view(self) -> LinksView:
        facts = TransportFacts(
            transport="iroh",
            local_address=PeerAddress(ME),
            home_relay_url="https://relay",
            tunnel=self._tunnel,
            peers=(
                PathFacts(
                    peer=PEER,
                    conn_type=ConnType.RELAY,
                    conn_type_source=FactSource.DERIVED,
                    relay_urls=(AddressUse("https://relay", active=True),),
                ),
            ),
            counters=(TransportCounter("socket", "recv", 7),),
            versions=(("iroh", "1.2.3"),),
            api_gaps=("RelayTunnel.status",),
        )
        lost = ConnectionView(
            PEER, is_up=False, generation=2, last_failure_at_ms=6, last_failure_reason="lost"
        )
        return LinksView(connections=(lost,), transport=facts, refused=(("proof", 1),), dropped=())


class Stopped:
    """A cluster that does not run."""

    def swim_view(self) -> NoReturn:
        raise ClusterNotRunningError("the cluster is not running")

    names_view = links_view = swim_view


def test_the_transport_with_what_it_cannot_be_asked_for(clock: Clock) -> None:
    block = TransportIntrospector(Running(), clock=clock).observe()
    assert block is not None
    (path,) = block.peers
    assert (path.conn_type, path.conn_type_source, path.latency_ms) == ("Relay", "derived", UNSET)
    assert (block.iroh_version, block.api_gaps) == ("1.2.3", ("RelayTunnel.status",))
    assert block.relay_session is UNSET
    (cached,) = block.connection_cache
    assert (cached.generation, cached.last_failure_reason, cached.is_up) == (2, "lost", False)
    assert cached.observed_conn_type_at_last_use == "Relay"
    assert block.metrics[0].value.value == 7


def test_the_tunnel_is_told_apart_from_the_paths_and_says_who_says_so(clock: Clock) -> None:
    tunnel = TunnelFacts("https://relay", TunnelStatus.UNKNOWN, FactSource.DERIVED)
    block = TransportIntrospector(Running(tunnel=tunnel), clock=clock).observe()
    assert block is not None
    assert isinstance(block.relay_session, RelaySession)
    assert (block.relay_session.status, block.relay_session.status_source) == ("unknown", "derived")
    assert (block.relay_session.tx_bytes_total, block.relay_session.last_send_at_ms) == (UNSET, UNSET)


def test_the_member_table(clock: Clock) -> None:
    block = SwimIntrospector(Running(), clock=clock).observe()
    assert block is not None
    (peer,) = block.peers
    assert (peer.peer_node_id_hex, peer.state, peer.incarnation) == (PEER, "Suspect", 4)
    assert (peer.suspect_started_at_ms, peer.last_ping_sent_at_ms) == (5, UNSET)
    assert (block.recent_messages[0].kind, block.self_node_id_hex) == ("ping", ME)


def test_the_names_with_their_tombstones(clock: Clock) -> None:
    block = RegistryIntrospector(Running(), clock=clock).observe()
    assert block is not None
    assert [(entry.name, entry.is_tombstone) for entry in block.entries] == [
        ("stage-0", False),
        ("gone", True),
    ]
    assert (block.tombstone_count, block.clock, block.entries[0].actor) == (1, 14, "/stage#3")


def test_a_cluster_that_does_not_run_is_no_data(clock: Clock) -> None:
    assert TransportIntrospector(Stopped(), clock=clock).observe() is None
    assert SwimIntrospector(Stopped(), clock=clock).observe() is None
    assert RegistryIntrospector(Stopped(), clock=clock).observe() is None
