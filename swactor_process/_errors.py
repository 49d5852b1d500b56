"""The errors of this package that an input can bring about.

Owns: the base class, and what is said of an input that breaks a rule.
Not here: why a program could not be started (``spawner``).
"""

from swactor import SwactorError


class ProcessError(SwactorError):
    """Base of every error of this package."""


class InvalidSpecError(ProcessError, ValueError):
    """A spec breaks a rule; nothing was started. ``field`` is the input, ``rule`` what it must meet."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field, self.rule = field, rule
