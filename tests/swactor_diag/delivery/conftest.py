"""A sink that a test scripts, and a node in virtual time that ships to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from sim.clock import WorldClock
from sim.loop import VirtualLoop
from sim.streams import SimRandom
from swactor import ActorSystem, Event
from swactor_diag.delivery.spool import Spool
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.reading import Record, read_batch
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing, RecordKind
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}


def stored_answer(record: Outgoing) -> Answer:
    clock = ClockStamp(node_send_ms_echoed=1, collector_recv_ms=2, collector_send_ms=3)
    path = "/bundles/r.tar.gz" if record.kind is RecordKind.FINALIZE else None
    return Answer(clock=clock, bundle_path=path)


@dataclass
class ScriptedSink:
    """Stores what it is given, unless ``script`` says otherwise. Remembers every attempt and its time."""

    script: Callable[[Outgoing], Awaitable[Answer] | Answer] = stored_answer
    attempts: list[tuple[float, Outgoing]] = field(default_factory=list)
    stored: dict[str, Outgoing] = field(default_factory=dict)
    repeats: int = 0

    async def post(self, record: Outgoing) -> Answer:
        self.attempts.append((asyncio.get_running_loop().time(), record))
        result = self.script(record)
        answer = result if isinstance(result, Answer) else await result
        self.keep(record)
        return answer

    def recover(self) -> None:
        self.script = stored_answer

    def keep(self, record: Outgoing) -> None:
        before = self.stored.setdefault(record.batch_id, record)
        self.repeats += before is not record
        assert before.body == record.body, "one id, two bodies"

    async def close(self) -> None:
        pass

    def of_kind(self, kind: RecordKind) -> list[Outgoing]:
        return [record for record in self.stored.values() if record.kind is kind]

    def events(self) -> list[Record]:
        records: list[Record] = []
        for batch in self.of_kind(RecordKind.EVENTS):
            read = read_batch(batch.body)
            assert read.problems == ()
            records += read.records
        return sorted(records, key=lambda record: record.monotonic_seq)

    def own_events(self) -> list[Event]:
        """Everything but clock samples and delivery's own errors."""
        kinds = [record for record in self.events() if record.raw.get("kind") != "clock_sample"]
        return [
            record.event for record in kinds if isinstance(record.event, Event) and record.kind == "Custom"
        ]


@pytest.fixture
def sink() -> ScriptedSink:
    return ScriptedSink()


StartNode = Callable[..., AbstractAsyncContextManager[tuple[ActorSystem, Diagnostics]]]


@pytest.fixture
def start_node(identity: Identity, sink: ScriptedSink) -> StartNode:
    @asynccontextmanager
    async def start(
        *,
        spool: Spool | None = None,
        who: Identity = identity,
        config: DiagnosticsConfig | None = None,
        seed: int = 1,
    ) -> AsyncIterator[tuple[ActorSystem, Diagnostics]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = WorldClock(loop, identity.process_start_unix_ms)
        async with ActorSystem(clock=clock, random=SimRandom(seed)) as system:
            diag = await Diagnostics.start(system, who, sink=sink, spool=spool, config=config)
            yield system, diag

    return start


@pytest.fixture
def never() -> Callable[[Outgoing], Awaitable[Answer]]:
    async def swallow(record: Outgoing) -> Answer:
        await anyio.sleep_forever()
        raise AssertionError

    return swallow
