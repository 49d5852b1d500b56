"""How fast is a message? The runtime beside the least that could work, and beside other actor libraries.

All of them take turns, slice by slice, in this one process, and ratios of slices that belong together are
shown: the speed of a machine drifts by tens of percent within minutes, a ratio of slices measured one after
the other hardly does. Beside a figure stands the bar that it has to reach, if there is one.

The *reference* is the least that could be called an actor on asyncio: a task on a bare deque with at most one
wakeup future, without any guarantee. Its handler is `async def`, awaited for each message.

The exit status is 0 whatever the figures are: a benchmark is not a test.
"""

import asyncio
import os
import platform
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

if not __package__:  # started as a file: its packages lie beside its folder
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.measure import Progress
from benches.options import Options, parser, sort_steps
from benches.peers import INSTALL, PEERS
from benches.report import Row, as_json, print_table
from benches.steps import FLOODS, STEPS, Run
from benches.workloads import TEXTS

LEGEND = """\
figure     the median of {slices} slices, and their quartiles (timer: of {floods} floods; memory: of one run)
reference  the least that could work: a task on a bare deque, one wakeup future, an awaited async handler"""


def main() -> None:
    """Measure what was asked for, print it, and write it to a file when there is one."""
    options = _parse()
    progress = Progress(len(options.only))
    loop_factory = None
    if options.uvloop:
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        rows, costs = runner.run(_measure(options.only, slices=options.slices, progress=progress))
    progress.end()
    machine = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": "uvloop" if options.uvloop else "asyncio",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }
    peers = {peer.title: peer.version() for peer in PEERS}
    print(", ".join(machine.values()))
    print(LEGEND.format(slices=options.slices, floods=FLOODS))
    for peer in PEERS:
        version = peers[peer.title]
        print(f"{peer.title:<10} {f'{version}, {peer.text}' if version else f'not installed: {INSTALL}'}")
    print()
    print_table(rows)
    if options.json is not None:
        facts = {**machine, "slices": options.slices, "peers": peers}
        options.json.write_text(as_json(rows, facts, costs), encoding="utf-8")


async def _measure(
    names: Sequence[str], *, slices: int, progress: Progress
) -> tuple[list[Row], Mapping[str, Mapping[str, Sequence[float]]]]:
    rows: list[Row] = []
    async with Run(PEERS, slices=slices, progress=progress) as run:
        for name in names:
            progress.begin(name)
            rows += await STEPS[name](run)
    return rows, run.costs


class _Options(Options):
    uvloop: bool


def _parse() -> _Options:
    texts = {name: textwrap.indent(text, " " * 12).lstrip() for name, text in TEXTS.items()}
    made = parser(
        __doc__,
        texts,
        note=f"The other libraries are optional: {INSTALL}\n"
        "A whole run takes 60 to 90 seconds; let nothing else run beside it.",
        slices=7,
    )
    made.add_argument("--uvloop", action="store_true", help="on uvloop instead of asyncio's own event loop")
    options = made.parse_args(namespace=_Options())
    sort_steps(options, texts)
    if options.slices < 1:
        made.error("at least one slice is needed")
    if options.uvloop and find_spec("uvloop") is None:
        made.error("uvloop is not installed: pip install uvloop")
    return options


if __name__ == "__main__":
    main()
