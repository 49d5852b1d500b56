"""A node in virtual time that ships into a list."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from sim.clock import WorldClock
from sim.loop import VirtualLoop
from sim.streams import SimRandom
from swactor import ActorSystem
from swactor_diag.introspect import Introspector
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.reading import Snapshot, read_snapshot
from swactor_diag.schema.submission import Answer, ClockStamp, Outgoing, RecordKind
from swactor_diag.supervisor import Diagnostics, DiagnosticsConfig


class ListSink:
    """Stores everything."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    async def post(self, record: Outgoing) -> Answer:
        self.records.append(record)
        return Answer(clock=ClockStamp(node_send_ms_echoed=0, collector_recv_ms=0, collector_send_ms=0))

    async def close(self) -> None:
        pass

    def of_kind(self, kind: RecordKind) -> list[Outgoing]:
        return [record for record in self.records if record.kind is kind]

    def snapshots(self) -> list[Snapshot]:
        return [read_snapshot(record.body) for record in self.of_kind(RecordKind.SNAPSHOT)]


@pytest.fixture
def virtual_time() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture
def sink() -> ListSink:
    return ListSink()


@pytest.fixture
def start_node(
    identity: Identity, sink: ListSink
) -> Callable[..., AbstractAsyncContextManager[tuple[ActorSystem, Diagnostics]]]:
    @asynccontextmanager
    async def start(
        *introspectors: Introspector[object],
        config: DiagnosticsConfig | None = None,
        ship: bool = True,
    ) -> AsyncIterator[tuple[ActorSystem, Diagnostics]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        installed: Sequence[Introspector[object]] = introspectors
        async with ActorSystem(
            clock=WorldClock(loop, identity.process_start_unix_ms), random=SimRandom(1)
        ) as system:
            diag = await Diagnostics.start(
                system,
                identity,
                sink=sink if ship else None,
                introspectors=installed,
                config=config,
            )
            yield system, diag

    return start
