"""The way in: a websocket, a challenge, a proof, and the rules about who may have a session.

Owns: the handshake of one client with its deadline, its denial, and the counting of both.
Not here: what bytes mean (``protocol``), the session that follows (``_carrier``).
"""

import asyncio
import contextlib
import heapq

from aiohttp import WSCloseCode, WSMsgType, web

from swactor.abc import Clock, RandomStream
from swactor.relay._tap import Tap
from swactor.relay.config import RelayConfig, Subprotocol
from swactor.relay.drills import Drills
from swactor.relay.protocol import (
    CHALLENGE_BYTES,
    FRAME_BYTES_MAX,
    ProtocolError,
    SignatureError,
    authorized,
    challenge_message,
    choose_subprotocol,
    denial_message,
    verify_auth,
)
from swactor.relay.sessions import Refusal, SessionBook

# aiohttp counts a message at this size as too big, and so do we, by type, from FRAME_BYTES_MAX on.
_MESSAGE_BYTES_MAX = FRAME_BYTES_MAX + 1024


_TURN_WAIT_S_MAX = 8.0
"""Endpoints give a relay up that has not admitted them within 10 s; a turn that came later would be lost."""


class Turns:
    """Hands out turns at a steady rate, as far ahead as anybody waits for one. Pure."""

    def __init__(self, per_s: float) -> None:
        self._gap_ns = round(1e9 / per_s)
        self._next_ns = 0
        self._given_back_ns: list[int] = []  # A heap.

    def take(self, now_ns: int) -> int | None:
        """Return when the next turn is; None, and none is taken, when that is too late."""
        while self._given_back_ns:
            turn_ns = heapq.heappop(self._given_back_ns)
            if turn_ns >= now_ns:
                return turn_ns
        turn_ns = max(self._next_ns, now_ns)
        if turn_ns - now_ns > _TURN_WAIT_S_MAX * 1e9:
            return None
        self._next_ns = turn_ns + self._gap_ns
        return turn_ns

    def give_back(self, turn_ns: int) -> None:
        """Let somebody else have a turn that was taken."""
        heapq.heappush(self._given_back_ns, turn_ns)


class Door:
    """Lets clients into one relay, until it is shut."""

    def __init__(
        self, config: RelayConfig, *, book: SessionBook, drills: Drills, clock: Clock, random: RandomStream
    ) -> None:
        self.is_shut = False
        rate = config.opens_per_s_max
        self._turns = None if rate is None else Turns(rate)
        self._clock = clock
        self._config = config
        self._book = book
        self._drills = drills
        self._random = random
        self._handshaking: set[asyncio.Transport] = set()
        self._waiting: set[asyncio.Transport] = set()  # Have proved who they are; as many as there are turns.

    def shut(self) -> None:
        """Admit nobody from now on, also those who are half way in."""
        self.is_shut = True
        for transport in self._handshaking | self._waiting:
            transport.abort()

    def websocket_for(self, request: web.Request) -> tuple[web.WebSocketResponse, Subprotocol]:
        """Return the websocket to answer ``request`` with, not yet prepared.

        Raises:
            web.HTTPException: there is no common version, or no room.
        """
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        subprotocol = choose_subprotocol(offered, self._config.subprotocols)
        if subprotocol is None:
            self._book.refuse(Refusal.NO_SUBPROTOCOL)
            raise web.HTTPBadRequest(text=f"offer one of {', '.join(self._config.subprotocols)}")
        if self.is_shut or len(self._handshaking) >= self._config.handshakes_max:
            self._book.refuse(Refusal.RELAY_STOPPING if self.is_shut else Refusal.RELAY_FULL)
            raise web.HTTPServiceUnavailable
        websocket = web.WebSocketResponse(
            protocols=(subprotocol,),
            autoclose=False,
            compress=False,
            max_msg_size=_MESSAGE_BYTES_MAX,
            timeout=self._config.goodbye_timeout_s,
        )
        return websocket, subprotocol

    async def handshake(
        self, request: web.Request, websocket: web.WebSocketResponse, transport: asyncio.Transport
    ) -> bytes | None:
        """Return the key of a client that proved it and may use this relay; None when it was refused."""
        self._handshaking.add(transport)
        try:
            return await self._handshake(request, websocket, transport)
        finally:
            self._handshaking.discard(transport)

    async def _handshake(
        self, request: web.Request, websocket: web.WebSocketResponse, transport: asyncio.Transport
    ) -> bytes | None:
        farewell: bytes | None = None
        code = WSCloseCode.POLICY_VIOLATION
        refusal: Refusal
        try:
            async with asyncio.timeout(self._config.handshake_timeout_s):
                key = await self._prove(websocket)
            self._handshaking.discard(transport)
            denied = self._denied(request, key)
            if denied is None:
                denied = await self._wait_for_turn(transport) or self._denied(request, key)
        except TimeoutError:
            refusal = Refusal.HANDSHAKE_TIMEOUT
        except ConnectionError:
            refusal = Refusal.RELAY_STOPPING if self.is_shut else Refusal.HANDSHAKE_ABANDONED
        except SignatureError as error:
            refusal, farewell = Refusal.BAD_SIGNATURE, denial_message(str(error))
        except ProtocolError:
            refusal, code = Refusal.BAD_HANDSHAKE, WSCloseCode.PROTOCOL_ERROR
        else:
            if denied is None:
                return key
            refusal, farewell = denied, denial_message(denied.replace("_", " "))
        self._book.refuse(refusal)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(self._config.goodbye_timeout_s):
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

    async def _wait_for_turn(self, transport: asyncio.Transport) -> Refusal | None:
        """Return None when it is this client's turn, or at once why it has none; ConnectionError: it left."""
        if self._turns is None:
            return None
        now_ns = self._clock.monotonic_ns()
        turn_ns = self._turns.take(now_ns)
        if turn_ns is None:
            return Refusal.RELAY_BUSY
        self._waiting.add(transport)
        try:
            async with asyncio.timeout((turn_ns - now_ns) / 1e9):
                await Tap.of(transport).lost.wait()
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(transport)
        self._turns.give_back(turn_ns)
        raise ConnectionAbortedError("left before its turn")

    def _denied(self, request: web.Request, key: bytes) -> Refusal | None:
        """Return why a client that proved its key may still not use this relay."""
        token, allowed = self._config.token, self._config.allowed_ids
        if token is not None and not authorized(request.headers.get("Authorization", ""), token):
            return Refusal.BAD_TOKEN
        if allowed is not None and key.hex() not in allowed:
            return Refusal.ID_NOT_ALLOWED
        if key in self._drills.refused:
            return Refusal.ID_REFUSED
        if self.is_shut:
            return Refusal.RELAY_STOPPING
        return Refusal.RELAY_FULL if self._book.is_full() else None
