"""What a collector knows of one run without looking at its disk.

Owns: which batches are stored, counts and times of each node, and the hints after a finalize. It is made from
the storage alone and can be thrown away at any time, hints excepted. Pure. Not here: making it (``ingest``).
"""

from collections.abc import Callable

import msgspec

from swactor_diag.collector.hints import Hints
from swactor_diag.collector.seen import SeenBatches
from swactor_diag.schema.submission import Outgoing, RecordKind


class NodeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one node; times by the collector's clock, None when nobody recorded them."""

    node_id: str
    boot_recorded: bool
    event_batches: int
    snapshots: int
    finalize_recorded: bool
    first_record_at_ms: int | None
    last_record_at_ms: int | None


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of one run."""

    run_id: str
    run_start_collector_ms: int | None
    run_end_collector_ms: int | None
    finalize_received: bool
    nodes: tuple[NodeCounts, ...]


class _Node:
    """The index of one node."""

    def __init__(self) -> None:
        self.seen = {kind: SeenBatches() for kind in RecordKind}
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.seen_ms = 0

    def touch(self, recv_ms: int) -> None:
        self.first_ms = recv_ms if self.first_ms is None else min(self.first_ms, recv_ms)
        self.last_ms = recv_ms if self.last_ms is None else max(self.last_ms, recv_ms)
        self.seen_ms = max(self.seen_ms, recv_ms)

    def count(self, kind: RecordKind) -> int:
        return len(self.seen[kind])


class RunIndex:
    """What is stored of one run, and who was told what."""

    def __init__(self, run_id: str, *, losses: int = 0) -> None:
        """Begin with nothing; ``losses`` is how often `Ingest` had lost something by then."""
        self.run_id = run_id
        self.losses = losses
        self.nodes: dict[str, _Node] = {}
        self.hints = Hints()
        self.settled: list[Callable[[], None]] = []

    def known(self, record: Outgoing) -> int | None:
        """Return the checksum of what is stored under the id of ``record``, or None."""
        node = self.nodes.get(record.node_id)
        return None if node is None else node.seen[record.kind].get(record.batch_id)

    def add(
        self, node_id: str, kind: RecordKind, batch_id: str, *, recv_ms: int | None, sum_of_body: int
    ) -> None:
        """Note a stored record; one that is known already changes nothing."""
        node = self.nodes.get(node_id)
        if node is None:
            node = self.nodes[node_id] = _Node()
        if node.seen[kind].add(batch_id, sum_of_body) and recv_ms is not None:
            node.touch(recv_ms)

    def live(self, since_ms: int) -> list[str]:
        """Return the nodes that were heard of since, and have not said their last word."""
        return [
            node_id
            for node_id, node in self.nodes.items()
            if node.seen_ms >= since_ms and not node.count(RecordKind.FINALIZE)
        ]

    def notify_when_settled(self) -> None:
        """Call back whoever waits for the last snapshots, if none is outstanding."""
        if self.settled and not self.hints.outstanding():
            waiting, self.settled = self.settled, []
            for callback in waiting:
                callback()

    def counts(self) -> RunCounts:
        """Return what is stored."""
        nodes = tuple(
            NodeCounts(
                node_id=node_id,
                boot_recorded=node.count(RecordKind.BOOT) > 0,
                event_batches=node.count(RecordKind.EVENTS),
                snapshots=node.count(RecordKind.SNAPSHOT),
                finalize_recorded=node.count(RecordKind.FINALIZE) > 0,
                first_record_at_ms=node.first_ms,
                last_record_at_ms=node.last_ms,
            )
            for node_id, node in sorted(self.nodes.items())
        )
        starts = [node.first_record_at_ms for node in nodes if node.first_record_at_ms is not None]
        ends = [node.last_record_at_ms for node in nodes if node.last_record_at_ms is not None]
        return RunCounts(
            run_id=self.run_id,
            run_start_collector_ms=min(starts, default=None),
            run_end_collector_ms=max(ends, default=None),
            finalize_received=any(node.finalize_recorded for node in nodes),
            nodes=nodes,
        )
