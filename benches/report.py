"""What comes out: rows of figures beside their bars, as a table for people or as JSON.

Owns: how a figure looks. Not here: where it comes from (`steps`), what it has to reach (`workloads`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benches.measure import Spread
from benches.product import KINDS
from benches.workloads import Bar

TITLE_WIDTH = 21
BESIDE_WIDTH = 26
FIGURE_WIDTH = 32
"""Of one kind of handler: figure 7, quartiles 14, bar 7, met 4."""
HEADINGS = {
    "speed": "SPEED: how many times as fast (2 is twice as fast); more is better",
    "latency": "LATENCY: how many times as long (0.5 is half the time); less is better",
    "memory": "MEMORY: bytes an actor; less is better (in brackets: the others)",
    "timer": "FAIRNESS: ms that another actor's 10 ms timer is late; less is better (in brackets: controls)",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One result; ``spread`` is missing where there is only one measurement, ``bar`` where none is set."""

    value: float
    spread: Spread | None = None
    bar: Bar | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        return None if self.bar is None else self.bar.met(self.value)


@dataclass(frozen=True, slots=True)
class Row:
    """What the two kinds of handler do in one workload, compared with one other."""

    section: str
    workload: str
    title: str
    beside: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """By kind of handler."""
    note: str = ""
    """Said instead of figures when there are none."""


def spell(value: float) -> str:
    """Return ``value`` with three digits that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"


def print_table(rows: Sequence[Row]) -> None:
    """Print ``rows`` by section, in order; a workload's title only once."""
    gap = " " * (TITLE_WIDTH + BESIDE_WIDTH)
    names = f"{'figure':>7}  {'quartiles':<12} {'bar':<7} {'met':<3}".ljust(FIGURE_WIDTH)
    print(gap + "   ".join(kind.title.center(FIGURE_WIDTH, "-") for kind in KINDS))
    print(f"{'':{TITLE_WIDTH}}{'compared with':<{BESIDE_WIDTH}}" + "   ".join([names] * len(KINDS)).rstrip())
    section = title = ""
    for row in rows:
        if row.section != section:
            section, title = row.section, ""
            print(f"\n{HEADINGS[section]}")
        shown = "" if row.title == title else row.title
        title = row.title
        cells = "   ".join(_cell(row.figures.get(kind.key)) for kind in KINDS) if row.figures else row.note
        print(f"{shown:{TITLE_WIDTH}}{row.beside:{BESIDE_WIDTH}}{cells}".rstrip())
    _print_marks(rows)


def print_rows(rows: Sequence[Row], *, headings: Mapping[str, str], note: str) -> None:
    """Print ``rows`` with one figure each by section, in order, and ``note`` over what each row notes."""
    print(f"{'':24}{'compared with':<44}{'figure':>7}  {'quartiles':<12} {'bar':<8} {'met':<5}{note}")
    section = title = ""
    for row in rows:
        if row.section != section:
            section, title = row.section, ""
            print(f"\n{headings[section]}")
        shown, title = "" if row.title == title else row.title, row.title
        (figure,) = row.figures.values()
        over = "" if figure.spread is None else f"{spell(figure.spread.low)}-{spell(figure.spread.high)}"
        met = {None: "", True: "yes", False: "NO"}[figure.met]
        bar = "" if figure.bar is None else str(figure.bar)
        cells = f"{spell(figure.value):>7}  {over:<12} {bar:<8} {met:<5}{row.note}"
        print(f"{shown:24}{row.beside:<44}{cells}".rstrip())
    _print_marks(rows)


def _print_marks(rows: Sequence[Row]) -> None:
    marks = [figure.met for row in rows for figure in row.figures.values() if figure.met is not None]
    if marks:
        print(f"\n{sum(marks)} of {len(marks)} bars are met.")


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return " " * FIGURE_WIDTH
    spread = "" if figure.spread is None else f"{spell(figure.spread.low)}-{spell(figure.spread.high)}"
    bar = "" if figure.bar is None else str(figure.bar)
    met = {None: "", True: "yes", False: "NO"}[figure.met]
    return f"{spell(figure.value):>7}  {spread:<12} {bar:<7} {met:<3}".ljust(FIGURE_WIDTH)


def as_json(rows: Sequence[Row], facts: Mapping[str, Any], costs: Mapping[str, Any]) -> str:
    """Return everything as a JSON document: facts of the run, rows, and what each slice cost."""
    document = {
        **facts,
        "rows": [
            {
                "section": row.section,
                "workload": row.workload,
                "title": row.title,
                "compared_with": row.beside,
                "figures": {kind: _as_dict(figure) for kind, figure in row.figures.items()},
                "note": row.note,
            }
            for row in rows
        ],
        "costs": costs,
    }
    return json.dumps(document, indent=1)


def _as_dict(figure: Figure) -> dict[str, object]:
    spread = figure.spread
    return {
        "value": figure.value,
        "quartiles": None if spread is None else [spread.low, spread.high],
        "bar": None if figure.bar is None else str(figure.bar),
        "met": figure.met,
    }
