"""Section "Event totals": how many events of each kind the bundle holds."""

from collections import Counter

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import inert, table
from swactor_diag.schema.events import Custom
from swactor_diag.schema.reading import Record, UnknownEvent

TITLE = "Event totals"


def rows(run: Run) -> tuple[tuple[str, bool, int], ...]:
    """Return kind, whether this version knows it, and count; alphabetical, Custom by its own kind."""
    counts = Counter(_kind(record) for node in run.nodes for record in node.records)
    return tuple((kind, known, count) for (kind, known), count in sorted(counts.items()))


def _kind(record: Record) -> tuple[str, bool]:
    if isinstance(record.event, Custom):
        return f"Custom({record.event.kind})", True
    return record.kind, not isinstance(record.event, UnknownEvent)


def render(rows: tuple[tuple[str, bool, int], ...]) -> str:
    """Return the table, or why there is none."""
    if not rows:
        return "No event was recorded (the events files of the nodes would hold them)."
    cells = [
        [inert(kind) + ("" if known else " (not declared here: the application's own, or newer)"), str(count)]
        for kind, known, count in rows
    ]
    return table(["kind", "count"], cells)
