"""What everybody who is measured can do: one method a workload, which does it once and returns its cost.

Owns: the meaning of each workload, the same for all. Not here: how anybody does it, how often it is repeated.
"""

import statistics
import time
from collections.abc import Awaitable, Callable

BURST = 5_000
"""Messages that a sender sends before it lets the event loop turn once."""
SENDERS = 8
"""Who sends to the one receiver of a fan-in."""
SENDER_BURST = 500
"""Messages that one of them sends before it lets the event loop turn once."""
RING_ACTORS = 100
"""Actors that pass one message round."""


class Contender:
    """Someone to measure. A method that is not overridden says: there is no such thing here.

    A cost is in seconds per message, hop, ask, spawn or restart, so a slow contender may do fewer of them;
    `share` says how many. Setting up and tidying up are part of it only where the workload is just that.
    """

    def __init__(self, key: str, title: str, *, share: float = 1.0) -> None:
        self.key = key
        """What bars call it."""
        self.title = title
        """What the table calls it."""
        self.share = share
        """Which part of a workload's amount suffices for a slice that is long enough to be measured."""

    async def open(self) -> None:
        """Start whatever has to run before the first workload."""

    async def close(self) -> None:
        """Stop it after the last one."""

    async def tell(self, messages: int) -> float | None:
        """One sender, one receiver, until the last message has been handled."""

    async def fan_in(self, messages: int) -> float | None:
        """`SENDERS` senders, one receiver, until the last of ``messages`` in all has been handled."""

    async def ring(self, hops: int) -> float | None:
        """One message goes round `RING_ACTORS` actors until it was passed on ``hops`` times."""

    async def ask(self, asks: int) -> float | None:
        """Ask one actor from outside, one question at a time; the median time until the answer is there."""

    async def spawn(self, actors: int) -> float | None:
        """Start an actor, stop it and wait for its end; ``actors`` times one after the other."""

    async def restart(self, failures: int) -> float | None:
        """``failures`` times: from a message that fails to the next one handled by a fresh instance."""

    async def idle_bytes(self, actors: int, *, used: bool) -> float | None:
        """Bytes that each of ``actors`` idle ones costs; ``used``: after each has handled one message."""


async def median_s(ask: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the median time of ``ask``, in seconds."""
    took: list[float] = []
    now = time.perf_counter
    for _ in range(times):
        began = now()
        await ask()
        took.append(now() - began)
    return statistics.median(took)
