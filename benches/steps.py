"""The steps of a run: each measures one thing and returns the rows that it makes.

Owns: who is compared with whom. Not here: how a slice is measured (`measure`) or shown (`report`).
"""

import gc
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from benches.contender import Contender
from benches.lateness import flooded_actor, flooded_reference, quiet
from benches.measure import Progress, alternate, ratios, spread, undisturbed
from benches.peers import INSTALL, Peer
from benches.product import KINDS, Observed, Product
from benches.reference import BareTask, Reference
from benches.report import Figure, Row
from benches.workloads import ASK, IDLE_ACTORS, LATENESS_BAR, MEMORY_BARS, OBSERVED, SPEED, Bar, Workload

FLOODS = 5
"""How often each flood is repeated; the median one counts, as the machine may be busy elsewhere in some."""
OBSERVED_IDLE = 100
"""Actors that stand by while a tell is observed: statistics are about them too."""


class Run:
    """Who takes part, and what was measured so far. Use it as an async context manager."""

    def __init__(self, peers: Sequence[Peer], *, slices: int, progress: Progress) -> None:
        self.slices = slices
        self.progress = progress
        self.products = tuple(Product(kind) for kind in KINDS)
        self.reference = Reference("reference", "reference", is_async=True)
        self.reference_sync = Reference("reference_sync", "reference, def handler", is_async=False)
        self.bare_task = BareTask("bare_task", "a bare task, no actor")
        self.peers = tuple(peer.load() for peer in peers if peer.version() is not None)
        self.missing = tuple(peer for peer in peers if peer.version() is None)
        self.costs: dict[str, Mapping[str, Sequence[float]]] = {}
        self._stack = AsyncExitStack()

    @property
    def others(self) -> tuple[Contender, ...]:
        """Everybody whom the product is compared with, in the order of the table."""
        return (self.reference, self.reference_sync, self.bare_task, *self.peers)

    async def __aenter__(self) -> Self:
        await self.open(*self.products, *self.others)
        gc.collect()
        gc.freeze()  # what the libraries brought along is not looked through before each slice
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def open(self, *contenders: Contender) -> None:
        """Open ``contenders`` for the rest of the run."""
        for contender in contenders:
            await contender.open()
            self._stack.push_async_callback(contender.close)


async def _alternate(
    run: Run, workload: Workload, contenders: Sequence[Contender]
) -> Mapping[str, Sequence[float]]:
    costs = await alternate(
        contenders,
        lambda contender: workload.run(contender, max(1, round(workload.amount * contender.share))),
        slices=run.slices,
        progress=run.progress,
    )
    run.costs[workload.name] = costs
    return costs


async def alternated(workload: Workload, run: Run) -> list[Row]:
    """Compare both kinds of the product with everybody who does this."""
    sync, asynchronous = run.products
    # Each kind of the product right beside the reference, whose bars are the narrowest.
    order = (sync, run.reference, asynchronous, run.reference_sync, run.bare_task, *run.peers)
    costs = await _alternate(run, workload, order)
    rows = [
        _row(
            workload,
            other.title,
            {product.key: _compared(workload, product.key, other.key, costs) for product in run.products},
        )
        for other in run.others
        if other.key in costs
    ]
    return rows + [
        _row(
            workload,
            peer.title,
            {},
            note=f"not installed, so the bar {bars[peer.key]} is not tried: {INSTALL}",
        )
        for peer in run.missing
        for bars in workload.bars.values()
        if peer.key in bars
    ]


async def observed(run: Run) -> list[Row]:
    """Compare each kind of the product with itself, observed."""
    plain = [Product(kind, idle=OBSERVED_IDLE) for kind in KINDS]
    watched = [Observed(kind, key=f"{kind.key}_observed", idle=OBSERVED_IDLE) for kind in KINDS]
    await run.open(*plain, *watched)
    order = [contender for pair in zip(plain, watched, strict=True) for contender in pair]
    costs = await _alternate(run, OBSERVED, order)
    figures = {
        kind.key: _figure(OBSERVED, costs[kind.key], costs[f"{kind.key}_observed"], kind.key, "unobserved")
        for kind in KINDS
    }
    return [_row(OBSERVED, "itself, unobserved", figures)]


def _compared(workload: Workload, product: str, other: str, costs: Mapping[str, Sequence[float]]) -> Figure:
    return _figure(workload, costs[other], costs[product], product, other)


def _figure(
    workload: Workload, other: Sequence[float], product: Sequence[float], kind: str, key: str
) -> Figure:
    compared = ratios(product, other) if workload.latency else ratios(other, product)
    return _over(compared, workload.bars.get(kind, {}).get(key))


def _row(workload: Workload, beside: str, figures: Mapping[str, Figure], *, note: str = "") -> Row:
    section = "latency" if workload.latency else "speed"
    return Row(section, workload.name, workload.title, beside, figures, note)


async def memory(run: Run) -> list[Row]:
    """Measure what an idle actor costs, here and elsewhere; once, as the machine's speed plays no part."""
    rows: list[Row] = []
    for used, title in ((False, "idle, fresh"), (True, "idle, used once")):
        figures: dict[str, Figure] = {}
        for product in run.products:
            run.progress.part(f"{title}, {product.title}")
            cost = await product.idle_bytes(IDLE_ACTORS, used=used)
            # Once used, it keeps its queue and, if asynchronous, its task: that is shown, without a bar.
            bar = None if used else MEMORY_BARS[product.key]
            if cost is not None:
                figures[product.key] = Figure(cost, bar=bar)
        rows.append(Row("memory", "memory", title, "swactor", figures))
        for other in run.others:
            run.progress.part(f"{title}, {other.title}")
            cost = await other.idle_bytes(round(IDLE_ACTORS * other.share), used=used)
            if cost is not None:
                kind = "async" if other is run.reference else "sync"
                rows.append(Row("memory", "memory", title, f"({other.title})", {kind: Figure(cost)}))
    return rows


_Flood = tuple[str, Bar | None, Mapping[str, Callable[[], Awaitable[list[float]]]]]
"""A title, the bar, and by kind of handler what returns how late each round of a timer was, in ms."""


async def timer(run: Run) -> list[Row]:
    """Measure how late a timer comes beside a flood, beside a flooded reference, and beside nothing."""
    references = {"sync": run.reference_sync, "async": run.reference}
    floods: tuple[_Flood, ...] = (
        ("one actor flooded", LATENESS_BAR, {kind.key: partial(flooded_actor, kind) for kind in KINDS}),
        ("(reference flooded)", None, {k: partial(flooded_reference, one) for k, one in references.items()}),
        ("(nothing flooded)", None, {"sync": quiet}),
    )
    rows: list[Row] = []
    for title, bar, by_kind in floods:
        late: dict[str, list[list[float]]] = {kind: [] for kind in by_kind}
        for number in range(FLOODS):
            for kind, flood in by_kind.items():
                run.progress.part(f"{title}, {kind}, {number + 1} of {FLOODS}")
                late[kind].append(await undisturbed(flood))
        rows += _lateness_rows(title, late, bar)
    return rows


def _lateness_rows(title: str, late: Mapping[str, Sequence[list[float]]], bar: Bar | None) -> list[Row]:
    """Return the rows about one kind of flood; the bar is for the 99th percentile of the rounds."""
    rows = (
        ("median round", statistics.median, None),
        ("99th percentile", lambda rounds: statistics.quantiles(rounds, n=100, method="inclusive")[98], bar),
        ("worst round", max, None),
    )
    return [
        Row(
            "timer",
            "timer",
            title,
            beside,
            {kind: _over(map(pick, floods), bar) for kind, floods in late.items()},
        )
        for beside, pick, bar in rows
    ]


def _over(values: Iterable[float], bar: Bar | None) -> Figure:
    """Return the median of ``values`` as a figure."""
    over = spread(values)
    return Figure(over.median, over, bar)


STEPS: Mapping[str, Callable[[Run], Awaitable[list[Row]]]] = {
    **{workload.name: partial(alternated, workload) for workload in SPEED},
    OBSERVED.name: observed,
    ASK.name: partial(alternated, ASK),
    "memory": memory,
    "timer": timer,
}
"""What can be measured, by name, in the order of the table."""
