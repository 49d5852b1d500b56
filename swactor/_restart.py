"""Restart decisions of a supervisor, as pure functions of exit reason, strategy and time.

Owns: which children restart, in which order, after which delay, and when the budget is spent.
Not here: starting or stopping anything (see _supervisor). Times are monotonic nanoseconds.
"""

import enum
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from swactor._messages import STOPPED, ExitReason


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


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before a restart: ``first_s`` doubling to ``limit_s``, less a random share of ``jitter``.

    Jitter keeps many nodes that failed together from coming back together; see "Exponential Backoff And
    Jitter" (AWS Architecture Blog, 2015). The delay starts over when a period of the budget went by
    without a restart.
    """

    first_s: float = 0.1
    limit_s: float = 30.0
    jitter: float = 0.5

    def delay_s(self, attempt: int, draw: float) -> float:
        """Return the delay before restart number ``attempt`` (from 0); ``draw`` is uniform in [0, 1)."""
        full = min(self.limit_s, self.first_s * 2.0 ** min(attempt, 63))
        return full * (1.0 - self.jitter * draw)


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


class RestartHistory:
    """The restarts of one supervisor within the period of its budget, and what made them necessary."""

    __slots__ = ("_period_ns", "_restarts", "budget")

    def __init__(self, budget: RestartBudget) -> None:
        self.budget = budget
        self._period_ns = round(budget.period_s * 1e9)
        self._restarts: deque[tuple[int, BaseException | None]] = deque()

    def admit(self, now_ns: int, error: BaseException | None) -> int | None:
        """Take note of a restart at ``now_ns``; return its number within the period, None when spent."""
        restarts = self._restarts
        since_ns = now_ns - self._period_ns
        while restarts and restarts[0][0] <= since_ns:
            restarts.popleft()
        if len(restarts) >= self.budget.restarts_max:
            return None
        restarts.append((now_ns, error))
        return len(restarts) - 1

    def story(self, last: BaseException | None) -> BaseException | None:
        """Return what went wrong within the period, ``last`` at the end: a group when it is more than one."""
        errors = [error for _, error in self._restarts if error is not None]
        if last is not None:
            errors.append(last)
        if len(errors) <= 1:
            return errors[0] if errors else None
        return BaseExceptionGroup("every failure within the period of the restart budget", errors)
