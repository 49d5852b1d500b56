"""Ways of doing one thing take turns, and the first of them is compared with each other one.

Owns: what a step of `diag` is made of: `Run`, `Way`, `compare`. A step is a coroutine function that takes the
`Run` and returns the rows it makes.
Not here: what a way does (the module of each step), how rows are shown (`report`).
"""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benches.measure import Progress, ratios, spread, undisturbed
from benches.report import Figure, Row, spell
from benches.workloads import Bar


@dataclass(slots=True)
class Run:
    """How often ways take turns, and the seconds each turn took so far: by step, then by way."""

    slices: int
    progress: Progress
    costs: dict[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing it. ``turn`` does it once and returns the seconds that one of it took."""

    key: str
    title: str
    turn: Callable[[], Awaitable[float]]
    bar: Bar | None = None
    """What the first way's figure beside this one has to reach."""


Step = Callable[[Run], Awaitable[list[Row]]]


async def compare(
    run: Run, ways: Sequence[Way], *, section: str, title: str, faster: bool = False
) -> list[Row]:
    """Have ``ways`` take turns; return a row for each but the first, which is the product.

    A figure is how many times as long the product takes, or with ``faster`` how many times as fast it is.
    """
    costs: dict[str, list[float]] = {way.key: [] for way in ways}
    for number in range(run.slices + 1):
        run.progress.part(f"{title}, slice {number} of {run.slices}" if number else f"{title}, warming up")
        for way in ways:
            cost = await undisturbed(way.turn)
            if number:
                costs[way.key].append(cost)
    run.costs[f"{section}, {title}"] = costs
    product, *others = ways
    return [
        _row(costs[product.key], costs[way.key], way=way, section=section, title=title, faster=faster)
        for way in others
    ]


def _row(
    ours: Sequence[float], theirs: Sequence[float], *, way: Way, section: str, title: str, faster: bool
) -> Row:
    over = spread(ratios(theirs, ours) if faster else ratios(ours, theirs))
    both_us = " / ".join(spell(statistics.median(costs) * 1e6) for costs in (ours, theirs))
    figure = Figure(over.median, over, way.bar)
    return Row(section, title, title, way.title, {"product": figure}, note=both_us)
