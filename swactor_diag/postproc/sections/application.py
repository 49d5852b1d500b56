"""Section "Application events": what the program itself recorded, whatever program it is.

An application declares events of its own, or emits `Custom` ones; nothing here knows any of them. Shown are,
of each kind, how many there are, how often each value came that came more than once, and some one by one:
all while they are few, else first those whose values are the rarest, for what differs is what one looks for.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import bullets, inert, moment, table
from swactor_diag.schema.events import OWN_CUSTOM_KINDS, Custom
from swactor_diag.schema.reading import Record, UnknownEvent

TITLE = "Application events"

KINDS_MAX = 20
"""Kinds that are shown; the section "Event totals" counts all."""
SHOWN_MAX = 10
"""Events of a kind that are shown with all their fields, as far as a line may be long."""
VALUES_MAX = 6
"""A field with more values than these tells events apart (a name, a time) and is not counted."""

_NODE_ID = re.compile(r"[0-9a-f]{64}")


class Occurrence(Struct, frozen=True, kw_only=True):
    """One event: when, by its node's clock, where, and its fields; a node in one of them by its label."""

    at_ms: int
    node: str
    fields: Mapping[str, object]


class Row(Struct, frozen=True, kw_only=True):
    """One kind. ``values`` counts, by field, the values that come more than once; ``shown`` is by time."""

    kind: str
    count: int
    values: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    shown: tuple[Occurrence, ...]


class Rows(Struct, frozen=True, kw_only=True):
    """The first kinds of a run by name, and how many more it has."""

    kinds: tuple[Row, ...]
    more: int


def rows(run: Run) -> Rows:
    """Return what the application recorded, by kind."""
    kinds: dict[str, list[Occurrence]] = {}
    for node in run.nodes:
        for record in node.records:
            found = _of_application(record)
            if found is not None:
                kind, fields = found
                named = {name: _named(run, value) for name, value in fields.items() if value is not None}
                occurrence = Occurrence(at_ms=record.wall_ms, node=node.label, fields=named)
                kinds.setdefault(kind, []).append(occurrence)
    shown = sorted(kinds.items())[:KINDS_MAX]
    return Rows(kinds=tuple(_row(kind, all_) for kind, all_ in shown), more=len(kinds) - len(shown))


def _of_application(record: Record) -> tuple[str, Mapping[str, object]] | None:
    match record.event:
        case Custom(kind=kind, fields=fields) if kind not in OWN_CUSTOM_KINDS:
            return kind, fields
        case UnknownEvent(kind, body, unknown_value=""):
            return kind, body
        case _:
            return None


def _named(run: Run, value: object) -> object:
    return run.label_of(value) if isinstance(value, str) and _NODE_ID.fullmatch(value) else value


def _row(kind: str, occurrences: list[Occurrence]) -> Row:
    values = dict(_repeated(occurrences))
    # What an event shares with others: the fewer have the same, the sooner it is shown; of equals the newest.
    traits = [tuple(_text(one.fields.get(name)) for name in values) for one in occurrences]
    shared = Counter(traits)
    order = sorted(range(len(occurrences)), key=lambda at: (shared[traits[at]], -occurrences[at].at_ms, at))
    shown = sorted((occurrences[at] for at in order[:SHOWN_MAX]), key=lambda one: (one.at_ms, one.node))
    return Row(kind=kind, count=len(occurrences), values=tuple(values.items()), shown=tuple(shown))


def _repeated(occurrences: list[Occurrence]) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """Yield the fields that sort events into a few classes, with their values, the most frequent first."""
    by_field: dict[str, Counter[str]] = {}
    for one in occurrences:
        for name, value in one.fields.items():
            if isinstance(value, str | bool):
                by_field.setdefault(name, Counter())[_text(value)] += 1
    for name, counts in by_field.items():
        if len(counts) <= VALUES_MAX and len(counts) < counts.total():
            yield name, tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def render(rows: Rows) -> str:
    """Return the counts and a table, or why there are none."""
    if not rows.kinds:
        return "The application recorded nothing of its own (events that it declares, or Custom ones, would)."
    headers = ["event", "node", "at (UTC)", "what it says"]
    cells = [
        [inert(row.kind), inert(one.node), moment(one.at_ms), _says(one)]
        for row in rows.kinds
        for one in row.shown
    ]
    return f"{bullets(_lines(rows))}\n\n{table(headers, cells)}"


def _lines(rows: Rows) -> Iterator[str]:
    for row in rows.kinds:
        counts = [
            f"{name} " + ", ".join(f"{value} {count}" for value, count in values)
            for name, values in row.values
        ]
        some = "" if len(row.shown) == row.count else f", {len(row.shown)} of them below"
        yield f"{inert(row.kind)}: {row.count}{some}" + "".join(f"; {inert(count)}" for count in counts)
    if rows.more:
        yield f"and {rows.more} more kinds, see Event totals"


def _says(one: Occurrence) -> str:
    return inert(", ".join(f"{name} {_text(value)}" for name, value in one.fields.items()))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
