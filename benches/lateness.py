"""Fairness: how late a periodic timer comes while some actor has a flood of messages to handle.

All messages wait from the beginning: the question is how often the runtime looks up from them, not how fast
somebody sends. Round number n is due n periods after the start; it is as late as the first tick after that.
"""

import asyncio
import time
from asyncio import Future, TimerHandle
from typing import Protocol

from benches.product import Kind
from benches.reference import Reference
from swactor import Actor, ActorSystem, Context, MailboxPolicy

PERIOD_S = 0.010
FLOOD = 1_000_000
QUIET_S = 0.5
"""How long the timer is watched when nothing else happens."""
EARLY_S = 0.002
"""How much too early a tick may come; uvloop counts whole milliseconds, from the beginning of a turn."""


class Ticking(Protocol):
    """Something that notes when it began and when it ticked, in seconds of `time.perf_counter`."""

    began_s: float
    ticks_s: list[float]


class Metronome(Actor[str]):
    """An actor that ticks from its first message on."""

    def __init__(self) -> None:
        self.began_s = time.perf_counter()
        self.ticks_s: list[float] = []

    def on_message(self, ctx: Context[str], message: str) -> None:
        if message == "start":
            self.began_s = time.perf_counter()
            ctx.send_every(PERIOD_S, "tick")
        else:
            self.ticks_s.append(time.perf_counter())


class LoopTimer:
    """The same on a bare event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.began_s = time.perf_counter()
        self.ticks_s: list[float] = []
        self._first_s = self._loop.time()
        self._timer = self._schedule(1)

    def _schedule(self, number: int) -> TimerHandle:
        return self._loop.call_at(self._first_s + number * PERIOD_S, self._tick, number)

    def _tick(self, number: int) -> None:
        self.ticks_s.append(time.perf_counter())
        self._timer = self._schedule(number + 1)

    def cancel(self) -> None:
        """Tick no more."""
        self._timer.cancel()


async def flooded_actor(kind: Kind) -> list[float]:
    """Return the lateness in ms of one actor's timer while another one handles `FLOOD` messages."""
    done: Future[None] = asyncio.get_running_loop().create_future()
    async with ActorSystem() as system:
        flooded = await system.spawn(kind.count(FLOOD, done), mailbox=MailboxPolicy(capacity=FLOOD))
        metronome = Metronome()
        ref = await system.spawn(metronome)
        for number in range(FLOOD):
            flooded.tell(number)
        ref.tell("start")
        await done
        return await _late_ms(metronome)


async def quiet() -> list[float]:
    """Return the lateness in ms of an actor's timer while nothing else happens."""
    async with ActorSystem() as system:
        metronome = Metronome()
        ref = await system.spawn(metronome)
        ref.tell("start")
        await asyncio.sleep(QUIET_S)
        return await _late_ms(metronome)


async def flooded_reference(reference: Reference) -> list[float]:
    """Return the lateness in ms of a bare loop's timer while a reference actor handles `FLOOD` messages."""
    done: Future[None] = asyncio.get_running_loop().create_future()
    actor = reference.actor(reference.count(FLOOD, done))
    for number in range(FLOOD):
        actor.tell(number)
    timer = LoopTimer()
    await done
    late = await _late_ms(timer)
    timer.cancel()
    await actor.stop()
    return late


async def _late_ms(timer: Ticking) -> list[float]:
    """Return how late each round was that fell due until now, in ms."""
    ended_s = time.perf_counter()
    await asyncio.sleep(3 * PERIOD_S)  # the last round may still be to come
    late: list[float] = []
    due_s = timer.began_s + PERIOD_S
    for tick_s in timer.ticks_s:
        while due_s < ended_s and due_s <= tick_s + EARLY_S:
            late.append(max(0.0, tick_s - due_s) * 1000)
            due_s += PERIOD_S
    return late
