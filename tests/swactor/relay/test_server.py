"""The running relay, byte by byte: handshake, frames, and what it offers over HTTP."""

from collections.abc import Awaitable, Callable

import aiohttp
import msgspec
import pytest

from swactor.relay import RelayConfig, RelayReport, RelaySessionClosed, RelaySessionOpened
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

TOKEN = "open-sesame"
NewClient = Callable[..., RelayClient]
NewRelay = Callable[..., Awaitable[RelayServer]]


def cause(event: RelaySessionClosed) -> tuple[str, str]:
    return event.close_initiator.value, event.close_reason


async def first_close(events: RelayEvents) -> RelaySessionClosed:
    return (await events.wait(RelaySessionClosed))[0]


# -- handshake -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subprotocol", ["iroh-relay-v1", "iroh-relay-v2"])
async def test_a_client_that_proves_its_key_gets_a_session(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents, subprotocol: str
) -> None:
    relay = await new_relay()

    client = await new_client(relay, subprotocol=subprotocol).open()

    (opened,) = await events.wait(RelaySessionOpened)
    assert (opened.peer_node_id_hex, opened.subprotocol) == (client.node_id, subprotocol)
    assert client.websocket.protocol == subprotocol


async def test_a_wrong_signature_is_denied_with_the_reason(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay()
    client = new_client(relay)
    await client.connect()

    await client.send(client.answer(bytes(16)))

    assert await client.receive() == b"\x03\x11signature invalid"
    assert (await client.goodbye())[0] == 1008
    assert relay.book.report(relay.now()).refusals_by_reason == (("bad_signature", 1),)


@pytest.mark.parametrize("shown", ["", "open-sesamf"])
async def test_a_wrong_token_is_denied(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents, shown: str
) -> None:
    relay = await new_relay(token=TOKEN)
    client = new_client(relay, token=shown)

    await client.send(client.answer(await client.connect()))

    assert await client.receive() == b"\x03\x09bad token"
    assert relay.book.report(relay.now()).refusals_by_reason == (("bad_token", 1),)
    assert events.all == []


async def test_the_right_token_is_admitted(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay(token=TOKEN)

    await new_client(relay, token=TOKEN).open()

    assert relay.book.report(relay.now()).active_sessions == 1


@pytest.mark.parametrize("answer", [b"\x09" + bytes(8), b"\x01" + bytes(96), b"\x01" * 200])
async def test_a_misshapen_answer_ends_the_handshake(
    new_relay: NewRelay, new_client: NewClient, answer: bytes
) -> None:
    relay = await new_relay()
    client = new_client(relay)
    await client.connect()

    await client.send(answer)

    assert (await client.goodbye())[0] == 1002
    assert relay.book.report(relay.now()).refusals_by_reason == (("bad_handshake", 1),)


async def test_a_client_that_does_not_answer_is_dropped_at_the_deadline(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay(handshake_timeout_s=0.05)
    client = new_client(relay)
    await client.connect()

    await client.goodbye()

    assert relay.book.report(relay.now()).refusals_by_reason == (("handshake_timeout", 1),)


async def test_without_a_known_subprotocol_the_upgrade_is_refused(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay()

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await new_client(relay, subprotocol="chat").connect()

    assert refused.value.status == 400


async def test_a_full_relay_denies(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay(sessions_max=1)
    await new_client(relay, 1).open()
    late = new_client(relay, 2)

    await late.send(late.answer(await late.connect()))

    assert await late.receive() == b"\x03\x0arelay full"


async def test_too_many_unproven_clients_are_turned_away(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay(handshakes_max=1)
    await new_client(relay, 1).connect()

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await new_client(relay, 2).connect()

    assert refused.value.status == 503


# -- frames --------------------------------------------------------------------------------------------------


async def test_datagrams_and_batches_are_forwarded_with_their_source(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay()
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2, subprotocol="iroh-relay-v1").open()

    await a.send_datagram(b, b"hello")
    await a.send(b"\x05" + b.key + b"\x02\x00\x03" + b"abcdef")

    assert await b.receive() == b"\x06" + a.key + b"\x00hello"
    assert await b.receive() == b"\x07" + a.key + b"\x02\x00\x03abcdef"


async def test_the_largest_frame_passes_and_one_byte_more_ends_its_sender(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    await a.send_datagram(b, bytes(65536 - 33))
    assert len(await b.receive()) == 65537
    await a.send_datagram(b, bytes(65536 - 32))

    assert cause(await first_close(events)) == ("relay", "protocol_error")
    assert await b.receive() == b"\x08" + a.key


async def test_pings_are_answered_and_round_trips_measured(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay()
    client = new_client(relay)
    await client.send(client.answer(await client.connect()))
    assert await client.receive() == b"\x02"
    ping = await client.receive()

    await client.send(b"\x0a" + ping[1:])
    await client.send(b"\x09abcdefgh")

    assert await client.receive() == b"\x0aabcdefgh"
    (row,) = relay.book.report(relay.now()).sessions
    assert isinstance(row.rtt_ms, float)
    assert 0 < row.rtt_ms < DEADLINE_S * 1000


@pytest.mark.parametrize("subprotocol", ["iroh-relay-v1", "iroh-relay-v2"])
async def test_a_duplicate_id_parks_the_older_session_until_the_newer_ends(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents, subprotocol: str
) -> None:
    parked, promoted = (13, b"\x0d\x00") if subprotocol == "iroh-relay-v2" else (11, b"\x0b")
    relay = await new_relay()
    sender = await new_client(relay, 2).open()
    older = await new_client(relay, 1, subprotocol=subprotocol).open()
    newer = await new_client(relay, 1).open()
    assert (await older.receive())[0] == parked

    await sender.send_datagram(older, b"one")
    assert (await newer.receive())[34:] == b"one"
    await newer.close()
    assert await older.receive() == promoted
    await sender.send_datagram(older, b"two")

    assert (await older.receive())[34:] == b"two"
    closed = await first_close(events)
    opened = events.of(RelaySessionOpened)
    assert opened[2].superseded_session_id == opened[1].session_id == closed.promoted_session_id


async def test_too_many_sessions_of_one_id_close_the_oldest(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(sessions_per_id_max=2)
    oldest = await new_client(relay).open()
    await new_client(relay).open()

    await new_client(relay).open()

    assert await oldest.goodbye() == (1008, "superseded")
    assert cause(await first_close(events)) == ("relay", "superseded")


# -- over HTTP -----------------------------------------------------------------------------------------------


async def test_health_and_probes(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay()
    http = new_client(relay).http

    async with http.get(f"{relay.url}ping") as answer:
        assert answer.status == 200
    async with http.get(f"{relay.url}generate_204", headers={"X-Iroh-Challenge": "abc"}) as answer:
        assert (answer.status, answer.headers["X-Iroh-Response"]) == (204, "response abc")
    async with http.get(f"{relay.url}healthz") as answer:
        assert await answer.json() == {"status": "ok"}


async def test_sessions_are_listed_for_this_machine_or_a_read_token(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay(read_token=TOKEN)
    client = await new_client(relay).open()

    async with client.http.get(f"{relay.url}sessions") as answer:
        assert answer.status == 401
    async with client.http.get(
        f"{relay.url}sessions", headers={"Authorization": f"Bearer {TOKEN}"}
    ) as answer:
        report = msgspec.json.decode(await answer.read(), type=RelayReport)

    assert [row.peer_node_id_hex for row in report.sessions] == [client.node_id]


async def test_admin_calls_need_the_admin_token(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(admin_token=TOKEN)
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2).open()
    pair = f"{relay.url}admin/pairs/{a.node_id}/{b.node_id}"
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    async def post(url: str, headers: dict[str, str] = bearer) -> int:
        async with a.http.post(url, headers=headers) as answer:
            return answer.status

    assert await post(f"{pair}/drop", {}) == 401
    assert await post(f"{relay.url}admin/pairs/xyz/{b.node_id}/drop") == 400
    assert await post(f"{pair}/drop") == 204
    await a.send_datagram(b, b"lost")
    await b.send_datagram(a, b"the other way works")
    assert (await a.receive())[34:] == b"the other way works"
    await a.send(b"\x09abcdefgh")  # Its answer proves that the relay has handled what came before.
    assert (await a.receive())[0] == 10
    assert await post(f"{pair}/restore") == 204
    await a.send_datagram(b, b"found")
    assert (await b.receive())[34:] == b"found"

    session_id = events.of(RelaySessionOpened)[1].session_id
    assert await post(f"{relay.url}admin/sessions/{session_id}/close") == 204
    assert await post(f"{relay.url}admin/sessions/{session_id}/close") == 404
    assert await b.goodbye() == (1000, "evicted")
    assert cause(await first_close(events)) == ("relay", "evicted")


async def test_without_an_admin_token_there_are_no_admin_calls(
    new_relay: NewRelay, new_client: NewClient
) -> None:
    relay = await new_relay()

    async with new_client(relay).http.post(f"{relay.url}admin/sessions/1/close") as answer:
        assert answer.status == 404


async def test_a_port_in_use_is_an_error_and_leaves_nothing(new_relay: NewRelay) -> None:
    relay = await new_relay()
    second = RelayServer(
        RelayConfig(port=int(relay.url.rsplit(":")[-1].strip("/"))), emit=lambda _event: None
    )

    with pytest.raises(OSError, match="in use"):
        await second.start()
