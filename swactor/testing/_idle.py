"""Waiting until an event loop has nothing left to do at once, on asyncio, uvloop and trio alike.

Owns: what "settled" means. Trio knows it exactly. On asyncio anyio sees every task but no bare callback, so
callbacks are given turns until a row of them brought nothing new.
"""

from collections.abc import Callable

import anyio
import anyio.lowlevel

from swactor.testing._errors import NotSettledError

QUIET_TURNS = 10
"""Turns of the loop in a row that must pass without a callback of an actor system."""
LOOKS = 3
"""How often in a row all tasks must be waiting: one may look so while a future's callback is to wake it."""
SETTLE_LIMIT_S = 5.0
"""How long a loop may take to come to rest, in real seconds, unless the test says otherwise."""


async def wait_until_idle(callbacks: Callable[[], int], *, limit_s: float) -> None:
    """Let all that is ready run, until every other task waits for something.

    ``callbacks`` counts the callbacks that were scheduled so far. A task that waits for real time, a thread
    or a descriptor counts as waiting.

    Raises:
        NotSettledError: something was still busy after ``limit_s`` real seconds.
    """
    try:
        with anyio.fail_after(limit_s):
            seen = -1
            while callbacks() != seen:
                seen = callbacks()
                for _ in range(QUIET_TURNS):
                    await anyio.lowlevel.checkpoint()
                if callbacks() == seen:
                    for _ in range(LOOKS):
                        await anyio.wait_all_tasks_blocked()
    except TimeoutError as exc:
        raise NotSettledError(limit_s) from exc
