"""A probe hands out what it was sent, strictly in order, and says what came instead."""

import re
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from swactor import Actor, ActorDeadError, ActorSystem, AskTimeoutError, Context, Down, ExitKind
from swactor.testing import (
    ExpectationError,
    ManualClock,
    MissingMessageError,
    Probe,
    UnexpectedMessageError,
)

from .conftest import system_on


@dataclass(frozen=True)
class Ping:
    number: int


@dataclass(frozen=True)
class Pong:
    number: int


class Echo(Actor[Ping]):
    """Sends the probe a pong for each ping, ``delay_s`` later."""

    def __init__(self, probe: Probe, delay_s: float = 0.0) -> None:
        self._to = probe.ref
        self._delay_s = delay_s

    def on_message(self, ctx: Context[Any], message: Ping | Pong) -> None:
        match message:
            case Ping(number) if self._delay_s:
                ctx.send_after(self._delay_s, Pong(number))
            case Ping(number):
                self._to.tell(Pong(number))
            case Pong():
                self._to.tell(message)


async def test_a_message_is_expected_by_type_value_or_condition(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    echo = await system.spawn(Echo(probe))
    for number in range(3):
        echo.tell(Ping(number))
    pong: Pong = await probe.expect(Pong)
    assert pong.number == 0
    assert await probe.expect(Pong(1)) == Pong(1)
    assert await probe.expect(lambda message: message.number == 2) == Pong(2)
    assert probe.received == (Pong(0), Pong(1), Pong(2))


async def test_what_is_sent_later_is_waited_for(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    (await system.spawn(Echo(probe, delay_s=0.02))).tell(Ping(1))
    await probe.expect_nothing()
    assert await probe.expect(Pong) == Pong(1)


async def test_the_next_message_must_be_the_expected_one(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    probe.ref.tell(Ping(1))
    probe.ref.tell(Ping(2))
    await probe.expect(Ping)
    with pytest.raises(UnexpectedMessageError) as caught:
        await probe.expect(Pong(7))
    assert (caught.value.got, caught.value.received) == (Ping(2), (Ping(1), Ping(2)))
    assert str(caught.value).splitlines() == [
        "expected Pong(number=7), got Ping(number=2); received so far:",
        "  1. Ping(number=1)",
        "  2. Ping(number=2)",
    ]


async def test_a_message_that_does_not_come_is_missed(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    probe.ref.tell(Ping(1))
    await probe.expect(Ping)
    with pytest.raises(MissingMessageError) as caught:
        await probe.expect(Pong, timeout_s=0.02)
    assert str(caught.value).splitlines() == [
        "expected Pong within 0.02 s, nothing came; received so far:",
        "  1. Ping(number=1)",
    ]


async def test_an_error_says_where_a_condition_stands(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    told = r"a message for which the condition \(test_probe.py:\d+\) holds within 0 s, nothing came; "
    with pytest.raises(MissingMessageError, match=told + "received nothing so far"):
        await probe.expect(lambda message: False, timeout_s=0)


async def test_an_error_shows_the_latest_of_many_messages_shortened(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    for _ in range(30):
        probe.ref.tell("x" * 1_000)
    with pytest.raises(UnexpectedMessageError) as caught:
        await probe.expect(Ping)
    lines = str(caught.value).splitlines()
    assert [line.split(".")[0].strip() for line in lines[1:]] == [str(number) for number in range(11, 31)]
    assert max(map(len, lines[1:])) < 220


async def test_nothing_is_expected_while_time_passes(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    echo = await system.spawn(Echo(probe, delay_s=0.2))
    echo.tell(Ping(1))
    await probe.expect_nothing(for_s=0.01)
    with pytest.raises(
        UnexpectedMessageError, match=re.escape("expected nothing for 5 s, got Pong(number=1)")
    ):
        await probe.expect_nothing(for_s=5.0)


async def test_what_is_under_way_needs_no_time(system: ActorSystem) -> None:
    class Thoughtful(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> object:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            probe.ref.tell(message)
            return None

    probe = await Probe.start(system)
    (await system.spawn(Thoughtful())).tell("well")
    await probe.expect("well", timeout_s=0)


async def test_manual_time_passes_no_further_than_it_must() -> None:
    clock = ManualClock()
    async with system_on(clock) as system:
        probe = await Probe.start(system)
        (await system.spawn(Echo(probe, delay_s=60.0))).tell(Ping(1))
        await probe.expect_nothing()
        assert clock.monotonic_ns() == 0
        await probe.expect_nothing(for_s=59.0)
        assert clock.monotonic_ns() == 59_000_000_000
        await probe.expect(Pong)
        assert clock.monotonic_ns() == 60_000_000_000
        with pytest.raises(MissingMessageError):
            await probe.expect(Pong, timeout_s=5.0)
        assert clock.monotonic_ns() == 65_000_000_000


async def test_asks_are_answered_in_order_with_what_the_test_said(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    probe.reply_with("one", "two")
    assert [await probe.ref.ask(Ping(number)) for number in range(2)] == ["one", "two"]
    assert await probe.expect(Ping) == Ping(0)


async def test_an_answer_may_come_after_its_question(system: ActorSystem) -> None:
    class Asking(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> object:
            other.ref.tell(await probe.ref.ask(message))
            return None

    probe, other = await Probe.start(system), await Probe.start(system)
    (await system.spawn(Asking())).tell("how much?")
    await probe.expect("how much?")
    await other.expect_nothing()
    probe.reply_with(42)
    await other.expect(42)


async def test_an_answer_that_is_an_exception_is_raised_where_it_was_asked(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    probe.reply_with(ConnectionError("no line"), "again")
    with pytest.raises(ConnectionError, match="no line"):
        await probe.ref.ask(Ping(1))
    assert await probe.ref.ask(Ping(2)) == "again"


async def test_an_answer_is_not_wasted_on_somebody_who_gave_up() -> None:
    clock = ManualClock()
    async with system_on(clock) as system:
        probe = await Probe.start(system)
        with pytest.raises(AskTimeoutError):
            await clock.run(probe.ref.ask(Ping(1), timeout_s=1.0))
        probe.reply_with("for the living")
        assert await probe.ref.ask(Ping(2)) == "for the living"


async def test_a_message_that_is_told_takes_no_answer(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    probe.reply_with("answer")
    probe.ref.tell(Ping(1))
    assert await probe.ref.ask(Ping(2)) == "answer"


async def test_a_probe_is_told_of_the_end_of_whom_it_monitors(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    echo = await system.spawn(Echo(probe))
    probe.monitor(echo)
    await system.stop_actor(echo)
    down = await probe.expect(Down)
    assert (down.ref, down.reason.kind) == (echo, ExitKind.STOPPED)


async def test_a_probe_can_be_found_by_name(system: ActorSystem) -> None:
    probe = await Probe.start(system, name="printer")
    assert system.whereis("printer") == probe.ref


async def test_a_probe_that_is_written_to_without_end_ends(system: ActorSystem) -> None:
    probe = await Probe.start(system)
    for number in range(10_001):
        await probe.ref.send(number)
    with pytest.raises(ActorDeadError):
        await probe.ref.ask("still there?")
    assert len(probe.received) == 10_000


def test_no_error_of_the_kit_is_caught_with_those_of_the_runtime() -> None:
    assert ExpectationError.__mro__[1] is AssertionError
