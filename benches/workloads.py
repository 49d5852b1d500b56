"""What is measured, and which figure each has to reach: the one list that runs, help and table are made of.

A bar is the worst figure that is good enough. It belongs to one kind of the product's handlers and to the one
contender, by key, that the kind is compared with; most comparisons have none and are for information.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from benches.contender import RING_ACTORS, SENDERS, Contender
from benches.lateness import FLOOD


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure has to reach: at least ``limit``, or at most when a smaller one is better."""

    limit: float
    at_most: bool = False

    def met(self, figure: float) -> bool:
        """Return whether ``figure`` is good enough."""
        return figure <= self.limit if self.at_most else figure >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}"


Bars = Mapping[str, Mapping[str, Bar]]
"""By kind of handler, then by who it is compared with."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that everybody does in turns, ``amount`` times a slice."""

    name: str
    title: str
    text: str
    amount: int
    run: Callable[[Contender, int], Awaitable[float | None]]
    bars: Bars = field(default_factory=dict)
    latency: bool = False
    """Whether the figure is how much longer it takes, instead of how much faster it is."""


def _at_least(limit: float) -> Bar:
    return Bar(limit)


def _at_most(limit: float) -> Bar:
    return Bar(limit, at_most=True)


SPEED = (
    Workload(
        "tell",
        "tell, one to one",
        "one sender tells one receiver, until the last message has been handled",
        100_000,
        lambda contender, amount: contender.tell(amount),
        {
            "sync": {"reference": _at_least(0.85), "pykka": _at_least(7)},
            "async": {"reference": _at_least(0.7)},
        },
    ),
    Workload(
        "fan-in",
        f"fan-in, {SENDERS} to one",
        f"{SENDERS} senders that take turns tell one receiver",
        100_000,
        lambda contender, amount: contender.fan_in(amount),
        {"sync": {"reference": _at_least(0.85)}, "async": {"reference": _at_least(0.7)}},
    ),
    Workload(
        "ring",
        f"ring of {RING_ACTORS}",
        f"one message is passed on from actor to actor, round a ring of {RING_ACTORS}",
        30_000,
        lambda contender, amount: contender.ring(amount),
        {
            "sync": {"reference": _at_least(5), "thespian": _at_least(6)},
            "async": {"reference": _at_least(0.8)},
        },
    ),
    Workload(
        "spawn",
        "spawn + stop",
        "an actor is started, stopped, and its end waited for",
        3_000,
        lambda contender, amount: contender.spawn(amount),
        {"sync": {"reference": _at_least(3)}, "async": {"reference": _at_least(0.6)}},
    ),
    Workload(
        "restart",
        "supervised restart",
        "a message fails its actor; until the fresh instance has handled the next message. The logger\n"
        '"swactor" is set to CRITICAL meanwhile: printing a traceback would take longer than the rest',
        1_000,
        lambda contender, amount: contender.restart(amount),
        {"sync": {"reference": _at_least(1)}, "async": {"reference": _at_least(0.4)}},
    ),
)

OBSERVED = Workload(
    "observed",
    "tell, observed",
    "tell, in a system of 101 actors, while an Observer is attached and statistics are taken every 10 ms;\n"
    "compared with the same unobserved",
    200_000,
    lambda contender, amount: contender.tell(amount),
    {"sync": {"unobserved": _at_least(0.9)}, "async": {"unobserved": _at_least(0.9)}},
)

ASK = Workload(
    "ask",
    "ask, median time",
    "one question at a time to one actor, from outside; the median time until the answer is there",
    3_000,
    lambda contender, amount: contender.ask(amount),
    {"sync": {"xoscar": _at_most(0.4)}, "async": {"reference": _at_most(1.3)}},
    latency=True,
)

IDLE_ACTORS = 10_000
MEMORY_TEXT = (
    f"bytes that each of {IDLE_ACTORS:,} idle actors costs, by tracemalloc: fresh, and after one message"
)
MEMORY_BARS = {"sync": _at_most(580), "async": _at_most(2600)}
LATENESS_TEXT = (
    f"how late another actor's 10 ms timer comes while {FLOOD:,} messages wait for one actor, in ms;\n"
    "compared with a bare event loop's timer beside a flooded reference, and with a quiet machine"
)
LATENESS_BAR = _at_most(5)

TEXTS: Mapping[str, str] = {
    **{workload.name: workload.text for workload in (*SPEED, OBSERVED, ASK)},
    "memory": MEMORY_TEXT,
    "timer": LATENESS_TEXT,
}
"""Everything that can be measured, by name."""
