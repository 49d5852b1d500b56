"""A client in a network namespace of its own, from which nothing comes any more."""

import asyncio
from collections.abc import Callable

import msgspec

from swactor.relay import RelayConfig, RelaySessionClosed
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayEvents

from .field import Field, child_in

NewField = Callable[[int], Field]

TOKEN = "open-sesame"

# Opens one session, says so, then answers pings until it is killed.
CLIENT = """
import asyncio, sys
from swactor.relay.testing import RelayClient
async def main():
    client = await RelayClient(sys.argv[1], int(sys.argv[2]), token=sys.argv[3]).open()
    print("ready", flush=True)
    while True:
        message = await client.websocket.receive_bytes()
        if message[0] == 9:
            await client.send(b"\\x0a" + message[1:])
asyncio.run(main())
"""

# Relays at an address and prints every event as a line. It pings early, and waits long for the answer.
RELAY = """
import asyncio, sys
import msgspec, uvloop
from swactor.relay import RelayConfig
from swactor.relay.server import RelayServer
def tell(event):
    print(msgspec.json.encode(event).decode(), flush=True)
async def main():
    config = RelayConfig(host=sys.argv[1], port=0, token=sys.argv[2], ping_period_s=0.3, ping_timeout_s=60)
    async with RelayServer(config, emit=tell) as relay:
        print(relay.url, flush=True)
        await asyncio.Event().wait()
loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
with asyncio.Runner(loop_factory=loops[sys.argv[3]]) as runner:
    runner.run(main())
"""


async def test_a_firewall_that_drops_everything_is_an_idle_timeout(
    new_field: NewField, events: RelayEvents
) -> None:
    """FC-082: the connection looks alive to TCP; nothing comes any more."""
    field = new_field(1)
    config = RelayConfig(
        host=field.relay_address,
        port=0,
        token=TOKEN,
        ping_period_s=0.3,
        ping_jitter_s=0.0,
        ping_timeout_s=0.7,
    )
    async with (
        RelayServer(config, emit=events.emit) as relay,
        child_in(field.clients[0], CLIENT, relay.url, "3", TOKEN) as client,
    ):
        assert await client.line(DEADLINE_S) == "ready"
        field.forward(False)
        (closed,) = await events.wait(RelaySessionClosed)

        assert (closed.close_initiator, closed.close_reason) == ("idle_timeout", "idle_timeout")
        assert isinstance(closed.ambiguous, str)
        assert "packets are lost on the way" in closed.ambiguous
        assert relay.report().active_sessions == 0


async def test_a_connection_that_the_operating_system_gives_up_is_a_transport_error(
    new_field: NewField,
) -> None:
    """The kernel sent again and again, was never answered, and had enough before the relay had."""
    field = new_field(1)
    field.sysctl(field.router, "net.ipv4.tcp_retries2", 1)
    loop = "uvloop" if "uvloop" in type(asyncio.get_running_loop()).__module__ else "asyncio"
    async with child_in(field.router, RELAY, field.router_address(0), TOKEN, loop) as relay:
        url = await relay.line(DEADLINE_S)
        async with child_in(field.clients[0], CLIENT, url, "3", TOKEN) as client:
            assert await client.line(DEADLINE_S) == "ready"
            assert "RelaySessionOpened" in await relay.line(DEADLINE_S)
            field.drop_all(0)
            closed = msgspec.json.decode(await relay.line(DEADLINE_S), type=RelaySessionClosed)

    assert (closed.close_initiator.value, closed.close_reason) == ("transport", "transport_error")
    assert closed.evidence == "os_error"
    assert isinstance(closed.detail, str)
    assert closed.detail.startswith("TimeoutError")
