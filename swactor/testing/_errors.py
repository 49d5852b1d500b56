"""What a test is told when something did not happen.

All are assertion failures: code under test that catches `swactor.SwactorError` does not swallow them.
"""

from collections.abc import Callable
from pathlib import Path


class ExpectationError(AssertionError):
    """Something that the test waited for did not come, or something else came instead."""


class NotSettledError(ExpectationError):
    """The event loop did not come to rest: some task or actor keeps itself busy, for instance by polling."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"the event loop did not come to rest within {limit_s:g} s of real time; "
            "a task that polls, or actors that tell each other without end, never let time pass"
        )
        self.limit_s = limit_s


class ConditionError(ExpectationError):
    """A condition did not hold in time."""

    def __init__(self, condition: Callable[..., object], timeout_s: float) -> None:
        super().__init__(f"{place_of(condition)} did not hold within {timeout_s:g} s")
        self.condition, self.timeout_s = condition, timeout_s


def place_of(condition: Callable[..., object]) -> str:
    """Return what to call ``condition``: where it is written, since most of them have no name."""
    code = getattr(condition, "__code__", None)
    if code is None:
        return repr(condition)
    name = "the condition" if code.co_name == "<lambda>" else code.co_qualname
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"
