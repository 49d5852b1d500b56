"""The iroh transport and its tunnel, over a real relay on loopback."""

import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from swactor import Event, SystemClock
from swactor.cluster.events import RelayChanged, RelaySessionStateChanged
from swactor.cluster.transport import (
    Connection,
    DialFailed,
    FactSource,
    PeerAddress,
    TunnelFacts,
    TunnelStatus,
)
from swactor.cluster.transport.iroh import IrohTransport
from swactor.relay import RelaySessionOpened
from swactor.relay.config import RelayConfig
from swactor.relay.server import RelayServer
from swactor.relay.testing import RelayEvents
from swactor.testing import until

DEADLINE_S = 15
"""Below the 20 to 26 s after which the library by itself looks for its relay again."""

TOKEN = "correct-horse"


class Node:
    """A transport with a relay, and what it reported."""

    def __init__(self, seed: int, relay_url: str, *, token: str | None = None, wait_s: float = 10) -> None:
        self.events: list[Event] = []
        self.inbound: list[Connection] = []
        self._happened = anyio.Event()
        self.transport = IrohTransport(
            bytes([seed]) * 32,
            relay_url=relay_url,
            relay_token=token,
            alpn=b"swactor/test",
            clock=SystemClock(),
            emit=self._note,
            bind_addr="127.0.0.1:0",
            online_wait_s=wait_s,
        )

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self._happened.set()

    def tunnel(self) -> TunnelFacts:
        tunnel = self.transport.facts().tunnel
        assert tunnel is not None
        return tunnel

    def turns(self) -> list[tuple[TunnelStatus, TunnelStatus]]:
        turned = [event for event in self.events if isinstance(event, RelaySessionStateChanged)]
        return [(event.from_status, event.to_status) for event in turned]

    async def until(self, condition: Callable[["Node"], bool]) -> None:
        with anyio.fail_after(DEADLINE_S):
            while not condition(self):
                self._happened = anyio.Event()
                await self._happened.wait()


@asynccontextmanager
async def started(node: Node) -> AsyncIterator[Node]:
    await node.transport.start(node.inbound.append)
    try:
        yield node
    finally:
        await node.transport.close()


def has_turned(count: int) -> Callable[[Node], bool]:
    return lambda node: len(node.turns()) >= count


def relay_on(port: int = 0, token: str | None = None) -> RelayServer:
    return RelayServer(RelayConfig(port=port, token=token), emit=lambda event: None)


@pytest.fixture
async def relay() -> AsyncIterator[RelayServer]:
    async with relay_on() as server:
        yield server


async def test_start_returns_with_the_tunnel_up(relay: RelayServer) -> None:
    async with started(Node(1, relay.url)) as node:
        facts = node.transport.facts()

        assert facts.tunnel is not None
        assert facts.tunnel.status is TunnelStatus.CONNECTED
        assert facts.tunnel.status_source is FactSource.DERIVED
        assert facts.tunnel.relay_url == facts.home_relay_url == relay.url
        assert facts.local_address.relay_url == relay.url
        assert RelayChanged(old_url=None, new_url=relay.url) in node.events
        assert node.turns()[-1][1] is TunnelStatus.CONNECTED

    assert node.turns()[-1] == (TunnelStatus.CONNECTED, TunnelStatus.DISCONNECTED)


async def test_a_peer_is_reached_through_the_relay_by_its_id_alone(relay: RelayServer) -> None:
    async with started(Node(1, relay.url)) as one, started(Node(2, relay.url)) as two:
        answers: list[Connection | DialFailed] = []
        answered = anyio.Event()

        def on_done(answer: Connection | DialFailed) -> None:
            answers.append(answer)
            answered.set()

        one.transport.dial(PeerAddress(two.transport.node_id), on_done)
        with anyio.fail_after(DEADLINE_S):
            await answered.wait()

        assert not isinstance(answers[0], DialFailed), answers[0]
        (peer,) = one.transport.facts().peers
        assert peer.peer == two.transport.node_id
        assert relay.url in {use.addr for use in peer.relay_urls}
        assert (one.tunnel().tx_bytes_total or 0) > 0


async def test_a_relay_that_is_away_does_not_stop_start_and_is_found_when_it_comes() -> None:
    async with relay_on() as probe:
        url, port = probe.url, int(probe.url.rstrip("/").rpartition(":")[2])
    async with started(Node(1, url, wait_s=0.1)) as node:
        assert node.tunnel().status is TunnelStatus.CONNECTING
        assert node.transport.facts().home_relay_url is None
        await node.until(lambda node: (TunnelStatus.CONNECTING, TunnelStatus.DISCONNECTED) in node.turns())
        assert node.tunnel().status_reason == "the relay does not answer"

        async with relay_on(port):
            await node.until(lambda node: node.turns()[-1][1] is TunnelStatus.CONNECTED)


async def test_a_relay_that_dies_is_noticed_although_it_stays_selected() -> None:
    async with relay_on() as server:
        node = Node(1, server.url)
        await node.transport.start(node.inbound.append)
    try:
        await node.until(lambda node: node.turns()[-1] == (TunnelStatus.CONNECTED, TunnelStatus.DISCONNECTED))

        assert node.transport.facts().home_relay_url == server.config.url_for(port_of(node))
        assert "closed since the start" in (node.tunnel().status_reason or "")
    finally:
        await node.transport.close()


def port_of(node: Node) -> int:
    return int(node.tunnel().relay_url.rstrip("/").rpartition(":")[2])


async def test_a_tunnel_that_was_cut_and_is_back_before_the_next_look_is_reported() -> None:
    """FC-085: each flap is two events with from and to; the home relay, the only one there is, stays."""
    sessions = RelayEvents()
    async with (
        RelayServer(RelayConfig(port=0), emit=sessions.emit) as relay,
        started(Node(1, relay.url)) as node,
    ):
        before = len(node.turns())

        for flap in range(1, 4):
            await sessions.wait(RelaySessionOpened, count=flap)
            # iroh counts no tunnel as closed that it had not used yet; a first frame says that it has.
            await until(lambda: relay.report().sessions[0].frames_rx > 0)
            assert relay.close_session(flap)
            await node.until(has_turned(before + 2 * flap))

        assert node.turns()[before:] == 3 * [
            (TunnelStatus.CONNECTED, TunnelStatus.DISCONNECTED),
            (TunnelStatus.DISCONNECTED, TunnelStatus.CONNECTED),
        ]
        homes = [event for event in node.events if isinstance(event, RelayChanged)]
        assert homes == [RelayChanged(old_url=None, new_url=relay.url)]


async def test_the_relay_token_decides_whether_the_tunnel_comes_up() -> None:
    async with (
        relay_on(token=TOKEN) as server,
        started(Node(1, server.url, token=TOKEN)) as admitted,
        started(Node(2, server.url, token="wrong", wait_s=0.5)) as refused,
    ):
        assert admitted.tunnel().status is TunnelStatus.CONNECTED
        await refused.until(lambda node: node.turns()[-1][1] is TunnelStatus.DISCONNECTED)
        assert "attempts failed" in (refused.tunnel().status_reason or "")


def test_a_process_ends_cleanly_after_close() -> None:
    """The library's own threads must not abort the interpreter while it finalises."""
    program = textwrap.dedent("""
        import asyncio
        from swactor import SystemClock
        from swactor.cluster.transport import PeerAddress
        from swactor.cluster.transport.iroh import IrohTransport
        from swactor.relay.config import RelayConfig
        from swactor.relay.server import RelayServer

        def transport(seed, url):
            return IrohTransport(bytes([seed]) * 32, relay_url=url, alpn=b"t", clock=SystemClock(),
                                 emit=lambda event: None, bind_addr="127.0.0.1:0")

        async def main():
            async with RelayServer(RelayConfig(port=0), emit=lambda event: None) as relay:
                one, two = transport(1, relay.url), transport(2, relay.url)
                await one.start(lambda connection: None)
                await two.start(lambda connection: None)
                done = asyncio.get_running_loop().create_future()
                one.dial(PeerAddress(two.node_id), done.set_result)
                await done
                await one.close()
                await two.close()
                print("closed")

        asyncio.run(main())
        """)

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")
