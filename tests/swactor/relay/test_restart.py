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


async def report_with(url: str, sessions: int) -> RelayReport:
    """Return the first report of a relay that has so many sessions."""
    async with asyncio.timeout(3 * DEADLINE_S), aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"{url}sessions") as answer:
                report = msgspec.json.decode(await answer.read(), type=RelayReport)
            if report.active_sessions == sessions:
                return report
            await asyncio.sleep(0.05)


def test_turns_are_evenly_apart_and_none_is_given_that_nobody_would_wait_for() -> None:
    turns = Turns(2.0)

    waits_s = [turns.take(now_ns=1_000_000_000) for _ in range(20)]

    assert waits_s[:17] == [number / 2 for number in range(17)]
    assert waits_s[17:] == [None] * 3
    assert turns.take(now_ns=30_000_000_000) == 0.0  # None is saved up.
    assert turns.take(now_ns=30_000_000_000) == 0.5


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
                report = await report_with(url, ENDPOINTS)

    opened_ms = sorted(row.opened_at_ms for row in report.sessions)
    assert len({row.peer_node_id_hex for row in report.sessions}) == report.total_opens == ENDPOINTS
    assert opened_ms[-1] - ready_ms < BACK_WITHIN_S * 1000
    busiest = max(sum(first <= at < first + 1000 for at in opened_ms) for first in opened_ms)
    assert busiest <= SECOND_SHARE_MAX * ENDPOINTS


async def test_who_leaves_before_its_turn_has_no_session_and_who_would_wait_long_is_denied(
    new_relay: NewRelay, new_client: Callable[..., RelayClient]
) -> None:
    relay = await new_relay(opens_per_s_max=0.4)
    await new_client(relay, 1).open()
    waiting, impatient, hasty, late = (new_client(relay, seed) for seed in range(2, 6))
    for client in (waiting, impatient, hasty):
        await client.send(client.answer(await client.connect()))
    await impatient.drop()
    await hasty.drop()

    await late.send(late.answer(await late.connect()))
    assert await late.receive() == denial_message("relay busy")
    async with asyncio.timeout(DEADLINE_S):
        assert (await waiting.receive())[0] == FrameType.CONFIRM

    report = relay.report()
    assert report.total_opens == 2
    assert dict(report.refusals_by_reason) == {"handshake_abandoned": 2, "relay_busy": 1}
