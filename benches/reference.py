"""The reference: the least that could be called an actor on asyncio, without any guarantee.

A task on a bare deque, at most one wakeup future, and one wakeup handles all that waits. Bars refer to the
handler that is `async def` and awaited for each message; the one with a `def` handler is shown beside it.
"""

import asyncio
import time
from asyncio import Future, Task
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from benches.contender import BURST, RING_ACTORS, SENDER_BURST, SENDERS, Contender, median_s
from benches.measure import bytes_each

STOP = object()


class Behaviour(Protocol):
    """What a reference actor does with a message; where it is `async def`, the result is awaited."""

    def handle(self, message: Any, /) -> Any: ...


class Actor:
    """A deque, a task, and a future while there is nothing to do. ``behaviour`` handles asynchronously."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self._queue: deque[Any] = deque()
        self._wakeup: Future[None] | None = None
        self.begin()

    def begin(self) -> None:
        """Handle messages from now on."""
        self.task: Task[None] = asyncio.get_running_loop().create_task(self._run())

    def tell(self, message: Any) -> None:
        """Enqueue ``message``."""
        self._queue.append(message)
        if self._wakeup is not None:
            self._wakeup.set_result(None)
            self._wakeup = None

    async def stop(self) -> None:
        """Handle what waits, end, and be waited for."""
        self.tell(STOP)
        await self.task

    async def _run(self) -> None:
        queue, handle = self._queue, self.behaviour.handle
        loop = asyncio.get_running_loop()
        while True:
            while queue:
                message = queue.popleft()
                if message is STOP:
                    return
                await handle(message)
            self._wakeup = loop.create_future()
            await self._wakeup


class SyncActor(Actor):
    """The same with a handler that is just called."""

    async def _run(self) -> None:
        queue, handle = self._queue, self.behaviour.handle
        loop = asyncio.get_running_loop()
        while True:
            while queue:
                message = queue.popleft()
                if message is STOP:
                    return
                handle(message)
            self._wakeup = loop.create_future()
            await self._wakeup


class Count:
    """Handles so many messages, then says so."""

    def __init__(self, left: int, done: Future[None]) -> None:
        self._left = left
        self._done = done

    def handle(self, message: int) -> Any:
        self._left -= 1
        if self._left == 0:
            self._done.set_result(None)


class CountAsync(Count):
    async def handle(self, message: int) -> None:
        self._left -= 1
        if self._left == 0:
            self._done.set_result(None)


class PassOn:
    """Passes a message on until it has been passed on often enough."""

    next: Actor

    def __init__(self, hops: int, done: Future[None]) -> None:
        self._hops = hops
        self._done = done

    def handle(self, message: int) -> Any:
        if message < self._hops:
            self.next.tell(message + 1)
        else:
            self._done.set_result(None)


class PassOnAsync(PassOn):
    async def handle(self, message: int) -> None:
        if message < self._hops:
            self.next.tell(message + 1)
        else:
            self._done.set_result(None)


class Answer:
    """Answers the future that it is sent; fails when it is sent none."""

    def handle(self, message: Future[int] | None) -> Any:
        if message is None:
            raise FragileError
        message.set_result(1)


class AnswerAsync:
    async def handle(self, message: Future[int] | None) -> None:
        if message is None:
            raise FragileError
        message.set_result(1)


class FragileError(Exception):
    """What is expected of a behaviour that is sent None."""


class Reference(Contender):
    """Reference actors with one kind of handler."""

    def __init__(self, key: str, title: str, *, is_async: bool) -> None:
        super().__init__(key, title)
        self.actor: Callable[[Behaviour], Actor] = Actor if is_async else SyncActor
        self.count = CountAsync if is_async else Count
        self._pass_on = PassOnAsync if is_async else PassOn
        self._answer: Callable[[], Behaviour] = AnswerAsync if is_async else Answer

    async def tell(self, messages: int) -> float | None:
        done: Future[None] = asyncio.get_running_loop().create_future()
        actor = self.actor(self.count(messages, done))
        await asyncio.sleep(0)
        tell = actor.tell
        began = time.perf_counter()
        for number in range(1, messages + 1):
            tell(number)
            if number % BURST == 0:
                await asyncio.sleep(0)
        await done
        took = time.perf_counter() - began
        await actor.stop()
        return took / messages

    async def fan_in(self, messages: int) -> float | None:
        each = messages // SENDERS
        done: Future[None] = asyncio.get_running_loop().create_future()
        actor = self.actor(self.count(each * SENDERS, done))
        await asyncio.sleep(0)

        async def send() -> None:
            tell = actor.tell
            for number in range(1, each + 1):
                tell(number)
                if number % SENDER_BURST == 0:
                    await asyncio.sleep(0)

        began = time.perf_counter()
        senders = [asyncio.create_task(send()) for _ in range(SENDERS)]
        await done
        took = time.perf_counter() - began
        await asyncio.gather(*senders)
        await actor.stop()
        return took / (each * SENDERS)

    async def ring(self, hops: int) -> float | None:
        done: Future[None] = asyncio.get_running_loop().create_future()
        behaviours = [self._pass_on(hops, done) for _ in range(RING_ACTORS)]
        actors = [self.actor(behaviour) for behaviour in behaviours]
        for place, behaviour in enumerate(behaviours):
            behaviour.next = actors[(place + 1) % RING_ACTORS]
        await asyncio.sleep(0)
        began = time.perf_counter()
        actors[0].tell(1)
        await done
        took = time.perf_counter() - began
        for actor in actors:
            await actor.stop()
        return took / hops

    async def ask(self, asks: int) -> float | None:
        loop = asyncio.get_running_loop()
        actor = self.actor(self._answer())
        await asyncio.sleep(0)

        async def ask() -> int:
            future: Future[int] = loop.create_future()
            actor.tell(future)
            return await future

        took = await median_s(ask, asks)
        await actor.stop()
        return took

    async def spawn(self, actors: int) -> float | None:
        began = time.perf_counter()
        for _ in range(actors):
            await self.actor(self._answer()).stop()
        return (time.perf_counter() - began) / actors

    async def restart(self, failures: int) -> float | None:
        loop = asyncio.get_running_loop()
        actor = self.actor(self._answer())

        def start_again(task: Task[None]) -> None:
            if task.exception() is not None:
                actor.behaviour = self._answer()
                actor.begin()
                actor.task.add_done_callback(start_again)

        actor.task.add_done_callback(start_again)
        await asyncio.sleep(0)
        began = time.perf_counter()
        for _ in range(failures):
            actor.tell(None)
            actor.tell(handled := loop.create_future())
            await handled
        took = time.perf_counter() - began
        await actor.stop()
        return took / failures

    async def idle_bytes(self, actors: int, *, used: bool) -> float | None:
        async def start() -> Actor:
            actor = self.actor(self._answer())
            await asyncio.sleep(0)
            if used:
                actor.tell(handled := asyncio.get_running_loop().create_future())
                await handled
            return actor

        cost, started = await bytes_each(start, actors)
        for actor in started:
            await actor.stop()
        return cost


class BareTask(Contender):
    """No actor at all: a task that has nothing to do. The floor under anything that starts a task."""

    async def spawn(self, actors: int) -> float | None:
        async def nothing() -> None:
            pass

        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        for _ in range(actors):
            await loop.create_task(nothing())
        return (time.perf_counter() - began) / actors
