"""Section "Gossip receipts": how much gossip each node took in, by kind."""

from msgspec import Struct

from swactor_diag.postproc.load import Run
from swactor_diag.postproc.markup import inert, table
from swactor_diag.schema.producers import GossipReceived

TITLE = "Gossip receipts"


class Row(Struct, frozen=True, kw_only=True):
    """The receipts of one payload kind at one node."""

    label: str
    payload_kind: str
    receipts: int
    payload_bytes: int
    items: int


def rows(run: Run) -> tuple[Row, ...]:
    """Return a row for each node and payload kind, sorted by both."""
    sums: dict[tuple[str, str], tuple[int, int, int]] = {}
    for node in run.nodes:
        for record in node.records:
            if isinstance(event := record.event, GossipReceived):
                key = (node.label, event.payload_kind)
                receipts, size, items = sums.get(key, (0, 0, 0))
                sums[key] = (receipts + 1, size + event.payload_bytes, items + event.item_count)
    return tuple(
        Row(label=label, payload_kind=kind, receipts=receipts, payload_bytes=size, items=items)
        for (label, kind), (receipts, size, items) in sorted(sums.items())
    )


def render(rows: tuple[Row, ...]) -> str:
    """Return the table, or why there is none."""
    if not rows:
        return "No gossip receipt was recorded (GossipReceived events would count them)."
    headers = ["node", "payload", "receipts", "bytes", "items"]
    return table(
        headers,
        [
            [inert(r.label), inert(r.payload_kind), str(r.receipts), str(r.payload_bytes), str(r.items)]
            for r in rows
        ],
    )
