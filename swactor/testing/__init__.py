"""The kit for tests of your own actors: a clock that only the test moves, and a way to wait for a condition.

Needs no test framework. How to use it: ``docs/testing.md``.
"""

from swactor.testing._clock import ManualClock
from swactor.testing._errors import ConditionError, ExpectationError, NotSettledError
from swactor.testing._until import until

__all__ = ["ConditionError", "ExpectationError", "ManualClock", "NotSettledError", "until"]
