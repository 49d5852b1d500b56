"""Section "Not in this bundle": what is missing or could not be read, so that silence is not calm."""

from collections import Counter

from msgspec import Struct

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import bullets, inert

TITLE = "Not in this bundle"

LINES_MAX = 50
"""More different problems than this are counted, not listed."""


class Row(Struct, frozen=True, kw_only=True):
    """Problems of one kind and cause: the first place, and how many places there are."""

    kind: str
    where: str
    reason: str
    count: int


def rows(run: Run) -> tuple[Row, ...]:
    """Return the problems of ``run``, equal causes together, and the drops and set-aside files it lists."""
    counts = Counter((problem.kind.value, problem.reason) for problem in run.problems)
    first: dict[tuple[str, str], str] = {}
    for problem in run.problems:
        first.setdefault((problem.kind.value, problem.reason), problem.where)
    found = [
        Row(kind=kind, where=where, reason=reason, count=counts[kind, reason])
        for (kind, reason), where in first.items()
    ]
    if run.manifest is not None:
        found += [
            Row(kind="set aside by the collector", where=aside.path, reason=aside.reason, count=1)
            for aside in run.manifest.set_aside or ()
        ]
        found += [
            Row(
                kind="dropped",
                where=run.label_of(drop.node_id_hex),
                reason=f"{drop.count} of {drop.what} in the {drop.where}",
                count=1,
            )
            for drop in run.manifest.drops or ()
        ]
    return tuple(found)


def render(rows: tuple[Row, ...]) -> str:
    """Return one line a cause, or that nothing is known to be missing."""
    if not rows:
        return "Nothing is known to be missing; every record could be read."
    lines = [_line(row) for row in rows[:LINES_MAX]]
    if len(rows) > LINES_MAX:
        lines.append(f"and {len(rows) - LINES_MAX} more")
    return bullets(lines)


def _line(row: Row) -> str:
    places = "" if row.count == 1 else f" (and in {row.count - 1} more places)"
    return f"{row.kind}: {inert(row.where)}: {inert(row.reason)}{places}"
