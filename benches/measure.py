"""Alternation: who is compared is measured in turns within one process, and only ratios of turns are kept.

The speed of a shared machine drifts by tens of percent within minutes and may halve from one second to the
next; the median ratio of slices that were measured one after the other hardly does.
"""

import gc
import statistics
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from benches.contender import Contender

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float


class Progress:
    """What is being measured, said to whoever waits on a terminal; standard output stays the table's."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._step = 0
        self._title = ""

    def begin(self, title: str) -> None:
        """The next step is ``title``."""
        self._step += 1
        self._title = f"[{self._step}/{self._steps}] {title}"
        if not sys.stderr.isatty():
            print(self._title, file=sys.stderr, flush=True)

    def part(self, text: str) -> None:
        """Within the step, ``text`` is under way."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{self._title}: {text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """There is nothing more to wait for."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


async def alternate(
    contenders: Sequence[Contender],
    run: Callable[[Contender], Awaitable[float | None]],
    *,
    slices: int,
    progress: Progress,
) -> dict[str, list[float]]:
    """Return the costs of each contender that does this workload, one a slice; the warm-up is left out."""
    costs: dict[str, list[float]] = {contender.key: [] for contender in contenders}
    for number in range(slices + 1):
        progress.part(f"slice {number} of {slices}" if number else "warming up")
        for contender in contenders:
            if contender.key not in costs:
                continue
            cost = await undisturbed(partial(run, contender))
            if cost is None:
                del costs[contender.key]
            elif number:
                costs[contender.key].append(cost)
    return costs


async def undisturbed(run: Callable[[], Awaitable[T]]) -> T:
    """Run something while no garbage is collected."""
    gc.collect()
    gc.disable()
    try:
        return await run()
    finally:
        gc.enable()


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the ratios of slices that belong together."""
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Iterable[float]) -> Spread:
    """Return the median of ``values`` and its quartiles."""
    values = list(values)
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


async def bytes_each(start: Callable[[], Awaitable[T]], count: int) -> tuple[float, list[T]]:
    """Return what each of ``count`` things that ``start`` returns costs, and the things, to be stopped."""
    kept = cast("list[T]", [None] * count)  # a list that grows would be counted too
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for place in range(count):
            kept[place] = await start()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / count, kept
