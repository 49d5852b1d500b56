"""A relay that is restarted under everybody: two hundred real endpoints come back, spread over seconds."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest

from swactor import SystemClock
from swactor.relay import RelayReport
from swactor.relay._door import Turns
from swactor.relay.protocol import FrameType, denial_message
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient

from .field import Child, running

NewRelay = Callable[..., Awaitable[RelayServer]]

S = 1_000_000_000
ENDPOINTS = 200
OPENS_PER_S = 30
START_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
BACK_WITHIN_S = 10.0
SECOND_SHARE_MAX = 0.2

# Many endpoints with one relay, until standard input ends. Says when all of them are online.
ENDPOINTS_PROGRAM = """
import asyncio, os, sys
import iroh
url, count = sys.argv[1], int(sys.argv[2])

async def bind(number):
    relays = iroh.RelayMap.empty()
    relays.insert(iroh.RelayConfig(url=url, quic_port=None, auth_token=None))
    return await iroh.Endpoint.bind(iroh.EndpointOptions(
        preset=iroh.preset_minimal(), alpns=[b"test/1"], relay_mode=iroh.RelayMode.custom(relays),
        secret_key=number.to_bytes(32, "big"), bind_addr="127.0.0.1:0"))

async def main():
    iroh.iroh_ffi.uniffi_set_event_loop(asyncio.get_running_loop())
    endpoints = await asyncio.gather(*(bind(1 + number) for number in range(count)))
    await asyncio.gather(*(endpoint.online() for endpoint in endpoints))
    print("online", flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
os._exit(0)
"""


def relay_command(*arguments: str) -> contextlib.AbstractAsyncContextManager[Child]:
    return running(sys.executable, "-m", "swactor_diag.cli.main", "relay", *arguments)


async def report_when(url: str, condition: Callable[[RelayReport], bool]) -> RelayReport:
    """Return the first report of a relay for which ``condition`` holds."""
    async with asyncio.timeout(3 * DEADLINE_S), aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"{url}sessions") as answer:
                report = msgspec.json.decode(await answer.read(), type=RelayReport)
            if condition(report):
                return report
            await asyncio.sleep(0.05)


def test_turns_are_evenly_apart_and_none_is_given_that_nobody_would_wait_for() -> None:
    turns = Turns(2.0)

    taken_ns = [turns.take(now_ns=S) for _ in range(20)]

    assert taken_ns[:17] == [S + number * S // 2 for number in range(17)]
    assert taken_ns[17:] == [None] * 3
    assert turns.take(now_ns=30 * S) == 30 * S  # None is saved up.
    assert turns.take(now_ns=30 * S) == 30 * S + S // 2


def test_a_turn_that_was_given_back_goes_to_the_next_one_who_comes_in_time() -> None:
    turns = Turns(2.0)
    for _ in range(17):
        turns.take(now_ns=0)
    for turn_ns in (6 * S, 2 * S, 4 * S):
        turns.give_back(turn_ns)

    assert [turns.take(now_ns=3 * S) for _ in range(3)] == [4 * S, 6 * S, 17 * S // 2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.timeout(120)
async def test_after_a_restart_everybody_is_back_within_ten_seconds_and_not_at_once(tmp_path: Path) -> None:
    """FC-086."""
    settings = tmp_path / "relay.toml"
    settings.write_text(f"opens_per_s_max = {OPENS_PER_S}\n")
    clock = SystemClock()
    async with relay_command("--port", "0") as relay:
        url = json.loads(await relay.line(START_WITHIN_S))["url"]
        async with running(sys.executable, "-c", ENDPOINTS_PROGRAM, url, str(ENDPOINTS)) as endpoints:
            assert await endpoints.line(START_WITHIN_S) == "online"
            relay.terminate()
            assert await relay.ended(STOP_WITHIN_S) == 0
            port = url.rstrip("/").rpartition(":")[2]
            async with relay_command("--config", str(settings), "--port", port) as again:
                await again.line(START_WITHIN_S)
                ready_ms = clock.wall_ms()
                report = await report_when(url, lambda report: report.active_sessions == ENDPOINTS)

    opened_ms = sorted(row.opened_at_ms for row in report.sessions)
    assert len({row.peer_node_id_hex for row in report.sessions}) == report.total_opens == ENDPOINTS
    assert opened_ms[-1] - ready_ms < BACK_WITHIN_S * 1000
    busiest = max(sum(first <= at < first + 1000 for at in opened_ms) for first in opened_ms)
    assert busiest <= SECOND_SHARE_MAX * ENDPOINTS


async def ask(client: RelayClient) -> None:
    """Prove the key and wait for no answer."""
    await client.send(client.answer(await client.connect()))


async def until_refused(relay: RelayServer, reason: str, count: int) -> None:
    await report_when(relay.url, lambda report: (reason, count) in report.refusals_by_reason)


async def test_who_would_wait_long_is_denied_and_who_leaves_gives_its_turn_to_another(
    new_relay: NewRelay, new_client: Callable[..., RelayClient]
) -> None:
    relay = await new_relay(opens_per_s_max=0.4)
    await new_client(relay, 1).open()
    waiting, impatient, hasty, late, lucky = (new_client(relay, seed) for seed in range(2, 7))
    for client in (waiting, impatient, hasty, late):
        await ask(client)
    assert await late.receive() == denial_message("relay busy")
    await impatient.drop()
    await hasty.drop()
    await until_refused(relay, "handshake_abandoned", 2)

    await ask(lucky)
    async with asyncio.timeout(DEADLINE_S):
        for client in (waiting, lucky):
            assert (await client.receive())[0] == FrameType.CONFIRM

    report = relay.report()
    assert report.total_opens == 3
    assert dict(report.refusals_by_reason) == {"handshake_abandoned": 2, "relay_busy": 1}


async def test_who_has_proved_its_key_and_waits_for_its_turn_is_no_handshake_and_leaves_with_the_relay(
    new_relay: NewRelay, new_client: Callable[..., RelayClient]
) -> None:
    relay = await new_relay(opens_per_s_max=0.4, handshakes_max=1)
    await new_client(relay, 1).open()
    waiting = [new_client(relay, seed) for seed in (2, 3, 4)]
    for client in waiting:
        await ask(client)
    late = new_client(relay, 5)
    await ask(late)
    assert await late.receive() == denial_message("relay busy")

    await relay.drain(0)
    await until_refused(relay, "relay_stopping", len(waiting))

    assert await waiting[0].goodbye() == (None, "")
    assert relay.report().total_opens == 1
