"""What does owning a child process cost? The driver beside the kernel's own calls, asyncio's and anyio's.

All of them take turns, slice by slice, in this one process on asyncio's event loop, and ratios of slices
that belong together are shown: the speed of a machine drifts by tens of percent within minutes, a ratio of
slices measured one after the other hardly does. Beside a figure stands the bar that it has to reach, if
there is one.

The *limit* is ``subprocess.Popen`` in a session of its own, a pidfd, and a callback of the loop: no owner, no
output, no group, no guard.

Output of short lines has a bar where those of one read come together; its owner cuts them. To tell each line
by itself costs several times what it takes to read it, whoever does it: the floor of that is measured, too.
Lines of 4 KiB (``--line-bytes 4096``) are read nearly as fast as a bare loop reads either way.

The exit status is 0 whatever the figures are: a benchmark is not a test.
"""

import asyncio
import gc
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

if not __package__:  # started as a file: its packages lie beside its folder
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.children import Anyio, Asyncio, Limit, LimitByLine, Meter, StartCost, Way
from benches.measure import Progress, ratios, spread, undisturbed
from benches.options import Options, parser, sort_steps
from benches.owners import Driver, DriverInBatches, DriverInChunks, Floor
from benches.report import Figure, Row, as_json, print_rows, spell
from benches.workloads import Bar

STARTS = 5
"""Children of a slice, one after the other; their median counts. So few that nobody else comes in between."""
TURNS = 5
"""Turns of the loop between two of them."""
READS_SHARE = 8
"""Only one slice in so many is made of output, which takes about a second."""
FILE_BYTES = 16 * 1024 * 1024
HELD, BUSY, TOLD, KILL, STOP, READ, READ_BATCHES, READ_CHUNKS = (
    "loop held by a start",
    "loop busy, in all",
    "start to exit told",
    "kill to exit told",
    "stop to exit told",
    "output, line by line",
    "output, lines together",
    "output, as it comes",
)
BARS = {
    (HELD, "limit"): Bar(1.3, at_most=True),
    (TOLD, "limit"): Bar(1.25, at_most=True),
    (TOLD, "asyncio"): Bar(1.0, at_most=True),
    (TOLD, "anyio"): Bar(1.0, at_most=True),
    (KILL, "limit"): Bar(1.5, at_most=True),
    (READ_BATCHES, "limit"): Bar(0.5),
    (READ_CHUNKS, "limit"): Bar(0.8),
}
LEGEND = """\
figure   the median of {slices} slices and their quartiles; a slice is {starts} children one after the other,
         or {megabytes} MB of output in lines of {line_bytes} bytes, of which there are fewer
held     the longest time that the loop does not look for events, from the request to the news of the exit
busy     all the time in which it does not, in between
kill     by a system call, as it comes from outside
stop     by a message to the driver, or the library's own call
told     when an actor's handler, or what awaits the process, knows; nobody looks on meanwhile
floor    an actor that owns another one, which does what the limit does and nothing else;
         of output, a loop that cuts lines and tells each to an actor, as it is"""
HEADINGS = {
    "start": "START of a child that ends at once: how many times as long; less is better",
    "kill": "KILL of a child that would stay: how many times as long; less is better",
    "output": "OUTPUT of a child that writes as fast as it can: how many times as fast; more is better",
}

Costs = dict[str, list[float]]
"""In seconds, by way, one a slice."""


@dataclass(frozen=True, slots=True)
class Run:
    """Who takes part, how much they do, and what was measured so far."""

    ways: Mapping[str, Way]
    slices: int
    megabytes: int
    line_bytes: int
    progress: Progress
    meter: Meter
    costs: dict[str, Costs] = field(default_factory=dict)


async def starts(run: Run, *, streams: bool) -> list[Row]:
    """Measure starts of a child that ends at once."""
    command = (_program("true"),)

    async def slice_of(way: Way) -> list[float]:
        medians: list[StartCost] = []
        for on in (True, False):
            run.meter.is_on = on
            taken = []
            for _ in range(STARTS):
                taken.append(await way.start(command, streams=streams))
                await _turn_over()
            medians.append(StartCost(*(statistics.median(costs) for costs in zip(*taken, strict=True))))
        seen, unseen = medians
        return [seen.held_s, seen.busy_s, unseen.told_s]

    held, busy, told = await _alternate(run, ("driver", "limit", "floor", "asyncio", "anyio"), slice_of)
    kind = "three pipes" if streams else "no pipes"
    return [
        *_compared(run, Title("start", HELD, kind), held),
        *_compared(run, Title("start", BUSY, kind), busy),
        *_compared(run, Title("start", TOLD, kind), told),
    ]


async def _turn_over() -> None:
    """Let a way finish what it does behind the news, which is no part of the next start."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def kills(run: Run) -> list[Row]:
    """Measure from a kill to the news of the exit, and from the wish for one."""
    command = (_program("sleep"), "60")

    async def slice_of(way: Way) -> list[float]:
        return [
            statistics.median([await end(command) for _ in range(STARTS)]) for end in (way.kill, way.stop)
        ]

    run.meter.is_on = False
    killed, stopped = await _alternate(run, ("driver", "limit", "floor", "asyncio", "anyio"), slice_of)
    return [
        *_compared(run, Title("kill", KILL), killed),
        *_compared(run, Title("kill", STOP), stopped),
    ]


async def output(run: Run) -> list[Row]:
    """Measure how fast output is read, with and without being cut into lines."""
    reading = replace(run, slices=max(1, run.slices // READS_SHARE))
    with tempfile.NamedTemporaryFile() as file:
        line = b"x" * (run.line_bytes - 1) + b"\n"
        file.write(line * (FILE_BYTES // len(line)))
        file.flush()
        command = (_program("cat"), *[file.name] * max(1, run.megabytes * 1024 * 1024 // FILE_BYTES))

        async def slice_of(way: Way) -> list[float]:
            return [await way.read(command)]

        keys = ("driver", "limit", "batches", "chunks", "lines", "floor", "asyncio")
        (costs,) = await _alternate(reading, keys, slice_of)
    in_batches = {"driver": costs.pop("batches"), "limit": costs["limit"], "lines": costs["lines"]}
    in_chunks = {"driver": costs.pop("chunks"), "limit": costs["limit"]}
    return [
        *_compared(run, Title("output", READ), costs, faster=True),
        *_compared(run, Title("output", READ_BATCHES), in_batches, faster=True),
        *_compared(run, Title("output", READ_CHUNKS), in_chunks, faster=True),
    ]


async def _alternate(
    run: Run, keys: Sequence[str], slice_of: Callable[[Way], Awaitable[list[float]]]
) -> list[Costs]:
    """Have the ways do slices in turns; return for each figure of a slice its costs, without the warm-up."""
    figures: list[Costs] = []
    for number in range(run.slices + 1):
        for key in keys:
            way = run.ways[key]
            run.progress.part(f"slice {number} of {run.slices}, {way.title}")
            taken = await undisturbed(partial(slice_of, way))
            if not number:
                figures = [{key: [] for key in keys} for _ in taken]
                continue
            for costs, cost in zip(figures, taken, strict=True):
                costs[key].append(cost)
    return figures


class Title(NamedTuple):
    """Where a figure stands in the table; ``kind`` is said beside the way."""

    section: str
    text: str
    kind: str = ""


def _compared(run: Run, title: Title, costs: Costs, *, faster: bool = False) -> list[Row]:
    """Compare the driver with everybody who did this."""
    run.costs[f"{title.text}, {title.kind}" if title.kind else title.text] = costs
    driver = costs["driver"]
    rows: list[Row] = []
    for key, other in costs.items():
        if key == "driver":
            continue
        over = spread(ratios(other, driver) if faster else ratios(driver, other))
        figure = Figure(over.median, over, BARS.get((title.text, key)))
        both_ms = f"{spell(statistics.median(driver) * 1e3)} / {spell(statistics.median(other) * 1e3)}"
        beside = ", ".join(text for text in (run.ways[key].title, title.kind) if text)
        rows.append(Row(title.section, title.text, title.text, beside, {"driver": figure}, both_ms))
    return rows


STEPS: dict[str, Callable[[Run], Awaitable[list[Row]]]] = {
    "start": partial(starts, streams=True),
    "bare": partial(starts, streams=False),
    "kill": kills,
    "output": output,
}
"""What can be measured, by name, in the order of the table."""
TEXTS = {
    "start": "start a child with three pipes that ends at once, until its exit is told",
    "bare": "the same without pipes",
    "kill": "kill a child that would stay, until its exit is told",
    "output": "read much output, line by line and as it comes",
}


def main() -> None:
    """Measure what was asked for, print it, and write it to a file when there is one."""
    options = _parse()
    meter = Meter()
    progress = Progress(len(options.only))
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(meter)) as runner:
        rows, costs = runner.run(_measure(options, meter, progress))
    progress.end()
    machine = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
    }
    print(", ".join(machine.values()))
    print(LEGEND.format(starts=STARTS, **vars(options)))
    print()
    print_rows(rows, headings=HEADINGS, note="ms, both")
    if options.json is not None:
        facts = {
            **machine,
            **{name: getattr(options, name) for name in ("slices", "megabytes", "line_bytes")},
        }
        options.json.write_text(as_json(rows, facts, costs), encoding="utf-8")


async def _measure(
    options: "_Options", meter: Meter, progress: Progress
) -> tuple[list[Row], dict[str, Costs]]:
    ways = (
        Driver(meter),
        DriverInBatches(meter),
        DriverInChunks(meter),
        Limit(meter),
        Floor(meter),
        LimitByLine(meter),
        Asyncio(meter),
        Anyio(meter),
    )
    run = Run(
        {way.key: way for way in ways}, options.slices, options.megabytes, options.line_bytes, progress, meter
    )
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        for way in ways:
            await way.open()
            stack.push_async_callback(way.close)
        gc.collect()
        gc.freeze()  # what the libraries brought along is not looked through before each slice
        for name in options.only:
            progress.begin(name)
            rows += await STEPS[name](run)
    return rows, run.costs


class _Options(Options):
    megabytes: int
    line_bytes: int


def _parse() -> _Options:
    made = parser(
        __doc__, TEXTS, note="A whole run takes about a minute; let nothing else run beside it.", slices=40
    )
    made.add_argument(
        "--megabytes", metavar="N", type=int, default=256, help="how much output is read a slice (256)"
    )
    made.add_argument(
        "--line-bytes", metavar="N", type=int, default=100, help="how long the lines of output are (100)"
    )
    options = made.parse_args(namespace=_Options())
    sort_steps(options, TEXTS)
    if min(options.slices, options.megabytes, options.line_bytes) < 1:
        made.error("at least one slice, one megabyte, and one byte a line, is needed")
    return options


def _program(name: str) -> str:
    """Return the path of a program, so that nobody's search for it is measured."""
    path = shutil.which(name)
    if path is None:
        raise SystemExit(f"there is no program {name!r} here")
    return path


if __name__ == "__main__":
    main()
