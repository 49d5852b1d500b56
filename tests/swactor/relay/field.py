"""Clients in network namespaces of their own, who reach the relay through a router and nobody else.

Needs Linux, root and ``ip``; `Field.build` says what is missing.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator


class NoNamespacesError(Exception):
    """This machine makes no network namespaces; the text says why."""


class Field:
    """A namespace for each client, one for the router, and this one, where the relay listens.

    A client has one route, to the relay's address: two endpoints in two clients cannot get direct.
    """

    def __init__(self, clients: int) -> None:
        self._tag = f"{os.getpid() % 100_000:05}"
        self._net = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.router = f"swr{self._tag}"
        self.clients = tuple(f"swc{self._tag}{number}" for number in range(clients))
        self.relay_address = f"{self._net}.1"

    def router_address(self, number: int) -> str:
        """Return the router's address on the link to one client."""
        return f"{self._net}.{5 + 4 * number}"

    def build(self) -> None:
        """Make everything; raises NoNamespacesError where that is not possible."""
        if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
            raise NoNamespacesError("network namespaces need Linux, root and the ip command")
        try:
            for command in self._commands():
                _run("ip", *command.split())
            self.forward(True)
        except (subprocess.CalledProcessError, OSError) as error:
            why = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else error
            raise NoNamespacesError(f"this machine makes no network namespaces: {why}") from error

    def clear(self) -> None:
        """Remove everything; what is not there is no error."""
        # A namespace takes its links with it some time later; the next field may want the same names now.
        commands = [f"link del swh{self._tag}"]
        commands += [f"netns del {name}" for name in (*self.clients, self.router)]
        for command in commands:
            subprocess.run(["ip", *command.split()], check=False, capture_output=True)

    def _commands(self) -> list[str]:
        router, net = self.router, self._net
        commands = [
            f"netns add {router}",
            f"link add swh{self._tag} type veth peer name out netns {router}",
            f"addr add {net}.1/30 dev swh{self._tag}",
            f"-n {router} addr add {net}.2/30 dev out",
            f"link set swh{self._tag} up",
            f"-n {router} link set lo up",
            f"-n {router} link set out up",
        ]
        for number, client in enumerate(self.clients):
            first = 4 + 4 * number
            commands += [
                f"netns add {client}",
                f"-n {router} link add in{number} type veth peer name eth netns {client}",
                f"-n {router} addr add {net}.{first + 1}/30 dev in{number}",
                f"-n {client} addr add {net}.{first + 2}/30 dev eth",
                f"-n {router} link set in{number} up",
                f"-n {client} link set lo up",
                f"-n {client} link set eth up",
                f"-n {client} route add {net}.1/32 via {net}.{first + 1}",
                f"route add {net}.{first}/30 via {net}.2",
            ]
        return commands

    def forward(self, on: bool) -> None:
        """Have the router pass packets on, or drop all of them without a word."""
        self.sysctl(self.router, "net.ipv4.ip_forward", int(on))

    def drop_all(self, number: int) -> None:
        """Have one client drop whatever comes to it, without a word."""
        _run("ip", "-n", self.clients[number], "rule", "add", "iif", "eth", "pref", "0", "blackhole")
        # The table of local addresses is asked first, and stays first unless it is moved back.
        _run("ip", "-n", self.clients[number], "rule", "add", "pref", "1", "lookup", "local")
        _run("ip", "-n", self.clients[number], "rule", "del", "pref", "0", "lookup", "local")

    def sysctl(self, namespace: str, name: str, value: int) -> None:
        """Set one kernel parameter of a namespace."""
        _run("ip", "netns", "exec", namespace, "sysctl", "-qw", f"{name}={value}")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Child:
    """A program that is asked and answers line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self, within_s: float) -> str:
        """Return the next line it prints; TimeoutError, or EOFError when it has ended."""
        assert self._process.stdout is not None
        async with asyncio.timeout(within_s):
            line = await self._process.stdout.readline()
        if not line:
            raise EOFError("the program has ended")
        return line.decode().strip()

    def say(self, line: str) -> None:
        """Give it a line to read."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    async def ended(self, within_s: float) -> int:
        """Return its exit status."""
        async with asyncio.timeout(within_s):
            return await self._process.wait()


@contextlib.asynccontextmanager
async def running(*command: str, env: dict[str, str] | None = None) -> AsyncIterator[Child]:
    """Run a command, with ``env`` beside what this process has; it is killed on leaving."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | (env or {}),
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def child_in(
    namespace: str, program: str, *arguments: str, env: dict[str, str] | None = None
) -> contextlib.AbstractAsyncContextManager[Child]:
    """Run the text ``program`` in a namespace."""
    return running("ip", "netns", "exec", namespace, sys.executable, "-c", program, *arguments, env=env)
