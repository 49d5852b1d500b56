"""The cluster's transport over the simulated network: connections through the relay.

Owns: `SimTransport`, the ``Transport`` of one simulated node: dialing, accepting, its own end.
Not here: one connection (`sim.stream`), the tunnel (`sim.relay`), the way through it (`sim.medium`), what the
transport knows about itself (`sim.facts`).

Nodes reach each other through the relay only, and all at the same one.
"""

from collections.abc import Callable

import anyio
import anyio.lowlevel

from sim.facts import FactBook
from sim.medium import Medium
from sim.relay import SimRelay, Tunnel
from sim.stream import SimConnection, pair
from sim.streams import SimRandom
from swactor import NodeId
from swactor.abc import Cancellable, Clock
from swactor.cluster.transport import (
    DIAL_TIMEOUT_MS,
    Connection,
    DialFailed,
    DialResult,
    PeerAddress,
    TransportFacts,
)

ONLINE_TIMEOUT_S = 10.0
"""How long ``start`` waits for the tunnel; it goes on without."""

HELLO_BYTES = 1_200
HELLO_RETRY_NS = 1_000_000_000

NS_PER_MS = 1_000_000


class Peers:
    """Which transport answers for which node id right now."""

    def __init__(self) -> None:
        self._listening: dict[NodeId, SimTransport] = {}

    def listen(self, transport: "SimTransport") -> None:
        """Let ``transport`` answer for its node id."""
        self._listening[transport.node_id] = transport

    def leave(self, transport: "SimTransport") -> None:
        """Let nobody answer for it, unless a successor does already."""
        if self._listening.get(transport.node_id) is transport:
            del self._listening[transport.node_id]

    def find(self, node_id: NodeId) -> "SimTransport | None":
        """Return who answers for ``node_id``."""
        return self._listening.get(node_id)


class SimTransport:
    """One node's transport. Once muted it is as dead as its process: it sends nothing and reports nothing."""

    def __init__(
        self,
        medium: Medium,
        peers: Peers,
        relay: SimRelay,
        *,
        node_id: NodeId,
        host: str,
        address: str,
        clock: Clock,
        random: SimRandom,
    ) -> None:
        self._node_id = node_id
        self._medium = medium
        self._peers = peers
        self._online = anyio.Event()
        self._on_inbound: Callable[[Connection], None] | None = None
        self._connections: dict[SimConnection, None] = {}
        self._dials: dict[_Dial, None] = {}
        self.is_live = True
        self.tunnel = Tunnel(
            relay,
            node_id=node_id,
            host=host,
            address=address,
            loop=medium.loop,
            network=medium.network,
            clock=clock,
            random=random.stream("tunnel"),
            on_connected=self._online.set,
        )
        self._book = FactBook(node_id, self.tunnel, clock)

    @property
    def node_id(self) -> NodeId:
        """The id under which peers know this node."""
        return self._node_id

    async def start(self, on_inbound: Callable[[Connection], None]) -> None:
        """Accept connections, and wait for the tunnel."""
        self._on_inbound = on_inbound
        self._peers.listen(self)
        self.tunnel.open()
        with anyio.move_on_after(ONLINE_TIMEOUT_S):
            await self._online.wait()

    def dial(self, address: PeerAddress, on_done: Callable[[Connection | DialFailed], None]) -> Cancellable:
        """Open a connection to ``address`` through the relay."""
        dial = _Dial(self._medium, self._peers, self, target=address.node_id, on_done=on_done)
        self._dials[dial] = None
        if address.relay_url in {None, self.tunnel.relay.url}:
            dial.start()
        else:
            dial.fail_soon(DialResult.NO_ROUTE, f"no tunnel to relay {address.relay_url}")
        return dial

    def accept(self, dial: "_Dial") -> tuple[SimConnection, SimConnection]:
        """Open both ends for ``dial``, which has arrived here; return them, the dialer's first."""
        near, far = pair(self._medium, dialer=(dial.home, dial.home.node_id), target=(self, self._node_id))
        self.began(far)
        if self._on_inbound is not None:
            self._on_inbound(far)
        return near, far

    def facts(self) -> TransportFacts:
        """Return what is known right now."""
        return self._book.facts(self._connections)

    async def close(self) -> None:
        """End every connection and the tunnel, newest first."""
        for dial in list(self._dials):
            dial.fail_soon(DialResult.ERROR, "the transport was closed")
        for connection in reversed(list(self._connections)):
            connection.shut()
        self._peers.leave(self)
        self.tunnel.close()
        await anyio.lowlevel.checkpoint()  # what was reported above is heard before this returns

    def mute(self) -> None:
        """Die with the process: nothing leaves and nothing is reported after this."""
        self.is_live = False
        self._peers.leave(self)
        self.tunnel.drop()

    # -- told by dials and connections -----------------------------------------------------------------------

    def began(self, connection: SimConnection) -> None:
        """``connection`` belongs to this node."""
        self._connections[connection] = None
        self._book.opened(connection)

    def ended(self, connection: SimConnection) -> None:
        """``connection`` is over."""
        if connection in self._connections:
            del self._connections[connection]
            self._book.closed(connection)

    def finished(self, dial: "_Dial") -> None:
        """``dial`` is over."""
        self._dials.pop(dial, None)


class _Dial:
    """One attempt to reach a peer. Its hello is repeated until it is answered or the time is up."""

    def __init__(
        self,
        medium: Medium,
        peers: Peers,
        home: SimTransport,
        *,
        target: NodeId,
        on_done: Callable[[Connection | DialFailed], None],
    ) -> None:
        self.home = home
        self.target = target
        self.is_open = True
        self._medium = medium
        self._peers = peers
        self._on_done = on_done
        self._ends: tuple[SimConnection, SimConnection] | None = None
        self._has_connected = False
        self._timers: list[Cancellable] = []

    def start(self) -> None:
        """Send the first hello and set the limit."""
        deadline_ns = self._medium.loop.now_ns + DIAL_TIMEOUT_MS * NS_PER_MS
        self._timers.append(
            self._medium.loop.call_at_ns(deadline_ns, self._fail, DialResult.TIMEOUT, "timed out")
        )
        self._hello()

    def cancel(self) -> None:
        """Call it off; what the target may have opened is closed."""
        if self.is_open:
            self._give_up()

    def fail_soon(self, outcome: DialResult, text: str) -> None:
        """Fail on the next turn of the loop."""
        self._medium.loop.call_soon(self._fail, outcome, text)

    def hello_arrived(self) -> None:
        """Be at the target: whoever answers for it opens the connection, once, and replies each time."""
        transport = self._peers.find(self.target)
        if transport is None:
            return
        if self._ends is None:
            self._ends = transport.accept(self)
        self._medium.carry(transport.tunnel, self.home.node_id, _Reply(self))

    def reply_arrived(self) -> None:
        """Be back at the dialer, which closes what it does not want any more."""
        if self._ends is None or not self.home.is_live:
            return
        near = self._ends[0]
        if self.is_open:
            self._finish()
            self._has_connected = True
            self.home.began(near)
            self._on_done(near)
        elif not self._has_connected:
            near.close(0, "")

    def _hello(self) -> None:
        if not self.is_open or not self.home.is_live:
            return
        self._medium.carry(self.home.tunnel, self.target, _Hello(self))
        again_ns = self._medium.loop.now_ns + HELLO_RETRY_NS
        self._timers.append(self._medium.loop.call_at_ns(again_ns, self._hello))

    def _fail(self, outcome: DialResult, text: str) -> None:
        if self.is_open and self.home.is_live:
            self._give_up()
            self._on_done(DialFailed(outcome, text))

    def _give_up(self) -> None:
        self._finish()
        if self._ends is not None:
            self._ends[0].close(0, "")

    def _finish(self) -> None:
        self.is_open = False
        self.home.finished(self)
        for timer in self._timers:
            timer.cancel()


class _Hello:
    """The first piece of a dial."""

    __slots__ = ("_dial", "n_bytes")

    def __init__(self, dial: _Dial) -> None:
        self._dial = dial
        self.n_bytes = HELLO_BYTES

    def arrived(self) -> None:
        """Ask the target."""
        self._dial.hello_arrived()

    def dropped(self) -> None:
        """The dial repeats it anyway."""


class _Reply(_Hello):
    """The target's answer to a hello."""

    __slots__ = ()

    def arrived(self) -> None:
        """Tell the dialer."""
        self._dial.reply_arrived()
