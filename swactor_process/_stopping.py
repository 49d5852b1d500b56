"""How long a child that is asked to stop may take, and how that is made known to it. Pure.

Owns: TERM - grace - KILL - deadline, and that asking again only shortens the times.
Not here: whether there is anybody to stop (``session``).
"""

from msgspec import Struct

from swactor_process._effects import Effect, SetTimer, SignalGroup, Timer
from swactor_process._signals import KILL, TERM


class StopTimes(Struct, frozen=True):
    """Until when a stopping child may take its time, in monotonic seconds."""

    grace_at_s: float
    deadline_at_s: float

    def at_most(self, other: "StopTimes", now_s: float) -> "StopTimes":
        """Return the earlier times of both; a deadline that is over already counts no more."""
        deadline_at_s = other.deadline_at_s
        if self.deadline_at_s > now_s:
            deadline_at_s = min(self.deadline_at_s, deadline_at_s)
        return StopTimes(min(self.grace_at_s, other.grace_at_s), deadline_at_s)


class Stopping:
    """The stop of one child."""

    def __init__(self) -> None:
        self._times: StopTimes | None = None
        self.escalated = False
        """Whether KILL was sent because the grace time was over."""

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._times is not None

    def ask(self, now_s: float, *, grace_s: float, deadline_s: float) -> None:
        """Take note of the wish."""
        times = StopTimes(now_s + min(grace_s, deadline_s), now_s + deadline_s)
        self._times = times if self._times is None else self._times.at_most(times, now_s)

    def begin(self, now_s: float) -> list[Effect]:
        """Return how it begins: politely, unless there is no grace time left."""
        polite = self._times is not None and self._times.grace_at_s > now_s
        return [*([SignalGroup(TERM)] if polite else self.escalate()), *self.timers(now_s)]

    def timers(self, now_s: float) -> list[Effect]:
        """Return the timers of what was asked."""
        if self._times is None:
            return []
        timers: list[Effect] = [SetTimer(Timer.DEADLINE, max(0.0, self._times.deadline_at_s - now_s))]
        if not self.escalated:
            timers.append(SetTimer(Timer.GRACE, max(0.0, self._times.grace_at_s - now_s)))
        return timers

    def escalate(self) -> list[Effect]:
        """The grace time is over."""
        self.escalated = True
        return [SignalGroup(KILL)]
