"""The actor that looks at the transport once a second and reports what has changed.

Owns: telling membership when this node moved, if its tunnel is down and who is reached without it; events
about the tunnel, the home relay and the paths to peers, unless the transport reports them itself
(`TransportFacts.reports_changes`).
Not here: how a transport knows (``transport``). A value that merely is sits in `ClusterView.transport`.
"""

import msgspec

from swactor import Actor, ActorRef, Context, NodeId
from swactor.cluster.events import IrohConnTypeChanged, RelayChanged, RelaySessionStateChanged
from swactor.cluster.membership import MembershipMessage, Moved, TunnelSeen
from swactor.cluster.transport import ConnType, Transport, TransportFacts, TunnelFacts, TunnelStatus

LOOK_PERIOD_S = 1.0
_DIRECT = frozenset({ConnType.DIRECT, ConnType.MIXED})


class Look(msgspec.Struct, frozen=True):
    """Time to look."""


class PathWatch(Actor[Look]):
    """See the module."""

    def __init__(self, transport: Transport, membership: ActorRef[MembershipMessage]) -> None:
        self._transport = transport
        self._membership = membership
        self._facts = transport.facts()
        self._conn_types: dict[NodeId, ConnType] = {}
        self._told: TunnelSeen | None = None

    def on_start(self, ctx: Context[Look]) -> None:
        """Report what is there already, and look again every second."""
        if not self._facts.reports_changes:
            self._compare_tunnel(ctx, None, self._facts.tunnel)
        self._tell_tunnel(self._facts)
        ctx.send_every(LOOK_PERIOD_S, Look())

    def on_message(self, ctx: Context[Look], message: Look) -> None:
        """Look, compare, report."""
        del message
        before, now = self._facts, self._transport.facts()
        self._tell_tunnel(now)
        if now == before:
            return
        self._facts = now
        if now.local_address != before.local_address:
            self._membership.tell(Moved(now.local_address))
        if now.reports_changes:
            return
        if now.home_relay_url != before.home_relay_url:
            ctx.emit(RelayChanged(old_url=before.home_relay_url, new_url=now.home_relay_url))
        self._compare_tunnel(ctx, before.tunnel, now.tunnel)
        self._compare_peers(ctx, now)

    def _tell_tunnel(self, now: TransportFacts) -> None:
        """Tell membership unless it knows; with the tunnel up too, as others still have to come back then."""
        direct = frozenset(path.peer for path in now.peers if path.conn_type in _DIRECT)
        seen = TunnelSeen(now.tunnel_is_down, direct)
        if seen != self._told:
            self._told = seen
            self._membership.tell(seen)

    def _compare_tunnel(
        self, ctx: Context[Look], before: TunnelFacts | None, now: TunnelFacts | None
    ) -> None:
        old = TunnelStatus.UNKNOWN if before is None else before.status
        new = TunnelStatus.UNKNOWN if now is None else now.status
        url = now.relay_url if now is not None else None if before is None else before.relay_url
        if old is not new:
            ctx.emit(RelaySessionStateChanged(relay_url=url, from_status=old, to_status=new))
        elif before is not None and now is not None and _flapped(before, now):
            between = TunnelStatus.DISCONNECTED
            if new is TunnelStatus.CONNECTED:
                reason = "changed and changed back between two looks"
                for step in ((new, between), (between, new)):
                    ctx.emit(
                        RelaySessionStateChanged(
                            relay_url=url, from_status=step[0], to_status=step[1], reason=reason
                        )
                    )

    def _compare_peers(self, ctx: Context[Look], now: TransportFacts) -> None:
        for path in now.peers:
            old = self._conn_types.get(path.peer, ConnType.NONE)
            if path.conn_type is not old:
                self._conn_types[path.peer] = path.conn_type
                ctx.emit(IrohConnTypeChanged(peer=path.peer, old=old, new=path.conn_type))
        for peer in self._conn_types.keys() - {path.peer for path in now.peers}:
            del self._conn_types[peer]


def _flapped(before: TunnelFacts, now: TunnelFacts) -> bool:
    return now.status_changed_at_ms != before.status_changed_at_ms
