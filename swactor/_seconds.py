"""Times that callers give, checked where they come in.

A time that is no number sorts neither before nor behind others: among the event loop's timers it would hold
up those of everybody else. One below 0 is over already, one without an end never is; both are fine.
"""

from math import isnan


def check_seconds(name: str, seconds: float) -> None:
    """Refuse what is no number.

    Raises:
        ValueError: ``name`` is not a number of seconds.
    """
    if isnan(seconds):
        raise ValueError(f"{name} is a number of seconds, not nan")
