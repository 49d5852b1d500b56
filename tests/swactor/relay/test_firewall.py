"""Clients in network namespaces of their own: a firewall that drops, and a pair that the relay drops.

Needs Linux, root and ``ip``; elsewhere these tests are skipped, with the reason.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from swactor.relay import RelayConfig, RelaySessionClosed
from swactor.relay.server import RelayServer
from swactor.relay.testing import DEADLINE_S, RelayEvents

TOKEN = "open-sesame"

# Opens one session, says so, then answers pings until it is killed.
CHILD = """
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


class Field:
    """A client's namespace, a router's, and this one; the router forwards until it is told not to."""

    def __init__(self) -> None:
        self._tag = f"{os.getpid() % 100_000:05}"
        self.client, self.router = f"swc{self._tag}", f"swr{self._tag}"
        net = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.relay_address = f"{net}.1"
        self._commands = [
            f"netns add {self.client}",
            f"netns add {self.router}",
            f"link add swh{self._tag} type veth peer name out netns {self.router}",
            f"-n {self.router} link add in type veth peer name eth netns {self.client}",
            f"addr add {net}.1/30 dev swh{self._tag}",
            f"-n {self.router} addr add {net}.2/30 dev out",
            f"-n {self.router} addr add {net}.5/30 dev in",
            f"-n {self.client} addr add {net}.6/30 dev eth",
            f"link set swh{self._tag} up",
            f"-n {self.router} link set out up",
            f"-n {self.router} link set in up",
            f"-n {self.client} link set eth up",
            f"-n {self.client} route add default via {net}.5",
            f"route add {net}.4/30 via {net}.2",
        ]

    def build(self) -> None:
        for command in self._commands:
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        self.forward(True)

    def forward(self, on: bool) -> None:
        setting = f"net.ipv4.ip_forward={int(on)}"
        run = ["ip", "netns", "exec", self.router, "sysctl", "-qw", setting]
        subprocess.run(run, check=True, capture_output=True)

    def clear(self) -> None:
        for name in (self.client, self.router):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def field() -> Iterator[Field]:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, root and the ip command")
    made = Field()
    try:
        try:
            made.build()
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"this machine makes no network namespaces: {error}")
        yield made
    finally:
        made.clear()


@contextlib.asynccontextmanager
async def client_in(field: Field, relay: RelayServer) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *("ip", "netns", "exec", field.client, sys.executable, "-c", CHILD, relay.url, "3", TOKEN),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        await process.wait()


async def test_a_firewall_that_drops_everything_is_an_idle_timeout(field: Field, events: RelayEvents) -> None:
    """FC-082: the connection looks alive to TCP; nothing comes any more."""
    config = RelayConfig(
        host=field.relay_address,
        port=0,
        token=TOKEN,
        ping_period_s=0.3,
        ping_jitter_s=0.0,
        ping_timeout_s=0.7,
    )
    async with RelayServer(config, emit=events.emit) as relay, client_in(field, relay):
        field.forward(False)
        (closed,) = await events.wait(RelaySessionClosed)

        assert (closed.close_initiator, closed.close_reason) == ("idle_timeout", "idle_timeout")
        assert isinstance(closed.ambiguous, str)
        assert "packets are lost on the way" in closed.ambiguous
        assert relay.report().active_sessions == 0
