"""Restart decisions of a supervisor, as pure functions of exit reason, strategy and time.

Owns: which children restart, in which order, after which delay, and when the budget is spent.
Not here: starting or stopping anything (see _supervisor). Times are monotonic nanoseconds.
"""

import enum
from collections import deque
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from math import inf
from typing import Final

from swactor._messages import STOPPED, ExitReason
from swactor.abc import RandomStream

_DRAWS: Final = 1 << 32


class Strategy(enum.Enum):
    """Which children are restarted when one of them ends in a way that asks for it."""

    ONE_FOR_ONE = "one_for_one"
    """That one only."""
    ONE_FOR_ALL = "one_for_all"
    """All of them."""
    REST_FOR_ONE = "rest_for_one"
    """That one and those started after it."""


class RestartKind(enum.Enum):
    """When a child is restarted at all."""

    PERMANENT = "permanent"
    """Whenever it ends, unless its supervisor stopped it."""
    TRANSIENT = "transient"
    """After an abnormal end only."""
    TEMPORARY = "temporary"
    """Never."""


ONE_FOR_ONE: Final = Strategy.ONE_FOR_ONE
ONE_FOR_ALL: Final = Strategy.ONE_FOR_ALL
PERMANENT: Final = RestartKind.PERMANENT
TRANSIENT: Final = RestartKind.TRANSIENT
TEMPORARY: Final = RestartKind.TEMPORARY


@dataclass(frozen=True, slots=True)
class RestartBudget:
    """How many restarts a supervisor performs within a period before it fails itself."""

    restarts_max: int = 5
    period_s: float = 30.0

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            ValueError: a negative number of restarts, or a period that is not above 0.
        """
        if self.restarts_max < 0:
            raise ValueError(f"restarts_max is 0 or more, not {self.restarts_max}")
        if not self.period_s > 0:
            raise ValueError(f"period_s is above 0, not {self.period_s:g}")


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before a restart: ``first_s`` doubling to ``limit_s``, less a random share of ``jitter``.

    It doubles with each restart that the same child made necessary within the period of the budget: another
    child begins with the first. Jitter keeps many nodes that failed together from coming back together; see
    "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
    """

    first_s: float = 0.1
    limit_s: float = 30.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        """Check all of them.

        Raises:
            ValueError: a delay that is negative or without an end, or a share that is not between 0 and 1.
        """
        for name, seconds in (("first_s", self.first_s), ("limit_s", self.limit_s)):
            if not 0 <= seconds < inf:
                raise ValueError(f"{name} is 0 or more, with an end, not {seconds:g}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is a share between 0 and 1, not {self.jitter:g}")

    def delay_s(self, attempt: int, draw: float) -> float:
        """Return the delay before restart number ``attempt`` (from 0); ``draw`` is uniform in [0, 1)."""
        full = min(self.limit_s, self.first_s * 2.0 ** min(attempt, 63))
        return full * (1.0 - self.jitter * draw)

    def drawn_s(self, attempt: int, random: RandomStream) -> float:
        """Return the delay before restart number ``attempt`` (from 0), its jitter drawn from ``random``."""
        return self.delay_s(attempt, random.below(_DRAWS) / _DRAWS)


def wants_restart(kind: RestartKind, reason: ExitReason) -> bool:
    """Return whether a child of this kind is restarted after an end for this reason."""
    if kind is PERMANENT:
        return reason.kind is not STOPPED
    return kind is TRANSIENT and reason.abnormal


def affected(strategy: Strategy, order: Collection[str], failed: str) -> tuple[str, ...]:
    """Return the ids that restart together with ``failed``, in start order (stop them in the reverse)."""
    if strategy is ONE_FOR_ONE:
        return (failed,)
    started = tuple(order)
    return started if strategy is ONE_FOR_ALL else started[started.index(failed) :]


STORY_ERRORS_MAX: Final = 16
"""Failures that are remembered for the story of a spent budget: each keeps the failed instance in memory."""


class RestartHistory:
    """The restarts of one supervisor within the period of its budget, and what made them necessary."""

    __slots__ = ("_counts", "_errors", "_period_ns", "_restarts", "budget")

    def __init__(self, budget: RestartBudget) -> None:
        self.budget = budget
        self._period_ns = round(budget.period_s * 1e9)
        self._restarts: deque[tuple[int, Hashable]] = deque()
        self._errors: deque[tuple[int, BaseException]] = deque(maxlen=STORY_ERRORS_MAX)
        self._counts: dict[Hashable, int] = {}
        """How many of them each child made necessary; those that made none are not in it."""

    def admit(self, child: Hashable, now_ns: int, error: BaseException | None) -> int | None:
        """Take note of a restart at ``now_ns`` that ``child`` makes necessary; return None when spent.

        Else return how many restarts the same child made necessary before, within the period.
        """
        restarts, counts = self._restarts, self._counts
        since_ns = now_ns - self._period_ns
        while restarts and restarts[0][0] <= since_ns:
            _, earlier = restarts.popleft()
            left = counts.pop(earlier) - 1
            if left:
                counts[earlier] = left
        if len(restarts) >= self.budget.restarts_max:
            return None
        restarts.append((now_ns, child))
        if error is not None:
            self._errors.append((now_ns, error))
        before = counts.get(child, 0)
        counts[child] = before + 1
        return before

    def story(self, last: BaseException | None) -> BaseException | None:
        """Return what went wrong lately, within the period, ``last`` at the end: one error or a group."""
        oldest_ns = self._restarts[0][0] if self._restarts else 0
        errors = [error for at_ns, error in self._errors if at_ns >= oldest_ns]
        if last is not None:
            errors.append(last)
        if len(errors) <= 1:
            return errors[0] if errors else None
        return BaseExceptionGroup("the latest failures within the period of the restart budget", errors)
