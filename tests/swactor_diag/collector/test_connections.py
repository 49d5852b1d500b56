"""Below HTTP: a collector lets nobody hold a connection for nothing, and writes no secret into its log."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from swactor_diag.collector.config import CollectorConfig
from swactor_diag.collector.server import CollectorServer

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
