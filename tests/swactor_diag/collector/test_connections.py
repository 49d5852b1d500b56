"""Below HTTP: a collector lets nobody hold a connection for nothing, and writes no secret into its log."""

import asyncio
import contextlib
import io
import logging
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import pytest
import uvloop
from aiohttp import web
from yarl import URL

from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.connections import Connections, send
from swactor_diag.collector.server import CollectorServer

from .conftest import CollectorProcess, Processes, until

WAIT_S = 10
TOKEN = "correct-horse-battery"


def config(root: Path, **changes: Any) -> CollectorConfig:
    return msgspec.structs.replace(CollectorConfig(root=root, port=0, finalize_wait_s=0.1), **changes)


async def connected(server: CollectorServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", URL(server.url).port)


async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return what still came before the collector closed the connection."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"G", b"POST /diag/boot HTTP/1.1\r\nHost: c\r\nx-run-id: r"])
async def test_a_connection_without_a_whole_request_is_ended(tmp_path: Path, sent: bytes) -> None:
    """FC-050, before there is a body."""
    async with CollectorServer(config(tmp_path, idle_s=0.2)) as server:
        reader, writer = await connected(server)
        writer.write(sent)

        assert await ended(reader, writer) == b""


async def test_a_header_a_second_does_not_keep_a_connection_open(tmp_path: Path) -> None:
    async with CollectorServer(config(tmp_path, idle_s=0.2)) as server:
        reader, writer = await connected(server)
        writer.write(b"GET /healthz HTTP/1.1\r\n")

        ending = asyncio.create_task(ended(reader, writer))
        while not (await asyncio.wait([ending], timeout=0.02))[0]:
            writer.write(b"x: y\r\n")

        assert await ending == b""


async def test_a_connection_that_is_used_stays_and_a_stream_is_no_idle_one(tmp_path: Path) -> None:
    async with CollectorServer(config(tmp_path, idle_s=0.3)) as server, aiohttp.ClientSession() as session:
        stream = await session.get(f"{server.url}/diag/stream/run-1")
        reader, writer = await connected(server)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while loop.time() < began_s + 1:  # three times as long as it may be idle
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: c\r\n\r\n")
            assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
            await asyncio.wait_for(reader.readuntil(b"}"), WAIT_S)
        await session.post(
            f"{server.url}/diag/boot", data=b"{}", headers={"x-run-id": "run-1", "x-node-id": "n"}
        )

        assert await asyncio.wait_for(stream.content.readline(), WAIT_S) == b"event: boot\n"
        stream.close()
        writer.close()


async def test_one_connection_too_many_is_closed_and_the_others_live(tmp_path: Path) -> None:
    async with CollectorServer(config(tmp_path, connections_max=2)) as server:
        first = await connected(server)
        second = await connected(server)
        first[1].write(b"GET /healthz HTTP/1.1\r\nHost: c\r\n\r\n")
        assert (await asyncio.wait_for(first[0].readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")

        third = await connected(server)
        assert await ended(*third) == b""

        second[1].write(b"GET /metrics HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n")
        figures = await asyncio.wait_for(second[0].read(), WAIT_S)
        assert b"swactor_collector_connections 2.0" in figures
        assert b"swactor_collector_connections_refused 1.0" in figures
        for _, writer in (first, second):
            writer.close()


@pytest.mark.parametrize("path", ["/diag/bundle/run-1", "/diag/stream/run-1"])
async def test_a_reader_that_stops_reading_is_given_up(tmp_path: Path, path: str) -> None:
    """Neither a bundle nor a stream waits for ever for who does not take it."""
    bodies = [msgspec.json.encode([os.urandom(8_000_000).hex()]) for _ in range(2)]
    headers = {"x-run-id": "run-1", "x-node-id": "n"}
    async with CollectorServer(config(tmp_path, idle_s=0.5)) as server, aiohttp.ClientSession() as session:

        async def post() -> None:
            for body in bodies:
                data = io.BytesIO(body)
                async with session.post(f"{server.url}/diag/events", data=data, headers=headers) as answer:
                    assert answer.status == 200

        async def figures() -> str:
            async with session.get(f"{server.url}/metrics") as answer:
                return await answer.text()

        if "bundle" in path:
            await post()
        reader, writer = await connected_slowly(server)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: c\r\n\r\n".encode())
        assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
        if "stream" in path:
            await post()

        async with asyncio.timeout(WAIT_S):
            while "swactor_collector_connections 1.0" not in await figures():
                pass
        writer.close()


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_an_answer_that_is_read_slowly_arrives_whole(tls: tuple[Path, Path], *, over_tls: bool) -> None:
    body = bytes(16_000_000)

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=body)

    http, connections = web.Server(answer), Connections(count_max=0, idle_s=0.2)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*tls)
    listener = await asyncio.get_running_loop().create_server(
        lambda: connections.guarded(http()), "127.0.0.1", 0, ssl=context if over_tls else None
    )
    reader, writer = await slow_connection(
        listener.sockets[0].getsockname()[1], trusting=tls[0] if over_tls else None
    )
    writer.write(b"GET / HTTP/1.1\r\nHost: c\r\n\r\n")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
    assert await read_slowly(reader, len(body), within_s=1) == len(body)

    assert head.startswith(b"HTTP/1.1 200 ")
    assert await ended(reader, writer) == b""  # and then it is idle
    listener.close()
    await http.shutdown()


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_a_bundle_that_is_read_slowly_arrives_whole(
    tmp_path: Path, tls: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, *, over_tls: bool
) -> None:
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 0.2)  # it is 30 s, by default
    files = dict(zip(("tls_cert", "tls_key"), tls, strict=True)) if over_tls else {}
    trusting = ssl.create_default_context(cafile=str(tls[0]))
    body = io.BytesIO(msgspec.json.encode([os.urandom(7_500_000).hex()]))
    async with (
        CollectorServer(config(tmp_path / "root", idle_s=0.3, **files)) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session,
    ):
        headers = {"x-run-id": "run-1", "x-node-id": "n"}
        async with session.post(f"{server.url}/diag/events", data=body, headers=headers) as posted:
            assert posted.status == 200
        port = URL(server.url).port
        assert port is not None
        reader, writer = await slow_connection(port, trusting=tls[0] if over_tls else None)
        writer.write(b"GET /diag/bundle/run-1 HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert await read_slowly(reader, 7_500_000, within_s=5) == 7_500_000
        assert (await ended(reader, writer)).endswith(b"0\r\n\r\n")  # the last chunk


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_reader_that_has_gone_is_given_up_whatever_waits_for_it(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def check() -> None:
        ended = asyncio.Event()

        async def answer(request: web.BaseRequest) -> web.Response:
            writer.close()
            with pytest.raises(ConnectionAbortedError):
                await send(cast("web.Request", request), never(), within_s=0.1)
            ended.set()
            return web.Response()

        async def never() -> None:
            await asyncio.Event().wait()

        http, connections = web.Server(answer), Connections(count_max=0, idle_s=WAIT_S)
        listener = await asyncio.get_running_loop().create_server(
            lambda: connections.guarded(http()), "127.0.0.1", 0
        )
        _, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: c\r\n\r\n")
        await asyncio.wait_for(ended.wait(), WAIT_S)
        listener.close()

    run(check())


async def read_slowly(reader: asyncio.StreamReader, size: int, *, within_s: float) -> int:
    """Read ``size`` bytes as evenly as can be within that time; return how many came."""
    loop = asyncio.get_running_loop()
    began_s, received = loop.time(), 0
    while received < size and (piece := await asyncio.wait_for(reader.read(50_000), WAIT_S)):
        received += len(piece)
        await asyncio.wait([loop.create_future()], timeout=began_s + within_s * received / size - loop.time())
    return received


async def connected_slowly(server: CollectorServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = URL(server.url).port
    assert port is not None
    return await slow_connection(port)


async def slow_connection(
    port: int, *, trusting: Path | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection whose kernel takes little ahead of its reader; with TLS when ``trusting``."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    if trusting is None:
        return await asyncio.open_connection(sock=client)
    context = ssl.create_default_context(cafile=str(trusting))
    return await asyncio.open_connection(sock=client, ssl=context, server_hostname="127.0.0.1")


def test_no_more_connections_than_there_are_descriptors(processes: Processes, tmp_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -S -n 250; ulimit -H -n 300; exec "$@"', "sh")
    collector = processes.collector("--root", str(tmp_path), "--port", "0", before=limited)
    limits = Path(f"/proc/{collector.process.pid}/limits").read_text()
    assert re.search(r"Max open files\s+300\s+300", limits)

    with contextlib.ExitStack() as opened:
        for _ in range(90):
            opened.enter_context(socket.create_connection(("127.0.0.1", collector.port)))
        assert b"connections_refused 0.0" in collector.get("/metrics")
        for _ in range(10):
            opened.enter_context(socket.create_connection(("127.0.0.1", collector.port)))
        late = opened.enter_context(socket.create_connection(("127.0.0.1", collector.port)))
        late.settimeout(WAIT_S)
        with contextlib.suppress(ConnectionResetError):
            assert late.recv(1) == b""
    figures = until(lambda: refused(collector), "the others are closed")
    assert figures == 1


def refused(collector: CollectorProcess) -> int:
    with contextlib.suppress(OSError):
        found = re.search(rb"connections_refused (\d+)", collector.get("/metrics"))
        return 0 if found is None else int(found[1])
    return 0


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /diag/boot HTTP/1.1\r\nAuthorization : Bearer %b\r\n\r\n",
        b"POST /diag/boot HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer %b\x00\r\n\r\n",
        b"POST /diag/boot?token=%b HTTP/9\r\nHost: c\r\n\r\n",
        b"POST /diag/boot HTTP/1.1\r\nHost: c\r\nx-run-id: %b/\r\nContent-Length: 0\r\n\r\n",
        b"POST /diag/boot HTTP/1.1\r\nAuthorization: Bearer %b\r\nx-run-id: r\r\nContent-Length: 1\r\n\r\n{",
        b"%b",
    ],
)
async def test_no_secret_reaches_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    """Whatever a client gets wrong, what it sent is not written down."""
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    caplog.set_level(logging.DEBUG)
    async with CollectorServer(config(tmp_path / "root", token_file=secret)) as server:
        reader, writer = await connected(server)
        writer.write(sent.replace(b"%b", TOKEN.encode()))
        writer.write_eof()
        await ended(reader, writer)

    assert TOKEN not in caplog.text
    assert "Traceback" not in caplog.text
