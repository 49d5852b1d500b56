"""xoscar: a pool in this process, no sub pool, and references that call an actor of this process directly."""

import asyncio
import time
from asyncio import Future
from typing import Any

import xoscar

from benches.contender import RING_ACTORS, SENDERS, Contender, median_s
from benches.measure import bytes_each


class Count(xoscar.Actor):
    """Counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self._handled = 0

    def count(self, message: int) -> None:
        self._handled += 1

    def handled(self) -> int:
        return self._handled


class PassOn(xoscar.Actor):
    """Passes a number on until it has been passed on often enough."""

    def arrange(self, following: Any, hops: int, done: Future[None]) -> None:
        self._next = following
        self._hops = hops
        self._done = done

    async def pass_on(self, message: int) -> None:
        if message < self._hops:
            await self._next.pass_on.tell(message + 1)
        else:
            self._done.set_result(None)


class Answer(xoscar.Actor):
    def answer(self, message: str) -> int:
        return 1


class Xoscar(Contender):
    """Local references, xoscar's fastest; `tell` is its way not to wait for a result."""

    def __init__(self) -> None:
        super().__init__("xoscar", "xoscar", share=0.1)

    async def open(self) -> None:
        self._pool = await xoscar.create_actor_pool("127.0.0.1:0", n_process=0, use_uvloop=False)

    async def close(self) -> None:
        await self._pool.stop()

    async def _start(self, actor: type[Any]) -> Any:
        address = self._pool.external_address
        created = await xoscar.create_actor(actor, address=address)
        # That one goes through the pool's messages; asked for again, it is a local one and 15 times as fast.
        return await xoscar.actor_ref(address=address, uid=created.uid)

    async def tell(self, messages: int) -> float | None:
        ref = await self._start(Count)
        began = time.perf_counter()
        for number in range(messages):
            await ref.count.tell(number)
        await self._require_handled(ref, messages)
        took = time.perf_counter() - began
        await xoscar.destroy_actor(ref)
        return took / messages

    async def fan_in(self, messages: int) -> float | None:
        each = messages // SENDERS
        ref = await self._start(Count)

        async def send() -> None:
            for number in range(each):
                await ref.count.tell(number)

        began = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(SENDERS)))
        await self._require_handled(ref, each * SENDERS)
        took = time.perf_counter() - began
        await xoscar.destroy_actor(ref)
        return took / (each * SENDERS)

    async def _require_handled(self, ref: Any, messages: int) -> None:
        """Wait until all is handled: calls take their turns, so this one comes after what was told before."""
        handled = await ref.handled()
        if handled != messages:
            raise RuntimeError(f"xoscar handled {handled} of {messages} messages")

    async def ring(self, hops: int) -> float | None:
        done: Future[None] = asyncio.get_running_loop().create_future()
        refs = [await self._start(PassOn) for _ in range(RING_ACTORS)]
        for place, ref in enumerate(refs):
            await ref.arrange(refs[(place + 1) % RING_ACTORS], hops, done)
        began = time.perf_counter()
        await refs[0].pass_on.tell(1)
        await done
        took = time.perf_counter() - began
        for ref in refs:
            await xoscar.destroy_actor(ref)
        return took / hops

    async def ask(self, asks: int) -> float | None:
        ref = await self._start(Answer)
        took = await median_s(lambda: ref.answer("question"), asks)
        await xoscar.destroy_actor(ref)
        return took

    async def spawn(self, actors: int) -> float | None:
        address = self._pool.external_address
        began = time.perf_counter()
        for _ in range(actors):
            await xoscar.destroy_actor(await xoscar.create_actor(Answer, address=address))
        return (time.perf_counter() - began) / actors

    async def idle_bytes(self, actors: int, *, used: bool) -> float | None:
        async def start() -> Any:
            ref = await self._start(Answer)
            if used:
                await ref.answer("question")
            return ref

        cost, refs = await bytes_each(start, actors)
        for ref in refs:
            await xoscar.destroy_actor(ref)
        return cost
