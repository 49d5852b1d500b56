"""What waits for one actor: user messages up to a bound, and senders that wait for room.

Owns: order, bounds, overflow, the counting of what was dropped, and the age of what waits.
Not here: who is woken (`_runqueue`), what a message means (`_cell`), the system lane, which knows no bound.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from swactor._messages import Drained, Interrupt, TimerFired
from swactor._reply import Ask

if TYPE_CHECKING:
    from swactor.abc import Waiter

KEPT: Final = frozenset({Ask, TimerFired, Drained, Interrupt})
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
    """The user lane of one actor. Made when its first message comes."""

    __slots__ = ("_behind", "_mark_ns", "dropped", "lane", "policy", "room", "since_ns", "woken_at")

    def __init__(self, policy: MailboxPolicy) -> None:
        self.policy = policy
        self.lane: deque[object] = deque()
        self.dropped = 0
        self.since_ns = 0
        """Everything that waits came after this time."""
        self.woken_at = 0
        """How many messages an asynchronous actor had handled when it was last woken, at ``since_ns``."""
        self._mark_ns = 0
        self._behind = 0
        self.room: deque[Waiter[None]] | None = None
        """Senders that wait for room; None when there are none."""

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
        """Have whoever takes messages out look up before the next one; once is enough."""
        if self.lane and type(self.lane[0]) is not Interrupt:
            self.lane.appendleft(Interrupt())

    @property
    def depth(self) -> int:
        """How many messages wait."""
        lane = self.lane
        return len(lane) - (type(lane[0]) is Interrupt if lane else 0)

    # -- the age of what waits ----------------------------------------------------------------------------

    def note_turn(self, taken: int, now_ns: int) -> int:
        """A turn took ``taken`` messages out and left some; when all a mark counted are gone, set another.

        So the oldest message is never older than ``since_ns`` says, and no message carries a time. Return
        ``now_ns``.
        """
        self._behind -= taken
        if self._behind <= 0:
            self.since_ns = max(self.since_ns, self._mark_ns)
            self._mark_ns = now_ns
            self._behind = len(self.lane)
        return now_ns

    # -- senders that wait for room -----------------------------------------------------------------------

    def wait_for_room(self, waiter: Waiter[None]) -> None:
        """Set ``waiter`` as soon as a place is free, first come first served."""
        if self.room is None:
            self.room = deque()
        self.room.append(waiter)

    def announce_room(self) -> None:
        """Messages left: let as many waiting senders go on as there are free places."""
        free = self.policy.capacity - self.depth
        while self.room and free > 0:
            waiter = self.room.popleft()
            if not waiter.done():
                waiter.set(None)
                free -= 1
        self.room = self.room or None

    def release_waiting(self) -> None:
        """The actor has ended: nobody needs to wait for room any more."""
        while self.room:
            self.room.popleft().set(None)
        self.room = None

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
