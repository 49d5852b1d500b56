"""What waits for one actor: user messages up to a bound, and senders that wait for room.

Owns: order, bounds, overflow, the counting of what was dropped, and the age of what waits.
Not here: who is woken (`_runqueue`), what a message means (`_cell`), the system lane, which knows no bound.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from swactor._messages import Drained, Interrupt, TimerFired, WithReceipt
from swactor._reply import Ask

if TYPE_CHECKING:
    from swactor.abc import Waiter

KEPT: Final = frozenset({Ask, TimerFired, Drained, Interrupt, WithReceipt})
"""What is not dropped to make room: somebody waits for it, or the actor's own rhythm depends on it."""


class Overflow(enum.Enum):
    """What happens to a user message that finds the mailbox full."""

    REFUSE = "refuse"
    """The sender gets `MailboxFullError`; nothing is lost."""
    DROP_OLDEST = "drop_oldest"
    """The oldest message that was told goes, counted; asks, and what the runtime put there, stay."""
    DROP_NEWEST = "drop_newest"
    """The message itself goes, counted; an ask is refused instead."""


@dataclass(frozen=True, slots=True)
class MailboxPolicy:
    """How many user messages may wait, and what happens to one more. Signals and timers are never refused."""

    capacity: int = 10_000
    overflow: Overflow = Overflow.REFUSE

    def __post_init__(self) -> None:
        """Refuse a capacity that could hold nothing.

        Raises:
            ValueError: ``capacity`` is below 1.
        """
        if self.capacity < 1:
            raise ValueError(f"a mailbox holds at least one message, not {self.capacity}")


DEFAULT_POLICY = MailboxPolicy()


class Mailbox:
    """The user lane of one actor. Made when its first message comes.

    Messages carry no times, that would be felt. Instead there is a mark: how many waited at what time. Once
    so many were taken, all that waits came after that time, and the next mark is set.
    """

    __slots__ = ("_before_mark", "_mark_ns", "dropped", "lane", "policy", "room", "since_ns", "woken_at")

    def __init__(self, policy: MailboxPolicy) -> None:
        self.policy = policy
        self.lane: deque[object] = deque()
        self.dropped = 0
        self.since_ns = 0
        """Everything that waits came after this time."""
        self.woken_at = 0
        """How many messages an asynchronous actor had handled when it was last woken, at ``since_ns``."""
        self._mark_ns = 0
        self._before_mark = 0
        """How many of those that waited at the mark are still to be taken."""
        self.room: deque[Waiter[None]] | None = None
        """Senders that wait for room, in the order in which they came; None when there are none."""

    def put(self, message: object) -> bool:
        """Enqueue a user message; return False, and keep nothing, when it is refused."""
        lane = self.lane
        overflow = self.policy.overflow
        if self.depth < self.policy.capacity or (overflow is Overflow.DROP_OLDEST and self._drop_oldest()):
            lane.append(message)
        elif overflow is Overflow.REFUSE or type(message) is Ask:
            return False
        else:
            self.dropped += 1
            if type(message) is WithReceipt:
                message.left()
        return True

    def _drop_oldest(self) -> bool:
        """Drop the oldest message that may be; return whether there was one."""
        lane = self.lane
        for place, waiting in enumerate(lane):
            if type(waiting) not in KEPT:
                del lane[place]
                self.dropped += 1
                return True
        return False

    def interrupt(self) -> None:
        """Have whoever takes messages out look up before the next one, even one that is still to come."""
        if not self.lane or type(self.lane[0]) is not Interrupt:
            self.lane.appendleft(Interrupt())
            self._before_mark += 1  # it is taken out like those that waited at the mark

    @property
    def depth(self) -> int:
        """How many messages wait."""
        lane = self.lane
        return len(lane) - (type(lane[0]) is Interrupt if lane else 0)

    # -- the age of what waits ----------------------------------------------------------------------------

    def note_turn(self, taken: int, now_ns: int) -> int:
        """A turn took ``taken`` messages out and left some: is the mark reached? Return ``now_ns``."""
        self._before_mark -= taken
        if self._before_mark <= 0:
            self.since_ns = max(self.since_ns, self._mark_ns)
            self._mark_ns = now_ns
            self._before_mark = len(self.lane)
        return now_ns

    # -- senders that wait for room -----------------------------------------------------------------------

    def wait_for_room(self, waiter: Waiter[None], *, first: bool) -> None:
        """Set ``waiter`` as soon as a place is free and it is the first of those that wait.

        One that was let in and found the place taken goes ``first`` again; others come last.
        """
        if self.room is None:
            self.room = deque()
            self.interrupt()
        if first:
            self.room.appendleft(waiter)
        else:
            self.room.append(waiter)

    def announce_room(self, leaving: int = 0) -> None:
        """Let the first waiting sender go on if there is a place; it will see to the next.

        One at a time, because not every backend resumes tasks in the order in which they were woken. Places
        of messages that are ``leaving`` right now count as free.
        """
        if self.room and self.depth - leaving < self.policy.capacity:
            self.room[0].set(None)

    def let_in(self) -> int:
        """While senders wait, one message is taken at a time, and its place given away before it is handled.

        Return how many to take now: none if there are none.
        """
        if not self.lane:
            return 0
        self.announce_room(type(self.lane[0]) is not Interrupt)
        return 1

    def stop_waiting(self, waiter: Waiter[None]) -> None:
        """Forget a sender that was let in or has given up."""
        if self.room is not None and waiter in self.room:
            self.room.remove(waiter)
            self.room = self.room or None

    # -- the end ------------------------------------------------------------------------------------------

    def abandon_lane(self) -> None:
        """Leave the lane to a task that was given up, with nothing in it, and go on with a fresh one."""
        abandoned = self.lane
        self.lane = deque(abandoned)
        abandoned.clear()
        abandoned.append(Interrupt())

    def empty_out(self) -> list[object]:
        """Return and forget all user messages, oldest first."""
        left = list(self.lane)
        self.lane.clear()
        return left
