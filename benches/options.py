"""What the commands that compare slices are all asked: which steps, how many slices, which file."""

import argparse
from collections.abc import Mapping
from pathlib import Path


class Options(argparse.Namespace):
    """What the command line says."""

    only: list[str]
    """The steps to measure, in the order of the table."""
    slices: int
    json: Path | None


def parser(
    description: str | None, texts: Mapping[str, str], *, note: str, slices: int
) -> argparse.ArgumentParser:
    """Return a parser of these options, to be added to; ``texts`` says what each step measures."""
    what = "\n".join(f"  {name:<10}{text}" for name, text in texts.items())
    made = argparse.ArgumentParser(
        description=description,
        epilog=f"what can be measured:\n{what}\n\n{note}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--only", metavar="NAME", action="append", choices=list(texts), help="measure this; may be repeated"
    )
    made.add_argument(
        "--slices", metavar="N", type=int, default=slices, help=f"how often all take turns ({slices})"
    )
    made.add_argument("--json", metavar="FILE", type=Path, help="write the figures, and each slice, to FILE")
    return made


def sort_steps(options: Options, texts: Mapping[str, str]) -> None:
    """Put the steps asked for into the order of the table; none asked for: all of them."""
    options.only = [name for name in texts if not options.only or name in options.only]
