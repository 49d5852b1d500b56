"""The product: swactor's actors as an author would write them, once with `def` and once with `async def`."""

import asyncio
import logging
import time
from asyncio import Future, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass

from benches.contender import BURST, RING_ACTORS, SENDER_BURST, SENDERS, Contender, median_s
from benches.measure import bytes_each
from swactor import (
    Actor,
    ActorRef,
    ActorSystem,
    Backoff,
    ChildSpec,
    Context,
    Event,
    GetChild,
    MailboxPolicy,
    RestartBudget,
    Supervisor,
    SystemStatistics,
)

STATISTICS_PERIOD_S = 0.010


class Count(Actor[int]):
    """Handles so many messages, then says so."""

    def __init__(self, left: int, done: Future[None]) -> None:
        self._left = left
        self._done = done

    def on_message(self, ctx: Context[int], message: int) -> object:
        self._left -= 1
        if self._left == 0:
            self._done.set_result(None)
        return None


class CountAsync(Count):
    async def on_message(self, ctx: Context[int], message: int) -> object:
        self._left -= 1
        if self._left == 0:
            self._done.set_result(None)
        return None


class PassOn(Actor[int]):
    """Passes a message on until it has been passed on often enough."""

    next: ActorRef[int]

    def __init__(self, hops: int, done: Future[None]) -> None:
        self._hops = hops
        self._done = done

    def on_message(self, ctx: Context[int], message: int) -> object:
        if message < self._hops:
            self.next.tell(message + 1)
        else:
            self._done.set_result(None)
        return None


class PassOnAsync(PassOn):
    async def on_message(self, ctx: Context[int], message: int) -> object:
        if message < self._hops:
            self.next.tell(message + 1)
        else:
            self._done.set_result(None)
        return None


class Answer(Actor[str]):
    """Answers, or does nothing at all when it is not asked."""

    def on_message(self, ctx: Context[str], message: str) -> object:
        return 1


class AnswerAsync(Actor[str]):
    async def on_message(self, ctx: Context[str], message: str) -> object:
        return 1


class FragileError(Exception):
    """What is expected of a fragile actor."""


class Fragile(Actor[Future[None] | None]):
    """Fails on None, and says that it has handled anything else."""

    def on_message(self, ctx: Context[Future[None] | None], message: Future[None] | None) -> object:
        if message is None:
            raise FragileError
        message.set_result(None)
        return None


class FragileAsync(Actor[Future[None] | None]):
    async def on_message(self, ctx: Context[Future[None] | None], message: Future[None] | None) -> object:
        if message is None:
            raise FragileError
        message.set_result(None)
        return None


@dataclass(frozen=True, slots=True)
class Kind:
    """The actors of the workloads, all with the same kind of handler."""

    key: str
    title: str
    count: Callable[[int, Future[None]], Count]
    pass_on: Callable[[int, Future[None]], PassOn]
    answer: Callable[[], Actor[str]]
    fragile: Callable[[], Actor[Future[None] | None]]


SYNC = Kind("sync", "def on_message", Count, PassOn, Answer, Fragile)
ASYNC = Kind("async", "async def on_message", CountAsync, PassOnAsync, AnswerAsync, FragileAsync)
KINDS = (SYNC, ASYNC)


class Product(Contender):
    """An actor system, and in it actors with one kind of handler; ``idle`` more of them stand by."""

    def __init__(self, kind: Kind, *, key: str = "", title: str = "", idle: int = 0) -> None:
        super().__init__(key or kind.key, title or kind.title)
        self._kind = kind
        self._idle = idle

    async def open(self) -> None:
        self.system = ActorSystem()
        await self.system.__aenter__()
        for _ in range(self._idle):
            await self.system.spawn(self._kind.answer)

    async def close(self) -> None:
        await self.system.__aexit__(None, None, None)

    async def tell(self, messages: int) -> float | None:
        ref, done = await self._counting(messages)
        tell = ref.tell
        began = time.perf_counter()
        for number in range(1, messages + 1):
            tell(number)
            if number % BURST == 0:
                await asyncio.sleep(0)
        await done
        took = time.perf_counter() - began
        await self.system.stop_actor(ref)
        return took / messages

    async def fan_in(self, messages: int) -> float | None:
        each = messages // SENDERS
        ref, done = await self._counting(each * SENDERS)

        async def send() -> None:
            tell = ref.tell
            for number in range(1, each + 1):
                tell(number)
                if number % SENDER_BURST == 0:
                    await asyncio.sleep(0)

        began = time.perf_counter()
        senders = [asyncio.create_task(send()) for _ in range(SENDERS)]
        await done
        took = time.perf_counter() - began
        await asyncio.gather(*senders)
        await self.system.stop_actor(ref)
        return took / (each * SENDERS)

    async def _counting(self, messages: int) -> tuple[ActorRef[int], Future[None]]:
        done: Future[None] = asyncio.get_running_loop().create_future()
        # Roomy, because the others have no bound and nobody is to wait for room here.
        room = MailboxPolicy(capacity=messages)
        return await self.system.spawn(self._kind.count(messages, done), mailbox=room), done

    async def ring(self, hops: int) -> float | None:
        done: Future[None] = asyncio.get_running_loop().create_future()
        actors = [self._kind.pass_on(hops, done) for _ in range(RING_ACTORS)]
        refs = [await self.system.spawn(actor) for actor in actors]
        for place, actor in enumerate(actors):
            actor.next = refs[(place + 1) % RING_ACTORS]
        began = time.perf_counter()
        refs[0].tell(1)
        await done
        took = time.perf_counter() - began
        for ref in refs:
            await self.system.stop_actor(ref)
        return took / hops

    async def ask(self, asks: int) -> float | None:
        ref = await self.system.spawn(self._kind.answer)
        took = await median_s(lambda: ref.ask("question"), asks)
        await self.system.stop_actor(ref)
        return took

    async def spawn(self, actors: int) -> float | None:
        began = time.perf_counter()
        for _ in range(actors):
            await self.system.stop_actor(await self.system.spawn(self._kind.answer))
        return (time.perf_counter() - began) / actors

    async def restart(self, failures: int) -> float | None:
        loop = asyncio.get_running_loop()
        supervisor = await self.system.spawn(
            Supervisor(
                [ChildSpec("fragile", self._kind.fragile)],
                # The period is short because what is remembered of it is looked through at each restart.
                budget=RestartBudget(restarts_max=10**9, period_s=0.001),
                backoff=Backoff(first_s=0.0, jitter=0.0),
            )
        )
        ref: ActorRef[Future[None] | None] = await supervisor.ask(GetChild("fragile"))
        log = logging.getLogger("swactor")
        level = log.level
        log.setLevel(logging.CRITICAL)  # printing a traceback would take longer than all the rest
        began = time.perf_counter()
        for _ in range(failures):
            ref.tell(None)
            ref.tell(handled := loop.create_future())
            await handled
        took = time.perf_counter() - began
        log.setLevel(level)
        await self.system.stop_actor(supervisor)
        return took / failures

    async def idle_bytes(self, actors: int, *, used: bool) -> float | None:
        async def start() -> ActorRef[str]:
            ref = await self.system.spawn(self._kind.answer)
            if used:
                await ref.ask("question")
            return ref

        cost, refs = await bytes_each(start, actors)
        for ref in refs:
            await self.system.stop_actor(ref)
        return cost


class Watch:
    """An Observer that takes note, and takes statistics periodically, until it is cancelled."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._heard: list[Event] = []
        self._statistics: SystemStatistics | None = None
        self._timer = self._schedule()
        system.attach(self)

    def observe(self, event: Event) -> None:
        self._heard.append(event)

    def _schedule(self) -> TimerHandle:
        return asyncio.get_running_loop().call_later(STATISTICS_PERIOD_S, self._take)

    def _take(self) -> None:
        self._statistics = self._system.statistics()
        self._timer = self._schedule()

    def cancel(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        self._system.detach(self)


class Observed(Product):
    """The same while it is watched."""

    async def tell(self, messages: int) -> float | None:
        watch = Watch(self.system)
        try:
            return await super().tell(messages)
        finally:
            watch.cancel()
