"""When to try again: exponential backoff with full jitter, as a pure function of attempts and one draw.

Source: "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
Owns: the schedule. Not here: the waiting (``shipper``, on its actor's timer, which is why no retry library
drives it: actors wait on the system's clock, which is virtual in a simulation).
"""

from swactor.abc import RandomStream

BASE_MS = 5_000
"""Long enough that the first retries of 200 nodes that failed in one instant spread over seconds."""
CAP_MS = 30_000
RETRY_AFTER_MAX_S = 300
"""No answer, wrong or hostile, keeps a node silent for longer."""


def retry_delay_ms(failures: int, random: RandomStream, *, retry_after_s: float | None = None) -> int:
    """Return the wait after the ``failures``-th failure in a row (from 1).

    Uniform from 0 to the doubled base, and to the cap in the end: also there, nodes that lost their collector
    at the same moment do not come back at the same moment. What the other side asked for comes on top, up to
    `RETRY_AFTER_MAX_S`.
    """
    ceiling_ms = min(CAP_MS, BASE_MS << min(failures - 1, 16))
    asked_ms = round(min(max(retry_after_s or 0, 0), RETRY_AFTER_MAX_S) * 1000)
    return asked_ms + random.below(ceiling_ms + 1)


def slow_delay_ms(random: RandomStream) -> int:
    """Return the wait after a failure that only a person can mend: half the cap to the cap."""
    return CAP_MS // 2 + random.below(CAP_MS // 2 + 1)
