"""How long a child that is asked to stop may take, and how that is made known to it. Pure.

Owns: TERM - grace - KILL - deadline, and that asking again only shortens the times.
Not here: whether there is anybody to stop (``session``). Times are monotonic seconds.
"""

import math

from swactor_process._effects import AnnounceStillAlive, Effect, SetTimer, SignalGroup, Timer
from swactor_process._signals import CONT, KILL, TERM


class Stopping:
    """The stop of one child."""

    def __init__(self) -> None:
        self.asked = False
        """Whether a stop was asked for."""
        self.escalated = False
        """Whether KILL was sent because the grace time was over."""
        self.signals: set[int] = set()
        """What the stop has sent to the child."""
        self._grace_at_s = math.inf
        self._deadline_at_s = math.inf

    def ask(self, now_s: float, *, grace_s: float, deadline_s: float) -> None:
        """Take note of the wish. A deadline that was told to be over counts no more."""
        self.asked = True
        self._grace_at_s = min(self._grace_at_s, now_s + min(grace_s, deadline_s))
        self._deadline_at_s = min(self._deadline_at_s, now_s + deadline_s)

    def begin(self, now_s: float) -> list[Effect]:
        """Return how it begins: politely, unless there is no grace time left."""
        polite = self._grace_at_s > now_s
        # Who is held by a SIGSTOP gets TERM only when it may go on.
        sent = [*self._send(TERM), SignalGroup(CONT)] if polite else self.escalate()
        return [*sent, *self.timers(now_s)]

    def _send(self, number: int) -> list[Effect]:
        self.signals.add(number)
        return [SignalGroup(number)]

    def timers(self, now_s: float) -> list[Effect]:
        """Return the timers of what was asked."""
        timers: list[Effect] = [SetTimer(Timer.DEADLINE, max(0.0, self._deadline_at_s - now_s))]
        if not self.escalated:
            timers.append(SetTimer(Timer.GRACE, max(0.0, self._grace_at_s - now_s)))
        return timers

    def escalate(self) -> list[Effect]:
        """The grace time is over."""
        self.escalated = True
        return self._send(KILL)

    def on_deadline(self) -> list[Effect]:
        """The deadline is over, and the child lives."""
        self._deadline_at_s = math.inf
        return [AnnounceStillAlive()]
