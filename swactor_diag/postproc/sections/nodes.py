"""Section "Nodes": who took part, how much each one left behind, and who fell silent before the end."""

from msgspec import Struct, UnsetType

from swactor_diag.postproc.load import Node, Run
from swactor_diag.postproc.markup import duration, inert, moment, table
from swactor_diag.schema.boot import SCHEMA_VERSION
from swactor_diag.schema.ids import short_id

TITLE = "Nodes"

SILENT_MS = 15_000
"""A node whose last record is older than this at the end of the run is marked: three periodic snapshots."""


class Row(Struct, frozen=True, kw_only=True):
    """One node. ``silent_ms`` is by the collector's clock, ``earlier_ms`` by the nodes' own."""

    label: str
    role: str | None
    node_id: str | None
    boots: int
    snapshots: int
    events: int
    finalized: bool
    last_seen_ms: int | None
    silent_ms: int | None
    earlier_ms: int | None
    listed: bool
    newer_schema: int | None = None
    """The version that the node wrote, when a reader of ours could misunderstand it."""


def rows(run: Run) -> tuple[Row, ...]:
    """Return a row for every node, in manifest order."""
    seen = [node.last_seen_ms for node in run.nodes if node.last_seen_ms is not None]
    return tuple(_row(node, last_ms=max(seen, default=None)) for node in run.nodes)


def _row(node: Node, *, last_ms: int | None) -> Row:
    listed = node.listed
    role = listed.role if listed is not None else None
    silent = None if listed is None or isinstance(listed.silent_ms, UnsetType) else listed.silent_ms
    schema = max((identity.schema_version or 0 for identity in node.identities), default=0)
    return Row(
        label=node.label,
        role=role if role is not None else node.identity.role if node.identity is not None else None,
        node_id=node.node_id,
        boots=len(node.identities),
        snapshots=len(node.snapshots),
        events=len(node.records),
        finalized=listed.finalize_recorded if listed is not None else node.finalized,
        last_seen_ms=node.last_seen_ms,
        silent_ms=silent,
        earlier_ms=None if last_ms is None or node.last_seen_ms is None else last_ms - node.last_seen_ms,
        listed=listed is not None,
        newer_schema=schema if schema > SCHEMA_VERSION else None,
    )


def render(rows: tuple[Row, ...]) -> str:
    """Return the table, or why there is none."""
    if not rows:
        return "No node left a record in this bundle."
    headers = ["node", "role", "id", "snapshots", "events", "last seen (UTC, own clock)", "remarks"]
    return table(headers, [_cells(row) for row in rows])


def _cells(row: Row) -> list[str]:
    return [
        inert(row.label),
        inert(row.role),
        inert(None if row.node_id is None else short_id(row.node_id)),
        str(row.snapshots),
        str(row.events),
        moment(row.last_seen_ms),
        "; ".join(_remarks(row)) or "-",
    ]


def _remarks(row: Row) -> list[str]:
    remarks = []
    if row.silent_ms is not None and row.silent_ms > SILENT_MS:
        remarks.append(f"silent for the last {duration(row.silent_ms)}")
    elif row.silent_ms is None and row.earlier_ms is not None and row.earlier_ms > SILENT_MS:
        remarks.append(f"last seen {duration(row.earlier_ms)} before the last of all, by their own clocks")
    if not row.boots:
        remarks.append("no boot record")
    elif row.boots > 1:
        remarks.append(f"started {row.boots} times")
    if row.finalized:
        remarks.append("finalized the run")
    if not row.listed:
        remarks.append("not in the manifest")
    if row.newer_schema is not None:
        remarks.append(
            f"wrote schema {row.newer_schema}, this reader knows {SCHEMA_VERSION}: take a newer one"
        )
    return remarks
