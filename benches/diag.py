"""What does the flight recorder cost? Its parts beside the least that could be done, and beside libraries.

Those that are compared take turns, slice by slice, in this one process, and ratios of slices that belong
together are shown. Beside a figure stands the bar that it has to reach, if there is one.

The exit status is 0 whatever the figures are: a benchmark is not a test.
"""

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
from benches.options import Options, parser, sort_steps
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


def _parse() -> Options:
    made = parser(__doc__, TEXTS, note="Let nothing else run beside it.", slices=40)
    options = made.parse_args(namespace=Options())
    sort_steps(options, TEXTS)
    if options.slices < 1:
        made.error("at least one slice is needed")
    return options


if __name__ == "__main__":
    main()
