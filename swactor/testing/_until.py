"""Waiting for a condition, on real loops and on a manual clock with the same line of a test.

Owns: `until`. Not here: what an observer or an actor is told (`Recorder`, `Probe`): they need no polling.
"""

from collections.abc import Callable

import anyio
import anyio.lowlevel

from swactor.testing._clock import ManualClock
from swactor.testing._errors import ConditionError

TURNS_A_POLL = 50
"""Turns of the loop before a pause, so that real time, or that of a simulated loop, passes too."""
POLL_S = 0.001
"""How long that pause is."""


async def until(
    condition: Callable[[], bool], clock: ManualClock | None = None, *, timeout_s: float = 5.0
) -> None:
    """Return as soon as ``condition`` holds.

    Without a clock the loop turns and real time passes. With one, the loop settles and, for as long as the
    condition does not hold, the clock moves to the next due timer; it stops where the condition came true.

    Raises:
        ConditionError: it did not hold within ``timeout_s`` seconds, of ``clock`` if there is one. The clock
            then stands at the end of them.
        NotSettledError: the loop keeps itself busy, so ``clock`` could not move.
    """
    if clock is None:
        holds = await _turn(condition, timeout_s)
    else:
        holds = await clock.advance_until(condition, timeout_s=timeout_s)
    if not holds:
        raise ConditionError(condition, timeout_s)


async def _turn(condition: Callable[[], bool], timeout_s: float) -> bool:
    turns = 0
    with anyio.move_on_after(timeout_s):
        while not condition():
            turns += 1
            if turns % TURNS_A_POLL:
                await anyio.lowlevel.checkpoint()
            else:
                await anyio.sleep(POLL_S)
    return condition()
