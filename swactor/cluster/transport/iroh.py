"""The transport between machines: QUIC connections of iroh, direct or through a relay.

Owns: one iroh endpoint from `start` to `close`, dialling, accepting, the order of shutting down.
Not here: streams (``_iroh_connection``), what error texts mean (``_iroh_reasons``), the tunnel and paths
(``_iroh_watch``), what the library cannot tell (``_iroh_gaps``).

The native library wakes one asyncio loop a process, so this transport runs on asyncio (or uvloop) and only
one loop at a time may use iroh. It also has threads of its own that are never joined: a command-line entry
point ends with a flush and ``os._exit(code)`` after `IrohTransport.close`, so that none of them can abort
the interpreter while it finalises. Never fork after `start`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

import iroh
from iroh import Connection as NativeConnection
from iroh import (
    Endpoint,
    EndpointAddr,
    EndpointId,
    EndpointOptions,
    Incoming,
    IrohError,
    RelayConfig,
    RelayMap,
    RelayMode,
    iroh_ffi,
    preset_minimal,
)

from swactor import Event, NodeId, SwactorError
from swactor.abc import Cancellable, Clock
from swactor.cluster.identity import NodeKey
from swactor.cluster.transport import (
    Connection,
    DialFailed,
    DialResult,
    LossKind,
    LossReason,
    PeerAddress,
    TransportCounter,
    TransportFacts,
)
from swactor.cluster.transport._iroh_connection import (
    IrohConnection,
    accept_stream,
    close_native,
    open_stream,
)
from swactor.cluster.transport._iroh_dial import LATE_CODE, IrohDial
from swactor.cluster.transport._iroh_fastpath import install as install_fastpath
from swactor.cluster.transport._iroh_gaps import api_gaps, linked_versions
from swactor.cluster.transport._iroh_reasons import cause
from swactor.cluster.transport._iroh_watch import EndpointWatch, counters_of

ONLINE_WAIT_S: Final = 10.0
"""How long `IrohTransport.start` waits for the relay; it goes on without it after that."""
STREAM_WAIT_S: Final = 5.0
"""How long a peer that connected may take to open its stream."""
ADMISSIONS_MAX: Final = 256
"""Incoming connections that have no stream yet; more are refused."""

_CLOSE_WAIT_S: Final = 2.0
"""For what should be over at once; after it, shutting down goes on without."""
_TRANSPORT_CLOSED: Final = LossReason(LossKind.TRANSPORT_CLOSED, "the transport was closed", 0)


class IrohStartError(SwactorError):
    """The endpoint could not be opened: another event loop than asyncio, a bad relay URL or bind address."""


class IrohTransport:
    """A `Transport` over iroh.

    ``secret_key`` has 32 bytes and decides the node id. ``relay_url`` is the relay to keep a tunnel to; with
    None peers need direct addresses. ``bind_addr`` (``host:port``) limits IPv4 only: the library binds IPv6
    on all interfaces in any case. ``emit`` gets `RelaySessionStateChanged`, `RelayChanged` and
    `IrohConnTypeChanged` at the moment they happen and must neither wait nor raise; without it
    `TransportFacts.reports_changes` is false, and whoever compares facts reports them, less exactly.
    """

    def __init__(
        self,
        secret_key: bytes,
        *,
        relay_url: str | None,
        relay_token: str | None = None,
        alpn: bytes,
        clock: Clock,
        emit: Callable[[Event], None] | None = None,
        bind_addr: str | None = None,
        online_wait_s: float = ONLINE_WAIT_S,
    ) -> None:
        self._key = NodeKey(secret_key)
        self._relay: RelayConfig | None = None
        if relay_url is not None:
            # No QUIC address discovery: nobody serves it, and waiting for it costs three seconds.
            self._relay = RelayConfig(url=relay_url, quic_port=None, auth_token=relay_token)
        self._alpn = alpn
        self._clock = clock
        self._reports_changes = emit is not None
        self._emit = emit or _keep_quiet
        self._bind_addr = bind_addr
        self._online_wait_s = online_wait_s
        self._endpoint: Endpoint | None = None
        self._watch: EndpointWatch | None = None
        self._on_inbound: Callable[[Connection], None] | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._admissions: set[asyncio.Task[None]] = set()
        self._dials: dict[asyncio.Task[None], IrohDial] = {}
        self._connections: dict[int, IrohConnection] = {}
        self._tally: Counter[str] = Counter()
        self._versions = tuple(linked_versions().items())
        self._gaps = api_gaps(iroh, ())
        self._last_facts = TransportFacts(
            transport="iroh",
            local_address=PeerAddress(self.node_id, relay_url),
            versions=self._versions,
            api_gaps=self._gaps,
            reports_changes=self._reports_changes,
        )

    # -- life --------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> NodeId:
        """The public half of the secret key."""
        return self._key.node_id

    async def start(self, on_inbound: Callable[[Connection], None]) -> None:
        """Open the endpoint, begin to accept, and wait a while for the relay.

        A relay that is away is no error: the tunnel's status says so, and the library keeps trying.

        Raises:
            IrohStartError: not on asyncio, or the endpoint could not be opened.
            RuntimeError: it was started before.
        """
        if self._on_inbound is not None:
            raise RuntimeError("a transport is started once")
        self._on_inbound = on_inbound
        endpoint = self._endpoint = await self._bind()
        self._gaps = api_gaps(iroh, endpoint.stats().keys())
        self._accepting = asyncio.get_running_loop().create_task(self._accept(endpoint), name="iroh-accept")
        self._watch = EndpointWatch(
            endpoint,
            relay=self._relay,
            open_connections=self._connections.values,
            clock=self._clock,
            emit=self._emit,
        )
        self._watch.start()
        if self._relay is not None:
            await self._wait_online(endpoint, self._watch)

    async def close(self) -> None:
        """End every connection, then the endpoint; harmless the second time.

        Takes about 0.1 s, and 3 s when a dial is still out: the library waits that long for a silent peer.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._shut_down(), name="iroh-close")
        await asyncio.shield(self._closing)

    async def _bind(self) -> Endpoint:
        """Open the endpoint on the running asyncio loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise IrohStartError("the iroh transport needs asyncio (or uvloop) as its event loop") from error
        # Without this the library's callbacks find no loop, and fail for good.
        iroh_ffi.uniffi_set_event_loop(loop)  # type: ignore[arg-type]  # the binding names too narrow a class
        install_fastpath(iroh_ffi)
        try:
            return await Endpoint.bind(
                EndpointOptions(
                    preset=preset_minimal(),
                    alpns=[self._alpn],
                    secret_key=self._key.secret,
                    bind_addr=self._bind_addr,
                    relay_mode=_relay_mode(self._relay),
                )
            )
        except IrohError as error:
            raise IrohStartError(f"cannot open an iroh endpoint: {cause(error.message())}") from error

    async def _wait_online(self, endpoint: Endpoint, watch: EndpointWatch) -> None:
        """Wait for the tunnel, but not for long, and have its status known either way."""
        try:
            await asyncio.wait_for(endpoint.online(), self._online_wait_s)
        except TimeoutError:
            self._tally["started_without_relay"] += 1
        await watch.look()

    async def _shut_down(self) -> None:
        """The order matters: connections, watches, endpoint, then whatever waited for it."""
        for dial in list(self._dials.values()):
            dial.answer(DialFailed(DialResult.ERROR, _TRANSPORT_CLOSED.text))
        ending = [connection.done for connection in self._connections.values()]
        for connection in list(self._connections.values()):
            connection.end(_TRANSPORT_CLOSED)
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_WAIT_S)
        if self._watch is not None:
            await self._watch.stop()
        self._last_facts = self.facts()
        self._watch = None
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.close()
        waiting = [*self._dials, *self._admissions, *([] if self._accepting is None else [self._accepting])]
        if waiting:
            _, stuck = await asyncio.wait(waiting, timeout=_CLOSE_WAIT_S)
            for task in stuck:
                task.cancel()
        self._accepting = None

    # -- connections -------------------------------------------------------------------------------------

    def dial(self, address: PeerAddress, on_done: Callable[[Connection | DialFailed], None]) -> Cancellable:
        """Open a connection; a node id alone is looked for at this node's own relay."""
        dial = IrohDial(self._connect(address), self._take_dialled, on_done)
        self._dials[dial.attempt] = dial
        dial.attempt.add_done_callback(self._dials.pop)
        return dial

    async def _connect(self, address: PeerAddress) -> NativeConnection:
        """Make one connection, however long it takes."""
        if self._endpoint is None:
            raise ConnectionError(
                _TRANSPORT_CLOSED.text if self._closing else "the transport was not started"
            )
        relay_url = address.relay_url
        if relay_url is None and not address.direct_addresses and self._relay is not None:
            relay_url = self._relay.url
        peer = EndpointId.from_bytes(bytes.fromhex(address.node_id))
        target = EndpointAddr(peer, relay_url, list(address.direct_addresses))
        return await self._endpoint.connect(target, self._alpn)

    async def _take_dialled(self, native: NativeConnection) -> IrohConnection:
        """Open the stream of a connection that this side dialled."""
        return self._keep(await open_stream(native, owner=self))

    async def _accept(self, endpoint: Endpoint) -> None:
        """Take incoming connections until the endpoint closes. Never cancelled: one would be lost."""
        loop = asyncio.get_running_loop()
        while (incoming := await endpoint.accept_next()) is not None:
            admission = loop.create_task(self._admit(incoming), name="iroh-admit")
            self._admissions.add(admission)
            admission.add_done_callback(self._admissions.discard)

    async def _admit(self, incoming: Incoming) -> None:
        """Bring one incoming connection to the point where its stream is there, and hand it over."""
        loop = asyncio.get_running_loop()
        try:
            if self._closing is not None or len(self._admissions) > ADMISSIONS_MAX:
                self._tally["inbound_refused"] += 1
                await incoming.refuse()
                return
            native = await (await incoming.accept()).connect()
            late = loop.call_later(STREAM_WAIT_S, close_native, native, LATE_CODE, "no stream was opened")
            try:
                connection = await accept_stream(native, owner=self)
            finally:
                late.cancel()
        except IrohError:
            self._tally["inbound_failed"] += 1  # the dialler broke off, and knows why
            return
        if connection is not None and self._on_inbound is not None:
            loop.call_soon(self._on_inbound, self._keep(connection))

    def _keep(self, connection: IrohConnection) -> IrohConnection:
        """Own ``connection`` until it ends; at once when this transport is closing."""
        self._connections[id(connection)] = connection
        if self._watch is not None:
            self._watch.connection_opened(connection)
        if self._closing is not None:
            connection.end(_TRANSPORT_CLOSED)
        return connection

    def connection_ended(self, connection: IrohConnection, reason: LossReason) -> None:
        """Forget ``connection`` and count why it ended."""
        self._tally[f"lost_{reason.kind}"] += 1
        if self._connections.pop(id(connection), None) is not None and self._watch is not None:
            self._watch.connection_ended(connection)

    # -- facts -------------------------------------------------------------------------------------------

    def facts(self) -> TransportFacts:
        """Return what is known right now; after `close`, what was known last.

        Counters of the group ``transport`` are ours; all others are the library's, 32 bits wide: a value of
        4,294,967,295 means "at least". Byte totals of tunnel and peers are None or 64 bits instead.
        """
        if self._endpoint is None or self._watch is None:
            return self._last_facts
        counters = counters_of(self._endpoint)
        local = self._endpoint.addr()
        home_url = local.relay_url()
        own = {f"transport:{name}": value for name, value in sorted(self._tally.items())}
        return TransportFacts(
            transport="iroh",
            local_address=PeerAddress(
                self.node_id,
                home_url or (None if self._relay is None else self._relay.url),
                tuple(local.direct_addresses()),
            ),
            home_relay_url=home_url,
            tunnel=self._watch.tunnel_facts(counters),
            peers=self._watch.peer_facts(),
            counters=tuple(_counter(name, value) for name, value in {**counters, **own}.items()),
            versions=self._versions,
            api_gaps=self._gaps,
            reports_changes=self._reports_changes,
        )


def _keep_quiet(event: Event) -> None:
    """Nobody wants to hear of ``event`` from here."""


def _relay_mode(relay: RelayConfig | None) -> RelayMode:
    """The one relay, or none: never the public ones of the library's presets."""
    if relay is None:
        return RelayMode.disabled()
    relays = RelayMap.empty()
    relays.insert(relay)
    return RelayMode.custom(relays)


def _counter(key: str, value: int) -> TransportCounter:
    """A counter keyed ``group:name``."""
    group, _, name = key.partition(":")
    return TransportCounter(group, name, value)
