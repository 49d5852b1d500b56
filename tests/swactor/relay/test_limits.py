"""Who gets in, how long one may keep the relay waiting, TLS, and what it shows to whom."""

import asyncio
import contextlib
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from swactor.relay import RelayConfig, RelayConfigError, RelaySessionClosed, Subprotocol
from swactor.relay.protocol import FrameType
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

from .attack import ATTACKER, enter_over_tls

TOKEN = "open-sesame"
NewClient = Callable[..., RelayClient]
NewRelay = Callable[..., Awaitable[RelayServer]]


def refusals(relay: RelayServer) -> dict[str, int]:
    return dict(relay.report().refusals_by_reason)


@contextlib.asynccontextmanager
async def raw(relay: RelayServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(relay.url.rsplit(":", 1)[1].strip("/"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the relay closes; a reset ends it as well."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_only_listed_ids_are_admitted(new_relay: NewRelay, new_client: NewClient) -> None:
    listed = RelayClient("http://nowhere/", 1)
    await listed.drop()
    relay = await new_relay(allowed_ids=frozenset({listed.node_id}))

    await new_client(relay, 1).open()
    stranger = new_client(relay, 2)
    await stranger.send(stranger.answer(await stranger.connect()))

    assert await stranger.receive() == b"\x03\x0eid not allowed"
    assert refusals(relay) == {"id_not_allowed": 1}


def test_a_list_of_ids_will_do_beyond_loopback_but_must_be_ids() -> None:
    assert RelayConfig(host="10.0.0.7", allowed_ids=frozenset({"ab" * 32})).token is None
    with pytest.raises(RelayConfigError, match="allowed_ids: a node id is 64 lower-case hex digits"):
        RelayConfig(allowed_ids=frozenset({"ABC"}))


async def test_a_relay_can_keep_to_one_version(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay(subprotocols=(Subprotocol.V1,))

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await new_client(relay, subprotocol="iroh-relay-v2").connect()
    await new_client(relay, subprotocol="iroh-relay-v1").open()

    assert refused.value.status == 400


async def test_one_address_has_a_limited_number_of_connections(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay(connections_per_address_max=2)
    first = await new_client(relay, 1).open()
    await new_client(relay, 2).open()

    with pytest.raises(aiohttp.ClientError):
        await new_client(relay, 3).connect()
    assert refusals(relay).keys() == {"address_limit"}

    await first.close()
    async with asyncio.timeout(DEADLINE_S):
        while not await is_let_in(new_client(relay, 4)):
            pass  # The relay has not seen the end of the first connection yet.


async def is_let_in(client: RelayClient) -> bool:
    try:
        await client.open()
    except aiohttp.ClientError:
        return False
    return True


@pytest.mark.parametrize("sent", [b"", b"GET /relay HTTP/1.1\r\nHost: a\r\n", b"\x00\x01\x02"])
async def test_a_connection_without_a_whole_request_is_closed_at_the_deadline(
    new_relay: NewRelay, sent: bytes
) -> None:
    relay = await new_relay(handshake_timeout_s=0.2)
    async with raw(relay) as (reader, writer):
        writer.write(sent)
        answer = await ended(reader)

    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0]


async def test_a_slow_second_request_has_a_deadline_too(new_relay: NewRelay) -> None:
    relay = await new_relay(handshake_timeout_s=0.3)
    async with raw(relay) as (reader, writer):
        writer.write(b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in await reader.readline()

        writer.write(b"GET /ping HTTP/1.1\r\n")

        await ended(reader)


async def test_an_open_session_has_no_such_deadline(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(handshake_timeout_s=0.1)
    client = await new_client(relay).open()

    async with raw(relay) as (reader, _):
        await ended(reader)  # The deadline of this one was set later than that of the session's connection.

    await client.send(b"\x09abcdefgh")
    assert await client.receive() == b"\x0aabcdefgh"
    assert events.of(RelaySessionClosed) == []


# -- TLS -----------------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that only the test trusts; return its file and its key's."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_file, key_file


async def test_over_tls_a_session_opens_and_its_end_is_told_apart(
    new_relay: NewRelay, events: RelayEvents, tmp_path: Path
) -> None:
    cert_file, key_file = certificate(tmp_path)
    relay = await new_relay(certificate_file=cert_file, key_file=key_file)
    assert relay.url.startswith("https://")
    trust = ssl.create_default_context(cafile=str(cert_file))
    trust.check_hostname = False
    a, b = [await RelayClient(relay.url, seed, tls=trust).open() for seed in (1, 2)]

    await a.send_datagram(b, b"hello")
    assert (await b.receive())[34:] == b"hello"
    await a.close()
    await events.wait(RelaySessionClosed)
    await b.drop()

    closed = await events.wait(RelaySessionClosed, count=2)
    assert [event.close_reason for event in closed] == ["client_closed", "client_gone"]


async def test_over_tls_no_more_waits_for_a_client_that_does_not_read_than_without(
    new_relay: NewRelay, events: RelayEvents, tmp_path: Path
) -> None:
    cert_file, key_file = certificate(tmp_path)
    relay = await new_relay(certificate_file=cert_file, key_file=key_file, write_timeout_s=0.2)
    trust = ssl.create_default_context(cafile=str(cert_file))
    trust.check_hostname = False
    a, b = [await RelayClient(relay.url, seed, tls=trust).open() for seed in (1, 2)]

    async with asyncio.timeout(DEADLINE_S):
        while not events.of(RelaySessionClosed):
            await a.send_datagram(b, bytes(1_000))
            await asyncio.sleep(0)  # The relay runs on this loop.
    await a.close()
    await b.drop()

    closed = events.of(RelaySessionClosed)[0]
    assert (closed.peer_node_id_hex, closed.close_reason) == (b.node_id, "slow_client")
    assert int(str(closed.detail).split()[0]) < 3 * 64 * 1024  # The limit, and a write beyond it.


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a client has taken")
async def test_over_tls_a_client_that_reads_slowly_but_steadily_is_not_cut(
    new_relay: NewRelay, events: RelayEvents, tmp_path: Path
) -> None:
    cert_file, key_file = certificate(tmp_path)
    relay = await new_relay(certificate_file=cert_file, key_file=key_file, write_timeout_s=0.5)
    trust = ssl.create_default_context(cafile=str(cert_file))
    trust.check_hostname = False
    source = await RelayClient(relay.url, 1, tls=trust).open()
    reader = await asyncio.to_thread(enter_over_tls, relay.url, trust, receive_buffer_bytes=16_384)
    is_enough = threading.Event()

    def read_steadily() -> None:
        with reader, contextlib.suppress(OSError):
            while not is_enough.wait(0.01):
                reader.recv(2_000)

    reading = asyncio.create_task(asyncio.to_thread(read_steadily))
    frame = bytes([FrameType.DATAGRAM_TO]) + ATTACKER + bytes(1_200)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not relay.report().frames_queue_dropped_total:
                await source.send(frame)
                await asyncio.sleep(0)  # The relay runs on this loop.
        for _ in range(500):  # At least five write timeouts, with more to send than is read.
            await source.send(frame)
            await asyncio.sleep(0.005)
        assert events.of(RelaySessionClosed) == []
    finally:
        is_enough.set()
        await reading
        await source.close()


async def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    for file in ("cert.pem", "missing.pem"):
        relay = RelayServer(RelayConfig(port=0, certificate_file=tmp_path / file), emit=lambda _event: None)
        with pytest.raises(RelayConfigError, match="certificate_file: cannot be used"):
            await relay.start()
    with pytest.raises(RelayConfigError, match="certificate_file: required when there is a key_file"):
        RelayConfig(key_file=tmp_path / "key.pem")


# -- what it shows -------------------------------------------------------------------------------------------


async def test_metrics_tell_what_the_report_tells_and_no_node_id(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(read_token=TOKEN)
    gone, client = await new_client(relay, 1).open(), await new_client(relay, 2).open()
    await client.send_datagram(gone, b"hello")
    await gone.receive()
    await gone.close()
    await events.wait(RelaySessionClosed)

    async with client.http.get(f"{relay.url}metrics") as answer:
        assert answer.status == 401
    async with client.http.get(f"{relay.url}metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        assert answer.content_type == "text/plain"
        text = await answer.text()

    lines = text.splitlines()
    assert "swactor_relay_sessions_active 1.0" in lines
    assert "swactor_relay_sessions_opened_total 2.0" in lines
    assert 'swactor_relay_sessions_closed_total{reason="client_closed"} 1.0' in lines
    assert f"swactor_relay_bytes_received_total {float(relay.report().bytes_rx_total)}" in lines
    assert client.node_id not in text


@pytest.mark.parametrize("challenge", ["", "x" * 65, "with space", "a,b"])
async def test_a_strange_captive_portal_challenge_is_not_sent_back(
    new_relay: NewRelay, new_client: NewClient, challenge: str
) -> None:
    relay = await new_relay()

    async with new_client(relay).http.get(
        f"{relay.url}generate_204", headers={"X-Iroh-Challenge": challenge}
    ) as answer:
        assert (answer.status, "X-Iroh-Response" in answer.headers) == (204, False)
