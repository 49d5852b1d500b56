"""The relay server: websockets of real clients on one side, the session book on the other.

Owns: listening, forwarding, drills, and an orderly stop. It reports through ``emit`` and knows nothing of
diagnostics. Needs an asyncio loop.
Not here: what bytes mean (``protocol``), who gets what (``sessions``), who gets in (``_door``), one client's
socket (``_carrier``), other answers over HTTP (``_routes``, ``admin``).
"""

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import WSCloseCode, web

from swactor import Event, NodeId, SystemClock, SystemRandom
from swactor.abc import Clock, Random
from swactor.relay._carrier import Carrier
from swactor.relay._door import Door
from swactor.relay._routes import public_routes, within_deadline
from swactor.relay._tap import Connections, Tap
from swactor.relay.admin import admin_routes
from swactor.relay.config import RelayConfig, RelayConfigError, Subprotocol, relay_node_id
from swactor.relay.drills import Drills
from swactor.relay.events import CloseReason
from swactor.relay.journal import Journal
from swactor.relay.protocol import (
    FrameType,
    Status,
    client_frame_type,
    confirm_message,
    destination,
    endpoint_gone_frame,
    forwarded,
    pong_frame,
    status_frame,
)
from swactor.relay.report import RelayReport
from swactor.relay.session import Instant, Session
from swactor.relay.sessions import Notice, NoticeKind, Refusal, SessionBook

_BACKLOG = 1024
"""Connections that wait to be accepted: when a relay comes back, all its clients do at once."""
_KEEP_ALIVE_S = 15.0


class RelayServer:
    """One relay. An async context manager: listening inside, stopped with all sessions closed after it.

    ``emit`` gets `RelaySessionOpened` and `RelaySessionClosed`, on the loop's thread; it must neither wait
    nor raise.
    """

    def __init__(
        self,
        config: RelayConfig,
        *,
        emit: Callable[[Event], None],
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = config
        self.book = SessionBook(
            sessions_max=config.sessions_max,
            sessions_per_id_max=config.sessions_per_id_max,
            sessions_listed_max=config.sessions_listed_max,
            idle_limit_ms=config.idle_limit_ms,
        )
        self.drills = Drills()
        self._emit = emit
        self._clock = clock or SystemClock()
        self._random = (random or SystemRandom()).stream("relay")
        self._door = Door(config, book=self.book, drills=self.drills, clock=self._clock, random=self._random)
        self._carriers: dict[int, Carrier] = {}
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._port: int | None = None
        self._journal: Journal | None = None
        self._journaling: asyncio.Task[None] | None = None
        self._crashed_sessions = 0

    # -- life --------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """What nodes use to reach this relay; with port 0 known only once it listens.

        Raises:
            RuntimeError: it has not been started.
        """
        if self._port is None:
            raise RuntimeError("the relay has not been started")
        return self.config.url_for(self._port)

    @property
    def node_id(self) -> NodeId:
        """The id this relay goes by in records."""
        return relay_node_id(self.url)

    def now(self) -> Instant:
        """Return the current moment of this relay's clock; what the book's ``report`` wants."""
        return Instant(self._clock.monotonic_ns(), self._clock.wall_ms())

    def report(self) -> RelayReport:
        """Return totals, open sessions and drills as of now."""
        return msgspec.structs.replace(
            self.book.report(self.now()),
            refused_ids=_hex(self.drills.refused),
            paused_ids=_hex(self.drills.paused),
            limited_ids=tuple(sorted((key.hex(), limit) for key, limit in self.drills.limited.items())),
            draining=self._door.is_shut,
            crashed_sessions=self._crashed_sessions,
            journal_errors=0 if self._journal is None else self._journal.errors,
        )

    def is_leaving(self) -> bool:
        """Whether new sessions are refused as the relay drains or stops."""
        return self._door.is_shut

    async def start(self) -> None:
        """Listen, and tell how the sessions of a former process ended that left them open in the journal.

        Raises:
            OSError: the address is in use or not this machine's.
            RelayConfigError: a certificate cannot be used.
            JournalError: the journal cannot be used.
        """
        tls = _tls(self.config)
        path, now = self.config.journal_file, self.now()
        if path is None:
            await self._listen(tls)
            return
        self._journal, leftover = Journal.open(path, now, idle_limit_ms=self.config.idle_limit_ms)
        self.book.number_after(leftover.last_session_id)
        try:
            await self._listen(tls)
        except OSError:
            self._journal.close()
            raise
        for event in leftover.crashed:
            self._emit(event)
        self._crashed_sessions = len(leftover.crashed)
        self._journal.begin(now)
        self._journaling = asyncio.create_task(self._keep_journal(self._journal), name="relay-journal")

    async def _listen(self, tls: ssl.SSLContext | None) -> None:
        application = web.Application(middlewares=[within_deadline])
        application.add_routes([web.get("/relay", self._relay)])
        application.add_routes(public_routes(self, read_token=self.config.read_token))
        if self.config.admin_token is not None:
            application.add_routes(admin_routes(self, self.config.admin_token))
        runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=min(_KEEP_ALIVE_S, self.config.handshake_timeout_s / 2),
            shutdown_timeout=self.config.goodbye_timeout_s + 1.0,
        )
        await runner.setup()
        connections = Connections(self.config, refuse=self.book.refuse)
        new_protocol = runner.server
        assert new_protocol is not None  # noqa: S101 - it was set up
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                lambda: Tap(new_protocol(), connections),
                self.config.host,
                self.config.port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else self.config.handshake_timeout_s,
                backlog=_BACKLOG,
            )
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self._port = self._listener.sockets[0].getsockname()[1]

    async def stop(self, reason: str = "stopped") -> None:
        """Close every session as RELAY_SHUTDOWN with ``reason`` as its detail, then stop listening.

        All close events are emitted before this returns. Bounded by the drain time, the goodbye timeout and
        one second.
        """
        runner, self._runner = self._runner, None
        if runner is None or self._listener is None:
            return
        self._listener.close()
        await self._drain(self.config.drain_s, reason)
        await runner.cleanup()
        if self._journal is not None and self._journaling is not None:
            self._journaling.cancel()
            await asyncio.wait([self._journaling])
            self._journal.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop("stopped" if kind is None else f"stopped by {kind.__name__}")

    async def drain(self, over_s: float) -> RelayReport:
        """Refuse new sessions from now on and close the open ones, one after the other, within ``over_s``.

        Returns:
            The report after the last one. The relay goes on answering, but lets nobody in any more.
        """
        await self._drain(over_s, "drained")
        return self.report()

    async def _drain(self, over_s: float, reason: str) -> None:
        self._door.shut()
        leaving = list(self._carriers.values())
        for carrier in leaving:
            carrier.end(CloseReason.RELAY_SHUTDOWN, detail=reason, goodbye=WSCloseCode.GOING_AWAY)
            if over_s > 0:
                await asyncio.sleep(over_s / len(leaving))

    async def _keep_journal(self, journal: Journal) -> None:
        while True:
            await asyncio.sleep(self.config.journal_period_s)
            journal.checkpoint(self.book.open_sessions(), self.now())

    # -- drills ------------------------------------------------------------------------------------------

    def close_session(self, session_id: int) -> bool:
        """End one session as EVICTED; False when there is none. Its client may come back at once."""
        carrier = self._carriers.get(session_id)
        if carrier is None:
            return False
        carrier.end(CloseReason.EVICTED, goodbye=WSCloseCode.OK)
        return True

    def drop_pair(self, source: bytes, destination: bytes) -> None:
        """Drop every frame from key ``source`` to key ``destination`` until restored; tunnels stay up.

        Raises:
            TooManyDrillsError: nothing was changed. The same for the drills below.
        """
        self.book.drop_pair(source, destination)

    def restore_pair(self, source: bytes, destination: bytes) -> None:
        """Forward from ``source`` to ``destination`` again."""
        self.book.restore_pair(source, destination)

    def refuse_id(self, peer: bytes) -> None:
        """End every session of the key ``peer`` as EVICTED and deny it new ones until it is admitted."""
        self.drills.refuse(peer)
        for carrier in self._carriers_of(peer):
            carrier.end(CloseReason.EVICTED, detail="id refused", goodbye=WSCloseCode.POLICY_VIOLATION)

    def admit_id(self, peer: bytes) -> None:
        """Let ``peer`` open sessions again."""
        self.drills.refused.discard(peer)

    def pause_id(self, peer: bytes) -> None:
        """Read nothing from the sessions of ``peer``, present and coming, until resumed.

        What they send stays in their sockets. They get no answer to their pings, and after 20 s an endpoint
        gives such a tunnel up.
        """
        self.drills.pause(peer)
        for carrier in self._carriers_of(peer):
            carrier.pause()

    def resume_id(self, peer: bytes) -> None:
        """Read from the sessions of ``peer`` again."""
        self.drills.paused.discard(peer)
        for carrier in self._carriers_of(peer):
            carrier.resume()

    def limit_id(self, peer: bytes, bytes_per_s: int) -> None:
        """Read at most ``bytes_per_s`` of frames from each session of ``peer``, present and coming."""
        self.drills.limit(peer, bytes_per_s)
        for carrier in self._carriers_of(peer):
            carrier.limit(bytes_per_s)

    def unlimit_id(self, peer: bytes) -> None:
        """Read from ``peer`` as from everybody else."""
        self.drills.limited.pop(peer, None)
        for carrier in self._carriers_of(peer):
            carrier.limit(self.config.client_bytes_per_s_max)

    def _carriers_of(self, peer: bytes) -> list[Carrier]:
        return [carrier for carrier in self._carriers.values() if carrier.session.peer == peer]

    # -- one client --------------------------------------------------------------------------------------

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        websocket, subprotocol = self._door.websocket_for(request)
        await websocket.prepare(request)
        transport = request.transport
        if transport is None:
            self.book.refuse(Refusal.HANDSHAKE_ABANDONED)
            return websocket
        key = await self._door.handshake(request, websocket, transport)
        if key is None:
            transport.abort()
        else:
            await self._carry(key, websocket, transport=transport, subprotocol=subprotocol)
        return websocket

    async def _carry(
        self,
        key: bytes,
        websocket: web.WebSocketResponse,
        *,
        transport: asyncio.Transport,
        subprotocol: Subprotocol,
    ) -> None:
        opened = self.book.open(key, self.now(), subprotocol=subprotocol, remote_address=_address(transport))
        carrier = Carrier(
            opened.session,
            websocket,
            transport=transport,
            owner=self,
            config=self.config,
            clock=self._clock,
            random=self._random,
        )
        self._carriers[opened.session.session_id] = carrier
        if self._journal is not None:
            self._journal.opened(opened.session)
        self._emit(opened.event)
        self._perform(opened.notices)
        carrier.tell(confirm_message())
        carrier.limit(self.drills.limited.get(key, self.config.client_bytes_per_s_max))
        if key in self.drills.paused:
            carrier.pause()
        if opened.excess is not None:
            excess = self._carriers[opened.excess.session_id]
            excess.end(CloseReason.SUPERSEDED, goodbye=WSCloseCode.POLICY_VIOLATION)
        await carrier.serve()

    def frame_received(self, carrier: Carrier, message: bytes) -> None:
        """Handle one message of a client; see `CarrierOwner`."""
        frame_type = client_frame_type(message)
        if frame_type is FrameType.PING:
            carrier.tell(pong_frame(message))
        elif frame_type is FrameType.PONG:
            carrier.ponged(message[1:])
        else:
            source = carrier.session
            target = self.book.route(source, destination(message))
            if target is not None:
                self._carriers[target.session_id].forward(forwarded(message, source.peer))

    def carrier_ended(self, session: Session, reason: CloseReason, detail: str) -> None:
        """Write the end of a session down; see `CarrierOwner`."""
        del self._carriers[session.session_id]
        closed = self.book.close(session, reason, self.now(), detail=detail)
        if closed is not None:
            self._emit(closed.event)
            self._perform(closed.notices)
        if self._journal is not None:
            self._journal.closed(session)

    def _perform(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            subprotocol = Subprotocol(notice.session.subprotocol)
            match notice.kind:
                case NoticeKind.PARKED:
                    frame = status_frame(Status.SAME_ID_CONNECTED, subprotocol)
                case NoticeKind.PROMOTED:
                    frame = status_frame(Status.HEALTHY, subprotocol)
                case NoticeKind.PEER_GONE:
                    frame = endpoint_gone_frame(notice.peer)
            self._carriers[notice.session.session_id].tell(frame)


def _tls(config: RelayConfig) -> ssl.SSLContext | None:
    if config.certificate_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.certificate_file, config.key_file)
    except OSError as error:  # SSLError is one, too
        raise RelayConfigError("certificate_file", f"cannot be used: {error.strerror or error}") from error
    return context


def _hex(keys: set[bytes]) -> tuple[str, ...]:
    return tuple(sorted(key.hex() for key in keys))


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    if not peer:
        return "unknown"  # It left before anybody asked.
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
