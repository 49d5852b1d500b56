"""What an administrator can impose on a running relay: on a node, on a pair, on everybody."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from swactor.relay import RelayReport, RelaySessionClosed
from swactor.relay.drills import Drills, Throttle
from swactor.relay.protocol import FRAME_BYTES_MAX
from swactor.relay.server import RelayServer
from swactor.relay.sessions import DRILLS_MAX, TooManyDrillsError
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

TOKEN = "open-sesame"
PING = b"\x09abcdefgh"
PONG = b"\x0aabcdefgh"
NewClient = Callable[..., RelayClient]
NewRelay = Callable[..., Awaitable[RelayServer]]


async def ask(client: RelayClient, relay: RelayServer, path: str) -> tuple[int, bytes]:
    """POST to the admin interface; return status and body."""
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with client.http.post(f"{relay.url}admin/{path}", headers=bearer) as answer:
        return answer.status, await answer.read()


async def test_a_refused_id_is_put_out_and_kept_out_until_admitted(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(admin_token=TOKEN)
    client, other = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    assert (await ask(other, relay, f"ids/{client.node_id}/refuse"))[0] == 204
    assert await client.goodbye() == (1008, "evicted")
    again = new_client(relay, 1)
    await again.send(again.answer(await again.connect()))
    assert await again.receive() == b"\x03\x0aid refused"
    assert relay.report().refused_ids == (client.node_id,)

    assert (await ask(other, relay, f"ids/{client.node_id}/admit"))[0] == 204
    await new_client(relay, 1).open()
    (closed,) = events.of(RelaySessionClosed)
    assert (closed.close_reason, closed.detail) == ("evicted", "id refused")


async def test_a_paused_client_is_not_read_and_not_blamed_for_its_silence(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(admin_token=TOKEN, ping_period_s=0.05, ping_jitter_s=0.0, ping_timeout_s=0.05)
    client, other = await new_client(relay, 1).open(), new_client(relay, 2)
    await ask(other, relay, f"ids/{client.node_id}/pause")
    await client.send(PING)

    # Longer than the idle limit: several of the relay's own pings would have gone unanswered.
    with pytest.raises(TimeoutError):
        await answered(client, within_s=0.5)

    assert events.of(RelaySessionClosed) == []
    assert relay.report().paused_ids == (client.node_id,)
    assert (await ask(other, relay, f"ids/{client.node_id}/resume"))[0] == 204
    await answered(client, within_s=DEADLINE_S)


async def answered(client: RelayClient, *, within_s: float) -> None:
    """Wait for the answer to PING; whatever else comes is taken, the relay's pings are answered."""
    async with asyncio.timeout(within_s):
        while (message := await client.receive()) != PONG:
            if message[0] == 9:
                await client.send(b"\x0a" + message[1:])


async def test_a_paused_id_is_paused_when_it_comes_back(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay()
    client = new_client(relay, 1)
    relay.pause_id(client.key)

    await client.open()
    await client.send(PING)

    with pytest.raises(TimeoutError):
        await answered(client, within_s=0.3)
    relay.resume_id(client.key)
    await answered(client, within_s=DEADLINE_S)


async def test_a_paused_client_that_leaves_is_seen_to_leave(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay()
    client = await new_client(relay).open()
    relay.pause_id(client.key)
    await client.send(PING)

    await client.drop()

    (closed,) = await events.wait(RelaySessionClosed)
    assert closed.close_reason == "client_gone"


@pytest.mark.parametrize(
    ("subprotocol", "told"), [("iroh-relay-v2", b"\x0d\x02"), ("iroh-relay-v1", b"\x0bToo much was sent")]
)
async def test_a_limited_client_is_read_slowly_loses_nothing_and_is_told_once(
    new_relay: NewRelay, new_client: NewClient, subprotocol: str, told: bytes
) -> None:
    relay = await new_relay(admin_token=TOKEN)
    a = await new_client(relay, 1, subprotocol=subprotocol).open()
    b = await new_client(relay, 2).open()
    assert (await ask(b, relay, f"ids/{a.node_id}/limit?bytes_per_s=400000"))[0] == 204
    assert relay.report().limited_ids == ((a.node_id, 400_000),)

    began = asyncio.get_running_loop().time()
    for _ in range(5):
        await a.send_datagram(b, bytes(60_000))
    for _ in range(5):
        assert len(await b.receive()) == 60_034
    took_s = asyncio.get_running_loop().time() - began

    # 300,000 bytes, of which a full bucket lets 65,537 pass at once.
    assert took_s > 0.5
    assert (await a.receive()).startswith(told)
    await a.send(PING)
    assert await a.receive() == PONG
    assert (await ask(b, relay, f"ids/{a.node_id}/unlimit"))[0] == 204
    assert relay.report().limited_ids == ()


async def test_a_configured_limit_holds_for_everybody(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay(client_bytes_per_s_max=200_000)
    a, b = await new_client(relay, 1).open(), await new_client(relay, 2).open()

    for _ in range(3):
        await a.send_datagram(b, bytes(60_000))

    assert await a.receive() == b"\x0d\x02"


async def test_a_drain_spreads_its_closes_lets_nobody_in_and_answers_with_the_report(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(admin_token=TOKEN)
    clients = [await new_client(relay, seed).open() for seed in range(1, 6)]
    admin = new_client(relay, 9)

    began = asyncio.get_running_loop().time()
    draining = asyncio.create_task(ask(admin, relay, "drain?over_s=0.5"))
    goodbyes = [await client.goodbye() for client in clients]
    status, body = await draining

    assert asyncio.get_running_loop().time() - began >= 0.45
    assert goodbyes == [(1001, "relay_shutdown")] * 5
    report = msgspec.json.decode(body, type=RelayReport)
    assert (status, report.active_sessions, report.draining) == (200, 0, True)
    assert report.closes_by_reason == (("relay_shutdown", 5),)
    closed = events.of(RelaySessionClosed)
    assert {event.detail for event in closed} == {"drained"}
    assert max(event.closed_at_ms for event in closed) - min(event.closed_at_ms for event in closed) >= 300
    async with admin.http.get(f"{relay.url}healthz") as answer:
        assert answer.status == 503
    async with admin.http.get(
        f"{relay.url}relay", headers={"Sec-WebSocket-Protocol": "iroh-relay-v2"}
    ) as answer:
        assert answer.status == 503


async def test_an_orderly_stop_can_be_spread(
    new_relay: NewRelay, new_client: NewClient, events: RelayEvents
) -> None:
    relay = await new_relay(drain_s=0.4)
    clients = [await new_client(relay, seed).open() for seed in (1, 2, 3, 4)]

    stopping = asyncio.create_task(relay.stop("SIGTERM"))

    assert [await client.goodbye() for client in clients] == [(1001, "relay_shutdown")] * 4
    await stopping
    closed = events.of(RelaySessionClosed)
    assert {event.detail for event in closed} == {"SIGTERM"}
    assert closed[-1].closed_at_ms - closed[0].closed_at_ms >= 250


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("ids/xyz/pause", "id: a node id is 64 lower-case hex digits"),
        (f"ids/{'ab' * 32}/limit", "bytes_per_s: a number from 1"),
        (f"ids/{'ab' * 32}/limit?bytes_per_s=0", "bytes_per_s: a number from 1"),
        (f"ids/{'ab' * 32}/limit?bytes_per_s=nan", "bytes_per_s: a number from 1"),
        ("drain?over_s=soon", "over_s: a number from 0"),
        ("drain?over_s=-1", "over_s: a number from 0"),
    ],
)
async def test_a_wrong_admin_call_is_told_what_is_wrong(
    new_relay: NewRelay, new_client: NewClient, path: str, words: str
) -> None:
    relay = await new_relay(admin_token=TOKEN)

    status, body = await ask(new_client(relay), relay, path)

    assert status == 400
    assert words in body.decode()


async def test_drills_are_bounded(new_relay: NewRelay, new_client: NewClient) -> None:
    relay = await new_relay(admin_token=TOKEN)
    for number in range(DRILLS_MAX):
        relay.pause_id(number.to_bytes(32, "big"))
        relay.drop_pair(number.to_bytes(32, "big"), bytes(32))
    client = new_client(relay)

    assert (await ask(client, relay, f"ids/{'ff' * 32}/pause"))[0] == 409
    assert (await ask(client, relay, f"pairs/{'ff' * 32}/{'ff' * 32}/drop"))[0] == 409
    assert (await ask(client, relay, f"ids/{'00' * 32}/pause"))[0] == 204, "it is paused already"


def test_each_kind_of_drill_has_its_own_bound() -> None:
    drills = Drills()
    for number in range(DRILLS_MAX):
        drills.refuse(number.to_bytes(32, "big"))
        drills.limit(number.to_bytes(32, "big"), 1)

    with pytest.raises(TooManyDrillsError, match="refused ids"):
        drills.refuse(b"\xff" * 32)
    with pytest.raises(TooManyDrillsError, match="limited ids"):
        drills.limit(b"\xff" * 32, 1)


def test_a_throttle_lets_its_rate_pass_and_no_more() -> None:
    throttle = Throttle(10_000, now_ns=0)
    now_ns = taken = 0
    while now_ns < 60_000_000_000:
        throttle.take(9_000, now_ns=now_ns)
        taken += 9_000
        now_ns += round(throttle.wait_s(now_ns) * 1e9)

    # A minute of the rate, the bucket it began with, and the frame that makes the last debt.
    assert 600_000 <= taken <= 600_000 + FRAME_BYTES_MAX + 9_000


def test_a_throttle_does_not_save_up_beyond_its_bucket() -> None:
    throttle = Throttle(1_000_000, now_ns=0)
    hour_ns = 3_600_000_000_000

    throttle.take(100_000, now_ns=hour_ns)
    assert throttle.wait_s(hour_ns) == 0.0
    throttle.take(100_000, now_ns=hour_ns)

    assert throttle.wait_s(hour_ns) == pytest.approx(0.1)
