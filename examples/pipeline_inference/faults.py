"""Three ways in which a stage can fail to produce output, as switches of the example.

From outside they look alike: no token comes. A bundle must tell them apart, and its summary does.
"""

import enum
import re


class Fault(enum.StrEnum):
    """What goes wrong with the worker of a stage."""

    NEVER_SPAWNED = "never-spawned"
    """The stage never asks for its worker to be started, as in the incident behind this example."""
    EXITS = "exits"
    """The worker ends at once."""
    SILENT = "silent"
    """The worker runs, and says nothing."""


_FORM = re.compile(r"stage-(\d+)=([a-z-]+)")


def parse_fault(text: str, *, stage_count: int) -> tuple[int, Fault]:
    """Return stage and fault of a switch like ``stage-1=silent``.

    Raises:
        ValueError: it has another form, or names a stage or a fault that does not exist.
    """
    found = _FORM.fullmatch(text)
    if found is None or found[2] not in set(Fault):
        raise ValueError(f"{text!r}: expected stage-N=FAULT, FAULT one of {', '.join(Fault)}")
    if int(found[1]) >= stage_count:
        raise ValueError(f"{text!r}: there are stages 0 to {stage_count - 1}")
    return int(found[1]), Fault(found[2])
