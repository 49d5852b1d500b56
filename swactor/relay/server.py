"""The relay server: websockets of real clients on one side, the session book on the other.

Owns: HTTP routes, the handshake of each client with its deadline and limits, forwarding, and an orderly stop.
It reports through ``emit`` and knows nothing of diagnostics. Needs an asyncio loop.
Not here: what bytes mean (``protocol``), who gets what (``sessions``), one client's socket (``_carrier``).
"""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from swactor import Event, NodeId, SystemClock, SystemRandom
from swactor.abc import Clock, Random
from swactor.relay._carrier import Carrier, Tap
from swactor.relay.admin import admin_routes
from swactor.relay.config import RelayConfig, is_loopback, relay_node_id
from swactor.relay.events import CloseReason
from swactor.relay.protocol import (
    CHALLENGE_BYTES,
    FRAME_BYTES_MAX,
    FrameType,
    ProtocolError,
    SignatureError,
    Status,
    Subprotocol,
    authorized,
    challenge_message,
    choose_subprotocol,
    client_frame_type,
    confirm_message,
    denial_message,
    destination,
    endpoint_gone_frame,
    forwarded,
    pong_frame,
    status_frame,
    verify_auth,
)
from swactor.relay.sessions import Instant, Notice, NoticeKind, Refusal, Session, SessionBook

# aiohttp counts a message at this size as too big, and so do we, by type, from FRAME_BYTES_MAX on.
_MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 1024


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
        self._emit = emit
        self._clock = clock or SystemClock()
        self._random = (random or SystemRandom()).stream("relay")
        self._carriers: dict[int, Carrier] = {}
        self._handshaking: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None
        self._port: int | None = None
        self._stopping = False

    # -- life --------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """What nodes use to reach this relay; with port 0 known only once it listens."""
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

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is in use or not this machine's.
        """
        application = web.Application()
        application.add_routes(
            [
                web.get("/relay", self._relay),
                web.get("/ping", self._ping),
                web.get("/generate_204", self._generate_204),
                web.get("/healthz", self._healthz),
                web.get("/sessions", self._sessions),
            ]
        )
        if self.config.admin_token is not None:
            application.add_routes(admin_routes(self, self.config.admin_token))
        shutdown_timeout_s = self.config.goodbye_timeout_s + 1.0
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=shutdown_timeout_s)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.config.host, self.config.port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self._port = runner.addresses[0][1]

    async def stop(self, reason: str = "stopped") -> None:
        """Close every session as RELAY_SHUTDOWN with ``reason`` as its detail, then stop listening.

        All close events are emitted before this returns. Bounded by the goodbye timeout plus one second.
        """
        if self._runner is None or self._stopping:
            return
        self._stopping = True
        for site in list(self._runner.sites):
            await site.stop()
        for carrier in list(self._carriers.values()):
            carrier.end(CloseReason.RELAY_SHUTDOWN, detail=reason, goodbye=WSCloseCode.GOING_AWAY)
        for transport in list(self._handshaking):
            transport.abort()
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop("stopped" if kind is None else f"stopped by {kind.__name__}")

    # -- drills ------------------------------------------------------------------------------------------

    def close_session(self, session_id: int) -> bool:
        """End one session as EVICTED; False when there is none. Its client may come back at once."""
        carrier = self._carriers.get(session_id)
        if carrier is None:
            return False
        carrier.end(CloseReason.EVICTED, goodbye=WSCloseCode.OK)
        return True

    def drop_pair(self, source: bytes, destination: bytes) -> None:
        """Drop every frame from key ``source`` to key ``destination`` until restored; tunnels stay up."""
        self.book.drop_pair(source, destination)

    def restore_pair(self, source: bytes, destination: bytes) -> None:
        """Forward from ``source`` to ``destination`` again."""
        self.book.restore_pair(source, destination)

    # -- routes ------------------------------------------------------------------------------------------

    async def _ping(self, _request: web.Request) -> web.Response:
        # A client measures its latency to each relay by this and takes no home relay without an answer.
        return web.Response(text="ok", headers={"Access-Control-Allow-Origin": "*"})

    async def _generate_204(self, request: web.Request) -> web.Response:
        challenge = request.headers.get("X-Iroh-Challenge")
        headers = {} if challenge is None else {"X-Iroh-Response": f"response {challenge}"}
        return web.Response(status=204, headers=headers)

    async def _healthz(self, _request: web.Request) -> web.Response:
        status = "stopping" if self._stopping else "ok"
        return web.json_response({"status": status}, status=503 if self._stopping else 200)

    async def _sessions(self, request: web.Request) -> web.Response:
        token = self.config.read_token
        if token is None and not is_loopback(request.remote or ""):
            raise web.HTTPForbidden(text="from this machine only, or with a read token")
        if token is not None and not authorized(request.headers.get("Authorization", ""), token):
            raise web.HTTPUnauthorized
        body = msgspec.json.encode(self.book.report(self.now()))
        return web.Response(body=body, content_type="application/json")

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        subprotocol = choose_subprotocol(request.headers.get("Sec-WebSocket-Protocol", ""))
        if subprotocol is None:
            self.book.refuse(Refusal.NO_SUBPROTOCOL)
            raise web.HTTPBadRequest(text=f"offer one of {', '.join(Subprotocol)}")
        if self._stopping or len(self._handshaking) >= self.config.handshakes_max:
            self.book.refuse(Refusal.RELAY_STOPPING if self._stopping else Refusal.RELAY_FULL)
            raise web.HTTPServiceUnavailable
        websocket = web.WebSocketResponse(
            protocols=(subprotocol,),
            autoclose=False,
            compress=False,
            max_msg_size=_MESSAGE_BYTES_MAX,
            timeout=self.config.goodbye_timeout_s,
        )
        await websocket.prepare(request)
        transport = request.transport
        if transport is None:
            self.book.refuse(Refusal.HANDSHAKE_ABANDONED)
            return websocket
        tap = Tap.install(transport)
        self._handshaking.add(transport)
        try:
            key = await self._handshake(request, websocket)
        finally:
            self._handshaking.discard(transport)
        if key is None:
            transport.abort()
        else:
            await self._carry(key, websocket, transport=transport, tap=tap, subprotocol=subprotocol)
        return websocket

    # -- one client --------------------------------------------------------------------------------------

    async def _handshake(self, request: web.Request, websocket: web.WebSocketResponse) -> bytes | None:
        """Return the key of a client that proved it and may use this relay; None when it was refused."""
        farewell: bytes | None = None
        code = WSCloseCode.POLICY_VIOLATION
        refusal: Refusal
        try:
            async with asyncio.timeout(self.config.handshake_timeout_s):
                key = await self._prove(websocket)
        except TimeoutError:
            refusal = Refusal.HANDSHAKE_TIMEOUT
        except ConnectionError:
            refusal = Refusal.RELAY_STOPPING if self._stopping else Refusal.HANDSHAKE_ABANDONED
        except SignatureError as error:
            refusal, farewell = Refusal.BAD_SIGNATURE, denial_message(str(error))
        except ProtocolError:
            refusal, code = Refusal.BAD_HANDSHAKE, WSCloseCode.PROTOCOL_ERROR
        else:
            denied = self._denied(request)
            if denied is None:
                return key
            refusal, farewell = denied, denial_message(denied.replace("_", " "))
        self.book.refuse(refusal)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(self.config.goodbye_timeout_s):
                if farewell is not None:
                    await websocket.send_bytes(farewell)
                await websocket.close(code=code)
        return None

    async def _prove(self, websocket: web.WebSocketResponse) -> bytes:
        """Challenge the client and return its key; ConnectionError when it left instead of answering."""
        challenge = self._random.token(CHALLENGE_BYTES)
        await websocket.send_bytes(challenge_message(challenge))
        answer = await websocket.receive()
        match answer.type:
            case WSMsgType.BINARY:
                return verify_auth(answer.data, challenge)
            case WSMsgType.TEXT:
                raise ProtocolError("text message instead of an authentication")
            case _:
                raise ConnectionAbortedError("left during the handshake")

    def _denied(self, request: web.Request) -> Refusal | None:
        """Return why a client that proved its key may still not use this relay."""
        token = self.config.token
        if token is not None and not authorized(request.headers.get("Authorization", ""), token):
            return Refusal.BAD_TOKEN
        if self._stopping:
            return Refusal.RELAY_STOPPING
        return Refusal.RELAY_FULL if self.book.is_full() else None

    async def _carry(
        self,
        key: bytes,
        websocket: web.WebSocketResponse,
        *,
        transport: asyncio.Transport,
        tap: Tap,
        subprotocol: Subprotocol,
    ) -> None:
        opened = self.book.open(key, self.now(), subprotocol=subprotocol, remote_address=_address(transport))
        carrier = Carrier(
            opened.session,
            websocket,
            transport=transport,
            tap=tap,
            owner=self,
            config=self.config,
            clock=self._clock,
            random=self._random,
        )
        self._carriers[opened.session.session_id] = carrier
        carrier.tell(confirm_message())
        self._emit(opened.event)
        self._perform(opened.notices)
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


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    if not peer:
        return "unknown"  # It left before anybody asked.
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
