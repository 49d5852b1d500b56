"""What the relay's book-keeping costs, beside a bare forwarding loop that iroh endpoints could use as well.

Both run as processes of their own and take turns; what counts is the processor time that each relay's process
used, so that neither the load's own cost nor the rest of the machine is measured. Ratios above 1: the product
does more a second. Latencies are what clients see, with the rest of the machine in them. The exit status is 0
whatever the figures are.
"""

import argparse
import asyncio
import contextlib
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

if not __package__:  # started as a file: its packages lie beside its folder
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from swactor.relay.protocol import FrameType, pong_frame
from swactor.relay.testing import RelayClient

PRODUCT = """
import asyncio
from swactor.relay import RelayConfig
from swactor.relay.server import RelayServer
async def main():
    config = RelayConfig(port=0, connections_per_address_max=5000, handshakes_max=5000)
    async with RelayServer(config, emit=lambda event: None) as relay:
        print(relay.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
COMMANDS = {"product": ("-c", PRODUCT), "bare": ("-m", "benches.relay_peer")}
ROOT = Path(__file__).resolve().parent.parent
WINDOW = 128
"""Frames under way at a time, well below the queues' limit: nothing is dropped."""


class Relay:
    """One relay's process."""

    def __init__(self, pid: int, url: str) -> None:
        self.url = url
        self._process = psutil.Process(pid)

    def cpu_s(self) -> float:
        """Processor time used so far."""
        times = self._process.cpu_times()
        return times.user + times.system

    def rss_bytes(self) -> int:
        """Resident memory."""
        return int(self._process.memory_info().rss)


@contextlib.asynccontextmanager
async def running(name: str) -> AsyncIterator[Relay]:
    """Run one of the relays."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMMANDS[name], stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        yield Relay(process.pid, (await process.stdout.readline()).decode().strip())
    finally:
        process.kill()
        await process.wait()


async def flood(a: RelayClient, b: RelayClient, *, frames: int, size: int) -> None:
    """Have ``frames`` of ``size`` bytes forwarded from one client to the other."""
    payload = bytes(size)
    for start in range(0, frames, WINDOW):
        count = min(WINDOW, frames - start)
        for _ in range(count):
            await a.send_datagram(b, payload)
        for _ in range(count):
            await forwarded(b)


async def forwarded(client: RelayClient) -> bytes:
    """Return the next frame of another client; the relay asks whether one that only receives is alive."""
    while (message := await client.receive())[0] == FrameType.PING:
        await client.send(pong_frame(message))
    return message


async def per_cpu_second(relays: dict[str, Relay], *, frames: int, size: int, turns: int) -> list[float]:
    """Return, turn by turn, how much more the product forwards in a second of its processor time."""
    clients = {}
    for name, relay in relays.items():
        clients[name] = [await RelayClient(relay.url, seed).open() for seed in (1, 2)]
    ratios = []
    for turn in range(turns + 1):
        used = {}
        for name, relay in relays.items():
            before = relay.cpu_s()
            await flood(*clients[name], frames=frames, size=size)
            used[name] = relay.cpu_s() - before
        if turn:  # The first one warms up.
            ratios.append(used["bare"] / used["product"])
            print(f"  {size} bytes: " + ", ".join(f"{n} {frames / s:,.0f}/s" for n, s in used.items()))
    for pair in clients.values():
        for client in pair:
            await client.close()
    return ratios


async def latencies_ms(
    relays: dict[str, Relay], *, turns: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """Return p50 and p99 of one way through each relay: half a round trip between two clients."""
    pairs = {
        name: [await RelayClient(relay.url, seed).open() for seed in (3, 4)] for name, relay in relays.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in relays}
    for _ in range(turns):
        for name, (a, b) in pairs.items():
            for _ in range(rounds):
                began = time.perf_counter()
                await a.send_datagram(b, b"x" * 100)
                await forwarded(b)
                await b.send_datagram(a, b"x" * 100)
                await forwarded(a)
                taken[name].append((time.perf_counter() - began) * 500)
    for pair in pairs.values():
        for client in pair:
            await client.close()
    cuts = {name: statistics.quantiles(times, n=100) for name, times in taken.items()}
    return {name: (cut[49], cut[98]) for name, cut in cuts.items()}


async def kilobytes_a_session(relay: Relay, sessions: int) -> float:
    """Return by how much the relay grows for each of so many idle sessions."""
    before = relay.rss_bytes()
    clients = []
    for first in range(0, sessions, 50):
        batch = [RelayClient(relay.url, 1000 + first + n) for n in range(min(50, sessions - first))]
        await asyncio.gather(*(client.open() for client in batch))
        clients += batch
    grown = relay.rss_bytes() - before
    for client in clients:
        await client.drop()
    return grown / sessions / 1024


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--frames", type=int, default=40_000, help="in one turn")
    parser.add_argument("--sessions", type=int, default=1000, help="idle ones")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * options.sessions)), hard))
    async with running("product") as product, running("bare") as bare:
        relays = {"product": product, "bare": bare}
        memory = {name: await kilobytes_a_session(relay, options.sessions) for name, relay in relays.items()}
        small = await per_cpu_second(relays, frames=options.frames, size=100, turns=options.turns)
        large = await per_cpu_second(relays, frames=options.frames, size=14_000, turns=options.turns)
        delays = await latencies_ms(relays, turns=options.turns, rounds=500)
    print(f"frames a CPU second, 100 bytes, product / bare     {statistics.median(small):.2f}  (bar: 0.9)")
    print(f"bytes a CPU second, 14,000 bytes, product / bare   {statistics.median(large):.2f}  (bar: 0.9)")
    for name in relays:
        p50, p99 = delays[name]
        print(f"{name}: one way p50 {p50:.3f} ms, p99 {p99:.3f} ms; {memory[name]:.0f} KB an idle session")
    added = [of_product - of_bare for of_product, of_bare in zip(*delays.values(), strict=True)]
    print(f"added one way by the product: p50 {added[0]:+.3f} ms, p99 {added[1]:+.3f} ms")
    print("bar: 30 KB an idle session")


if __name__ == "__main__":
    asyncio.run(main())
