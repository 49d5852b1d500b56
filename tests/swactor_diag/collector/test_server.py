"""The collector as its clients meet it: over HTTP, on a real port."""

import asyncio
import contextlib
import gzip
import io
import json
import logging
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from swactor_diag.collector.config import CollectorConfig, ConfigError
from swactor_diag.collector.server import CollectorServer
from swactor_diag.schema.submission import BODY_BYTES_MAX

NODE = "a1" * 32
OTHER = "b2" * 32
TOKEN = "correct-horse-battery"


class Client:
    """Posts and gets; every answer as (status, decoded JSON or bytes)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, token: str | None = None) -> None:
        self.session = session
        self.url = url
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def post(
        self, kind: str, body: bytes = b"{}", *, batch: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        sent = {"x-run-id": "run-1", "x-node-id": NODE, **self.headers}
        if batch is not None:
            sent["x-batch-id"] = batch
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(
            f"{self.url}/diag/{kind}", data=io.BytesIO(body), headers=sent
        ) as answer:
            assert answer.content_type == "application/json"
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, Any]:
        url = URL(self.url + path, encoded=True)
        async with self.session.get(url, headers=self.headers) as answer:
            raw = await answer.read()
            return answer.status, raw if answer.content_type == "application/gzip" else json.loads(raw)


def config(root: Path, **changes: Any) -> CollectorConfig:
    return msgspec.structs.replace(CollectorConfig(root=root, port=0, finalize_wait_s=0.2), **changes)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with CollectorServer(config(tmp_path)) as server, aiohttp.ClientSession() as session:
        yield Client(session, server.url)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def file_at(path: str | Path) -> bytes:
    return Path(path).read_bytes()


def manifest(bundle: bytes, run: str = "run-1") -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        reader = archive.extractfile(f"{run}/MANIFEST.json")
        assert reader is not None
        found: dict[str, Any] = json.load(reader)
        return found


async def records(client: Client, run: str = "run-1") -> dict[str, bytes]:
    """Every record in the bundle of a run: batch id and body."""
    _, bundle = await client.get(f"/diag/bundle/{run}")
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        for file in manifest(bundle, run)["files"]:
            reader = archive.extractfile(f"{run}/{file['path']}")
            assert reader is not None
            found[file["batch_id"]] = reader.read()
    return found


async def test_a_stored_record_is_answered_with_the_three_times(client: Client) -> None:
    status, answer = await client.post("boot", x_node_send_ms="123")

    assert status == 200
    assert set(answer) == {"clock"}
    clock = answer["clock"]
    assert clock["node_send_ms_echoed"] == 123
    assert clock["collector_send_ms"] >= clock["collector_recv_ms"] > 0


@pytest.mark.parametrize("sent", ["", "-1", "soon", "1.5", "9" * 40, "\u0663"])
async def test_a_send_time_that_is_no_number_counts_as_zero(client: Client, sent: str) -> None:
    _, answer = await client.post("boot", x_node_send_ms=sent)

    assert answer["clock"]["node_send_ms_echoed"] == 0


@pytest.mark.parametrize(
    ("kind", "body", "headers", "status", "code"),
    [
        ("bogus", b"{}", {}, 404, "unknown_kind"),
        ("boot", b"{}", {"x_run_id": ""}, 400, "header_missing"),
        ("boot", b"{}", {"x_node_id": ""}, 400, "header_missing"),
        ("boot", b"{}", {"x_run_id": "../etc"}, 400, "invalid_id"),
        ("boot", b"{}", {"x_node_id": "a/b"}, 400, "invalid_id"),
        ("boot", b"{}", {"x_batch_id": ".."}, 400, "invalid_id"),
        ("boot", b"{}", {"x_run_id": "x" * 129}, 400, "invalid_id"),
        ("events", b"{nope", {}, 400, "not_json"),
        ("events", b"[" * 100_000, {}, 400, "not_json"),
        ("events", b"[]", {"Content_Encoding": "gzip"}, 400, "body_damaged"),
        ("events", gzip.compress(b"[]", mtime=0)[:-4], {"Content_Encoding": "gzip"}, 400, "body_incomplete"),
        ("events", gzip.compress(b"[]", mtime=0) + b"x", {"Content_Encoding": "gzip"}, 400, "body_damaged"),
        ("events", b"[]", {"Content_Encoding": "br"}, 415, "unsupported_encoding"),
    ],
)
async def test_what_is_wrong_is_refused_in_json_and_leaves_nothing_behind(
    client: Client, tmp_path: Path, *, kind: str, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answered, answer = await client.post(kind, body, **headers)

    assert (answered, answer["code"]) == (status, code)
    assert answer["error"]
    assert names_in(tmp_path) == []
    assert (await client.post("boot"))[0] == 200


async def test_a_compressed_body_is_stored_inflated(client: Client) -> None:
    status, _ = await client.post(
        "events", gzip.compress(b"[1]", mtime=0), batch="b-events-1", Content_Encoding="gzip"
    )

    assert status == 200
    assert await records(client) == {"b-events-1": b"[1]"}


async def test_the_largest_legal_body_passes_and_one_byte_more_does_not(client: Client) -> None:
    """FC-049."""
    largest = b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"'

    assert (await client.post("events", largest))[0] == 200
    status, answer = await client.post("events", largest + b" ")

    assert (status, answer["code"]) == (413, "body_too_large")


async def test_a_small_body_that_inflates_to_a_large_one_is_refused(client: Client) -> None:
    """FC-049."""
    bomb = gzip.compress(bytes(100_000_000), compresslevel=1)

    status, answer = await client.post("events", bomb, Content_Encoding="gzip")

    assert (status, answer["code"]) == (413, "body_too_large")
    assert (await client.post("boot"))[0] == 200


async def test_a_body_that_stalls_is_given_up_and_nobody_else_waits(tmp_path: Path) -> None:
    """FC-050."""
    async with (
        CollectorServer(config(tmp_path, body_deadline_s=0.2)) as server,
        aiohttp.ClientSession() as session,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", URL(server.url).port)
        writer.write(
            b"POST /diag/boot HTTP/1.1\r\nHost: c\r\nContent-Length: 100\r\n"
            b"x-run-id: run-1\r\nx-node-id: n\r\n\r\nabc"
        )
        assert (await Client(session, server.url).post("boot"))[0] == 200

        answer = await asyncio.wait_for(reader.read(), 10)

        writer.close()
        await writer.wait_closed()
        assert list((await records(Client(session, server.url))).values()) == [b"{}"]
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "body_timeout"


async def test_a_client_that_goes_away_inside_its_body_stores_nothing(client: Client) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", URL(client.url).port)
    writer.write(
        b"POST /diag/boot HTTP/1.1\r\nHost: c\r\nContent-Length: 100\r\n"
        b"x-run-id: run-1\r\nx-node-id: n\r\n\r\n{"
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    assert (await client.post("boot"))[0] == 200
    assert list((await records(client)).values()) == [b"{}"]


async def test_a_batch_id_with_another_body_is_a_conflict(client: Client) -> None:
    await client.post("events", b"[1]", batch="b-events-1")

    assert (await client.post("events", b"[1]", batch="b-events-1"))[0] == 200
    status, answer = await client.post("events", b"[2]", batch="b-events-1")

    assert (status, answer["code"]) == (422, "batch_conflict")


@pytest.mark.parametrize("kind", ["anything%2Fevents", "%2Fevents", "log"])
async def test_what_only_ends_like_a_kind_is_none(client: Client, kind: str) -> None:
    url = URL(f"{client.url}/diag/{kind}", encoded=True)
    async with client.session.post(url, data=b"[]", headers={"x-run-id": "r", "x-node-id": "n"}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (404, "unknown_kind")
    assert (await client.get("/diag/runs"))[1] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/diag/bundle/never-heard-of", 404),
        ("/diag/bundle/..%2f..%2fx", 400),
        ("/diag/bundle/%2e%2e", 400),
        ("/diag/bundle/a%00b", 400),
        ("/diag/bundle/a%0d%0aX:y", 400),
        ("/diag/bundle/@bundles", 400),
        ("/diag/boot", 405),
        ("/nothing/here", 404),
    ],
)
async def test_a_get_that_leads_nowhere_is_answered_in_json(client: Client, path: str, status: int) -> None:
    """FC-048."""
    answered, answer = await client.get(path)

    assert answered == status
    assert set(answer) == {"error", "code"}


async def test_a_run_that_was_never_finalized_has_a_bundle(client: Client) -> None:
    await client.post("boot", b'{"role": "stage", "stage_index": 1}')
    await client.post("events", b"[]")

    status, bundle = await client.get("/diag/bundle/run-1")

    assert status == 200
    assert manifest(bundle)["finalize_received"] is False
    (node,) = manifest(bundle)["nodes"]
    assert (node["label"], node["boot_recorded"], node["finalize_recorded"]) == ("stage-1", True, False)
    assert (await client.get("/diag/bundle/run-1"))[1] == bundle


async def test_a_finalize_answers_with_a_path_and_a_hint(client: Client) -> None:
    await client.post("boot")

    status, answer = await client.post("finalize", b"")

    assert status == 200
    assert answer["hints"] == {"snapshot_now": True}
    stored = file_at(answer["body"]["bundle_path"])
    assert manifest(stored)["finalize_received"] is True
    assert (await client.get("/diag/bundle/run-1"))[1] == stored


async def test_a_finalize_waits_for_the_snapshot_that_it_asked_for(tmp_path: Path) -> None:
    async with (
        CollectorServer(config(tmp_path, finalize_wait_s=30)) as server,
        aiohttp.ClientSession() as session,
    ):
        client = Client(session, server.url)
        await client.post("boot", x_node_id=OTHER)
        finalize = asyncio.create_task(client.post("finalize"))
        while "hints" not in (await client.post("events", b"[]", x_node_id=OTHER))[1]:
            continue
        assert not finalize.done()

        await client.post("snapshot", b'{"trigger": {"kind": "OnDemand"}}', x_node_id=OTHER)

        status, answer = await asyncio.wait_for(finalize, 10)
    assert status == 200
    nodes = manifest(file_at(answer["body"]["bundle_path"]))["nodes"]
    labels = {node["label"]: node for node in nodes}
    assert labels[f"node-{OTHER[:8]}"]["snapshots"] == 1


async def test_more_records_after_the_finalize_are_in_the_next_bundle(client: Client) -> None:
    await client.post("boot")
    await client.post("finalize")

    await client.post("boot", x_node_id=OTHER)

    assert len(manifest((await client.get("/diag/bundle/run-1"))[1])["nodes"]) == 2


async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    """FC-058."""
    async with aiohttp.ClientSession() as session:
        async with CollectorServer(config(tmp_path)) as server:
            client = Client(session, server.url)
            await client.post("boot", b'{"role": "relay"}', batch="b1-boot-1")
            before = (await client.get("/diag/bundle/run-1"))[1]
            listed = (await client.get("/diag/runs"))[1]
        async with CollectorServer(config(tmp_path)) as server:
            client = Client(session, server.url)

            assert (await client.get("/diag/runs"))[1] == listed
            assert (await client.post("boot", b'{"role": "relay"}', batch="b1-boot-1"))[0] == 200
            assert (await client.get("/diag/bundle/run-1"))[1] == before


async def test_the_list_of_runs_is_sorted_and_counts(client: Client) -> None:
    for run in ("zeta", "alpha"):
        await client.post("boot", x_run_id=run)
    await client.post("finalize", x_run_id="alpha")

    status, runs = await client.get("/diag/runs")

    assert status == 200
    assert [(run["run_id"], run["finalize_received"]) for run in runs] == [("alpha", True), ("zeta", False)]
    assert runs[1]["nodes"][0]["boot_recorded"] is True


async def test_a_damaged_record_degrades_health_and_costs_only_itself(client: Client, tmp_path: Path) -> None:
    """FC-044."""
    await client.post("boot", b'{"role": "relay"}', batch="b1-boot-1")
    await client.post("events", b"[1, 2, 3]", batch="b1-events-1")
    torn = tmp_path / "run-1" / "@log" / "main-000001.seg"
    torn.write_bytes(torn.read_bytes().replace(b"[1, 2, 3]", b"[1, 2, 7]"))

    status, bundle = await client.get("/diag/bundle/run-1")

    assert status == 200
    (aside,) = manifest(bundle)["set_aside"]
    assert aside["path"] == f"run-1/@log/{torn.name}"
    health = (await client.get("/healthz"))[1]
    assert (health["status"], health["files_set_aside"]) == ("degraded", 1)


async def test_a_reader_that_goes_away_spoils_no_later_download_and_leaves_nothing_open(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FC-051, of an archive that is being made and of one that is kept."""
    for number in range(20):
        await client.post("events", json.dumps([str(n * number) for n in range(20_000)]).encode())
    for is_kept in (False, True):
        if is_kept:
            await client.post("finalize")
        open_before = open_below(tmp_path)
        for _ in range(20):
            async with client.session.get(f"{client.url}/diag/bundle/run-1") as answer:
                await answer.content.read(10)
                answer.close()

        status, bundle = await client.get("/diag/bundle/run-1")

        assert status == 200
        assert manifest(bundle)["nodes"][0]["event_batches"] == 20
        async with asyncio.timeout(10):
            while open_below(tmp_path) != open_before:
                await client.get("/healthz")
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    assert unfinished_below(tmp_path) == []


def unfinished_below(root: Path) -> list[Path]:
    return list(root.rglob("*.part"))


def open_below(root: Path) -> list[str]:
    """Return the files below ``root`` that this process has open, and with it the collector."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith(f"{root}/"):
                found.append(target)
    return sorted(found)


async def test_health_says_that_all_is_well(client: Client) -> None:
    assert await client.get("/healthz") == (
        200,
        {"status": "ok", "files_set_aside": 0, "storage": "ok"},
    )


async def test_with_a_token_every_route_but_health_asks_for_it(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n")
    async with (
        CollectorServer(config(tmp_path / "root", token_file=secret)) as server,
        aiohttp.ClientSession() as session,
    ):
        stranger, friend = Client(session, server.url), Client(session, server.url, token=TOKEN)
        wrong = Client(session, server.url, token=TOKEN[:-1])

        for client in (stranger, wrong):
            assert (await client.post("boot"))[0] == 401
            assert (await client.get("/diag/runs"))[0] == 401
            assert (await client.get("/diag/bundle/run-1"))[0] == 401
        assert (await friend.post("boot"))[0] == 200
        assert (await friend.get("/diag/bundle/run-1"))[0] == 200
        assert (await stranger.get("/healthz"))[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_that_others_can_reach_needs_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="token file"):
        CollectorServer(config(tmp_path, host=host))


@pytest.mark.parametrize("content", ["", "short", "ümlaut-ümlaut-ümlaut"])
def test_a_token_file_of_no_use_is_refused(tmp_path: Path, content: str) -> None:
    secret = tmp_path / "token"
    secret.write_text(content)

    with pytest.raises(ConfigError):
        CollectorServer(config(tmp_path, host="0.0.0.0", token_file=secret))


async def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    async with CollectorServer(config(tmp_path)) as server:
        port = URL(server.url).port
        with pytest.raises(ConfigError, match="cannot listen"):
            await CollectorServer(config(tmp_path, port=port)).__aenter__()
