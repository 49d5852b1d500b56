"""How a simulated node's records reach the collector: over the network, into the production ingest.

Owns: `SimSink` and what its sender sees of cuts, a collector that is down, and its own death.
Not here: accepting (`swactor_diag.collector.Ingest`), repeating (the node's own delivery).

A post is a chain of callbacks, and its sender is woken once: there are several a virtual second a node.
"""

from collections.abc import Callable
from typing import TypeVarTuple

from msgspec import structs

from sim.loop import NS_PER_S, VirtualLoop
from sim.network import Drop, Network
from sim.scenario import COLLECTOR
from swactor.abc import Clock
from swactor_diag.collector.ingest import Ingest, RefusedError
from swactor_diag.delivery.sink import RecordRefusedError, SinkUnavailableError
from swactor_diag.schema.submission import Answer, Outgoing, RecordKind

Ts = TypeVarTuple("Ts")

POST_TIMEOUT_NS = 10 * NS_PER_S
FINALIZE_WAIT_NS = 5 * NS_PER_S
"""How long the answer to a finalize waits for the last snapshots of the other nodes."""

HEADER_BYTES = 400


class SimCollector:
    """The collector process: production ingest, its own clock, a host that can be cut off."""

    def __init__(self, ingest: Ingest, *, loop: VirtualLoop, network: Network, clock: Clock) -> None:
        self.ingest = ingest
        self.loop = loop
        self.network = network
        self.clock = clock
        self.is_up = True


class SimSink:
    """One node's way to the collector. Implements `swactor_diag.delivery.Sink`."""

    def __init__(self, collector: SimCollector, *, host: str, clock: Clock) -> None:
        self.host = host
        self.clock = clock
        self.is_muted = False
        self._collector = collector

    def mute(self) -> None:
        """Let nothing through any more, answers included."""
        self.is_muted = True

    async def post(self, record: Outgoing) -> Answer:
        """Send ``record`` and wait for the answer; see `swactor_diag.delivery.Sink`."""
        if self.is_muted:
            raise SinkUnavailableError("this process is gone")
        return await _Post(self._collector, self, record).answer()

    async def close(self) -> None:
        """Nothing is held open."""


class _Post:
    """One record on its way there, and its answer on its way back."""

    def __init__(self, collector: SimCollector, sink: SimSink, record: Outgoing) -> None:
        self._collector = collector
        self._sink = sink
        self._record = record
        self._started_ns = collector.loop.now_ns
        self._sent_ms = sink.clock.wall_ms()
        self._done = collector.loop.create_future()
        self._answer: Answer | None = None

    async def answer(self) -> Answer:
        n_bytes = len(self._record.body) + HEADER_BYTES
        network, now_ns = self._collector.network, self._collector.loop.now_ns
        at_ns = network.tunnel_leg(self._sink.host, COLLECTOR, n_bytes=n_bytes, now_ns=now_ns)
        self._travel(at_ns, self._at_collector)
        answer: Answer = await self._done
        return answer

    def _at_collector(self) -> None:
        collector, record = self._collector, self._record
        if not collector.is_up:
            self._fail(SinkUnavailableError("connection refused"))
            return
        collector.network.received(COLLECTOR, len(record.body) + HEADER_BYTES)
        try:
            self._answer = collector.ingest.accept(record, collector.clock.wall_ms(), send_ms=self._sent_ms)
        except RefusedError as exc:
            self._fail(RecordRefusedError(str(exc), status=400))
            return
        if record.kind is RecordKind.FINALIZE:
            collector.loop.call_at_ns(collector.loop.now_ns + FINALIZE_WAIT_NS, self._reply)
            collector.ingest.when_settled(record.run_id, self._reply)
        else:
            self._reply()

    def _reply(self) -> None:
        """Send the answer back; a finalize calls this a second time."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        network, now_ns = self._collector.network, self._collector.loop.now_ns
        clock = structs.replace(answer.clock, collector_send_ms=self._collector.clock.wall_ms())
        at_ns = network.tunnel_leg(COLLECTOR, self._sink.host, n_bytes=HEADER_BYTES, now_ns=now_ns)
        self._travel(at_ns, self._back, structs.replace(answer, clock=clock))

    def _travel(self, at_ns: int | Drop, arrive: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call ``arrive`` when the leg is over; one that was lost is known when the post's time is up."""
        loop = self._collector.loop
        if isinstance(at_ns, Drop):
            loop.call_at_ns(self._started_ns + POST_TIMEOUT_NS, self._fail, SinkUnavailableError("timed out"))
        else:
            loop.call_at_ns(at_ns, arrive, *args)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def _back(self, answer: Answer) -> None:
        self._collector.network.received(self._sink.host, HEADER_BYTES)
        if self._sink.is_muted:
            self._fail(SinkUnavailableError("this process is gone"))
        elif not self._done.done():
            self._done.set_result(answer)
