"""The actor that brings a node's records to its sink.

Owns: the order (boot record first), the pace (a batch a second, or as soon as the recorder says that one is
due; a snapshot at once), one post at a time, what a failure means, and the last flush. While the sink fails,
records go straight to the spool, so a kill costs at most what one batch interval gathered; afterwards fresh
and spooled records take turns.
Not here: bytes (``batches``), files (``spool``), the wait after a failure (``retry``), who is at fault for it
(``suspicion``), HTTP (``http``).

A post runs in a task of its own; the actor only ever handles messages, so nobody waits for the network.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from swactor import Actor, Context, ExitReason, Reply, Request
from swactor.abc import Cancellable, Waiter
from swactor_diag.delivery.batches import BatchMaker
from swactor_diag.delivery.figures import ShipperFigures, delivery_block
from swactor_diag.delivery.retry import retry_delay_ms, slow_delay_ms
from swactor_diag.delivery.sink import RecordRefusedError, Sink, SinkMisconfiguredError, SinkUnavailableError
from swactor_diag.delivery.spool import Spool
from swactor_diag.delivery.suspicion import Suspicion
from swactor_diag.introspect import Observe, Observed
from swactor_diag.recorder import EVENTS_WAITING_MAX, Recorder
from swactor_diag.schema.blocks import IntrospectionOutcome, IntrospectorEntry
from swactor_diag.schema.events import CLOCK_SAMPLE, Custom, Error
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind

log = logging.getLogger("swactor_diag")

DELIVERY: Final = "delivery"
"""Key of the snapshot block that the shipper itself fills."""

WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Bodies that may wait in memory while the sink is slow; the oldest go to the spool beyond it."""


@dataclass(frozen=True, slots=True)
class ShipSnapshot:
    """An encoded snapshot, to be sent at once, after the events that led to it."""

    body: bytes


@dataclass(frozen=True, slots=True)
class FinalizeRun(Request[str | None]):
    """Send what there is, then the record that ends the run; the reply is where the bundle lies.

    None when the sink names no bundle or cannot take the record now (it is spooled then).
    """

    reason: str


@dataclass(frozen=True, slots=True)
class _Cut:
    """Time to make a batch of what the recorder holds."""


@dataclass(frozen=True, slots=True)
class _Retry:
    """The wait after a failure is over."""


@dataclass(frozen=True, slots=True)
class _Release:
    """Time to try one of the records again that alone failed."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """The post in progress has ended."""


@dataclass(slots=True)
class _Post:
    """The post that is under way, or has ended with a ``result`` that nobody has acted upon yet."""

    record: Outgoing
    from_spool: bool
    """Whether the spool has the record; else it is in memory only, and lost when forgotten."""
    task: Cancellable | None = None
    result: Answer | Exception | None = None
    ended_ms: int = 0


ShipperMessage = ShipSnapshot | FinalizeRun | Observe | _Cut | _Retry | _Release | _Settled


class Shipper(Actor[ShipperMessage]):
    """Ships one boot of one node."""

    def __init__(
        self,
        *,
        sink: Sink,
        spool: Spool,
        recorder: Recorder,
        batches: BatchMaker,
        figures: ShipperFigures,
        request_snapshot: Callable[[], None],
        batch_interval_s: float,
        flush_budget_s: float,
    ) -> None:
        self._sink = sink
        self._spool = spool
        self._recorder = recorder
        self._batches = batches
        self._figures = figures
        self._request_snapshot = request_snapshot
        self._batch_interval_s = batch_interval_s
        self._flush_budget_s = flush_budget_s
        self._fresh: deque[Outgoing] = deque()
        self._fresh_bytes = 0
        self._fresh_has_turn = True  # the boot record goes before what an earlier boot left in the spool
        self._failures = 0
        """In a row; above 0 a wait is on, and records go straight to the spool."""
        self._suspicion = Suspicion()
        self._release_waits = False
        self._under_way: _Post | None = None
        self._stopping = False
        self._settled: Waiter[None] | None = None
        self._finalizing: dict[str, Reply[str | None]] = {}
        self._reported: set[str] = set()

    def on_start(self, ctx: Context[ShipperMessage]) -> None:
        """Say who we are, then begin the rhythm."""
        boot = self._batches.boot()
        if boot is not None:
            self._accept(boot)
        ctx.send_every(self._batch_interval_s, _Cut())
        # An observer must not tell, so the loop does it next.
        self._recorder.call_when_due(lambda: ctx.loop.call_soon(lambda: ctx.ref.tell(_Cut())))
        self._pump(ctx)

    def on_message(self, ctx: Context[ShipperMessage], message: ShipperMessage) -> object:
        """Take in what is to be sent, and go on sending."""
        match message:
            case ShipSnapshot(body):
                self._cut()
                self._accept(self._batches.snapshot(body))
            case FinalizeRun(reason):
                self._finalize(ctx, reason)
            case Observe():
                self._answer(message)
            case _Cut():
                self._cut()
            case _Retry():
                self._pump(ctx, after_wait=True)
            case _Release():
                self._release_waits = False
                if not self._failures:  # else nothing shows who is at fault
                    self._suspicion.release()
                self._release_later(ctx)
            case _Settled():
                self._settle(ctx)
        self._pump(ctx)
        return None

    async def on_stop(self, ctx: Context[ShipperMessage], reason: ExitReason) -> None:
        """Send what is left within the budget, spool the rest. Never hangs, whatever the sink does."""
        deadline_ns = ctx.clock.monotonic_ns() + round(self._flush_budget_s * 1e9)
        self._stopping = True
        self._recorder.call_when_due(None)
        self._settle(ctx)
        self._cut()
        await self._flush(ctx, deadline_ns)
        post = self._under_way
        if post is not None:
            if post.task is not None:
                post.task.cancel()
            if not post.from_spool:
                self._spool.put(post.record)
        self._spool_fresh()
        if not reason.abnormal:  # else it is started again, with the same spool
            self._spool.close()
        for reply in self._finalizing.values():
            reply.send(None)
        await self._sink.close()

    # -- records in -----------------------------------------------------------------------------------------

    def _cut(self) -> None:
        for record in self._batches.events(self._recorder.take(EVENTS_WAITING_MAX)):
            self._accept(record)

    def _accept(self, record: Outgoing) -> None:
        if self._failures:
            self._spool.put(record)
            return
        self._fresh.append(record)
        self._fresh_bytes += len(record.body)
        while self._fresh_bytes > WAITING_BYTES_MAX:
            self._spool.put(self._next_fresh())

    def _next_fresh(self) -> Outgoing:
        record = self._fresh.popleft()
        self._fresh_bytes -= len(record.body)
        return record

    def _spool_fresh(self) -> None:
        while self._fresh:
            self._spool.put(self._next_fresh())

    def _finalize(self, ctx: Context[ShipperMessage], reason: str) -> None:
        self._cut()
        record = self._batches.finalize(reason)
        self._finalizing[record.batch_id] = ctx.defer()
        self._accept(record)
        if self._failures:
            self._answer_finalize(record, None)

    def _answer_finalize(self, record: Outgoing, bundle_path: str | None) -> None:
        reply = self._finalizing.pop(record.batch_id, None)
        if reply is not None:
            reply.send(bundle_path)

    # -- records out ----------------------------------------------------------------------------------------

    def _pump(self, ctx: Context[ShipperMessage], *, after_wait: bool = False) -> None:
        """Post the next record, if nothing is under way and no wait is on."""
        if self._under_way is not None or (self._failures and not after_wait):
            return
        post = self._next_post()
        if post is None:
            self._failures = 0  # a wait ended with nothing to send: there is nothing to be careful about
            return
        self._under_way = post
        post.task = ctx.loop.start_task(self._perform(ctx, post), name=f"post {post.record.batch_id}")

    def _next_post(self) -> _Post | None:
        """Fresh and spooled records take turns, so that neither starves; after a failure, what is spooled."""
        spooled = None
        if self._failures or not self._fresh_has_turn or not self._fresh:
            spooled = self._suspicion.choose(self._spool)
        self._fresh_has_turn = spooled is not None
        if spooled is not None:
            return _Post(spooled, from_spool=True)
        return _Post(self._next_fresh(), from_spool=False) if self._fresh else None

    async def _perform(self, ctx: Context[ShipperMessage], post: _Post) -> None:
        """Runs in its own task; tells the actor when it has ended."""
        try:
            post.result = await self._sink.post(post.record)
        except Exception as error:  # noqa: BLE001 - whatever a sink raises is a failed attempt
            post.result = error
        post.ended_ms = ctx.clock.wall_ms()
        if self._settled is not None:
            self._settled.set(None)
        elif not self._stopping:
            ctx.ref.tell(_Settled())

    def _settle(self, ctx: Context[ShipperMessage]) -> None:
        """Act on how the post ended, if it has."""
        post = self._under_way
        if post is None or post.result is None:
            return
        self._under_way = None
        match post.result:
            case Answer() as answer:
                self._stored(ctx, post, answer)
            case RecordRefusedError() as error:
                self._refused(ctx, post.record, error)
            case error:
                self._failed(ctx, post, error)

    def _stored(self, ctx: Context[ShipperMessage], post: _Post, answer: Answer) -> None:
        record = post.record
        self._sink_works(record)
        self._figures.sent += 1
        if post.from_spool:
            self._spool.pop(record.batch_id)
        if record.kind is not RecordKind.EVENTS or record.events > record.clock_samples:
            # Not for a batch of clock samples only: it would bring forth the next one, for ever.
            ctx.emit(_clock_sample(answer, node_recv_ms=post.ended_ms))
        self._answer_finalize(record, answer.bundle_path)
        if answer.snapshot_now and not self._stopping:
            self._request_snapshot()

    def _sink_works(self, settled: Outgoing) -> None:
        self._suspicion.works(settled)
        self._failures = 0

    def _refused(self, ctx: Context[ShipperMessage], record: Outgoing, error: RecordRefusedError) -> None:
        self._sink_works(record)  # it is there, and said what it thinks of this one
        self._spool.set_aside(record, str(error))
        self._report_once(ctx, f"{record.kind.value} records are refused: {error}", f"refused {error.status}")
        self._answer_finalize(record, None)

    def _failed(self, ctx: Context[ShipperMessage], post: _Post, error: Exception) -> None:
        self._figures.attempts_failed += 1
        self._figures.last_failure = f"{type(error).__name__}: {error}"[:200]
        if self._suspicion.failed(post.record):
            self._release_later(ctx)
            return
        self._failures += 1
        if not post.from_spool:
            self._spool.put(post.record)
        self._spool_fresh()
        for reply in self._finalizing.values():
            reply.send(None)
        self._finalizing.clear()
        if not self._stopping:
            ctx.send_after(self._wait_ms(ctx, error) / 1000, _Retry())

    def _release_later(self, ctx: Context[ShipperMessage]) -> None:
        if self._suspicion.any_stuck and not self._release_waits:
            self._release_waits = True
            ctx.send_after(slow_delay_ms(ctx.random) / 1000, _Release())

    def _wait_ms(self, ctx: Context[ShipperMessage], error: Exception) -> int:
        if isinstance(error, SinkMisconfiguredError):
            self._report_once(ctx, f"delivery is not set up right: {error}", f"misconfigured {error.status}")
            return slow_delay_ms(ctx.random)
        asked_s = error.retry_after_s if isinstance(error, SinkUnavailableError) else None
        return retry_delay_ms(self._failures, ctx.random, retry_after_s=asked_s)

    # -- the end, and figures -------------------------------------------------------------------------------

    async def _flush(self, ctx: Context[ShipperMessage], deadline_ns: int) -> None:
        """Post one record after the other until there is none, one fails, or the time is up."""
        last_try = True  # even if a wait is on: the sink may be back
        while True:
            self._pump(ctx, after_wait=last_try)
            last_try = False
            left_s = (deadline_ns - ctx.clock.monotonic_ns()) / 1e9
            if self._under_way is None or left_s <= 0:
                return
            if self._under_way.result is None:
                await self._wait_settled(ctx, left_s)
            self._settle(ctx)
            self._cut()  # the clock sample of the record before, and what else happened meanwhile

    async def _wait_settled(self, ctx: Context[ShipperMessage], time_s: float) -> None:
        settled: Waiter[None] = ctx.loop.waiter()
        self._settled = settled
        timer = ctx.loop.call_later(time_s, lambda: settled.set(None))
        await settled.wait()
        timer.cancel()

    def _answer(self, message: Observe) -> None:
        post = self._under_way
        block = delivery_block(
            self._figures,
            recorder=self._recorder,
            batches=self._batches,
            spool=self._spool.figures(),
            waiting=len(self._fresh) + (post is not None and not post.from_spool),
        )
        entry = IntrospectorEntry(name=DELIVERY, outcome=IntrospectionOutcome.OK, duration_us=0)
        message.reply_to.tell(Observed(message.round, entry, block))

    def _report_once(self, ctx: Context[ShipperMessage], text: str, cause: str) -> None:
        if cause not in self._reported:
            self._reported.add(cause)
            log.warning("%s", text)
            ctx.emit(Error(component="delivery", message=text))


def _clock_sample(answer: Answer, *, node_recv_ms: int) -> Custom:
    return Custom(
        kind=CLOCK_SAMPLE,
        fields={
            "node_send_ms_echoed": answer.clock.node_send_ms_echoed,
            "collector_recv_ms": answer.clock.collector_recv_ms,
            "collector_send_ms": answer.clock.collector_send_ms,
            "node_recv_ms": node_recv_ms,
        },
    )
