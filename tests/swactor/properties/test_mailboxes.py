"""One small mailbox under random tells, asks, sends and changes of mind: all is counted, and in order."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import anyio.abc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorStatistics,
    ActorSystem,
    Context,
    MailboxFullError,
    MailboxPolicy,
    Overflow,
    Request,
)
from swactor.testing import until

REST_TURNS = 12
"""After so many turns of the loop nothing happens any more unless a test does something."""
PLENTY = 1_000
DEADLINE_S = 20.0


@dataclass(frozen=True)
class Numbered:
    number: int


@dataclass(frozen=True)
class Question(Request[int]):
    number: int


@dataclass(frozen=True)
class Tell:
    """Tell the next number."""


@dataclass(frozen=True)
class Ask:
    """Ask the next number, in a task of its own."""


@dataclass(frozen=True)
class Send:
    """Send the next number, in a task of its own, which waits while there is no room."""


@dataclass(frozen=True)
class GiveUp:
    """Cancel one of the tasks that still wait."""

    which: int


@dataclass(frozen=True)
class Permit:
    """Let the handler finish so many messages."""

    messages: int


@dataclass(frozen=True)
class Turn:
    """Let the loop turn."""

    turns: int


Action = Tell | Ask | Send | GiveUp | Permit | Turn

actions = st.lists(
    st.one_of(
        st.builds(Tell),
        st.builds(Ask),
        st.builds(Send),
        st.builds(GiveUp, st.integers(0, 5)),
        st.builds(Permit, st.integers(1, 3)),
        st.builds(Turn, st.sampled_from([1, 2, REST_TURNS])),
    ),
    max_size=40,
)
policies = st.builds(MailboxPolicy, capacity=st.integers(1, 4), overflow=st.sampled_from(Overflow))
Ending = Literal["handle all", "drain", "stop"]


class Waits(Actor[Any]):
    """Finishes a message when it is permitted to."""

    def __init__(self, permits: anyio.Semaphore) -> None:
        self.handled: list[int] = []
        self._permits = permits

    async def on_message(self, ctx: Context[Any], message: Any) -> int:
        self.handled.append(message.number)
        await self._permits.acquire()
        number: int = message.number
        return number


class Hurries(Actor[Any]):
    """Finishes a message at once."""

    def __init__(self, permits: anyio.Semaphore) -> None:
        self.handled: list[int] = []

    def on_message(self, ctx: Context[Any], message: Any) -> int:
        self.handled.append(message.number)
        number: int = message.number
        return number


@dataclass
class Books:
    """What became of each number, as seen by who said it."""

    told: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    waiting: dict[int, anyio.CancelScope] = field(default_factory=dict)
    senders: set[int] = field(default_factory=set)


class Desk:
    """Performs actions upon one actor and keeps the books."""

    def __init__(
        self,
        system: ActorSystem,
        ref: ActorRef[Any],
        *,
        policy: MailboxPolicy,
        permits: anyio.Semaphore,
        group: anyio.abc.TaskGroup,
    ) -> None:
        self.books = Books()
        self.dropped = 0
        self._system = system
        self._ref = ref
        self._policy = policy
        self._permits = permits
        self._group = group
        self._numbers = 0

    async def perform(self, action: Action) -> None:
        match action:
            case Tell():
                self._tell(self._next())
            case Ask():
                await self._group.start(self._wait_for, self._next(), self._ask)
            case Send():
                number = self._next()
                self.books.senders.add(number)
                await self._group.start(self._wait_for, number, self._send)
            case GiveUp(which):
                waiting = list(self.books.waiting.values())
                if waiting:
                    waiting[which % len(waiting)].cancel()
            case Permit(messages):
                for _ in range(messages):
                    self._permits.release()
            case Turn(turns):
                await turn(turns)
                if turns == REST_TURNS:
                    self._check_rest()
        self._check_bound()

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _tell(self, number: int) -> None:
        depth = self._statistics().depth
        try:
            self._ref.tell(Numbered(number))
        except MailboxFullError:
            self.books.refused.append(number)
            is_refused = True
        else:
            self.books.told.append(number)
            is_refused = False
        assert is_refused == (self._policy.overflow is Overflow.REFUSE and depth == self._policy.capacity)

    async def _wait_for(
        self, number: int, what: Callable[[int], Awaitable[None]], *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        with anyio.CancelScope() as scope:
            self.books.waiting[number] = scope
            task_status.started()
            await what(number)
        del self.books.waiting[number]
        self.books.senders.discard(number)
        if scope.cancelled_caught:
            self.books.given_up.append(number)

    async def _ask(self, number: int) -> None:
        try:
            answer = await self._ref.ask(Question(number), timeout_s=1_000.0)
        except MailboxFullError:
            self.books.refused.append(number)
        except ActorDeadError:
            self.books.failed.append(number)
        else:
            assert answer == number
            self.books.answered.append(number)

    async def _send(self, number: int) -> None:
        await self._ref.send(Numbered(number))
        self.books.sent.append(number)

    def _statistics(self) -> ActorStatistics:
        (row,) = [row for row in self._system.statistics().actors if row.serial == self._ref.actor_id.serial]
        return row

    def _check_bound(self) -> None:
        row = self._statistics()
        self.dropped = row.dropped
        assert row.depth <= self._policy.capacity

    def _check_rest(self) -> None:
        """Nobody waits for a place that is free."""
        if self.books.senders:
            assert self._statistics().depth == self._policy.capacity

    async def end(self, ending: Ending) -> None:
        """End the actor in one of the ways there are; all who wait come to know."""
        if ending == "stop":
            self._permits.release()  # the message at hand may be finished
            await self._system.stop_actor(self._ref)
        else:
            for _ in range(PLENTY):
                self._permits.release()
            if ending == "handle all":
                await until(lambda: not self.books.waiting, timeout_s=DEADLINE_S)
            self.dropped = self._statistics().dropped
            await self._system.stop_actor(self._ref, drain=True)
        await until(lambda: not self.books.waiting, timeout_s=DEADLINE_S)


async def turn(turns: int) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()


def check_order(handled: list[int], books: Books) -> None:
    """Each is handled once; what was told in the order in which it was told, and so what was sent."""
    assert len(handled) == len(set(handled))
    for said in (books.told, books.sent):
        assert [number for number in handled if number in said] == sorted(set(handled) & set(said))


def check_books(handled: list[int], books: Books, *, dropped: int, dead_letters: int) -> None:
    """What was taken was handled, or is counted as dropped or as a dead letter."""
    done = set(handled)
    assert set(books.answered) <= done
    assert not set(books.refused) & done
    assert not {number for number in books.given_up if number in books.sent}
    taken = [*books.told, *books.sent]
    assert len([number for number in taken if number not in done]) == dropped + dead_letters


async def run(
    kind: type[Waits] | type[Hurries], policy: MailboxPolicy, todo: list[Action], ending: Ending
) -> None:
    permits = anyio.Semaphore(0)
    actor = kind(permits)
    async with ActorSystem() as system, anyio.create_task_group() as group:
        ref = await system.spawn(actor, mailbox=policy)
        desk = Desk(system, ref, policy=policy, permits=permits, group=group)
        for action in todo:
            await desk.perform(action)
        await desk.end(ending)
        check_order(actor.handled, desk.books)
        check_books(
            actor.handled, desk.books, dropped=desk.dropped, dead_letters=system.statistics().dead_letters
        )
        if ending == "handle all":
            assert system.statistics().dead_letters == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", [Waits, Hurries])
@settings(max_examples=100, derandomize=True)
@given(policy=policies, todo=actions, ending=st.sampled_from(["handle all", "drain", "stop"]))
def test_a_mailbox_keeps_its_promises_whatever_is_said_to_it(
    backend: str,
    kind: type[Waits] | type[Hurries],
    policy: MailboxPolicy,
    todo: list[Action],
    ending: Ending,
) -> None:
    anyio.run(run, kind, policy, todo, ending, backend=backend)
