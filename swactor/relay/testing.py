"""For tests, drills and benchmarks of a relay: a client that speaks its bytes, and a place for its events.

Owns: `RelayClient`, which does what an iroh endpoint does up to an open session and then whatever the test
wants, and `RelayEvents`. Not here: datagrams with a meaning; two real endpoints test those.
"""

import asyncio
import socket
import ssl
import struct
from typing import Self, TypeVar

import aiohttp
from aiohttp import WSMsgType
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from swactor import Event
from swactor.relay.config import Subprotocol
from swactor.relay.protocol import CHALLENGE_BYTES, FRAME_BYTES_MAX, FrameType, signed_digest

E = TypeVar("E", bound=Event)

DEADLINE_S = 10.0
"""Every wait below ends with TimeoutError after this."""


class RelayEvents:
    """Takes what a relay emits and lets a test wait for it."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self._more = asyncio.Event()

    def emit(self, event: Event) -> None:
        """Take one event; give this to the relay."""
        self.all.append(event)
        self._more.set()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type so far, in order."""
        return [event for event in self.all if isinstance(event, kind)]

    async def wait(self, kind: type[E], *, count: int = 1) -> list[E]:
        """Wait until there are ``count`` events of one type and return them."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.of(kind)) < count:
                self._more.clear()
                await self._more.wait()
        return self.of(kind)


class RelayClient:
    """One client of the relay at ``url``; equal seeds give equal keys."""

    def __init__(
        self,
        url: str,
        seed: int = 1,
        *,
        subprotocol: str = Subprotocol.V2,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._key = Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32, "big"))
        self._subprotocol = subprotocol
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._websocket: aiohttp.ClientWebSocketResponse | None = None
        self.key = self._key.public_key().public_bytes_raw()
        self.node_id = self.key.hex()
        connector = None if tls is None else aiohttp.TCPConnector(ssl=tls)
        self.http = aiohttp.ClientSession(connector=connector)

    @property
    def websocket(self) -> aiohttp.ClientWebSocketResponse:
        """The websocket, once connected.

        Raises:
            RuntimeError: it is not.
        """
        if self._websocket is None:
            raise RuntimeError("not connected")
        return self._websocket

    async def connect(self) -> bytes:
        """Connect and return the relay's challenge.

        Raises:
            ValueError: the relay says something else first.
        """
        self._websocket = await self.http.ws_connect(
            f"{self._url}relay",
            protocols=(self._subprotocol,),
            headers=self._headers,
            max_msg_size=2 * FRAME_BYTES_MAX,
        )
        message = await self.receive()
        if len(message) != 1 + CHALLENGE_BYTES or message[0] != FrameType.CHALLENGE:
            raise ValueError(f"not a challenge: {message.hex()}")
        return message[1:]

    def answer(self, challenge: bytes) -> bytes:
        """Return the right answer to ``challenge``."""
        signature = self._key.sign(signed_digest(challenge))
        return bytes([FrameType.AUTH]) + self.key + bytes([len(signature)]) + signature

    async def open(self) -> Self:
        """Connect and prove the key; the session is open on return.

        Raises:
            ValueError: the relay does not follow the protocol.
        """
        await self.send(self.answer(await self.connect()))
        for expected in (FrameType.CONFIRM, FrameType.PING):  # The relay measures the round trip at once.
            message = await self.receive()
            if message[0] != expected:
                raise ValueError(f"not {expected.name}: {message.hex()}")
        return self

    async def send(self, message: bytes) -> None:
        """Send any bytes as one message."""
        await self.websocket.send_bytes(message)

    async def send_datagram(self, to: "RelayClient", payload: bytes) -> None:
        """Send one datagram to another client."""
        await self.send(bytes([FrameType.DATAGRAM_TO]) + to.key + b"\x00" + payload)

    async def receive(self) -> bytes:
        """Return the next message."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.websocket.receive_bytes()

    async def goodbye(self) -> tuple[int | None, str]:
        """Read on until the relay closes; return its code and text, None and empty without a close frame."""
        async with asyncio.timeout(DEADLINE_S):
            while (message := await self.websocket.receive()).type is WSMsgType.BINARY:
                pass
        return message.data, message.extra or ""

    async def close(self) -> None:
        """End orderly, with a close frame."""
        await self.websocket.close(code=1000, message=b"bye")
        await self.http.close()

    async def drop(self) -> None:
        """Close the socket without a close frame."""
        await self.http.close()
        if self._websocket is not None:
            await self._websocket.close()

    async def reset(self) -> None:
        """Close the socket so that the relay sees a reset; one that has ended already stays as it is."""
        stream = self.websocket.get_extra_info("socket")
        if stream is not None:
            linger_zero = struct.pack("ii", 1, 0)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
        await self.drop()
