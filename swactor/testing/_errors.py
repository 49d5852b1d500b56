"""What a test is told when something did not happen.

All are assertion failures: code under test that catches `swactor.SwactorError` does not swallow them.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

LISTED_MAX = 20
"""How many of the things that did come an error lists, the latest ones."""
SHOWN_MAX = 200
"""How many characters of one such thing it shows."""


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


class UnfinishedError(ExpectationError):
    """What `ManualClock.run` was to await needs more time than it was given, or something but time."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"not done after {timeout_s:g} s of the manual clock, and cancelled")
        self.timeout_s = timeout_s


class MissingEventError(ExpectationError):
    """No such event was heard in time."""

    def __init__(self, expected: str, timeout_s: float, heard: Sequence[object]) -> None:
        super().__init__(f"expected {expected} within {timeout_s:g} s{listed('heard', heard)}")
        self.expected, self.timeout_s, self.heard = expected, timeout_s, tuple(heard)


class MissingMessageError(ExpectationError):
    """No message came in time."""

    def __init__(self, expected: str, timeout_s: float, received: Sequence[object]) -> None:
        super().__init__(
            f"expected {expected} within {timeout_s:g} s, nothing came{listed('received', received)}"
        )
        self.expected, self.timeout_s, self.received = expected, timeout_s, tuple(received)


class UnexpectedMessageError(ExpectationError):
    """The next message is another one than the test expects."""

    def __init__(self, expected: str, got: object, received: Sequence[object]) -> None:
        super().__init__(f"expected {expected}, got {shown(got)}{listed('received', received)}")
        self.expected, self.got, self.received = expected, got, tuple(received)


def place_of(condition: Callable[..., object]) -> str:
    """Return what to call ``condition``: where it is written, since most of them have no name."""
    code = getattr(condition, "__code__", None)
    if code is None:
        return repr(condition)
    name = "the condition" if code.co_name == "<lambda>" else code.co_qualname
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def shown(value: object) -> str:
    """Return ``value`` as an error shows it."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def listed(word: str, things: Sequence[object]) -> str:
    """Return all that came, numbered from 1, one a line; of many only the latest."""
    if not things:
        return f"; {word} nothing so far"
    first = max(0, len(things) - LISTED_MAX)
    lines = [f"  {number}. {shown(thing)}" for number, thing in enumerate(things[first:], first + 1)]
    return "\n".join([f"; {word} so far:", *lines])
