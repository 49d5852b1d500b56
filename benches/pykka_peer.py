"""Pykka: an actor is a thread with a queue. Who waits blocks, and the loop with it; nothing else runs then.

Messages come in bursts that are over before the interpreter switches threads by itself, after 5 ms. In longer
bursts sender and receiver fight for the interpreter, and a message costs up to four times as much: this is
Pykka at its best.
"""

import threading
import time
from typing import Any

import pykka

from benches.contender import RING_ACTORS, SENDERS, Contender, median_s

BURST = 1_000
"""Messages in all until the sender, or the senders, wait for the receiver; about 2 ms."""


class Count(pykka.ThreadingActor):
    """Says so whenever it has handled one more burst."""

    def __init__(self, handled: threading.Semaphore) -> None:
        super().__init__()
        self._left = BURST
        self._handled = handled

    def on_receive(self, message: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self._left = BURST
            self._handled.release()


class Sender(pykka.ThreadingActor):
    """Sends as many messages as it is told."""

    def __init__(self, receiver: Any) -> None:
        super().__init__()
        self._receiver = receiver

    def on_receive(self, message: int) -> Any:
        for number in range(message):
            self._receiver.tell(number)


class PassOn(pykka.ThreadingActor):
    """Passes a message on until it has been passed on often enough. Its first message is whom to pass to."""

    def __init__(self, hops: int, done: threading.Event) -> None:
        super().__init__()
        self._next: Any = None
        self._hops = hops
        self._done = done

    def on_receive(self, message: Any) -> Any:
        if self._next is None:
            self._next = message
        elif message < self._hops:
            self._next.tell(message + 1)
        else:
            self._done.set()


class Answer(pykka.ThreadingActor):
    def on_receive(self, message: Any) -> Any:
        return 1


class Pykka(Contender):
    """Threading actors."""

    def __init__(self) -> None:
        super().__init__("pykka", "Pykka", share=0.2)

    async def tell(self, messages: int) -> float | None:
        bursts = max(1, messages // BURST)
        handled = threading.Semaphore(0)
        ref = Count.start(handled)
        began = time.perf_counter()
        for _ in range(bursts):
            for number in range(BURST):
                ref.tell(number)
            handled.acquire()
        took = time.perf_counter() - began
        ref.stop()
        return took / (bursts * BURST)

    async def fan_in(self, messages: int) -> float | None:
        bursts = max(1, messages // BURST)
        handled = threading.Semaphore(0)
        receiver = Count.start(handled)
        senders = [Sender.start(receiver) for _ in range(SENDERS)]
        began = time.perf_counter()
        for _ in range(bursts):
            for sender in senders:
                sender.tell(BURST // SENDERS)
            handled.acquire()
        took = time.perf_counter() - began
        for sender in senders:
            sender.stop()
        receiver.stop()
        return took / (bursts * BURST)

    async def ring(self, hops: int) -> float | None:
        done = threading.Event()
        refs = [PassOn.start(hops, done) for _ in range(RING_ACTORS)]
        for place, ref in enumerate(refs):
            ref.tell(refs[(place + 1) % RING_ACTORS])
        began = time.perf_counter()
        refs[0].tell(1)
        done.wait()
        took = time.perf_counter() - began
        for ref in refs:
            ref.stop()
        return took / hops

    async def ask(self, asks: int) -> float | None:
        ref = Answer.start()

        async def ask() -> None:
            ref.ask("question")

        took = await median_s(ask, asks)
        ref.stop()
        return took

    async def spawn(self, actors: int) -> float | None:
        began = time.perf_counter()
        for _ in range(actors):
            Answer.start().stop()
        return (time.perf_counter() - began) / actors
