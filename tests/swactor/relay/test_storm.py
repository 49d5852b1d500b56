"""Clients that come, double, vanish and send anything: the books balance and nobody else is touched.

``SWACTOR_STORM_S`` makes the storm longer (``make storm``), in CI it lasts two seconds.
"""

import asyncio
import contextlib
import itertools
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from swactor import Event
from swactor.relay import RelayConfig, RelaySessionClosed, RelaySessionOpened
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayClient, RelayEvents

STORM_S = float(os.environ.get("SWACTOR_STORM_S", "2"))
ENDPOINTS = 200


class Books:
    """Checks, at every event of the relay, that opens minus closes is what is open.

    An event is the only moment at which any of the three can change.
    """

    def __init__(self) -> None:
        self.relay: RelayServer | None = None
        self.open: Counter[object] = Counter()
        self.opened = 0
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []

    def emit(self, event: Event) -> None:
        match event:
            case RelaySessionOpened():
                self.opened += 1
                self.open[event.session_id] += 1
            case RelaySessionClosed():
                self.reasons[event.close_reason] += 1
                self.open[event.session_id] -= 1
        assert self.relay is not None
        report = self.relay.report()
        if report.active_sessions != self.open.total() or set(self.open.values()) > {0, 1}:
            self.wrong.append(repr(event))
        if report.total_opens - report.total_closes != report.active_sessions:
            self.wrong.append(repr(report)[:500])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


SESSIONS_MIN = 3
"""What each endpoint tries at least, however slow the machine is."""


async def one_endpoint(url: str, seed: int, until_s: float) -> None:
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    for session in itertools.count():
        if session >= SESSIONS_MIN and loop.time() >= until_s:
            return
        client = RelayClient(url, 1 + chance.randrange(ENDPOINTS * 3 // 4))  # A quarter are doubles.
        with contextlib.suppress(aiohttp.ClientError, ValueError, TypeError, ConnectionError, TimeoutError):
            await client.open()
            for _ in range(chance.randrange(4)):
                await client.send(b"\x04" + client.key + b"\x00" + bytes(chance.randrange(1, 2000)))
                await asyncio.sleep(chance.random() * 0.05)
            match chance.randrange(8):
                case 0 | 1:
                    await client.close()
                case 2 | 3:
                    await client.reset()
                case 4:
                    await client.send(b"\xff")
                case 5:
                    await (
                        client.goodbye()
                    )  # It has vanished: no ping is answered until the relay has had enough.
        await client.drop()


@pytest.mark.timeout(STORM_S + 60)
async def test_in_a_storm_the_books_balance_at_every_moment() -> None:
    books = Books()
    config = RelayConfig(
        port=0,
        sessions_per_id_max=2,
        goodbye_timeout_s=0.5,
        ping_period_s=0.5,
        ping_jitter_s=0.2,
        ping_timeout_s=0.5,
    )
    books.relay = relay = RelayServer(config, emit=books.emit)
    async with relay:
        until_s = asyncio.get_running_loop().time() + STORM_S
        await asyncio.gather(*(one_endpoint(relay.url, seed, until_s) for seed in range(ENDPOINTS)))
    report = relay.report()

    assert books.wrong == []
    assert report.active_sessions == books.open.total() == 0
    assert report.total_opens == report.total_closes == books.opened > ENDPOINTS
    assert dict(report.closes_by_reason) == dict(books.reasons)
    assert books.reasons.keys() == {
        "client_closed",
        "client_gone",
        "connection_reset",
        "protocol_error",
        "idle_timeout",
        "superseded",
    }
    sys.stdout.write(f"\n{books.opened} sessions in {STORM_S:.0f} s: {dict(report.closes_by_reason)}\n")


async def test_after_a_restart_all_clients_are_back_and_each_once(
    new_relay: Callable[..., Awaitable[RelayServer]], events: RelayEvents
) -> None:
    """FC-086: everybody at once, before any of them is answered."""
    relay = await new_relay()
    clients = [RelayClient(relay.url, seed) for seed in range(1, ENDPOINTS + 1)]

    async with asyncio.timeout(3 * DEADLINE_S):
        await asyncio.gather(*(client.open() for client in clients))

    assert relay.report().active_sessions == ENDPOINTS
    assert len(events.of(RelaySessionOpened)) == ENDPOINTS
    for client in clients:
        await client.drop()
