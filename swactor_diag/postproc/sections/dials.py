"""Section "Per-peer dials": how often each peer was dialled by anybody, and how that went."""

from msgspec import Struct

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import inert, moment, table
from swactor_diag.schema.producers import DialErrorText, DialOutcome, DialStarted

TITLE = "Per-peer dials"

_SUCCESS = "Success"
_CUT_OFF = "Cut off: the node that dialled had no tunnel to its relay; that says little of the target."


class Row(Struct, frozen=True, kw_only=True):
    """The dials of all nodes to one target. An outcome without its start is counted all the same.

    ``failed_cut_off`` of those that ``failed`` say little of the target: the own tunnel was down.
    """

    target: str
    node_id: str
    started: int
    succeeded: int
    failed: int
    failed_cut_off: int
    last_outcome: str | None
    last_at_ms: int | None

    @property
    def in_flight(self) -> int:
        """Dials without an outcome; never below 0."""
        return max(0, self.started - self.succeeded - self.failed)


class _Tally:
    def __init__(self) -> None:
        self.started = self.succeeded = self.failed = self.failed_cut_off = 0
        self.last: tuple[int, str] | None = None

    def end(self, event: DialOutcome, at_ms: int) -> None:
        outcome = _outcome(event.outcome)
        if outcome == _SUCCESS:
            self.succeeded += 1
        else:
            self.failed += 1
            self.failed_cut_off += event.tunnel_down is True
        if self.last is None or at_ms >= self.last[0]:
            self.last = (at_ms, outcome)


def rows(run: Run) -> tuple[Row, ...]:
    """Return a row for each dialled peer, sorted by label and id."""
    tallies: dict[str, _Tally] = {}
    for node in sorted(run.nodes, key=lambda node: node.label):
        for record in node.records:
            match record.event:
                case DialStarted(peer=peer):
                    tallies.setdefault(peer, _Tally()).started += 1
                case DialOutcome(peer=peer) as outcome:
                    tallies.setdefault(peer, _Tally()).end(outcome, record.wall_ms)
                case _:
                    continue
    found = [
        Row(
            target=run.label_of(peer),
            node_id=peer,
            started=tally.started,
            succeeded=tally.succeeded,
            failed=tally.failed,
            failed_cut_off=tally.failed_cut_off,
            last_outcome=None if tally.last is None else tally.last[1],
            last_at_ms=None if tally.last is None else tally.last[0],
        )
        for peer, tally in tallies.items()
    ]
    return tuple(sorted(found, key=lambda row: (row.target, row.node_id)))


def _outcome(outcome: str | DialErrorText) -> str:
    return outcome if isinstance(outcome, str) else f'Error("{outcome.error}")'


def render(rows: tuple[Row, ...]) -> str:
    """Return the table with its sums, or why there is none."""
    if not rows:
        return "No dial was recorded (DialStarted and DialOutcome events would count them)."
    cells = [
        [
            inert(row.target),
            str(row.started),
            str(row.succeeded),
            str(row.failed) + (f" ({row.failed_cut_off} cut off)" if row.failed_cut_off else ""),
            str(row.in_flight),
            "-" if row.last_outcome is None else inert(row.last_outcome),
            "-" if row.last_at_ms is None else moment(row.last_at_ms),
        ]
        for row in rows
    ]
    sums = [
        sum(counts)
        for counts in zip(*((r.started, r.succeeded, r.failed, r.in_flight) for r in rows), strict=True)
    ]
    headers = ["target", "started", "succeeded", "failed", "in flight", "last outcome", "at (UTC)"]
    shown = table(headers, [*cells, ["all", *(str(total) for total in sums), "-", "-"]])
    return f"{shown}\n\n{_CUT_OFF}" if any(row.failed_cut_off for row in rows) else shown
