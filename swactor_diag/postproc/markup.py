"""Values of a bundle as inert Markdown: whatever they hold, they are text and change nothing around them.

Owns: escaping, tables, and how times and durations are written. Not here: what is shown (``sections``).

A value that is made of plain words is written as it is; everything else becomes a code span, in which no
link, markup or HTML is active, or is escaped sign by sign.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import UnsetType

from swactor_diag.readable import printable

VALUE_LENGTH_MAX = 300
ABSENT = "?"

# Words joined by single marks. Not "@" (mail addresses become links) and not "//" or "www." (so do URLs).
_PLAIN = re.compile(r"[A-Za-z0-9]+(?:[ ._:,+=/()-]{1,2}[A-Za-z0-9]+)*\)?")
_LINKED = re.compile(r"//|www\.", re.IGNORECASE)
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_BACKTICKS = re.compile(r"`+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def inert(value: object) -> str:
    """Return ``value`` as Markdown that shows it and does nothing; ``?`` when it is absent."""
    if value is None or isinstance(value, UnsetType):
        return ABSENT
    text = str(value)
    if len(text) > VALUE_LENGTH_MAX:
        text = f"{text[:VALUE_LENGTH_MAX]}... (+{len(text) - VALUE_LENGTH_MAX} characters)"
    text = printable(text)
    if _PLAIN.fullmatch(text) and _LINKED.search(text) is None:
        return text
    # A bar ends a table cell even inside a code span, and there is no way to escape it there for all readers.
    return _PUNCTUATION.sub(r"\\\g<0>", text) if "|" in text else _code(text)


def _code(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    # A space on each side belongs to the span when the text could not stand next to the fence.
    pad = " " if not text.strip() or text[0] in " `" or text[-1] in " `" else ""
    return f"{fence}{pad}{text or ' '}{pad}{fence}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are Markdown already, made of `inert` values."""
    lines = [_line(headers), _line(["---"] * len(headers))]
    lines += [_line(row) for row in rows]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def bullets(lines: Iterable[str]) -> str:
    """Return a list, one line an entry."""
    return "\n".join(f"- {line}" for line in lines)


def moment(at_ms: int | UnsetType | None) -> str:
    """Return a wall time as ``2026-05-25 14:45:43.390``, UTC; ``?`` when it is absent."""
    if at_ms is None or isinstance(at_ms, UnsetType):
        return ABSENT
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(sep=" ", timespec="milliseconds")[:23]
    except OverflowError:
        return f"{at_ms} ms"


def duration(length_ms: int | UnsetType | None) -> str:
    """Return a duration as people read it, such as ``3.2 s``; ``?`` when it is absent."""
    if length_ms is None or isinstance(length_ms, UnsetType):
        return ABSENT
    if abs(length_ms) < 1000:
        return f"{length_ms} ms"
    seconds = length_ms / 1000
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if abs(seconds) < 7200 else f"{seconds / 3600:.1f} h"
