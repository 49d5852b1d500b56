"""Records in, answers out: what a collector does with a submission, without any HTTP.

Owns: which records are accepted, that an acknowledged record is stored and stored once, and which node is
told to send a snapshot when a run ends. Not here: transport and limits (``routes``), waiting after a finalize
(``routes`` and ``local_sink``), the archive (``bundle``).

What is in memory is an index of the storage and nothing else: a new `Ingest` over the same storage knows the
same runs and recognises the same repeats. Hints alone are forgotten; the next finalize queues new ones.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from swactor_diag.collector.run_index import RunCounts, RunIndex
from swactor_diag.collector.seen import checksum
from swactor_diag.collector.staging import Staging, check_json
from swactor_diag.collector.storage import Storage, StorageError
from swactor_diag.schema.ids import IdError, check_id
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing, RecordKind

LIVE_WINDOW_MS = 15_000
"""A node that was silent for longer is not waited for when its run ends: three periodic snapshots."""

RUNS_KNOWN_MAX = 1_000
"""Runs in the index; the one unused for longest is forgotten, and read again at need."""


NODES_MAX = 100_000
"""Nodes of one run. Each costs a collector 2 KB of memory, and a sender may make up any number of them."""


class RefusedError(Exception):
    """The record is not accepted, and nothing was stored.

    ``status`` is what HTTP calls it: 400, or 422 for a record that is well formed and contradicts another;
    sending those again is of no use. 429 has come too early, by ``retry_after_s``.
    """

    def __init__(
        self, code: str, message: str, *, status: int = 400, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.retry_after_s = code, status, retry_after_s


class Ingest:
    """Accepts the records of many runs into one storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        writer: str = "main",
        live_window_ms: int = LIVE_WINDOW_MS,
        nodes_max: int = NODES_MAX,
    ) -> None:
        self.staging = Staging(storage, writer=writer)
        self._live_window_ms = live_window_ms
        self._nodes_max = nodes_max
        self._runs: dict[str, RunIndex] = {}
        self._going: set[str] = set()
        self._losses = 0  # how often something went from the storage: an index from before is wrong

    def accept(self, record: Outgoing, recv_ms: int, *, send_ms: int = 0) -> Answer:
        """Store ``record`` unless it is stored already, and return the answer for its sender.

        When this returns, the record is in the storage, and lasts there if the storage does not ask for a
        `flush`. A finalize also queues a hint for every node of the run; its answer has no bundle path yet
        (see `when_settled`).

        Raises:
            RefusedError: the ids are not ids, the body is not JSON, the batch id is that of another body, or
                it would be one node too many.
            StorageError: it could not be stored; sending it again later may help.
        """
        _check_ids(record)
        record = record if record.body else msgspec.structs.replace(record, body=b"null")
        on_demand = _check_body(record.kind, record.body)
        if record.run_id in self._going:
            raise StorageError(f"run {record.run_id} is being trimmed")
        run = self._run(record.run_id)
        self._store(run, record, recv_ms)
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

    def _store(self, run: RunIndex, record: Outgoing, recv_ms: int) -> None:
        known = run.known(record)
        if known is None:
            if record.node_id not in run.nodes and len(run.nodes) >= self._nodes_max:
                message = f"run {record.run_id} has {self._nodes_max} nodes already"
                raise RefusedError("too_many_nodes", message, status=422)
            self.staging.append(record, recv_ms=recv_ms)
            self._runs[record.run_id] = run
            run.add(
                record.node_id,
                record.kind,
                record.batch_id,
                recv_ms=recv_ms,
                sum_of_body=checksum(record.body),
            )
        elif known != checksum(record.body):
            message = f"batch {record.batch_id} is stored with another body"
            raise RefusedError("batch_conflict", message, status=422)

    def flush(self) -> None:
        """Make what was accepted so far last; to be called before any of it is acknowledged.

        Raises:
            StorageError: it does not last; call `drop_unflushed`, acknowledge nothing.
        """
        self.staging.storage.flush()

    def drop_unflushed(self) -> None:
        """Forget what does not last, so that it is stored when it is sent again.

        Raises:
            StorageError: see `Storage.drop_unflushed`.
        """
        self._runs.clear()
        try:
            self.staging.drop_unflushed()
        finally:
            self._losses += 1  # last: a run that another thread reads meanwhile may hold what is cut off

    def is_known(self, run_id: str) -> bool:
        """Return whether the run is in the index, so that accepting a record of it takes no time."""
        return run_id in self._runs

    def load(self, run_id: str) -> RunIndex:
        """Read what is stored of a run, for `learn`. Takes as long as reading it; any thread may do it."""
        run = RunIndex(run_id, losses=self._losses)
        for portion in self.staging.portions(self.staging.list(run_id)):
            for record in portion.records:
                body = self.staging.read(record)
                if isinstance(body, bytes):  # a repeat of what is damaged is welcome
                    run.add(
                        record.node_id,
                        record.kind,
                        record.batch_id,
                        recv_ms=record.recv_ms,
                        sum_of_body=checksum(body),
                    )
        return run

    def learn(self, run: RunIndex) -> None:
        """Put what `load` returned into the index, unless it is known by now or less is stored than then."""
        if run.nodes and run.run_id not in self._runs and run.losses == self._losses:
            self._forget_the_idle()
            self._runs[run.run_id] = run

    @contextmanager
    def closing(self, run_id: str) -> Iterator[None]:
        """Accept nothing for a run while it is removed from the storage, and know nothing of it then."""
        self._going.add(run_id)
        try:
            self._runs.pop(run_id, None)
            self.staging.close_segment(run_id)
            yield
        finally:
            self._losses += 1
            self._runs.pop(run_id, None)
            self._going.discard(run_id)

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
        return tuple(self.counts(run_id) for run_id in self.staging.run_ids())

    def counts(self, run_id: str) -> RunCounts:
        """Return what is stored of one run."""
        return self._run(run_id).counts()

    def seen_ms(self, run_id: str) -> int | None:
        """Return when something of the run was received last, as far as this process knows."""
        run = self._runs.get(run_id)
        return None if run is None else max((node.seen_ms for node in run.nodes.values()), default=None)

    def _run(self, run_id: str) -> RunIndex:
        run = self._runs.pop(run_id, None)
        if run is None:
            run = self.load(run_id)
            self._forget_the_idle()
        if run.nodes:
            self._runs[run_id] = run  # last: used most recently
        return run

    def _forget_the_idle(self) -> None:
        """Make room in the index; what is forgotten is read again when it is needed."""
        idle = [run_id for run_id, run in self._runs.items() if not run.settled]
        for run_id in idle[: max(0, len(idle) - RUNS_KNOWN_MAX + 1)]:
            self.staging.close_segment(run_id)
            del self._runs[run_id]


def unnamed_batch_id(body: bytes) -> str:
    """Return a batch id for a sender that gives none: equal bytes are one batch."""
    return f"unnamed-{hashlib.sha256(body).hexdigest()[:32]}"


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
