"""Below aiohttp, one TCP connection: how many there are, how long they may keep us waiting, how they ended.

Owns: the limits of connections of one address and of bytes that wait in the kernel, the deadline for a
request, and what the wire did by itself at the end, which aiohttp alone cannot tell.
Not here: requests (see ``server``), sessions (see ``_carrier``).
"""

import asyncio
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from typing import cast

from swactor.relay.config import RelayConfig
from swactor.relay.events import CloseReason
from swactor.relay.sessions import Refusal

_UNSENT_BYTES_MAX = 128 * 1024
"""What the kernel takes beyond what is on its way. Its own limit is megabytes: a client that reads slowly
would seem not to read at all until a third of them were gone, and whatever is sent would wait behind them."""
_BUFFER_BYTES_MAX = 64 * 1024
"""What waits in the transport before the writer has to pause. With TLS asyncio waits for eight times that."""

_INFO_BYTES = 128
_ACKED_BYTES = struct.Struct("=120xQ")
"""Of Linux's ``struct tcp_info``, since 4.1: the last field in so many bytes."""


class Connections:
    """The TCP connections of one relay, counted by address."""

    def __init__(self, config: RelayConfig, *, refuse: Callable[[Refusal], None]) -> None:
        self._of_address: Counter[str] = Counter()
        self._per_address_max = config.connections_per_address_max
        self.request_timeout_s = config.handshake_timeout_s
        self.refuse = refuse

    def enter(self, address: str) -> bool:
        """Count one more connection of ``address``; False, and not counted, when it has too many."""
        if self._of_address[address] >= self._per_address_max:
            self.refuse(Refusal.ADDRESS_LIMIT)
            return False
        self._of_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count one connection less."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


class Tap(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol ``inner`` and remembers how the connection ended.

    Whenever no request is being answered, the next one has to be complete within the request timeout.
    """

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.fin_received = False
        self.lost = asyncio.Event()
        self.error: Exception | None = None
        self.paused = False
        self.on_paused: Callable[[], None] = _nothing
        self.on_resumed: Callable[[], None] = _nothing
        self.on_lost: Callable[[], None] = _nothing

    @classmethod
    def of(cls, transport: asyncio.Transport) -> "Tap":
        """Return the tap of a connection."""
        tap = transport.get_protocol()
        assert isinstance(tap, cls)  # noqa: S101 - the server puts one on each connection
        return tap

    # -- from the event loop -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one without saying so.
        self._transport = stream = cast("asyncio.Transport", transport)
        stream.set_write_buffer_limits(high=_BUFFER_BYTES_MAX)
        _bound_unsent(stream)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else "unknown"
        if not self._connections.enter(address):
            stream.abort()
            return
        self._address = address
        self.await_request()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._address is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        self.fin_received = True
        return self._inner.eof_received() if self._address is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is None:
            return  # It was one too many and nobody has heard of it.
        self._connections.leave(self._address)
        self.request_came()
        self.error = exc
        self.lost.set()
        self._inner.connection_lost(exc)
        self.on_lost()

    def pause_writing(self) -> None:
        self.paused = True
        self._inner.pause_writing()
        self.on_paused()

    def resume_writing(self) -> None:
        self.paused = False
        self._inner.resume_writing()
        self.on_resumed()

    # -- the deadline --------------------------------------------------------------------------------------

    def await_request(self) -> None:
        """From now on the next request has to come within the request timeout."""
        self.request_came()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._connections.request_timeout_s, self._give_up)

    def request_came(self) -> None:
        """There is a request; its handler has its own deadlines."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self._transport is not None and not self.lost.is_set():
            self._connections.refuse(Refusal.NO_REQUEST)
            self._transport.abort()

    # -- from the carrier ----------------------------------------------------------------------------------

    def acked_bytes(self) -> int | None:
        """Return how many bytes the client's kernel has taken; None where ours does not tell."""
        connection = None if self._transport is None else self._transport.get_extra_info("socket")
        if sys.platform != "linux" or connection is None:
            return None
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        except OSError:
            return None  # It is closed by now.
        return int(_ACKED_BYTES.unpack(info)[0]) if len(info) == _INFO_BYTES else None

    # -- the end -------------------------------------------------------------------------------------------

    def wire_cause(self) -> tuple[CloseReason, str] | None:
        """Return what the wire did by itself, or None while it has done nothing."""
        # uvloop tells an orderly end of TLS only by the loss of the connection, without an error.
        if self.fin_received or (self.lost.is_set() and self.error is None):
            return CloseReason.CLIENT_GONE, ""
        if isinstance(self.error, ConnectionResetError | BrokenPipeError):
            return CloseReason.CONNECTION_RESET, type(self.error).__name__
        if self.error is not None:
            return CloseReason.TRANSPORT_ERROR, f"{type(self.error).__name__}: {self.error}"
        return None


def _bound_unsent(stream: asyncio.Transport) -> None:
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    connection = stream.get_extra_info("socket")
    if option is not None and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_BYTES_MAX)


def _nothing() -> None:
    """Do nothing; stands in until a carrier listens."""
