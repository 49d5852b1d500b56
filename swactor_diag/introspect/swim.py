"""The member table of this node: snapshot block ``swim``, from the cluster's view. Emits no events.

Our failure detector counts in milliseconds, so one tick of the original's fields is one (``tick_ms``).
"""

from msgspec import UNSET

from swactor.abc import Clock
from swactor.cluster.views import MemberView, RecentMessageView, SwimView
from swactor_diag.introspect.cluster import ClusterSurfaces, while_running
from swactor_diag.schema.cluster_blocks import SwimBlock, SwimConfig, SwimMessage, SwimPeer


class SwimIntrospector:
    """Every member as seen from here, and the last messages."""

    name = "swim"
    record = SwimBlock

    def __init__(self, cluster: ClusterSurfaces, *, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def observe(self) -> SwimBlock | None:
        """Return the current values, None while the cluster is not running."""
        swim = while_running(self._cluster.swim_view)
        if swim is None:
            return None
        return SwimBlock(
            config=_config(swim),
            self_node_id_hex=swim.self_node_id,
            self_incarnation=swim.self_incarnation,
            self_boot=swim.self_boot,
            peers=tuple(_peer(member) for member in sorted(swim.members, key=lambda member: member.peer)),
            recent_messages=tuple(_message(message) for message in swim.recent_messages),
            self_health=swim.self_health,
            anomalies=swim.anomalies,
            scraped_at_ms=self._clock.wall_ms(),
        )


def _config(swim: SwimView) -> SwimConfig:
    return SwimConfig(
        probe_interval_ticks=swim.config.probe_period_ms,
        probe_timeout_ticks=swim.config.probe_timeout_ms,
        suspicion_timeout_ticks=swim.config.suspicion_timeout_ms,
        indirect_probes_k=swim.config.indirect_probes,
        dead_reprobe_interval_ticks=swim.config.dead_reprobe_period_ms,
        gossip_fanout_lambda=swim.config.gossip_lambda,
        max_piggyback=swim.config.piggyback_max,
        probe_mode="periodic",
        tick_ms=1,
    )


def _peer(member: MemberView) -> SwimPeer:
    pinged, acked, heard = (
        member.last_ping_sent_at_ms,
        member.last_ack_received_at_ms,
        member.last_ping_received_at_ms,
    )
    suspected_at_ms = member.suspect_started_at_ms
    return SwimPeer(
        peer_node_id_hex=member.peer,
        state=member.state.value,
        incarnation=member.incarnation,
        last_ping_sent_at_ms=UNSET if pinged is None else pinged,
        last_ack_received_at_ms=UNSET if acked is None else acked,
        last_ping_received_at_ms=UNSET if heard is None else heard,
        suspect_started_at_ms=UNSET if suspected_at_ms is None else suspected_at_ms,
        boot=member.boot,
        since_ms=member.since_ms,
    )


def _message(message: RecentMessageView) -> SwimMessage:
    return SwimMessage(
        kind=message.kind.label,
        peer_node_id_hex=message.peer,
        at_ms=message.at_ms,
        sequence=message.sequence,
    )
