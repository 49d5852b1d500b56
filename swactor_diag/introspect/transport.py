"""The transport of this node: snapshot block ``iroh``, from the cluster's view. The cluster emits the events.

What the library cannot be asked for is absent and named in ``api_gaps``; a derived value says so beside it.
The same names are in one event at the start, ``Custom`` of kind ``iroh_api_missing``, as the original has it.
"""

from collections.abc import Sequence

from msgspec import UNSET

from swactor import Event
from swactor.abc import Clock
from swactor.cluster import ConnectionView
from swactor.cluster.transport import AddressUse, PathFacts, TransportCounter, TransportFacts, TunnelFacts
from swactor_diag.introspect.cluster import ClusterSurfaces, while_running
from swactor_diag.schema.cluster_blocks import (
    AddressUsage,
    CachedConnection,
    IrohBlock,
    Metric,
    MetricValue,
    PeerPath,
    RelaySession,
)
from swactor_diag.schema.events import IROH_API_MISSING, Custom


class TransportIntrospector:
    """Tunnel, paths, counters and the connection cache."""

    name = "iroh"
    record = IrohBlock

    def __init__(self, cluster: ClusterSurfaces, *, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._events: list[Event] = []
        self._has_named_gaps = False

    def take_events(self) -> Sequence[Event]:
        """Return what the library lacks, once per boot."""
        events, self._events = self._events, []
        return events

    def observe(self) -> IrohBlock | None:
        """Return the current values, None while the cluster is not running."""
        links = while_running(self._cluster.links_view)
        if links is None:
            return None
        facts = links.transport
        self._name_gaps(facts)
        return IrohBlock(
            home_relay_url=facts.home_relay_url or UNSET,
            peers=tuple(_path(path) for path in sorted(facts.peers, key=lambda path: path.peer)),
            metrics=tuple(_metric(counter) for counter in facts.counters),
            connection_cache=tuple(_cached(connection, facts) for connection in links.connections),
            api_gaps=facts.api_gaps,
            iroh_version=dict(facts.versions).get("iroh", UNSET),
            relay_session=UNSET if facts.tunnel is None else _tunnel(facts.tunnel),
            transport=facts.transport,
            connections_refused=links.refused,
            inbound_dropped=links.dropped,
            scraped_at_ms=self._clock.wall_ms(),
        )

    def _name_gaps(self, facts: TransportFacts) -> None:
        version = dict(facts.versions).get("iroh")
        if self._has_named_gaps or version is None or not facts.api_gaps:
            return
        self._has_named_gaps = True
        fields: dict[str, object] = {
            "iroh_version": version,
            "fields": list(facts.api_gaps),
            "note": "the linked library cannot be asked for these: absent means not asked, not zero",
        }
        self._events.append(Custom(kind=IROH_API_MISSING, fields=fields))


def _path(path: PathFacts) -> PeerPath:
    return PeerPath(
        peer_node_id_hex=path.peer,
        conn_type=path.conn_type.value,
        conn_type_source=path.conn_type_source.value,
        latency_ms=UNSET if path.rtt_ms is None else path.rtt_ms,
        last_used_ms=UNSET if path.last_used_at_ms is None else path.last_used_at_ms,
        last_received_ms=UNSET if path.last_received_at_ms is None else path.last_received_at_ms,
        tx_bytes=UNSET if path.tx_bytes is None else path.tx_bytes,
        rx_bytes=UNSET if path.rx_bytes is None else path.rx_bytes,
        direct_addresses=tuple(_usage(address) for address in path.direct_addresses),
        relay_urls=tuple(_usage(address) for address in path.relay_urls),
    )


def _usage(address: AddressUse) -> AddressUsage:
    return AddressUsage(addr=address.addr, usage="active" if address.active else "inactive")


def _metric(counter: TransportCounter) -> Metric:
    return Metric(
        group=counter.group, name=counter.name, value=MetricValue(type="Counter", value=counter.value)
    )


def _cached(connection: ConnectionView, facts: TransportFacts) -> CachedConnection:
    path = next((path for path in facts.peers if path.peer == connection.peer), None)
    sent_at_ms, failed_at_ms = connection.last_successful_send_at_ms, connection.last_failure_at_ms
    return CachedConnection(
        peer_node_id_hex=connection.peer,
        generation=connection.generation,
        created_at_ms=UNSET if connection.created_at_ms is None else connection.created_at_ms,
        last_successful_send_at_ms=UNSET if sent_at_ms is None else sent_at_ms,
        last_failure_at_ms=UNSET if failed_at_ms is None else failed_at_ms,
        last_failure_reason=connection.last_failure_reason or UNSET,
        observed_conn_type_at_last_use=UNSET if path is None else path.conn_type.value,
        is_up=connection.is_up,
        frames_waiting=connection.frames_waiting,
        bytes_unacknowledged=connection.bytes_unacknowledged,
    )


def _tunnel(tunnel: TunnelFacts) -> RelaySession:
    changed_at_ms = tunnel.status_changed_at_ms
    return RelaySession(
        relay_url=tunnel.relay_url,
        status=tunnel.status.value,
        status_source=tunnel.status_source.value,
        status_changed_at_ms=UNSET if changed_at_ms is None else changed_at_ms,
        status_entered_at_ms=UNSET if changed_at_ms is None else changed_at_ms,
        last_send_at_ms=UNSET if tunnel.last_send_at_ms is None else tunnel.last_send_at_ms,
        last_recv_at_ms=UNSET if tunnel.last_recv_at_ms is None else tunnel.last_recv_at_ms,
        tx_bytes_total=UNSET if tunnel.tx_bytes_total is None else tunnel.tx_bytes_total,
        rx_bytes_total=UNSET if tunnel.rx_bytes_total is None else tunnel.rx_bytes_total,
    )
