"""Section "First peer to go Dead": who gave up whom first, and what both sides looked like then."""

from msgspec import Struct, UnsetType

from swactor_diag.postproc.load import Node, Run
from swactor_diag.postproc.markup import bullets, inert, moment
from swactor_diag.schema.ids import short_id
from swactor_diag.schema.producers import MemberState, SwimReason, SwimTransition
from swactor_diag.schema.reading import Snapshot

TITLE = "First peer to go Dead"

_UNKNOWN = "unknown"


class Side(Struct, frozen=True, kw_only=True):
    """One side at that moment, from its snapshot nearest in time; ``unknown`` where nothing says."""

    label: str
    path_to_other: str
    tunnel: str
    probes_ok: str


class Rows(Struct, frozen=True, kw_only=True):
    """The first transition to Dead, by the recorders' wall clocks."""

    observer: str
    peer: str
    peer_id: str
    at_ms: int
    reason: str
    sides: tuple[Side, Side]
    later: int


class Nobody(Struct, frozen=True):
    """No peer was given up; ``leaves`` counts how often one was seen to leave in order."""

    leaves: int


def rows(run: Run) -> Rows | Nobody:
    """Return the first time a peer was given up. A peer that says farewell is Dead too, but was not lost."""
    dead = [
        (record.wall_ms, node.label, index, node, record.event)
        for node in run.nodes
        for index, record in enumerate(node.records)
        if isinstance(record.event, SwimTransition) and record.event.to is MemberState.DEAD
    ]
    found = [item for item in dead if item[4].reason is not SwimReason.LEFT]
    if not found:
        return Nobody(leaves=len(dead))
    at_ms, _, _, observer, event = min(found, key=lambda item: item[:3])
    peer = run.node_of(event.peer)
    return Rows(
        observer=observer.label,
        peer=run.label_of(event.peer),
        peer_id=event.peer,
        at_ms=at_ms,
        reason=event.reason.value,
        sides=(
            _side(observer.label, observer, other=event.peer, at_ms=at_ms),
            _side(run.label_of(event.peer), peer, other=observer.node_id or "", at_ms=at_ms),
        ),
        later=len(found) - 1,
    )


def _side(label: str, node: Node | None, *, other: str, at_ms: int) -> Side:
    snapshot = None if node is None else _nearest(node.snapshots, at_ms)
    if snapshot is None:
        return Side(label=label, path_to_other=_UNKNOWN, tunnel=_UNKNOWN, probes_ok=_UNKNOWN)
    iroh = snapshot.body.iroh
    path, tunnel = _UNKNOWN, _UNKNOWN
    if not isinstance(iroh, UnsetType):
        paths = [peer.conn_type for peer in iroh.peers if peer.peer_node_id_hex.lower() == other.lower()]
        path = paths[0] if paths else _UNKNOWN
        if not isinstance(iroh.relay_session, UnsetType):
            tunnel = f"{iroh.relay_session.status} ({iroh.relay_session.status_source})"
    return Side(label=label, path_to_other=path, tunnel=tunnel, probes_ok=_probes(snapshot))


def _nearest(snapshots: tuple[Snapshot, ...], at_ms: int) -> Snapshot | None:
    return min(snapshots, key=lambda one: (abs(one.wall_ms - at_ms), one.wall_ms), default=None)


def _probes(snapshot: Snapshot) -> str:
    block = snapshot.raw_body.get("probes")
    entries = block.get("probes") if isinstance(block, dict) else None
    if not isinstance(entries, list) or not entries:
        return _UNKNOWN
    outcomes = [entry.get("last_outcome") for entry in entries if isinstance(entry, dict)]
    return "yes" if "ok" in outcomes else "no"


def render(rows: Rows | Nobody) -> str:
    """Return who, when and why, and one line for each side; or that nobody was given up."""
    if isinstance(rows, Nobody):
        left = f"; peers were seen to leave in order {rows.leaves} times" if rows.leaves else ""
        return f"No node gave a peer up (SwimTransition events to Dead would say so){left}."
    who = f"{inert(rows.observer)} marked {inert(rows.peer)} ({inert(short_id(rows.peer_id))}) Dead"
    lines = [f"{who} at {moment(rows.at_ms)} UTC ({rows.at_ms} ms, its own clock): {inert(rows.reason)}"]
    lines += [
        f"{inert(side.label)} then: path to the other {inert(side.path_to_other)},"
        f" tunnel {inert(side.tunnel)}, any probe ok {side.probes_ok}"
        for side in rows.sides
    ]
    lines.append(f"transitions to Dead after this one: {rows.later}")
    return bullets(lines)
