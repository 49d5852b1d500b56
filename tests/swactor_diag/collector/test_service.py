"""What a collector offers beside taking records: tokens, limits, kept archives, live streams, figures."""

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from swactor_diag.collector.config import CollectorConfig, ConfigError, resolve, shown
from swactor_diag.collector.server import CollectorServer
from swactor_diag.zstd_library import zstd

NODE = "a1" * 32
INGEST, READ = "ingest-0123456789", "read-0123456789ab"


def config(root: Path, **changes: Any) -> CollectorConfig:
    return msgspec.structs.replace(CollectorConfig(root=root, port=0, finalize_wait_s=0.1), **changes)


class Client:
    """Asks one collector; answers are (status, headers, body)."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url

    async def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.url + path, data=body, headers=sent) as answer:
            return answer.status, answer.headers, await answer.read()

    async def post(
        self, kind: str, body: bytes = b"{}", *, batch: str | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        named = {"x_run_id": "run-1", "x_node_id": NODE, **headers}
        if batch is not None:
            named["x_batch_id"] = batch
        return await self.ask("POST", f"/diag/{kind}", body, **named)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with CollectorServer(config(tmp_path, fsync=True)) as server, aiohttp.ClientSession() as session:
        yield Client(session, server.url)


async def test_a_token_allows_what_it_is_for_and_nothing_else(tmp_path: Path) -> None:
    secret = tmp_path / "tokens"
    secret.write_text(f"# of this collector\ningest: {INGEST}\nread: {READ}\n")
    async with (
        CollectorServer(config(tmp_path / "root", token_file=secret)) as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, server.url)
        statuses = {
            (name, what): (await client.ask(method, path, b"{}", Authorization=f"Bearer {token}", **ids))[0]
            for name, token in (("ingest", INGEST), ("read", READ), ("none", "x" * 20))
            for what, method, path, ids in (
                ("post", "POST", "/diag/boot", {"x_run_id": "r", "x_node_id": "n"}),
                ("runs", "GET", "/diag/runs", {}),
                ("metrics", "GET", "/metrics", {}),
                ("health", "GET", "/healthz", {}),
            )
        }

    assert statuses == {
        ("ingest", "post"): 200,
        ("ingest", "runs"): 403,
        ("ingest", "metrics"): 403,
        ("read", "post"): 403,
        ("read", "runs"): 200,
        ("read", "metrics"): 200,
        ("none", "post"): 401,
        ("none", "runs"): 401,
        ("none", "metrics"): 401,
        **{(name, "health"): 200 for name in ("ingest", "read", "none")},
    }


async def test_a_kept_archive_is_served_in_parts_and_not_twice(client: Client) -> None:
    await client.post("boot", batch="b-boot-1")
    await client.post("finalize", batch="b-finalize-1")
    status, headers, whole = await client.ask("GET", "/diag/bundle/run-1")
    etag = headers["ETag"]

    part = await client.ask("GET", "/diag/bundle/run-1", Range="bytes=10-19")
    tail = await client.ask("GET", "/diag/bundle/run-1", Range="bytes=-5", If_Range=etag)
    beyond = await client.ask("GET", "/diag/bundle/run-1", Range=f"bytes={len(whole)}-")
    known = await client.ask("GET", "/diag/bundle/run-1", If_None_Match=etag)

    assert (status, headers["Accept-Ranges"]) == (200, "bytes")
    assert (part[0], part[2]) == (206, whole[10:20])
    assert part[1]["Content-Range"] == f"bytes 10-19/{len(whole)}"
    assert (tail[0], tail[2]) == (206, whole[-5:])
    assert (beyond[0], known[0], known[2]) == (416, 304, b"")

    await client.post("events", b"[]", batch="b-events-1")
    later = await client.ask(
        "GET", "/diag/bundle/run-1", If_None_Match=etag, Range="bytes=0-9", If_Range=etag
    )

    assert (later[0], later[2][:2]) == (200, b"\x1f\x8b")  # the old one is never served again
    assert later[1]["ETag"] != etag


async def test_a_run_tells_when_each_node_was_seen(client: Client) -> None:
    await client.post("boot", b'{"role": "relay"}', batch="b-boot-1")
    await client.post("events", b"[]", batch="b-events-3")

    run = json.loads((await client.ask("GET", "/diag/runs/run-1"))[2])

    (node,) = run["nodes"]
    assert (node["label"], node["event_batches"]) == ("relay", 1)
    assert node["last_record_at_ms"] >= node["first_record_at_ms"] > 0
    assert node["boots"][0]["batches_missing"] == 2
    assert (await client.ask("GET", "/diag/runs/nothing"))[0] == 404


async def test_a_watcher_sees_records_as_they_come(client: Client) -> None:
    async with client.session.get(f"{client.url}/diag/stream/run-1") as stream:
        await client.post("events", b'[{"n":\n1}]', batch="b-events-1")
        name = await asyncio.wait_for(stream.content.readline(), 10)
        data = await asyncio.wait_for(stream.content.readline(), 10)

    seen = json.loads(data.removeprefix(b"data: "))
    assert name == b"event: events\n"
    assert (seen["run_id"], seen["node_id"], seen["kind"], seen["seq"]) == ("run-1", NODE, "events", 1)
    assert seen["body"] == [{"n": 1}]


async def test_open_streams_do_not_hold_up_the_end(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session:
        async with CollectorServer(config(tmp_path)) as server:
            stream = await session.get(f"{server.url}/diag/stream/run-1")
        assert await asyncio.wait_for(stream.read(), 10) == b""


async def test_figures_and_description_name_every_endpoint(client: Client) -> None:
    await client.post("boot", batch="b-boot-1")
    figures = (await client.ask("GET", "/metrics"))[2].decode()
    description = json.loads((await client.ask("GET", "/openapi.json"))[2])

    assert 'swactor_collector_records_total{kind="boot"} 1.0' in figures
    assert "swactor_collector_stored_bytes" in figures
    assert set(description["paths"]) == {
        "/diag/{kind}",
        "/diag/bundle/{run_id}",
        "/diag/runs",
        "/diag/runs/{run_id}",
        "/diag/runs/{run_id}/pin",
        "/diag/stream/{run_id}",
        "/diag/trims",
        "/healthz",
        "/metrics",
        "/openapi.json",
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (zstd.compress(b"[1]"), 200),
        (zstd.compress(b"[1]")[:-2], 400),
        (zstd.compress(b"[1]") + b"x", 400),
        (b"not zstd", 400),
        (zstd.compress(bytes(100_000_000)), 413),
    ],
    ids=["whole", "cut", "more", "garbage", "bomb"],
)
async def test_zstd_is_inflated_within_the_limits(client: Client, body: bytes, status: int) -> None:
    """FC-049."""
    assert (await client.post("events", body, Content_Encoding="zstd"))[0] == status


async def test_bodies_may_not_fill_the_memory(tmp_path: Path) -> None:
    async with (
        CollectorServer(config(tmp_path, bodies_bytes_max=1_000)) as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, server.url)
        status, headers, body = await client.post(
            "events", gzip.compress(b"[%s]" % (b" " * 2_000)), Content_Encoding="gzip"
        )
        small = await client.post("boot")

    assert (status, json.loads(body)["code"]) == (503, "busy")
    assert int(headers["Retry-After"]) >= 1
    assert small[0] == 200


async def test_a_node_that_sends_too_much_is_told_to_wait(tmp_path: Path) -> None:
    async with (
        CollectorServer(config(tmp_path, node_records_per_s=1)) as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, server.url)
        answers = [await client.post("events", b"[%d]" % number) for number in range(20)]
        other = await client.post("boot", x_node_id="another")

    assert {answer[0] for answer in answers[:10]} == {200}
    assert answers[-1][0] == 429
    assert int(answers[-1][1]["Retry-After"]) >= 1
    assert other[0] == 200


async def test_beyond_the_cap_records_are_refused_and_reading_goes_on(tmp_path: Path) -> None:
    """FC-045."""
    async with (
        CollectorServer(config(tmp_path, disk_bytes_max=3_000)) as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, server.url)
        first = await client.post("events", b"[%s]" % (b" " * 2_000))
        status, headers, _ = await client.post("events", b"[%s]" % (b" " * 2_001))
        bundle = await client.ask("GET", "/diag/bundle/run-1")

    assert (first[0], status, bundle[0]) == (200, 507, 200)
    assert int(headers["Retry-After"]) >= 1


async def test_datagrams_come_back(tmp_path: Path) -> None:
    async with CollectorServer(config(tmp_path, udp_port=0)) as server:
        assert server.udp_port is not None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendto(
                asking, b"x" * 1_501, ("127.0.0.1", server.udp_port)
            )  # too long for an echo
            await loop.sock_sendto(asking, b"PROBE", ("127.0.0.1", server.udp_port))
            assert await asyncio.wait_for(loop.sock_recv(asking, 100), 10) == b"PROBE"


async def test_tls_by_files(tmp_path: Path, tls: tuple[Path, Path]) -> None:
    cert, key = tls
    trusting = ssl.create_default_context(cafile=str(cert))
    async with (
        CollectorServer(config(tmp_path / "root", tls_cert=cert, tls_key=key)) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session,
    ):
        assert server.url.startswith("https://")
        assert (await Client(session, server.url).post("boot"))[0] == 200


def test_settings_come_from_the_nearest_source(tmp_path: Path) -> None:
    file = tmp_path / "collector.toml"
    file.write_text('[collector]\nport = 1\nhost = "::1"\nfsync = true\npins = ["a"]\n')

    found = resolve(
        {"port": 3, "root": None}, {"SWACTOR_DIAG_PORT": "2", "SWACTOR_DIAG_PINS": "b, c"}, file=file
    )

    assert (found.port, found.host, found.fsync, found.pins) == (3, "::1", True, ("b", "c"))
    again = tmp_path / "again.toml"
    again.write_text(shown(found))
    assert resolve({}, {}, file=again) == found
    assert resolve({}, {"SWACTOR_DIAG_BIND": "[::]:77"}).port == 77


@pytest.mark.parametrize("text", [b"port = ", b"\xff", b"a = " + b"[" * 100_000])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "collector.toml"
    with pytest.raises(ConfigError, match=r"collector\.toml: No such file"):
        resolve({}, {}, file=file)
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=r"collector\.toml: "):
        resolve({}, {}, file=file)


@pytest.mark.parametrize(
    "settings",
    [{"port": "70000"}, {"no_such": 1}, {"fsync": "perhaps"}, {"tls_cert": "x"}, {"trim_every_s": 0}],
)
def test_a_wrong_setting_is_named(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        resolve(settings, {})
