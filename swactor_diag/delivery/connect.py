"""How the HTTP client gets its connections: by lookups that can be left alone.

Owns: the `Resolver` seam in place of the client's own lookup, the race between the addresses of a name, and
the transport that httpx is given for it. Not here: what is sent over them (``http``).

Left to itself, the client looks names up in threads that asyncio waits for at its end: with a resolver that
does not answer, the process would not end.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial

import anyio
import httpcore
import httpx

from swactor import running_loop
from swactor.abc import Loop, Waiter
from swactor_diag.introspect import Resolved, Resolver

HEAD_START_S = 0.25
"""How long one address is tried alone before the next one is, too (RFC 8305)."""

NETWORK_ERRORS = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)
"""What `ResolvingTransport` raises besides the errors of httpx."""


class ResolvingTransport(httpx.AsyncBaseTransport):
    """A transport of httpx, for HTTP/1.1, whose names are looked up by ``resolver``; made on its loop."""

    def __init__(
        self, resolver: Callable[[Loop], Resolver], *, certificates: ssl.SSLContext | None, kept_s: float
    ) -> None:
        self._loop = running_loop()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=certificates,
            keepalive_expiry=kept_s,
            network_backend=_ResolvingBackend(self._loop, resolver(self._loop)),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        url = request.url
        response = await self._pool.handle_async_request(
            httpcore.Request(
                request.method,
                httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()
        self._loop.close()


class _Body(httpx.AsyncByteStream):
    """What a response of httpcore brings, as httpx has it."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._response.aiter_stream():
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


class _ResolvingBackend(httpcore.AsyncNetworkBackend):
    """Opens connections for httpcore; gives it addresses only."""

    def __init__(self, loop: Loop, resolver: Resolver) -> None:
        self._loop = loop
        self._resolver = resolver
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the protocol's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection to the address of ``host`` that is the first to have one."""
        resolved = await self._look_up(host)
        if not resolved.addresses:
            raise httpcore.ConnectError(f"{host}: {resolved.error or 'the name has no address'}")
        connect = partial(
            self._network.connect_tcp,
            port=port,
            timeout=timeout,
            local_address=local_address,
            socket_options=socket_options,
        )
        return await _first_of(resolved.addresses, connect)

    async def _look_up(self, host: str) -> Resolved:
        answer: Waiter[Resolved] = self._loop.waiter()
        lookup = self._resolver.resolve(host, answer.set)
        try:
            return await answer.wait()
        finally:
            lookup.cancel()


async def _first_of(
    addresses: Sequence[str], connect: Callable[[str], Awaitable[httpcore.AsyncNetworkStream]]
) -> httpcore.AsyncNetworkStream:
    connected: list[httpcore.AsyncNetworkStream] = []
    failures: list[Exception] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            connected.append(await connect(address))
        except NETWORK_ERRORS as error:
            failures.append(error)
        else:
            race.cancel_scope.cancel()
        ended.set()

    try:
        async with anyio.create_task_group() as race:
            for address in addresses:
                ended = anyio.Event()
                race.start_soon(attempt, address, ended)
                with anyio.move_on_after(HEAD_START_S):
                    await ended.wait()
        if not connected:
            raise failures[0]
        return connected.pop(0)
    finally:
        with anyio.CancelScope(shield=True):  # all of them, also while we are cancelled
            for other in connected:  # two at the same moment, or nobody waits any more
                await other.aclose()
