"""The rules that single inputs must meet, so that what is built from them cannot fail later.

Owns: the checks that specs and commands share. Each raises `InvalidSpecError`, which names input and rule.
They take any object: who has no type checker gets the error where the input was made up.
Not here: rules between inputs (``spec``).
"""

import os
import sys
from typing import TypeGuard

from swactor_process._errors import InvalidSpecError


def check_kind(field: str, value: object, kinds: type | tuple[type, ...], rule: str) -> None:
    """Check that ``value`` is an instance of ``kinds``, which ``rule`` names."""
    if not isinstance(value, kinds):
        raise InvalidSpecError(field, rule)


def check_flag(field: str, value: object) -> None:
    """Check that ``value`` says yes or no: the text "no" would count as yes."""
    check_kind(field, value, bool, "True or False")


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


def check_count(field: str, number: object, *, least: int, most: int | None = None) -> None:
    """Check that ``number`` is a whole one, ``least`` or more, and ``most`` or less."""
    if not is_whole(number) or number < least or (most is not None and number > most):
        from_least = f"at least {least}" if least else "not negative"
        raise InvalidSpecError(
            field, f"a whole number, {from_least if most is None else f'{least} to {most}'}"
        )


def check_between(field: str, number: object, least: float, most: float) -> None:
    """Check that ``number`` is one from ``least`` to ``most``."""
    if not _is_number(number) or not least <= number <= most:
        raise InvalidSpecError(field, f"a number, {least} to {most}")


def check_seconds(field: str, seconds: object) -> None:
    """Check that ``seconds`` can be waited."""
    if not _is_number(seconds) or not 0 <= seconds <= sys.float_info.max:
        raise InvalidSpecError(field, "a finite number of seconds, not negative")


def check_period(field: str, seconds: object) -> None:
    """Check that something can be done every so many ``seconds``."""
    if not _is_number(seconds) or not 0 < seconds <= sys.float_info.max:
        raise InvalidSpecError(field, "a finite number of seconds above 0")


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is a whole number; True is one to Python, and here a mistake."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return is_whole(value) or isinstance(value, float)
