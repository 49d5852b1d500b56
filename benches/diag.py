"""What does the flight recorder cost? Its parts beside the least that could be done, and beside libraries.

Those that are compared take turns, slice by slice, in this one process, and ratios of slices that belong
together are shown. Beside a figure stands the bar that it has to reach, if there is one.

The exit status is 0 whatever the figures are: a benchmark is not a test.
"""

import argparse
import asyncio
import gc
import os
import platform
import sys
from pathlib import Path

if not __package__:  # started as a file: its packages lie beside its folder
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches import capture, recorder
from benches.measure import Progress
from benches.report import Row, as_json, print_rows
from benches.turns import Run

MODULES = (capture, recorder)
"""Each has ``STEPS`` (by name: text and step) and ``HEADINGS`` of its sections, in the order of the table."""
STEPS = {name: step for module in MODULES for name, (_, step) in module.STEPS.items()}
TEXTS = {name: text for module in MODULES for name, (text, _) in module.STEPS.items()}
HEADINGS = {section: heading for module in MODULES for section, heading in module.HEADINGS.items()}


def main() -> None:
    """Measure what was asked for, print it, and write it to a file when there is one."""
    options = _parse()
    run = Run(options.slices, Progress(len(options.only)))
    rows = asyncio.run(_measure(run, options.only))
    run.progress.end()
    machine = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
    }
    print(", ".join(machine.values()))
    print(f"figure   the median of {options.slices} slices and their quartiles\n")
    print_rows(rows, headings=HEADINGS, note="us, both")
    if options.json is not None:
        options.json.write_text(as_json(rows, {**machine, "slices": options.slices}, run.costs), "utf-8")


async def _measure(run: Run, names: list[str]) -> list[Row]:
    rows: list[Row] = []
    gc.collect()
    gc.freeze()  # what the libraries brought along is not looked through before each slice
    for name in names:
        run.progress.begin(name)
        rows += await STEPS[name](run)
    return rows


class _Options(argparse.Namespace):
    only: list[str]
    slices: int
    json: Path | None


def _parse() -> _Options:
    what = "\n".join(f"  {name:<10}{text}" for name, text in TEXTS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"what can be measured:\n{what}\n\nLet nothing else run beside it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", choices=list(STEPS), help="measure this; may be repeated"
    )
    parser.add_argument("--slices", metavar="N", type=int, default=40, help="how often all take turns (40)")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write the figures, and each slice, to FILE"
    )
    options = parser.parse_args(namespace=_Options())
    options.only = [name for name in STEPS if not options.only or name in options.only]
    if options.slices < 1:
        parser.error("at least one slice is needed")
    return options


if __name__ == "__main__":
    main()
