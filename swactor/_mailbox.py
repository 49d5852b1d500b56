"""What waits for one actor: a system lane that is never bounded and a user lane that is.

Owns: order, bounds, overflow and the counting of what was dropped.
Not here: who is woken (`_runqueue`), what a message means (`_cell`). No structure exists before it is needed.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swactor._messages import Ask, Drained, TimerFired

if TYPE_CHECKING:
    from swactor._messages import Signal
    from swactor.abc import Waiter

_KEPT = frozenset({Ask, TimerFired, Drained})
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
    """How many user messages may wait, and what happens to one more. Signals and timers are not counted."""

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
    """The two lanes of one actor."""

    __slots__ = ("_room", "awake", "capacity", "crowded", "dropped", "policy", "signals", "urgent", "user")

    def __init__(self, policy: MailboxPolicy) -> None:
        self.policy = policy
        self.capacity = policy.capacity
        self.awake = False
        """Whether somebody is already on the way to look into the user lane."""
        self.crowded = False
        """Whether senders wait for room."""
        self.user: deque[object] | None = None
        self.signals: deque[Signal] | None = None
        self.urgent: deque[object] | None = None
        self.dropped = 0
        self._room: deque[Waiter[None]] | None = None

    def __len__(self) -> int:
        return 0 if self.user is None else len(self.user)

    def put(self, message: object) -> bool:
        """Enqueue a user message; return False, and keep nothing, when it is refused."""
        user = self.user
        if user is None:
            self.user = deque((message,))
        elif len(user) < self.capacity:
            user.append(message)
        elif self.policy.overflow is Overflow.DROP_OLDEST:
            self._drop_oldest(user)
            user.append(message)
        elif self.policy.overflow is Overflow.REFUSE or message.__class__ is Ask:
            return False
        else:
            self.dropped += 1
        return True

    def _drop_oldest(self, user: deque[object]) -> None:
        for place, waiting in enumerate(user):
            if waiting.__class__ not in _KEPT:
                del user[place]
                self.dropped += 1
                return

    def force(self, message: object) -> None:
        """Enqueue something that must not be lost, whatever the bound: a timer, the end of a drain."""
        if self.user is None:
            self.user = deque()
        self.user.append(message)

    def overtake(self, message: object) -> None:
        """Enqueue ahead of all user messages, behind what overtook before."""
        if self.urgent is None:
            self.urgent = deque()
        self.urgent.append(message)

    def signal(self, signal: Signal) -> None:
        """Enqueue into the system lane."""
        if self.signals is None:
            self.signals = deque()
        self.signals.append(signal)

    def wait_for_room(self, waiter: Waiter[None]) -> None:
        """Set ``waiter`` as soon as a place is free, first come first served."""
        if self._room is None:
            self._room = deque()
        self._room.append(waiter)
        self.crowded = True

    def announce_room(self) -> None:
        """A message left: let as many waiting senders go on as there are free places."""
        free = self.capacity - len(self)
        while self._room and free > 0:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set(None)
                free -= 1
        self.crowded = bool(self._room)

    def release_waiting(self) -> None:
        """The actor has ended: nobody needs to wait for room any more."""
        while self._room:
            self._room.popleft().set(None)
        self.crowded = False

    def empty_out(self) -> list[object]:
        """Return and forget all user messages, oldest first."""
        left = [*(self.urgent or ()), *(self.user or ())]
        self.urgent = self.user = None
        return left
