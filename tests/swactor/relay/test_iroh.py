"""Two unmodified iroh endpoints meet through the relay."""

import asyncio

import iroh
import pytest

from swactor.relay import CloseReason, RelayConfig, RelaySessionClosed, RelaySessionOpened, Subprotocol
from swactor.relay.server import RelayServer
from swactor.relay.testing import RelayEvents

ALPN = b"swactor-relay-test/0"
DEADLINE_S = 20.0
TOKEN = "open-sesame"


async def bind(url: str, seed: int, *, token: str | None = None) -> iroh.Endpoint:
    relays = iroh.RelayMap.empty()
    relays.insert(iroh.RelayConfig(url=url, quic_port=None, auth_token=token))
    return await iroh.Endpoint.bind(
        iroh.EndpointOptions(
            preset=iroh.preset_minimal(),
            alpns=[ALPN],
            relay_mode=iroh.RelayMode.custom(relays),
            secret_key=bytes([seed]) * 32,
            bind_addr="127.0.0.1:0",
        )
    )


async def echo_once(endpoint: iroh.Endpoint, size: int) -> iroh.Connection:
    incoming = await endpoint.accept_next()
    assert incoming is not None
    accepting = await incoming.accept()
    connection = await accepting.connect()
    stream = await connection.accept_bi()
    await stream.send().write_all(await stream.recv().read_exact(size))
    return connection


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
async def iroh_loop() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    iroh.iroh_ffi.uniffi_set_event_loop(loop)


@pytest.mark.parametrize("subprotocol", list(Subprotocol))
async def test_two_endpoints_exchange_data_and_the_relay_has_seen_it(subprotocol: Subprotocol) -> None:
    events = RelayEvents()
    size = 20_000
    async with (
        asyncio.timeout(DEADLINE_S),
        RelayServer(RelayConfig(port=0, token=TOKEN, subprotocols=(subprotocol,)), emit=events.emit) as relay,
    ):
        a, b = await bind(relay.url, 1, token=TOKEN), await bind(relay.url, 2, token=TOKEN)
        await asyncio.gather(a.online(), b.online())
        serving = asyncio.create_task(echo_once(b, size))

        # The relay URL is all that is known of the peer, so the connection begins on the relay.
        connection = await a.connect(iroh.EndpointAddr(b.id(), relay.url, []), ALPN)
        stream = await connection.open_bi()
        await stream.send().write_all(bytes(size))
        echoed = await stream.recv().read_exact(size)

        report = relay.book.report(relay.now())
        await serving
        await a.close()
        await b.close()
        closed = await events.wait(RelaySessionClosed, count=2)

    assert echoed == bytes(size)
    ids = {endpoint.id().to_bytes().hex() for endpoint in (a, b)}
    assert {row.peer_node_id_hex for row in report.sessions} == ids
    assert {row.subprotocol for row in report.sessions} == {subprotocol}
    assert all(row.bytes_rx > 1200 and row.bytes_tx > 1200 for row in report.sessions)
    assert {event.peer_node_id_hex for event in events.of(RelaySessionOpened)} == ids
    assert [event.close_reason for event in closed] == [CloseReason.CLIENT_CLOSED] * 2


async def test_an_endpoint_with_a_wrong_token_does_not_get_online() -> None:
    config = RelayConfig(port=0, token=TOKEN)
    async with asyncio.timeout(DEADLINE_S), RelayServer(config, emit=lambda _event: None) as relay:
        endpoint = await bind(relay.url, 1, token="open-sesamf")

        # It knocks within 0.3 s and again and again.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(endpoint.online(), 1.5)

        report = relay.book.report(relay.now())
        await endpoint.close()

    assert dict(report.refusals_by_reason).keys() == {"bad_token"}
    assert report.total_opens == 0


async def test_two_endpoints_with_one_id_do_not_fight() -> None:
    """FC-081: the older one is parked, not closed, so neither comes back again and again."""
    events = RelayEvents()
    async with (
        asyncio.timeout(DEADLINE_S),
        RelayServer(RelayConfig(port=0), emit=events.emit) as relay,
    ):
        older = await bind(relay.url, 1)
        await older.online()
        newer = await bind(relay.url, 1)
        await newer.online()
        await events.wait(RelaySessionOpened, count=2)

        # The first backoff of an endpoint is 10 ms: a fight would be on by now.
        await older.online()
        report = relay.report()
        await newer.close()
        await older.close()
        await events.wait(RelaySessionClosed, count=2)

    assert (report.total_opens, report.active_sessions, report.parked_sessions) == (2, 2, 1)
    opened = events.of(RelaySessionOpened)
    assert opened[1].superseded_session_id == opened[0].session_id
