"""Records in, answers out: what a collector does with a submission, without any HTTP.

Owns: which records are accepted, that an acknowledged record is stored and stored once, and which node is
told to send a snapshot when a run ends. Not here: transport and limits (``routes``), waiting after a finalize
(``routes`` and ``local_sink``), the archive (``bundle``).

What is in memory is an index of the storage and nothing else: a new `Ingest` over the same storage knows the
same runs and recognises the same repeats. Hints alone are forgotten; the next finalize queues new ones.
"""

import hashlib
from collections.abc import Callable

import msgspec

from swactor_diag.collector.hints import Hints
from swactor_diag.collector.staging import StagedFile, Staging, check_json
from swactor_diag.collector.storage import Storage
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing, RecordKind

LIVE_WINDOW_MS = 15_000
"""A node that was silent for longer is not waited for when its run ends: three periodic snapshots."""


class RefusedError(Exception):
    """The record can never be accepted; sending it again is of no use. Nothing was stored.

    ``status`` is what HTTP calls it: 400, or 422 for a record that is well formed and contradicts another.
    """

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


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


class Ingest:
    """Accepts the records of many runs into one storage. One `Ingest` writes to a storage at a time."""

    def __init__(self, storage: Storage, *, live_window_ms: int = LIVE_WINDOW_MS) -> None:
        self.staging = Staging(storage)
        self._live_window_ms = live_window_ms
        self._runs: dict[str, _Run] = {}

    def accept(self, record: Outgoing, recv_ms: int, *, send_ms: int = 0) -> Answer:
        """Store ``record`` unless it is stored already, and return the answer for its sender.

        When this returns, the record is in the storage. A finalize also queues a hint for every node of the
        run; its answer has no bundle path yet (see `when_settled`).

        Raises:
            RefusedError: the ids are not ids, the body is not JSON, or the batch id is that of another body.
            StorageError: it could not be stored; sending it again later may help.
        """
        body = record.body or b"null"
        _check_ids(record)
        on_demand = _check_body(record.kind, body)
        run = self._run(record.run_id, create=True)
        self._store(run, record, body, recv_ms)
        node = run.nodes[record.node_id]
        node.seen_ms = max(node.seen_ms, recv_ms)
        if on_demand:
            run.hints.snapshot_arrived(record.node_id)
        if record.kind is RecordKind.FINALIZE:
            run.hints.gone(record.node_id)
            run.hints.queue(run.nodes, awaited=run.live(recv_ms - self._live_window_ms))
        answer = Answer(
            clock=ClockStamp(
                node_send_ms_echoed=send_ms, collector_recv_ms=recv_ms, collector_send_ms=recv_ms
            ),
            snapshot_now=run.hints.take(record.node_id),
        )
        run.notify_when_settled()
        return answer

    def _store(self, run: "_Run", record: Outgoing, body: bytes, recv_ms: int) -> None:
        node = run.nodes.get(record.node_id)
        known = None if node is None else node.files.get((record.kind, record.batch_id))
        if known is not None:
            stored = self.staging.read_whole(known)
            if isinstance(stored, bytes):
                if stored == body:
                    return
                message = f"batch {record.batch_id} is stored with another body"
                raise RefusedError("batch_conflict", message, status=422)
            # What is stored was damaged from outside: the sender's copy mends it, under the same name.
            self.staging.write(known, body)
            return
        file = StagedFile(
            run_id=record.run_id,
            node_id=record.node_id,
            kind=record.kind,
            batch_id=record.batch_id,
            recv_ms=recv_ms,
            size_bytes=len(body),
        )
        self.staging.write(file, body)
        run.add(file)

    def outstanding(self, run_id: str) -> tuple[str, ...]:
        """Return the live nodes whose snapshot for the last finalize has not come yet."""
        return self._run(run_id).hints.outstanding()

    def when_settled(self, run_id: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, now or as soon as nothing is `outstanding`."""
        run = self._run(run_id)
        run.settled.append(callback)
        run.notify_when_settled()

    def runs(self) -> tuple[RunCounts, ...]:
        """Return every stored run, sorted by id."""
        return tuple(self._run(run_id).counts() for run_id in self.staging.run_ids())

    def has_run(self, run_id: str) -> bool:
        """Return whether anything of ``run_id`` is stored; false for what is no id."""
        return self.staging.has_run(run_id)

    def _run(self, run_id: str, *, create: bool = False) -> "_Run":
        run = self._runs.get(run_id)
        if run is None:
            run = _Run(run_id)
            staged = self.staging.scan(run_id)
            for file in staged.files:
                run.add(file)
            if create or staged.files:
                self._runs[run_id] = run
        return run


def unnamed_batch_id(body: bytes) -> str:
    """Return a batch id for a sender that gives none: equal bytes are one batch."""
    return f"unnamed-{hashlib.sha256(body).hexdigest()[:32]}"


class _Node:
    """The index of one node's files."""

    def __init__(self) -> None:
        self.files: dict[tuple[RecordKind, str], StagedFile] = {}
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.seen_ms = 0

    def touch(self, recv_ms: int) -> None:
        self.first_ms = recv_ms if self.first_ms is None else min(self.first_ms, recv_ms)
        self.last_ms = recv_ms if self.last_ms is None else max(self.last_ms, recv_ms)
        self.seen_ms = max(self.seen_ms, recv_ms)

    def count(self, kind: RecordKind) -> int:
        return sum(1 for found, _ in self.files if found is kind)


class _Run:
    """The index of one run, and its hints."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.nodes: dict[str, _Node] = {}
        self.hints = Hints()
        self.settled: list[Callable[[], None]] = []

    def add(self, file: StagedFile) -> None:
        node = self.nodes.setdefault(file.node_id, _Node())
        node.files[file.kind, file.batch_id] = file
        if file.recv_ms is not None:
            node.touch(file.recv_ms)

    def live(self, since_ms: int) -> list[str]:
        return [
            node_id
            for node_id, node in self.nodes.items()
            if node.seen_ms >= since_ms and not node.count(RecordKind.FINALIZE)
        ]

    def notify_when_settled(self) -> None:
        if self.settled and not self.hints.outstanding():
            waiting, self.settled = self.settled, []
            for callback in waiting:
                callback()

    def counts(self) -> RunCounts:
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


class _Trigger(msgspec.Struct):
    kind: str


class _SnapshotHead(msgspec.Struct):
    trigger: _Trigger


def _check_ids(record: Outgoing) -> None:
    try:
        check_id(record.run_id, what="run id")
        check_id(record.node_id, what="node id")
        check_id(record.batch_id, what="batch id")
    except IdError as exc:
        raise RefusedError("invalid_id", str(exc)) from exc


def _check_body(kind: RecordKind, body: bytes) -> bool:
    """Return whether ``body`` is a snapshot made on demand.

    Raises:
        RefusedError: it is not JSON.
    """
    try:
        check_json(body)
    except ValueError as exc:
        raise RefusedError("not_json", f"the body is not JSON: {exc}") from exc
    if kind is not RecordKind.SNAPSHOT:
        return False
    try:
        return msgspec.json.decode(body, type=_SnapshotHead).trigger.kind == "OnDemand"
    except msgspec.ValidationError:
        return False
