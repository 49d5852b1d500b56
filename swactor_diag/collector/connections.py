"""Below HTTP: how many connections there may be, and how long one may be open without a request.

Owns: both limits, that a peer which reads nothing is given up, and that what is not HTTP leaves one line in
the log and nothing of what was sent. Not here: requests (``routes``), bodies and their deadline (``bodies``).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

HTTP_LOG = logging.getLogger("swactor_diag.collector.http")
"""What aiohttp writes to."""

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_BYTES_ACKED = slice(120, 128)
"""``tcpi_bytes_acked`` in Linux's ``struct tcp_info``."""


class Connections:
    """The open connections of one collector; a ``count_max`` of 0 is no limit to their number."""

    def __init__(self, *, count_max: int, idle_s: float) -> None:
        self.count = 0
        self.refused = 0
        self.count_max = count_max
        self.idle_s = idle_s

    def guarded(self, http: asyncio.Protocol) -> asyncio.Protocol:
        """Return what stands between one connection and ``http``, aiohttp's protocol."""
        return _Connection(http, self)


async def send(request: web.Request, sending: Awaitable[None], *, within_s: float) -> None:
    """Await ``sending``, a write to the peer of ``request``; its connection ends if the peer does not read.

    Raises:
        ConnectionError: the peer has gone, or did not read for ``within_s``.
    """
    loop = asyncio.get_running_loop()
    progress = None if request.transport is None else _Progress(request.transport)
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if progress is not None and progress.was_made():
            timer = loop.call_later(within_s, look)
        else:
            limit.reschedule(loop.time())

    timer = loop.call_later(within_s, look)
    try:
        async with asyncio.timeout(None) as limit:
            await sending
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionAbortedError(f"nothing was read for {within_s:g} s") from None
    finally:
        timer.cancel()


class _Progress:
    """Whether a peer takes what it is sent, from one look to the next.

    The transport says how much it holds, but one with TLS has passed all on to another, which does not.
    On Linux the kernel says what the peer's has acknowledged.
    """

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._seen = self._look()

    def was_made(self) -> bool:
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> tuple[int, bytes]:
        peer = self._transport.get_extra_info("socket")
        acknowledged = b""
        if peer is not None and _TCP_INFO is not None:
            with contextlib.suppress(OSError, ValueError):  # it is closed; the latter by uvloop
                info = peer.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _BYTES_ACKED.stop)
                acknowledged = info[_BYTES_ACKED]
        return self._transport.get_write_buffer_size(), acknowledged


class Answering:
    """A block in which the connection of ``request`` is not idle.

    Nothing in it may wait for the peer without a deadline of its own: bodies have one, and so has `send`.
    """

    def __init__(self, request: web.Request) -> None:
        protocol = None if request.transport is None else request.transport.get_protocol()
        self._connection = protocol if isinstance(protocol, _Connection) else None  # else it has gone already

    def __enter__(self) -> None:
        """Begin to answer."""
        if self._connection is not None:
            self._connection.is_answering = True

    def __exit__(self, *_: object) -> None:
        """From now on the next request has to come in time."""
        if self._connection is not None:
            self._connection.is_answering = False
            self._connection.idle_since_s = asyncio.get_running_loop().time()


class _Connection(asyncio.Protocol):
    """Passes everything on, and ends a connection on which no whole request comes for too long."""

    def __init__(self, http: asyncio.Protocol, connections: Connections) -> None:
        self._http = http
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_answering = False
        self.idle_since_s = 0.0
        self._progress: _Progress | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connections = self._connections
        stream = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        if connections.count_max and connections.count >= connections.count_max:
            connections.refused += 1
            stream.abort()
            return
        connections.count += 1
        self._transport = stream
        self._progress = _Progress(stream)
        self.idle_since_s = asyncio.get_running_loop().time()
        self._look_again(connections.idle_s)
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._transport is None else self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # it was one too many, and nobody has heard of it
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._connections.count -= 1
        self._http.connection_lost(exc)

    def _look_again(self, after_s: float) -> None:
        # One timer that looks now and then costs a request less than one that it has to start anew.
        self._timer = asyncio.get_running_loop().call_later(after_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        was_read = self._progress is not None and self._progress.was_made()  # an answer that was given
        if self.is_answering or was_read:
            self.idle_since_s = now_s
        left_s = self._connections.idle_s - (now_s - self.idle_since_s)
        if left_s > 0:
            self._look_again(left_s)
        elif self._transport is not None:
            self._transport.abort()


class _WithoutContents(logging.Filter):
    """aiohttp shows what it could not read as HTTP, in a traceback; there may be a token in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        problem = record.exc_info[1] if record.exc_info else None
        if isinstance(problem, HttpProcessingError):
            record.exc_info = None
            record.msg = f"{record.msg}: not HTTP ({type(problem).__name__})"
        return True


HTTP_LOG.addFilter(_WithoutContents())
