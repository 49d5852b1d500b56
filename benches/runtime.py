"""How fast is a message? Product and reference alternate slice by slice in one process; ratios are printed.

The reference is the least that could work: an asyncio task on a bare deque with at most one wakeup future.
Absolute rates of a shared machine drift by tens of percent, ratios of alternated slices do not.

    python benches/runtime.py [--slices 7]
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from swactor import Actor, ActorRef, ActorSystem, Context, MailboxPolicy

MESSAGES = 50_000
RING = 100
LAPS = 300
ASKS = 5_000
SPAWNS = 5_000
IDLE = 10_000


Handler = Callable[[Any, Any], object]


class Reference:
    """A task, a deque, and a future while there is nothing to do."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._queue: deque[Any] = deque()
        self._wakeup: asyncio.Future[None] | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    def tell(self, message: Any) -> None:
        self._queue.append(message)
        if self._wakeup is not None:
            self._wakeup.set_result(None)
            self._wakeup = None

    async def _run(self) -> None:
        while True:
            while self._queue:
                message = self._queue.popleft()
                if message is None:
                    return
                self._handler(None, message)
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup


class Calls(Actor[Any]):
    """Has a function as its handler, as an author's own method would be."""

    def __init__(self, handler: Handler) -> None:
        self.on_message = handler  # type: ignore[method-assign,assignment]  # no call in between, nor has the reference


class CallsAsync(Actor[Any]):
    """The same with an asynchronous handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        return self._handler(ctx, message)


Tell = Callable[[Any], None]
Start = Callable[[Handler], Awaitable[Tell]]


async def tell(start: Start) -> float:
    """Seconds for `MESSAGES` messages to one actor."""
    done = asyncio.get_running_loop().create_future()
    left = MESSAGES

    def handle(_ctx: Any, _message: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set_result(None)

    send = await start(handle)
    began = time.perf_counter()
    for number in range(1, MESSAGES + 1):
        send(number)
        if number % 5_000 == 0:
            await asyncio.sleep(0)
    await done
    return time.perf_counter() - began


async def ring(start: Start) -> float:
    """Seconds for one message to go `LAPS` times round `RING` actors."""
    done = asyncio.get_running_loop().create_future()
    hops = RING * LAPS
    tells: list[Tell] = []

    def pass_on(place: int) -> Handler:
        def handle(_ctx: Any, message: int) -> None:
            if message >= hops:
                done.set_result(None)
            else:
                tells[(place + 1) % RING](message + 1)

        return handle

    tells.extend([await start(pass_on(place)) for place in range(RING)])
    began = time.perf_counter()
    tells[0](1)
    await done
    return time.perf_counter() - began


async def ask_product(ref: ActorRef[Any]) -> float:
    began = time.perf_counter()
    for _ in range(ASKS):
        await ref.ask("question")
    return time.perf_counter() - began


async def ask_reference() -> float:
    loop = asyncio.get_running_loop()
    actor = Reference(lambda _, future: future.set_result(1))
    began = time.perf_counter()
    for _ in range(ASKS):
        future = loop.create_future()
        actor.tell(future)
        await future
    took = time.perf_counter() - began
    actor.tell(None)
    return took


async def spawn_product(system: ActorSystem, kind: Callable[..., Actor[Any]]) -> float:
    began = time.perf_counter()
    for _ in range(SPAWNS):
        ref = await system.spawn(kind(print))
        await system.stop_actor(ref)
    return time.perf_counter() - began


async def spawn_reference() -> float:
    began = time.perf_counter()
    for _ in range(SPAWNS):
        actor = Reference(print)
        actor.tell(None)
        await actor.task
    return time.perf_counter() - began


async def idle_bytes(system: ActorSystem, kind: Callable[..., Actor[Any]]) -> float:
    """Bytes that one actor costs while it has nothing to do and never had."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    refs = [await system.spawn(kind(print)) for _ in range(IDLE)]
    gc.collect()
    cost = (tracemalloc.get_traced_memory()[0] - before) / IDLE
    tracemalloc.stop()
    for ref in refs:
        await system.stop_actor(ref)
    return cost


def ratio(reference: list[float], product: list[float]) -> str:
    """The median of pairwise ratios; above 1 the product is faster."""
    return f"{statistics.median(a / b for a, b in zip(reference, product, strict=True)):6.2f}"


async def main(slices: int) -> None:
    """Alternate and print."""

    references: list[Reference] = []

    async def start_reference(handler: Handler) -> Tell:
        references.append(Reference(handler))
        return references[-1].tell

    roomy = MailboxPolicy(capacity=MESSAGES)
    async with ActorSystem() as system:

        async def start_sync(handler: Handler) -> Tell:
            return (await system.spawn(Calls(handler), mailbox=roomy)).tell

        async def start_async(handler: Handler) -> Tell:
            return (await system.spawn(CallsAsync(handler), mailbox=roomy)).tell

        python = sys.version.split()[0]
        print(f"Python {python}; speed relative to a bare deque, future and task; {slices} slices")
        print(f"{'':24}{'sync':>8}{'async':>8}")
        for title, work in (("tell, one to one", tell), ("ring of 100", ring)):
            rows: list[list[float]] = [[], [], []]
            for _ in range(slices):
                for row, start in zip(rows, (start_reference, start_sync, start_async), strict=True):
                    row.append(await work(start))
            print(f"{title:24}{ratio(rows[0], rows[1]):>8}{ratio(rows[0], rows[2]):>8}")
        sync, waiting = (
            await system.spawn(Calls(lambda _ctx, _: 1)),
            await system.spawn(CallsAsync(lambda _ctx, _: 1)),
        )
        rows = [[], [], []]
        for _ in range(slices):
            rows[0].append(await ask_reference())
            rows[1].append(await ask_product(sync))
            rows[2].append(await ask_product(waiting))
        print(f"{'ask, one at a time':24}{ratio(rows[0], rows[1]):>8}{ratio(rows[0], rows[2]):>8}")
        rows = [[], [], []]
        for _ in range(slices):
            rows[0].append(await spawn_reference())
            rows[1].append(await spawn_product(system, Calls))
            rows[2].append(await spawn_product(system, CallsAsync))
        print(f"{'spawn and stop':24}{ratio(rows[0], rows[1]):>8}{ratio(rows[0], rows[2]):>8}")
        for reference in references:
            reference.tell(None)
        idle = [await idle_bytes(system, kind) for kind in (Calls, CallsAsync)]
        print(f"{'bytes an idle actor':24}{idle[0]:>8.0f}{idle[1]:>8.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, default=7, help="alternations of each workload (default: 7)")
    asyncio.run(main(parser.parse_args().slices))
