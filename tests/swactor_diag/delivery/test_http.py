"""The HTTP sink against a real server on loopback, on every event loop that is supported."""

import asyncio
import gzip
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import anyio
import httpcore
import msgspec
import pytest
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from swactor import SystemClock
from swactor.abc import Cancellable, Loop
from swactor_diag.delivery.http import HttpSink
from swactor_diag.delivery.sink import (
    RecordRefusedError,
    SinkAddressError,
    SinkError,
    SinkMisconfiguredError,
    SinkUnavailableError,
)
from swactor_diag.introspect import Resolved
from swactor_diag.schema.submission import Outgoing, RecordKind
from swactor_diag.zstd_library import zstd

GOOD = {
    "clock": {"node_send_ms_echoed": 1, "collector_recv_ms": 2, "collector_send_ms": 3},
    "hints": {"snapshot_now": True},
    "body": {"bundle_path": "/b.tar.gz"},
}


@dataclass
class Server:
    """Answers every request alike and remembers what came."""

    url: str = ""
    status: int = 200
    unknown: set[str] = field(default_factory=set)
    """Encodings that it does not take."""
    reply: object = field(default_factory=lambda: GOOD)
    headers: dict[str, str] = field(default_factory=dict)
    hold: bool = False
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if self.hold:
            await asyncio.sleep(60)
        self.requests.append((request.path, headers, await request.content.read()))
        body = self.reply if isinstance(self.reply, bytes) else msgspec.json.encode(self.reply)
        status = 415 if headers.get("content-encoding") in self.unknown else self.status
        return web.Response(status=status, body=body, headers=self.headers)


@pytest.fixture(autouse=True)
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_post("/diag/{kind}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
def server() -> Iterator[Server]:
    """The server needs asyncio, whatever its client runs on."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(running(Server())) as up,
    ):
        yield up


@pytest.fixture
async def post(server: Server) -> AsyncIterator[HttpSink]:
    sink = HttpSink(server.url + "/", clock=SystemClock(), token="secret", timeout_s=5)
    yield sink
    await sink.close()


def encodings(server: Server) -> list[str]:
    return [headers.get("content-encoding", "") for _, headers, _ in server.requests]


def unpacked(request: tuple[str, dict[str, str], bytes]) -> bytes:
    _, headers, body = request
    match headers.get("content-encoding"):
        case "zstd":
            return zstd.decompress(body)
        case "gzip":
            return gzip.decompress(body)
        case _:
            return body


def record(size: int = 5) -> Outgoing:
    return Outgoing(
        kind=RecordKind.EVENTS, run_id="r", node_id="ab" * 32, batch_id="b1-events-000001", body=b"[" * size
    )


async def test_a_record_arrives_with_its_names_and_the_answer_comes_back(
    post: HttpSink, server: Server
) -> None:
    answer = await post.post(record())
    assert (answer.snapshot_now, answer.bundle_path, answer.clock.collector_recv_ms) == (True, "/b.tar.gz", 2)
    path, headers, body = server.requests[0]
    assert (path, body) == ("/diag/events", b"[[[[[")
    assert headers["x-run-id"] == "r"
    assert headers["x-node-id"] == "ab" * 32
    assert headers["x-batch-id"] == "b1-events-000001"
    assert abs(int(headers["x-node-send-ms"]) - SystemClock().wall_ms()) < 10_000
    assert headers["authorization"] == "Bearer secret"
    assert "content-encoding" not in headers


async def test_a_large_body_is_packed(post: HttpSink, server: Server) -> None:
    await post.post(record(5_000))
    (request,) = server.requests
    assert encodings(server) == ["zstd"]
    assert unpacked(request) == b"[" * 5_000


async def test_a_server_that_does_not_know_an_encoding_gets_the_next_at_once_and_from_then_on(
    post: HttpSink, server: Server
) -> None:
    server.unknown = {"zstd"}
    await post.post(record(5_000))
    await post.post(record(5_000))
    assert encodings(server) == ["zstd", "gzip", "gzip"]
    assert unpacked(server.requests[-1]) == b"[" * 5_000
    server.unknown = {"gzip"}
    await post.post(record(5_000))
    assert encodings(server)[3:] == ["gzip", ""]
    assert unpacked(server.requests[-1]) == b"[" * 5_000


async def test_a_node_without_the_zstd_library_sends_gzip(server: Server) -> None:
    program = """
import anyio, sys
sys.modules["backports.zstd"] = sys.modules["compression.zstd"] = None
from swactor_diag.delivery.http import HttpSink
from swactor_diag.schema.submission import Outgoing, RecordKind
record = Outgoing(kind=RecordKind.EVENTS, run_id="r", node_id="ab" * 32, batch_id="b", body=b"[" * 5000)
anyio.run(HttpSink(sys.argv[1]).post, record)
"""
    await anyio.run_process([sys.executable, "-c", program, server.url])
    assert encodings(server) == ["gzip"]
    assert unpacked(server.requests[0]) == b"[" * 5_000


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_fc056_final_statuses(post: HttpSink, server: Server, status: int) -> None:
    server.status = status
    with pytest.raises(RecordRefusedError):
        await post.post(record())


@pytest.mark.parametrize("status", [300, 301, 308, 399, 401, 403, 404, 405, 415])
async def test_fc056_statuses_of_a_wrong_set_up(post: HttpSink, server: Server, status: int) -> None:
    server.status = status
    with pytest.raises(SinkMisconfiguredError):
        await post.post(record())


@pytest.mark.parametrize("status", [408, 429, 500, 503, 507])
async def test_every_other_status_is_worth_another_try(post: HttpSink, server: Server, status: int) -> None:
    server.status, server.headers = status, {"Retry-After": "20"}
    with pytest.raises(SinkUnavailableError) as caught:
        await post.post(record())
    assert caught.value.retry_after_s == 20


@pytest.mark.parametrize(
    ("asked", "wait_s"),
    [
        ("3.5", 3.5),
        ("Sun, 06 Nov 1994 08:50:07 GMT", 30),
        ("Sunday, 06-Nov-94 08:50:07 GMT", 30),
        ("Sun, 06 Nov 1994 08:50:07 -0000", 30),
        ("Sun, 06 Nov 1994 08:40:00 GMT", 0),
        ("-5", None),
        ("nan", None),
        ("soon", None),
        (f"Sun, 06 Nov {10**30} 08:40:00 GMT", None),
    ],
)
async def test_retry_after_is_a_number_or_a_date_by_the_answers_own_clock(
    post: HttpSink, server: Server, *, asked: str, wait_s: float | None
) -> None:
    server.status = 503
    server.headers = {"Date": "Sun, 06 Nov 1994 08:49:37 GMT", "Retry-After": asked}
    with pytest.raises(SinkUnavailableError) as caught:
        await post.post(record())
    assert caught.value.retry_after_s == wait_s


async def test_a_date_without_the_answers_clock_is_read_by_ours(post: HttpSink, server: Server) -> None:
    until_s = SystemClock().wall_ms() / 1000 + 100
    server.status = 429
    server.headers = {"Date": "unknown", "Retry-After": formatdate(until_s, usegmt=True)}
    with pytest.raises(SinkUnavailableError) as caught:
        await post.post(record())
    assert caught.value.retry_after_s == pytest.approx(95, abs=6)


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_what_a_server_says_is_one_short_line_without_control_codes(
    post: HttpSink, server: Server, status: int
) -> None:
    server.status, server.reply = status, b"\x1b[31mno\r\nway \xe2\x80\xae\xff\0" + b"\x07" * 10_000
    with pytest.raises(SinkError) as caught:
        await post.post(record())
    said = str(caught.value)
    assert said.startswith(rf"{status}: \x1b[31mno way \u202e�\x00\x07")
    assert said.isprintable()
    assert len(said) < 250


async def test_an_answer_that_is_no_answer_means_a_wrong_address(post: HttpSink, server: Server) -> None:
    server.reply = b"<html>welcome</html>"
    with pytest.raises(SinkMisconfiguredError, match="no collector"):
        await post.post(record())


async def test_cookies_are_not_kept(post: HttpSink, server: Server) -> None:
    server.headers = {"Set-Cookie": "balancer=1; Path=/"}
    await post.post(record())
    await post.post(record())
    assert ["cookie" in headers for _, headers, _ in server.requests] == [False, False]


async def test_nobody_listens(unused_port: Callable[[], int]) -> None:
    sink = HttpSink(f"http://127.0.0.1:{unused_port()}", clock=SystemClock())
    with pytest.raises(SinkUnavailableError):
        await sink.post(record())
    await sink.close()


class Addresses:
    """A resolver that has the same answer for every name."""

    def __init__(self, *addresses: str) -> None:
        self.resolved = Resolved(addresses, error="" if addresses else "no such name")
        self.asked: list[str] = []

    def __call__(self, loop: Loop) -> "Addresses":
        self.loop = loop
        return self

    def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
        self.asked.append(host)
        return self.loop.call_later(0, lambda: done(self.resolved))

    def nameservers(self) -> tuple[str, ...]:
        return ()


async def test_each_address_of_a_name_is_tried(server: Server) -> None:
    resolver = Addresses("127.0.0.2", "127.0.0.1")
    sink = HttpSink(server.url.replace("127.0.0.1", "collector.test"), resolver=resolver)
    for _ in range(2):
        await sink.post(record())
    await sink.close()
    assert resolver.asked == ["collector.test"], "once a connection"
    assert server.requests[0][1]["host"] == server.url.removeprefix("http://").replace(
        "127.0.0.1", "collector.test"
    )


async def test_an_address_that_is_silent_does_not_hold_up_the_next(server: Server) -> None:
    port = int(server.url.rpartition(":")[2])
    with socket.socket() as silent, socket.socket() as first, socket.socket() as second:
        silent.bind(("127.0.0.2", port))
        silent.listen(0)
        for one in (first, second):  # its queue is full now, and it accepts nobody
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", port))
        sink = HttpSink(f"http://collector.test:{port}", resolver=Addresses("127.0.0.2", "127.0.0.1"))
        with anyio.fail_after(5):
            await sink.post(record())
        await sink.close()
    assert len(server.requests) == 1


async def test_a_post_that_is_cancelled_leaves_none_of_two_connections_open(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[httpcore.AsyncNetworkStream] = []
    both = anyio.Event()
    connect = httpcore.AnyIOBackend.connect_tcp

    async def connect_together(
        self: httpcore.AnyIOBackend, host: str, **where: Any
    ) -> httpcore.AsyncNetworkStream:
        with anyio.CancelScope(shield=True):
            stream = await connect(self, host, **where)
            opened.append(stream)
            if len(opened) == 2:
                posting.cancel()
                both.set()
            await both.wait()
        return stream

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_together)
    url = server.url.replace("127.0.0.1", "collector.test")
    sink = HttpSink(url, resolver=Addresses("127.0.0.1", "127.0.0.1"))
    with anyio.CancelScope() as posting:
        await sink.post(record())
    await sink.close()
    assert posting.cancelled_caught
    for stream in opened:
        with pytest.raises(httpcore.ReadError):
            await stream.read(1, timeout=1)


async def test_a_name_without_address_is_worth_another_try() -> None:
    sink = HttpSink("http://collector.test", resolver=Addresses())
    with pytest.raises(SinkUnavailableError, match=r"collector\.test: no such name"):
        await sink.post(record())
    await sink.close()


async def test_fc054_a_server_that_never_answers_costs_the_limit_and_no_more(server: Server) -> None:
    server.hold = True
    sink = HttpSink(server.url, timeout_s=0.3)
    with anyio.fail_after(10), pytest.raises(SinkUnavailableError, match="no answer within"):
        await sink.post(record())
    await sink.close()


async def test_a_post_that_is_cancelled_leaves_a_sink_that_works(post: HttpSink, server: Server) -> None:
    server.hold = True
    with anyio.move_on_after(0.3):
        await post.post(record())
    server.hold = False
    await post.post(record())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "collector:9080",
        "ftp://collector",
        "http://",
        "http://[::1",
        "http://collector:soon",
        "http://collector:99999",
        "http://collector..example",
        "http://collector\n",
        "http://collector:0",
        "http://col lector:9080",
        "http://col\u3000lector:9080",
        " http://collector:9080",
        "http://collector:9080 ",
        "http://collector:9080?token=1",
        "http://collector:9080/path?",
        "http://collector:9080/#part",
    ],
)
def test_what_is_no_address_is_said_at_once(url: str) -> None:
    with pytest.raises(SinkAddressError, match="http://host:port"):
        HttpSink(url)


@pytest.mark.parametrize("url", ["ftp://me:hunter2@h/x", "me:hunter2@h:9080", "http://h:x/?token=hunter2"])
def test_what_is_no_address_is_said_without_what_may_be_secret_in_it(url: str) -> None:
    with pytest.raises(SinkAddressError) as refused:
        HttpSink(url)
    assert "hunter2" not in str(refused.value)


async def test_after_close_it_opens_again(post: HttpSink) -> None:
    await post.post(record())
    await post.close()
    await post.post(record())


@pytest.fixture
def unused_port() -> Callable[[], int]:

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return find
