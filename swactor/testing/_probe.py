"""An actor whose mailbox the test reads: what was it sent, in which order, and what does it answer?

Not here: moments that the runtime reports (`Recorder`).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Self, TypeVar, overload

from swactor import Actor, ActorRef, ActorSystem, Context, NotAskedError, Reply, SwactorError
from swactor.testing._conditions import Conditions
from swactor.testing._errors import MissingMessageError, UnexpectedMessageError, place_of, shown

T = TypeVar("T")

MESSAGES_MAX = 10_000
"""Messages that a probe keeps; one more ends it."""


class ProbeFullError(SwactorError):
    """A probe was sent more than it keeps; whoever writes to it does not stop."""


class Probe(Actor[object]):
    """Stands in for another actor: records what it is sent, for the test to expect in that order.

    ``probe = await Probe.start(system)`` is the usual way. As any actor it may be spawned by others too.
    """

    ref: ActorRef[object]
    """Its address, to hand out; there once it has started."""

    def __init__(self) -> None:
        self._received: list[object] = []
        self._expected = 0
        self._asks: deque[Reply[Any]] = deque()
        self._answers: deque[object] = deque()
        self._conditions: Conditions

    @classmethod
    async def start(cls, system: ActorSystem, *, name: str | None = None) -> Self:
        """Start a probe in ``system``; with a name it can be found by `ActorSystem.whereis`.

        Raises:
            NameTakenError: a living actor has the name.
        """
        probe = cls()
        await system.spawn(probe, name=name)
        return probe

    def on_start(self, ctx: Context[object]) -> None:
        """Be ready to be expected of."""
        self.ref = ctx.ref
        self._conditions = Conditions(ctx.loop)

    def on_message(self, ctx: Context[object], message: object) -> None:
        """Record ``message``; if it was asked, answer it now or when the test says what.

        Raises:
            ProbeFullError: this one is one too many.
        """
        if len(self._received) >= MESSAGES_MAX:
            raise ProbeFullError(f"the probe {ctx.actor_id} keeps {MESSAGES_MAX} messages, no more")
        self._received.append(message)
        try:
            self._asks.append(ctx.defer())
        except NotAskedError:
            pass
        else:
            self._answer()
        self._conditions.changed()

    @property
    def received(self) -> tuple[object, ...]:
        """All messages so far, expected or not, in the order in which they came."""
        return tuple(self._received)

    def monitor(self, other: ActorRef[Any]) -> None:
        """Be sent ``Down(other, reason)`` once ``other`` ends, to be expected like any message."""
        other.add_watcher(self.ref)

    def reply_with(self, *answers: object) -> None:
        """Answer asks, each with one of ``answers``: those that wait, the oldest first, then those to come.

        An answer that is an exception is raised where it was asked. An ask without an answer waits until its
        own timeout.
        """
        self._answers.extend(answers)
        self._answer()

    @overload
    async def expect(self, expected: type[T], *, timeout_s: float = ...) -> T: ...
    @overload
    async def expect(self, expected: Callable[[Any], bool], *, timeout_s: float = ...) -> object: ...
    @overload
    async def expect(self, expected: T, *, timeout_s: float = ...) -> T: ...
    async def expect(self, expected: object, *, timeout_s: float = 5.0) -> object:
        """Return the next message, which must be the expected one; the one after it is then the next.

        ``expected`` is a type, or a function that says whether it is the one, or else what it must equal.

        Raises:
            UnexpectedMessageError: the next message is another one.
            MissingMessageError: none came within ``timeout_s`` seconds of the system; with a manual clock
                they pass now. 0 waits for what is under way, and lets no time pass.
        """
        if not await self._conditions.wait(self._has_next, timeout_s=timeout_s):
            raise MissingMessageError(_describe(expected), timeout_s, self._received)
        message = self._take()
        if not _matches(expected, message):
            raise UnexpectedMessageError(_describe(expected), message, self._received)
        return message

    async def expect_nothing(self, *, for_s: float = 0.0) -> None:
        """Make sure that no message waits and none comes for ``for_s`` seconds of the system.

        With a manual clock these seconds pass now. 0 waits for what is under way, and lets no time pass.

        Raises:
            UnexpectedMessageError: one came.
        """
        if await self._conditions.wait(self._has_next, timeout_s=for_s):
            raise UnexpectedMessageError(f"nothing for {for_s:g} s", self._take(), self._received)

    def _has_next(self) -> bool:
        return len(self._received) > self._expected

    def _take(self) -> object:
        self._expected += 1
        return self._received[self._expected - 1]

    def _answer(self) -> None:
        while self._asks and self._answers:
            ask = self._asks.popleft()
            if ask.done:  # whoever asked has given up
                continue
            answer = self._answers.popleft()
            if isinstance(answer, BaseException):
                ask.fail(answer)
            else:
                ask.send(answer)


def _matches(expected: object, message: object) -> bool:
    if isinstance(expected, type):
        return isinstance(message, expected)
    if callable(expected):
        return bool(expected(message))
    return bool(message == expected)


def _describe(expected: object) -> str:
    if isinstance(expected, type):
        return expected.__name__
    return f"a message for which {place_of(expected)} holds" if callable(expected) else shown(expected)
