"""A transport between systems of one process: no sockets, no latency, faults on request.

Owns: `MemoryHub`, the place where transports find each other, and its faults (cut, drop, refuse).
Not here: virtual networks with latency, loss and relays (the simulator has its own transport).

Bytes arrive on the next turn of the loop, in order.
"""

from collections.abc import Callable
from functools import partial

from swactor import NodeId
from swactor.abc import Cancellable, Loop
from swactor.cluster.transport._base import (
    DIAL_TIMEOUT_MS,
    Connection,
    ConnectionListener,
    DialFailed,
    DialResult,
    LossKind,
    LossReason,
    PeerAddress,
    TransportFacts,
)

_Pair = frozenset[NodeId]


class MemoryHub:
    """Connects the transports it has made. All faults are symmetric and last until lifted.

    ``latency_s`` is how long bytes are on their way; a close does not wait for them, as on a real network.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.latency_s = 0.0
        self._listening: dict[NodeId, MemoryTransport] = {}
        self._refusing: set[NodeId] = set()
        self._silent: set[_Pair] = set()

    def transport(self, node_id: NodeId) -> "MemoryTransport":
        """Return a transport for ``node_id``; when an older one still runs, the newer gets the dials."""
        return MemoryTransport(self, node_id)

    def refuse(self, node_id: NodeId) -> None:
        """Refuse every dial to ``node_id`` from now on."""
        self._refusing.add(node_id)

    def drop(self, one: NodeId, other: NodeId) -> None:
        """Lose every byte and every dial between the two, silently: connections stay and hear nothing."""
        self._silent.add(frozenset({one, other}))

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Break the connections between the two (`LossKind.RESET`) and, like `drop`, what comes later."""
        self.drop(one, other)
        for transport in list(self._listening.values()):
            for connection in transport.connections():
                if {transport.node_id, connection.peer} == {one, other}:
                    connection.end(LossReason(LossKind.RESET, "cut"))

    def heal(self) -> None:
        """Lift all faults. Bytes that were lost stay lost: such a connection is broken for good."""
        self._refusing.clear()
        self._silent.clear()

    def listen(self, transport: "MemoryTransport") -> None:
        """Let ``transport`` be dialled."""
        self._listening[transport.node_id] = transport

    def unlisten(self, transport: "MemoryTransport") -> None:
        """Do not let it be dialled any more."""
        if self._listening.get(transport.node_id) is transport:
            del self._listening[transport.node_id]

    def is_silent(self, one: NodeId, other: NodeId) -> bool:
        """Whether what goes between the two is lost."""
        return frozenset({one, other}) in self._silent

    def find(self, node_id: NodeId) -> "MemoryTransport | None":
        """Return who accepts dials to ``node_id``."""
        return None if node_id in self._refusing else self._listening.get(node_id)


class MemoryConnection:
    """One end of a connection; see `Connection`."""

    def __init__(self, owner: "MemoryTransport", peer: NodeId) -> None:
        self.peer = peer
        self.other: MemoryConnection | None = None
        self._owner = owner
        self._hub = owner.hub
        self._listener: ConnectionListener | None = None
        self._early: list[bytes] = []
        self._ended: LossReason | None = None
        self._broken = False

    def start(self, listener: ConnectionListener) -> None:
        """See `Connection.start`."""
        self._listener = listener
        early, self._early = self._early, []
        for data in early:
            self._hub.loop.call_soon(partial(self._hand_over, data))
        if self._ended is not None:
            self._report(self._ended)

    def write(self, data: bytes) -> None:
        """See `Connection.write`."""
        if self._ended is None:
            self._hub.loop.call_later(self._hub.latency_s, lambda: self._carry(data))

    def close(self, code: int, reason: str) -> None:
        """See `Connection.close`."""
        if self._ended is not None:
            return
        self.end(LossReason(LossKind.CLOSED_HERE, reason, code))
        other = self.other
        if other is not None and not self._hub.is_silent(self._owner.node_id, self.peer):
            told = LossReason(LossKind.CLOSED_BY_PEER, reason, code)
            self._hub.loop.call_soon(lambda: other.end(told))

    def end(self, reason: LossReason) -> None:
        """End this side only."""
        if self._ended is None:
            self._ended = reason
            self._owner.forget(self)
            if self._listener is not None:
                self._report(reason)

    def arrive(self, data: bytes) -> None:
        """Bytes of the other end."""
        if self._listener is None:
            self._early.append(data)
        else:
            self._hand_over(data)

    def _carry(self, data: bytes) -> None:
        if self._ended is not None or self._listener is None:
            return
        # once something was lost, the rest must not arrive either: it is a stream
        self._broken = self._broken or self._hub.is_silent(self._owner.node_id, self.peer)
        if self.other is not None and not self._broken:
            self.other.arrive(data)
        self._listener.written()

    def _hand_over(self, data: bytes) -> None:
        if self._ended is None and self._listener is not None:
            self._listener.received(data)

    def _report(self, reason: LossReason) -> None:
        listener = self._listener
        if listener is not None:
            self._hub.loop.call_soon(lambda: listener.lost(reason))


class _Dial:
    """A dial that can be called off."""

    def __init__(self, on_done: Callable[[Connection | DialFailed], None]) -> None:
        self._on_done: Callable[[Connection | DialFailed], None] | None = on_done

    def cancel(self) -> None:
        """Do not report."""
        self._on_done = None

    @property
    def is_open(self) -> bool:
        """Whether somebody still waits."""
        return self._on_done is not None

    def done(self, result: Connection | DialFailed) -> None:
        """Report, once."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(result)


class MemoryTransport:
    """See `Transport`; made by `MemoryHub.transport`."""

    def __init__(self, hub: MemoryHub, node_id: NodeId) -> None:
        self.hub = hub
        self.node_id = node_id
        self._on_inbound: Callable[[Connection], None] | None = None
        self._connections: dict[MemoryConnection, None] = {}
        self._gone = False

    async def start(self, on_inbound: Callable[[Connection], None]) -> None:
        """See `Transport.start`."""
        self._on_inbound = on_inbound
        self.hub.listen(self)

    def dial(self, address: PeerAddress, on_done: Callable[[Connection | DialFailed], None]) -> Cancellable:
        """See `Transport.dial`."""
        dial = _Dial(on_done)
        if self._gone or self.hub.is_silent(self.node_id, address.node_id):
            late = DialFailed(DialResult.TIMEOUT, "nobody answered")
            self.hub.loop.call_later(DIAL_TIMEOUT_MS / 1000, lambda: dial.done(late))
        else:
            self.hub.loop.call_soon(lambda: self._connect(address.node_id, dial))
        return dial

    def facts(self) -> TransportFacts:
        """See `Transport.facts`."""
        return TransportFacts(transport="memory", local_address=PeerAddress(self.node_id))

    async def close(self) -> None:
        """See `Transport.close`."""
        self.hub.unlisten(self)
        self._on_inbound = None
        for connection in self.connections():
            other = connection.other
            connection.end(LossReason(LossKind.TRANSPORT_CLOSED, "the transport was closed"))
            if other is not None and not self.hub.is_silent(self.node_id, connection.peer):
                other.end(LossReason(LossKind.CLOSED_BY_PEER, "", 0))

    def vanish(self) -> None:
        """Be gone without a word, like a killed machine: peers hear nothing of it."""
        self.hub.unlisten(self)
        self._on_inbound = None
        self._gone = True
        for connection in self.connections():
            connection.other = None
            connection.end(LossReason(LossKind.TRANSPORT_CLOSED, "vanished"))

    def connections(self) -> list[MemoryConnection]:
        """Return the connections that have not ended."""
        return list(self._connections)

    def forget(self, connection: MemoryConnection) -> None:
        """``connection`` has ended."""
        self._connections.pop(connection, None)

    def _connect(self, node_id: NodeId, dial: _Dial) -> None:
        if not dial.is_open:
            return
        other = self.hub.find(node_id)
        if other is None or other._on_inbound is None:
            dial.done(DialFailed(DialResult.REFUSED, "nobody listens"))
            return
        here, there = MemoryConnection(self, node_id), MemoryConnection(other, self.node_id)
        here.other, there.other = there, here
        self._connections[here] = None
        other._connections[there] = None
        other._on_inbound(there)
        dial.done(here)
