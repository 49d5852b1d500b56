"""Thespian's simpleSystemBase: all actors on one thread; a tell from outside returns once all is handled."""

import time
from typing import Any

from thespian.actors import Actor, ActorExitRequest, ActorSystem

from benches.contender import RING_ACTORS, SENDER_BURST, SENDERS, Contender, median_s
from benches.measure import bytes_each


class Count(Actor):
    """Counts messages, and says how many there were when it is sent None."""

    handled = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's own name
        if message is None:
            self.send(sender, self.handled)
        else:
            self.handled += 1


class Sender(Actor):
    """Sends as many messages to a receiver as it is told."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's own name
        if isinstance(message, tuple):
            receiver, count = message
            for number in range(count):
                self.send(receiver, number)


class PassOn(Actor):
    """Passes a number on, one less, until it is 0. A message that is no number says whom to pass to."""

    next: Any = None

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's own name
        if not isinstance(message, int):
            self.next = message
        elif message > 1:
            self.send(self.next, message - 1)


class Answer(Actor):
    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 - Thespian's own name
        if message == "question":
            self.send(sender, 1)


class Thespian(Contender):
    """The in-process system without processes or network, Thespian's fastest."""

    def __init__(self) -> None:
        super().__init__("thespian", "Thespian", share=0.1)

    async def open(self) -> None:
        self._system = ActorSystem("simpleSystemBase", logDefs=False)

    async def close(self) -> None:
        self._system.shutdown()

    async def tell(self, messages: int) -> float | None:
        actor = self._system.createActor(Count)
        tell = self._system.tell
        began = time.perf_counter()
        for number in range(messages):
            tell(actor, number)
        took = time.perf_counter() - began
        self._require_handled(actor, messages)
        return took / messages

    async def fan_in(self, messages: int) -> float | None:
        rounds = max(1, messages // (SENDERS * SENDER_BURST))
        actor = self._system.createActor(Count)
        senders = [self._system.createActor(Sender) for _ in range(SENDERS)]
        began = time.perf_counter()
        for _ in range(rounds):
            for sender in senders:
                self._system.tell(sender, (actor, SENDER_BURST))
        took = time.perf_counter() - began
        sent = rounds * SENDERS * SENDER_BURST
        self._require_handled(actor, sent)
        for sender in senders:
            self._system.tell(sender, ActorExitRequest())
        return took / sent

    def _require_handled(self, actor: Any, messages: int) -> None:
        """Stop ``actor``, which must have counted so many messages."""
        handled = self._system.ask(actor, None)
        self._system.tell(actor, ActorExitRequest())
        if handled != messages:
            raise RuntimeError(f"Thespian handled {handled} of {messages} messages")

    async def ring(self, hops: int) -> float | None:
        actors = [self._system.createActor(PassOn) for _ in range(RING_ACTORS)]
        for place, actor in enumerate(actors):
            self._system.tell(actor, actors[(place + 1) % RING_ACTORS])
        began = time.perf_counter()
        self._system.tell(actors[0], hops)
        took = time.perf_counter() - began
        for actor in actors:
            self._system.tell(actor, ActorExitRequest())
        return took / hops

    async def ask(self, asks: int) -> float | None:
        actor = self._system.createActor(Answer)

        async def ask() -> None:
            self._system.ask(actor, "question")

        took = await median_s(ask, asks)
        self._system.tell(actor, ActorExitRequest())
        return took

    async def spawn(self, actors: int) -> float | None:
        began = time.perf_counter()
        for _ in range(actors):
            self._system.tell(self._system.createActor(Answer), ActorExitRequest())
        return (time.perf_counter() - began) / actors

    async def idle_bytes(self, actors: int, *, used: bool) -> float | None:
        async def start() -> Any:
            actor = self._system.createActor(Answer)
            if used:
                self._system.tell(actor, "message")
            return actor

        cost, started = await bytes_each(start, actors)
        for actor in started:
            self._system.tell(actor, ActorExitRequest())
        return cost
