"""The whole tree on every event loop that is supported."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from msgspec import Struct

from swactor import ActorSystem
from swactor_diag.introspect import Introspector
from swactor_diag.schema.blocks import IntrospectionOutcome
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Custom
from swactor_diag.schema.submission import RecordKind
from swactor_diag.supervisor import Diagnostics

from .conftest import ListSink


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


class Answer42(Struct, frozen=True):
    value: int


class Slow:
    name, record = "slow", Answer42

    async def observe(self) -> Answer42:
        return Answer42(42)


async def test_records_arrive_and_the_end_is_orderly(identity: Identity, sink: ListSink) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, sink=sink, introspectors=[Slow()])
        snapshot = await diag.snapshot()
        await diag.finalize("done")
        diag.emit(Custom(kind="last", fields={}))
    assert snapshot.body.others == {"slow": {"value": 42}}
    assert sink.records[0].kind is RecordKind.BOOT
    assert {record.kind for record in sink.records} == set(RecordKind)
    assert any(b'"kind":"last"' in record.body for record in sink.records)


async def test_a_dead_tree_makes_finalize_end_without_a_bundle(identity: Identity, sink: ListSink) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, sink=sink)
        await diag.stop()
        assert await diag.finalize("done") is None


class Hands(Slow):
    """``observe`` is no ``async def`` and returns something to await."""

    def observe(self) -> Awaitable[Answer42]:  # type: ignore[override]  # either is an introspector
        return super().observe()


class NoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_what_observe_returns_may_be_awaitable(identity: Identity) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, introspectors=[Hands()])
        snapshot = await diag.snapshot()
    assert snapshot.body.others == {"slow": {"value": 42}}


async def test_an_exception_that_cannot_say_what_it_is_costs_its_block(identity: Identity) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, introspectors=[Raises("observe", NoTextError())])
        snapshot = await diag.snapshot()
    (entry,) = [entry for entry in snapshot.body.introspectors if entry.name == "raises"]
    assert entry.reason == "NoTextError: <no text: its __str__ raised RuntimeError>"


class Raises:
    """Does everything that an introspector can do, and raises something in one of them."""

    name, record = "raises", Answer42

    def __init__(self, where: str, error: BaseException) -> None:
        self._where, self._error = where, error

    def _at(self, where: str) -> None:
        if where == self._where:
            raise self._error

    def observe(self) -> Answer42:
        self._at("observe")
        return Answer42(42)

    def take_events(self) -> tuple[Custom, ...]:
        self._at("take_events")
        return ()

    def hear(self, message: object) -> None:
        self._at("hear")

    def close(self) -> None:
        self._at("close")


class RaisesLater(Raises):
    async def observe(self) -> Answer42:  # type: ignore[override]  # either is an introspector
        self._at("observe")
        return Answer42(42)


NOT_FOR_THE_PROCESS: tuple[BaseException, ...] = (
    SystemExit(3),
    GeneratorExit(),
    BaseException("odd"),
    asyncio.CancelledError(),
)


# To one that awaits, a CancelledError may be a cancellation: it is told, and the actor ends.
BLOCK_CASES = [(Raises, error) for error in NOT_FOR_THE_PROCESS] + [
    (RaisesLater, error) for error in NOT_FOR_THE_PROCESS if not isinstance(error, asyncio.CancelledError)
]


@pytest.mark.parametrize(
    ("make", "error"), BLOCK_CASES, ids=lambda case: getattr(case, "__name__", type(case).__name__)
)
@pytest.mark.parametrize("where", ["observe", "take_events"])
async def test_what_would_end_more_than_an_actor_costs_its_block(
    identity: Identity,
    make: Callable[[str, BaseException], Introspector[object]],
    where: str,
    error: BaseException,
) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, introspectors=[make(where, error), Slow()])
        for _ in range(2):
            snapshot = await diag.snapshot()
            (entry,) = [entry for entry in snapshot.body.introspectors if entry.name == "raises"]
            assert entry.outcome is IntrospectionOutcome.FAILED
            assert str(entry.reason).startswith(type(error).__name__)
            assert snapshot.body.others == {"slow": {"value": 42}}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("make", [Raises, RaisesLater])
@pytest.mark.parametrize("where", ["observe", "take_events", "hear", "close"])
def test_a_keyboard_interrupt_is_the_programs(
    identity: Identity,
    make: Callable[[str, BaseException], Introspector[object]],
    where: str,
    every_backend: tuple[str, dict[str, Any]],
) -> None:
    name, options = every_backend

    async def main() -> None:
        async with ActorSystem() as system:
            introspector = make(where, KeyboardInterrupt())
            diag = await Diagnostics.start(system, identity, introspectors=[introspector])
            diag.introspector("raises").tell("something")
            await diag.snapshot()
            await diag.stop()
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(main, backend=name, backend_options=options)


async def test_what_was_cancelled_while_it_was_waited_for_is_the_reason(identity: Identity) -> None:
    error = asyncio.CancelledError("the lookup was called off")
    async with ActorSystem() as system:
        diag = await Diagnostics.start(
            system, identity, introspectors=[RaisesLater("observe", error), Slow()]
        )
        snapshot = await diag.snapshot()
    (entry,) = [entry for entry in snapshot.body.introspectors if entry.name == "raises"]
    assert entry.reason == "CancelledError: the lookup was called off"
    assert snapshot.body.others == {"slow": {"value": 42}}


@pytest.mark.parametrize("where", ["hear", "close"])
@pytest.mark.parametrize("error", NOT_FOR_THE_PROCESS, ids=lambda error: type(error).__name__)
async def test_what_is_raised_while_hearing_or_closing_ends_that_actor_only(
    identity: Identity, where: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async with ActorSystem() as system:
        diag = await Diagnostics.start(system, identity, introspectors=[Raises(where, error), Slow()])
        diag.introspector("raises").tell("something")
        snapshot = await diag.snapshot()
        assert snapshot.body.others["slow"] == {"value": 42}
        await diag.stop()
        assert f"the introspector raises raised {type(error).__name__}" in caplog.text
