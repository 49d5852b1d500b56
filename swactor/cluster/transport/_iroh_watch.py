"""Looks at an iroh endpoint once a second: its tunnel and its paths.

Owns: the looks, the kick that makes the library try the relay again, the watch handle and its end.
Not here: what the signs mean (``_iroh_tunnel``, ``_iroh_peers``).

``watch_home_relay`` only says that something changed, so it is a reason to look at once. The library's
``watch_network_change`` is never used: it triggers what it watches, 6,000 times a second.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from iroh import Connection as NativeConnection
from iroh import Endpoint, HomeRelayCallback, IrohError, RelayConfig, WatchHandle

from swactor import Event, NodeId
from swactor.abc import Clock
from swactor.cluster.transport._base import PathFacts, TunnelFacts, TunnelStatus
from swactor.cluster.transport._iroh_connection import IrohConnection
from swactor.cluster.transport._iroh_peers import ConnectionLook, PathLook, PeerLedger
from swactor.cluster.transport._iroh_tunnel import Look, TunnelLedger

LOOK_PERIOD_S: Final = 1.0
PROBE_S: Final = 0.05
"""How long ``online()`` may take to answer: it returns at once or waits for the tunnel."""
KICK_S_MIN: Final = 1.0
KICK_S_MAX: Final = 8.0
"""Pause between kicks, doubling; left alone the library asks an unreachable relay every 20 to 26 s."""


class _Tick(HomeRelayCallback):
    """Something about the home relay changed. Runs as a task of the loop; only wakes the watch."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake

    async def on_change(self, relays: list[str]) -> None:  # noqa: ARG002 - always the same list
        """Have a look taken now."""
        self._wake.set()


class EndpointWatch:
    """Watches one endpoint from `start` to `stop`; ``open_connections`` is asked at each look."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        relay: RelayConfig | None,
        open_connections: Callable[[], Collection[IrohConnection]],
        clock: Clock,
        emit: Callable[[Event], None],
    ) -> None:
        self._endpoint: Endpoint = endpoint
        self._relay = relay
        self._open_connections = open_connections
        self._clock = clock
        self._emit = emit
        self._tunnel = None if relay is None else TunnelLedger(relay.url)
        self._peers = PeerLedger()
        self._wake = asyncio.Event()
        self._handle: WatchHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._since_ns = clock.monotonic_ns()
        self._kick_pause_s = KICK_S_MIN
        self._kick_at_s = asyncio.get_running_loop().time() + KICK_S_MIN

    def start(self) -> None:
        """Begin to look."""
        if self._relay is not None:
            self._handle = self._endpoint.watch_home_relay(_Tick(self._wake))
        self._task = asyncio.get_running_loop().create_task(self._run(), name="iroh-watch")

    async def stop(self) -> None:
        """End for good. Comes before the endpoint is closed, or the interpreter may abort at its exit."""
        # Asked, not cancelled: before Python 3.12 ``wait_for`` may swallow a cancellation.
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._handle is not None:
            handle, self._handle = self._handle, None
            await handle.stop()
        if self._tunnel is not None:
            self._emit_all(self._tunnel.end(self._clock.wall_ms()))

    @property
    def home_url(self) -> str | None:
        """The selected home relay as of the last look."""
        return None if self._tunnel is None else self._tunnel.home_url

    def tunnel_facts(self, counters: dict[str, int]) -> TunnelFacts | None:
        """The tunnel as of the last look; None without a relay."""
        return None if self._tunnel is None else self._tunnel.facts(counters)

    def peer_facts(self) -> tuple[PathFacts, ...]:
        """All peers, looked at now."""
        self._look_at_peers()
        return self._peers.facts()

    def connection_opened(self, connection: IrohConnection) -> None:
        """A connection is there: its peer may be reached in a new way."""
        self._look_at(connection.peer)

    def connection_ended(self, connection: IrohConnection) -> None:
        """A connection is over and no longer among the open ones."""
        self._peers.connection_ended(connection.peer, look_at(connection.native))
        self._look_at(connection.peer)

    async def look(self) -> None:
        """Look at tunnel and peers once, and kick the library when it has found no relay."""
        if self._tunnel is not None and self._relay is not None:
            look = Look(
                at_ms=self._clock.wall_ms(),
                watched_ms=(self._clock.monotonic_ns() - self._since_ns) // 1_000_000,
                online=await self._online(),
                home_url=self._endpoint.addr().relay_url(),
                counters=counters_of(self._endpoint),
            )
            self._emit_all(self._tunnel.observe(look))
            await self._kick(self._tunnel, self._relay)
        self._look_at_peers()

    async def _run(self) -> None:
        """Look, every `LOOK_PERIOD_S` and at each tick, until stopped."""
        while not self._stopping:
            with suppress(IrohError):  # the endpoint fails; the next look tells more
                await self.look()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_PERIOD_S)
            if not self._stopping:
                self._wake.clear()

    async def _online(self) -> bool:
        """Whether the tunnel is up in this moment."""
        try:
            await asyncio.wait_for(self._endpoint.online(), PROBE_S)
        except TimeoutError:
            return False
        return True

    async def _kick(self, tunnel: TunnelLedger, relay: RelayConfig) -> None:
        """Tell the library of its relay again, which makes it ask the relay now instead of in 20 s.

        Only while no home relay is selected; after that the library redials by its own backoff.
        """
        now_s = asyncio.get_running_loop().time()
        if tunnel.status is TunnelStatus.CONNECTED or tunnel.home_url is not None:
            self._kick_pause_s = KICK_S_MIN
            self._kick_at_s = now_s + KICK_S_MIN
        elif now_s >= self._kick_at_s:
            self._kick_pause_s = min(self._kick_pause_s * 2, KICK_S_MAX)
            self._kick_at_s = now_s + self._kick_pause_s
            await self._endpoint.insert_relay(relay)

    def _look_at_peers(self) -> None:
        """Look at every peer that has a connection open."""
        for peer in dict.fromkeys(connection.peer for connection in self._open_connections()):
            self._look_at(peer)

    def _look_at(self, peer: NodeId) -> None:
        """Look at the connections of one peer."""
        looks = [look_at(known.native) for known in self._open_connections() if known.peer == peer]
        self._emit_all(self._peers.observe(peer, looks, at_ms=self._clock.wall_ms()))

    def _emit_all(self, events: list[Event]) -> None:
        for event in events:
            self._emit(event)


def look_at(native: NativeConnection) -> ConnectionLook:
    """The paths and totals of one connection; after its end the library answers with the last values."""
    stats = native.stats()
    return ConnectionLook(
        paths=tuple(
            PathLook(path.remote_addr, path.is_relay, path.is_selected, path.rtt_ms)
            for path in native.paths()
        ),
        tx_bytes=stats.udp_tx_bytes,
        rx_bytes=stats.udp_rx_bytes,
    )


def counters_of(endpoint: Endpoint) -> dict[str, int]:
    """The counters of ``endpoint`` by ``group:name``, in order; 32 bits wide, they stop at the highest."""
    return {name: counter.value for name, counter in sorted(endpoint.stats().items())}
