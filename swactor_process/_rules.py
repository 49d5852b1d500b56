"""The rules that single inputs must meet, so that what is built from them cannot fail later.

Owns: the checks that specs and commands share. Each raises `InvalidSpecError`, which names input and rule.
They take any object: who has no type checker gets the error where the input was made up.
Not here: rules between inputs (``spec``).
"""

import os
import sys

from swactor_process._errors import InvalidSpecError


def check_kind(field: str, value: object, kinds: type | tuple[type, ...], rule: str) -> None:
    """Check that ``value`` is an instance of ``kinds``, which ``rule`` names."""
    if not isinstance(value, kinds):
        raise InvalidSpecError(field, rule)


def check_text(field: str, text: object) -> None:
    """Check that the operating system can be given ``text``."""
    if not isinstance(text, str):
        raise InvalidSpecError(field, f"a str, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidSpecError(field, "no NUL characters")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as exc:
        raise InvalidSpecError(field, "encodable for the operating system") from exc


def check_count(field: str, number: object, *, least: int) -> None:
    """Check that ``number`` is one of things, ``least`` (0 or 1) or more."""
    if not isinstance(number, int) or number < least:
        raise InvalidSpecError(field, f"a whole number, {'at least 1' if least else 'not negative'}")


def check_seconds(field: str, seconds: object) -> None:
    """Check that ``seconds`` can be waited."""
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= sys.float_info.max:
        raise InvalidSpecError(field, "a finite number of seconds, not negative")


def check_period(field: str, seconds: object) -> None:
    """Check that something can be done every so many ``seconds``."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= sys.float_info.max:
        raise InvalidSpecError(field, "a finite number of seconds above 0")
