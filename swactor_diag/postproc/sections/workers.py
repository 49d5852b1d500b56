"""Section "Workers": every child process of every node, and what became of it.

Owns: joining spawns with exits, the fate in words, and a line for a stage that never had a child.
Joined by spawn id where there is one, else by pid within the node: labels repeat.
"""

from collections.abc import Iterable

from msgspec import Struct, UnsetType

from swactor_diag.postproc.load import Node, Run
from swactor_diag.postproc.markup import duration, inert, moment, table
from swactor_diag.schema.blocks import SubprocessStatus
from swactor_diag.schema.events import (
    Custom,
    SubprocessExited,
    SubprocessSpawned,
)
from swactor_diag.schema.producers import SubprocessLeftBehind, SubprocessSpawnFailed

TITLE = "Workers"

_LEGACY_PREFIX = "worker_"


class Row(Struct, frozen=True, kw_only=True):
    """One child process, or the fact that a stage node had none (then ``label`` is None).

    ``fate`` is in our own words; ``said`` is what the system or the child itself said last.
    """

    node: str
    host: str | None
    label: str | None = None
    pid: int | None = None
    spawned_at_ms: int | None = None
    fate: str
    said: str | None = None


class _Child(Struct, kw_only=True):
    """What is known of one child so far."""

    label: str
    pid: int | None
    spawned_at_ms: int | None = None
    failed: SubprocessSpawnFailed | None = None
    left_behind: SubprocessLeftBehind | None = None
    exited: SubprocessExited | None = None
    seen_running_ms: int | None = None
    heard: str | None = None
    last_words: str | None = None


def rows(run: Run) -> tuple[Row, ...]:
    """Return a row for each child, by node and then in the order in which they started."""
    return tuple(row for node in run.nodes for row in _node_rows(node))


def _node_rows(node: Node) -> Iterable[Row]:
    identity = node.identity
    host = None
    if identity is not None:
        host = identity.host_ip_public if identity.host_ip_public is not None else identity.hostname
    children = _children(node)
    if not children and identity is not None and identity.role == "stage":
        yield Row(node=node.label, host=host, fate="never asked to spawn")
    for child in children:
        yield Row(
            node=node.label,
            host=host,
            label=child.label,
            pid=child.pid,
            spawned_at_ms=child.spawned_at_ms,
            fate=_fate(child, node),
            said=child.last_words if child.last_words is not None else child.heard,
        )


def _children(node: Node) -> list[_Child]:
    children: list[_Child] = []
    current: dict[tuple[str, object], _Child] = {}
    for record in node.records:
        match record.event:
            case SubprocessSpawned() as event:
                child = _Child(label=event.label, pid=event.pid, spawned_at_ms=record.wall_ms)
                if not isinstance(event.started_at_ms, UnsetType):
                    child.spawned_at_ms = event.started_at_ms
                children.append(child)
                current[_key(event.spawn_id, event.pid)] = child
            case SubprocessExited() as event:
                found = current.pop(_key(event.spawn_id, event.pid), None)
                child = found if found is not None else _Child(label=event.label, pid=event.pid)
                if found is None:
                    children.append(child)
                child.exited = event
                if not isinstance(event.stderr_tail, UnsetType):
                    child.last_words = _last_line(event.stderr_tail)
            case SubprocessSpawnFailed() as event:
                words = f"{event.errno_name} ({event.role} {event.path}): {event.message}"
                children.append(_Child(label=event.label, pid=None, failed=event, last_words=words))
            case SubprocessLeftBehind() as event:
                children.append(
                    _Child(label=event.label, pid=event.pid, left_behind=event, last_words=event.describe())
                )
            case Custom(kind=kind) as event if kind.startswith(_LEGACY_PREFIX):
                _hear(children, current, event)
            case _:
                continue
    for snapshot in node.snapshots:
        block = snapshot.body.subprocess
        for seen in () if isinstance(block, UnsetType) else block.subprocesses:
            child_seen = current.get(_key(seen.spawn_id, seen.pid))
            if child_seen is not None and seen.status is SubprocessStatus.RUNNING:
                child_seen.seen_running_ms = snapshot.wall_ms
    return children


def _key(spawn_id: str | UnsetType, pid: int) -> tuple[str, object]:
    return ("pid", pid) if isinstance(spawn_id, UnsetType) else ("spawn", spawn_id)


def _hear(children: list[_Child], current: dict[tuple[str, object], _Child], event: Custom) -> None:
    """Take what a worker of the original printed about itself."""
    pid = event.fields.get("pid")
    if event.kind == "worker_starting" and isinstance(pid, int):
        if ("pid", pid) not in current:
            child = _Child(label="worker", pid=pid)
            children.append(child)
            current["pid", pid] = child
    elif not children:
        return
    last = children[-1]
    last.heard = f"last heard: {event.kind.removeprefix(_LEGACY_PREFIX)}"
    if event.kind == "worker_exited":
        last.exited = SubprocessExited(
            label=last.label,
            pid=last.pid or 0,
            command="",
            exit_code=_int(event.fields.get("exit_code")),
            exit_signal=_int(event.fields.get("signal")),
            uptime_ms=_int(event.fields.get("uptime_ms")),
        )
    tail = event.fields.get("stderr_tail")
    if isinstance(tail, str):
        last.last_words = _last_line(tail)
    elif isinstance(tail, list) and tail:
        last.last_words = _last_line(str(tail[-1]))


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _last_line(text: str) -> str | None:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def _fate(child: _Child, node: Node) -> str:
    exited = child.exited
    if child.failed is not None:
        return "could not be started"
    if child.left_behind is not None:
        return "of an earlier boot, found alive"
    if exited is None:
        seen = child.seen_running_ms if child.seen_running_ms is not None else node.last_seen_ms
        return f"running at last sight ({moment(seen)})"
    after = "" if exited.uptime_ms is None else f" after {duration(exited.uptime_ms)}"
    if exited.exit_signal is not None:
        return _ended_by_signal(exited, after)
    if exited.exit_code is not None:
        asked = " (asked)" if exited.asked_for is True else ""
        return f"exited {exited.exit_code}{after}{asked}"
    return f"ended{after}, its status is not known"


def _ended_by_signal(exited: SubprocessExited, after: str) -> str:
    signal = f"signal {exited.exit_signal}"
    if exited.external is True:
        meanwhile = " while we were stopping it" if exited.asked_for is True else ""
        return f"killed by {signal}{after}, not by us{meanwhile}{_memory(exited)}"
    if exited.escalated is True:
        return f"killed by us with {signal}{after}: it did not stop when asked"
    if isinstance(exited.asked_for, UnsetType):
        return f"killed by {signal}{after}, nobody recorded by whom"
    return (
        f"stopped by us with {signal}{after}" if exited.asked_for else f"killed by {signal}{after}, not by us"
    )


def _memory(exited: SubprocessExited) -> str:
    """What the kernel has counted. In the node's group it need not have been this child."""
    if isinstance(exited.oom_kills, UnsetType):
        return ""
    kills = f"{exited.oom_kills or 'no'} out-of-memory kill{'' if exited.oom_kills == 1 else 's'}"
    whose = "its own" if exited.oom_own_cgroup is True else "its node's"
    return f" ({kills} in {whose} cgroup meanwhile)"


def render(rows: tuple[Row, ...]) -> str:
    """Return the table, or why there is none."""
    if not rows:
        return "No node started a child process (SubprocessSpawned events would name them)."
    cells = [
        [
            inert(row.node),
            inert(row.host),
            "-" if row.label is None else inert(row.label),
            "-" if row.pid is None else str(row.pid),
            "-" if row.label is None else moment(row.spawned_at_ms),
            row.fate,
            "-" if row.said is None else inert(row.said),
        ]
        for row in rows
    ]
    return table(["node", "host", "worker", "pid", "spawned (UTC)", "fate", "last words"], cells)
