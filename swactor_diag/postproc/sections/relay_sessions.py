"""Section "Relay sessions": what each relay counted, and how its last session with each peer ended."""

from msgspec import Struct, UnsetType

from swactor_diag.postproc.load import Node, Run
from swactor_diag.postproc.markup import bullets, duration, inert, moment
from swactor_diag.schema.blocks import RelayServerBlock
from swactor_diag.schema.producers import RelaySessionClosed

TITLE = "Relay sessions"


class Close(Struct, frozen=True, kw_only=True):
    """How one peer's last session closed, and what a node's own cache says about that peer.

    There were ``sessions`` of it, the first one opened ``span_ms`` before the last one's close.
    """

    peer: str
    event: RelaySessionClosed
    sessions: int
    span_ms: int
    failure: tuple[str, str] | None


class Row(Struct, frozen=True, kw_only=True):
    """One relay of the run; ``totals`` is None when no snapshot of it has any."""

    label: str
    totals: RelayServerBlock | None
    closes: tuple[Close, ...]


def rows(run: Run) -> tuple[Row, ...]:
    """Return a row for each node with role ``relay``, in manifest order."""
    relays = [node for node in run.nodes if _is_relay(node)]
    others = sorted((node for node in run.nodes if not _is_relay(node)), key=lambda node: node.label)
    failures = _cached_failures(others)
    return tuple(_row(run, relay, failures) for relay in relays)


def _is_relay(node: Node) -> bool:
    role = node.listed.role if node.listed is not None else None
    return (
        role if role is not None else node.identity.role if node.identity is not None else None
    ) == "relay"


def _row(run: Run, relay: Node, failures: dict[str, tuple[str, str]]) -> Row:
    totals = None
    for snapshot in relay.snapshots:
        if not isinstance(block := snapshot.body.relay_server, UnsetType):
            totals = block
    ended: dict[str, list[RelaySessionClosed]] = {}
    for record in relay.records:
        if isinstance(event := record.event, RelaySessionClosed):
            ended.setdefault(event.peer_node_id_hex, []).append(event)
    closes = tuple(
        _last(events, label=run.label_of(peer), failure=failures.get(peer.lower()))
        for peer, events in sorted(ended.items())
    )
    return Row(label=relay.label, totals=totals, closes=closes)


def _last(events: list[RelaySessionClosed], *, label: str, failure: tuple[str, str] | None) -> Close:
    last = max(events, key=lambda event: event.closed_at_ms)
    first_ms = min(event.opened_at_ms for event in events)
    span_ms = max(0, last.closed_at_ms - first_ms)
    return Close(peer=label, event=last, sessions=len(events), span_ms=span_ms, failure=failure)


def _cached_failures(nodes: list[Node]) -> dict[str, tuple[str, str]]:
    """Return, by peer, the first node whose last snapshot holds a failure of that peer, and its words."""
    found: dict[str, tuple[str, str]] = {}
    for node in nodes:
        block = node.snapshots[-1].body.iroh if node.snapshots else None
        for entry in () if block is None or isinstance(block, UnsetType) else block.connection_cache:
            if not isinstance(entry.last_failure_reason, UnsetType):
                found.setdefault(entry.peer_node_id_hex.lower(), (node.label, entry.last_failure_reason))
    return found


def render(rows: tuple[Row, ...]) -> str:
    """Return the totals and last closes, or why there are none."""
    if not rows:
        return (
            "No relay reported to the collector, so nobody can say who closed which session:"
            " set SWACTOR_DIAG_COLLECTOR_URL on the relay process."
        )
    return bullets(line for row in rows for line in _lines(row))


def _lines(row: Row) -> list[str]:
    label = inert(row.label)
    lines = [] if row.totals is None else [f"{label}: {_totals(row.totals)}"]
    lines += [f"{label}: {_close(close)}" for close in row.closes]
    if not row.closes:
        lines.append(f"{label}: no session was seen to close")
    return lines


def _totals(block: RelayServerBlock) -> str:
    reasons = ", ".join(f"{inert(reason)} {count}" for reason, count in block.closes_by_reason)
    return (
        f"active {block.active_sessions}, opened {block.total_opens}, closed {block.total_closes},"
        f" received {block.bytes_rx_total} bytes, sent {block.bytes_tx_total} bytes,"
        f" closes by reason: {reasons or 'none'}"
    )


def _close(close: Close) -> str:
    event = close.event
    failure = "none recorded"
    if close.failure is not None:
        failure = f"{inert(close.failure[1])} (at {inert(close.failure[0])}, whenever that was)"
    flaps = ""
    if close.sessions > 1:
        a_minute = close.sessions / max(close.span_ms, 1) * 60_000
        flaps = f", one of {close.sessions} in {duration(close.span_ms)} ({a_minute:.1f} a minute)"
    detail = "" if isinstance(event.detail, UnsetType) else f", {inert(event.detail)}"
    return (
        f"last session of {inert(close.peer)} closed at {moment(event.closed_at_ms)} UTC"
        f" by {inert(event.close_initiator.value)}, reason {inert(event.close_reason)}{detail},"
        f" after {duration(event.duration_ms)}{flaps}, received {event.bytes_rx} bytes,"
        f" sent {event.bytes_tx} bytes;"
        f" last failure in a connection cache: {failure}"
    )
