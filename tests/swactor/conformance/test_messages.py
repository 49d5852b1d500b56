"""How messages travel: order, overlap, what a handler is given and what becomes of what it returns."""

from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from swactor import Actor, ActorRef, Context, ExitKind, Request

from .conftest import Kind, World, echo, ignore, is_handling, spawn_gated


class GetTotal(msgspec.Struct, Request[int], frozen=True):
    """Asks for the sum so far."""


# -- order ---------------------------------------------------------------------------------------------------


async def test_fc_080_messages_of_one_sender_are_handled_in_order(world: World, kind: Kind) -> None:
    got: list[int] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)))
        for number in range(500):
            ref.tell(number)
        await world.until(lambda: len(got) == 500)
    assert got == list(range(500))


async def test_fc_080_messages_that_an_actor_sends_to_another_arrive_in_order(
    world: World, kind: Kind
) -> None:
    got: list[int] = []
    async with world.system() as system:
        target = await system.spawn(kind(lambda ctx, message: got.append(message)))

        def send_ten(ctx: Context[Any], message: int) -> None:
            for number in range(message, message + 10):
                target.tell(number)

        source = await system.spawn(kind(send_ten))
        for first in range(0, 500, 10):
            source.tell(first)
        await world.until(lambda: len(got) == 500)
    assert got == list(range(500))


async def test_an_ask_does_not_overtake_what_its_sender_told_before(world: World, kind: Kind) -> None:
    got: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)))
        for number in range(100):
            ref.tell(f"told {number}")
        await ref.ask("asked")
        assert got == [*(f"told {number}" for number in range(100)), "asked"]


async def test_a_send_does_not_overtake_what_its_sender_told_before(world: World, kind: Kind) -> None:
    got: list[int] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)))
        for number in range(0, 60, 2):
            ref.tell(number)
            await ref.send(number + 1)
        await world.until(lambda: len(got) == 60)
    assert got == list(range(60))


async def test_what_is_told_while_an_asynchronous_start_runs_is_handled_first_in_first_out(
    world: World, kind: Kind
) -> None:
    got: list[int] = []
    opened = anyio.Event()

    async with world.system() as system:
        ref = await spawn_gated(system, kind, lambda ctx, message: got.append(message), opened)
        for number in range(20):
            ref.tell(number)
        await world.settle()
        assert got == []
        opened.set()
        await world.until(lambda: len(got) == 20)
    assert got == list(range(20))


async def test_what_an_actor_tells_itself_waits_behind_what_waits_already(world: World, kind: Kind) -> None:
    got: list[str] = []

    def handle(ctx: Context[Any], message: str) -> None:
        if message == "first":
            ctx.ref.tell("from itself")
        got.append(message)

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("first")
        ref.tell("second")
        await world.until(lambda: len(got) == 3)
    assert got == ["first", "second", "from itself"]


# -- overlap -------------------------------------------------------------------------------------------------


async def test_an_actor_that_tells_itself_is_not_called_again_before_it_returned(
    world: World, kind: Kind
) -> None:
    inside = 0
    deepest: list[int] = []

    def handle(ctx: Context[Any], message: int) -> None:
        nonlocal inside
        inside += 1
        if message:
            ctx.ref.tell(message - 1)
        deepest.append(inside)
        inside -= 1

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell(50)
        await world.until(lambda: len(deepest) == 51)
    assert set(deepest) == {1}


async def test_while_a_handler_waits_its_actor_handles_nothing_else(world: World) -> None:
    log: list[str] = []
    opened = anyio.Event()

    class Waits(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            log.append(f"begin {message}")
            await opened.wait()
            log.append(f"end {message}")

    async with world.system() as system:
        ref = await system.spawn(Waits())
        ref.tell("a")
        ref.tell("b")
        await world.until(lambda: is_handling(system, ref))
        await world.settle()
        assert log == ["begin a"]
        opened.set()
        await world.until(lambda: len(log) == 4)
    assert log == ["begin a", "end a", "begin b", "end b"]


async def test_a_handler_that_waits_holds_up_nobody_else(world: World, kind: Kind) -> None:
    opened = anyio.Event()

    class Waits(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            await opened.wait()

    async with world.system() as system:
        waits = await system.spawn(Waits())
        other = await system.spawn(kind(echo))
        waits.tell("wait")
        await world.until(lambda: is_handling(system, waits))
        assert await world.result(other.ask("alive")) == "alive"
        opened.set()


async def test_a_synchronous_handler_that_an_ask_runs_inline_does_not_run_inside_another_turn(
    world: World,
) -> None:
    running: list[str] = []
    overlaps: list[list[str]] = []

    def enter(name: str) -> Callable[[Context[Any], Any], str]:
        def handle(ctx: Context[Any], message: Any) -> str:
            running.append(name)
            overlaps.append(list(running))
            running.pop()
            return name

        return handle

    class Asks(Actor[Any]):
        def __init__(self, others: list[ActorRef[Any]]) -> None:
            self._others = others

        async def on_message(self, ctx: Context[Any], message: Any) -> list[object]:
            return [await other.ask("x") for other in self._others]

    async with world.system() as system:
        sync = Kind(waits=False)
        others = [await system.spawn(sync(enter(name))) for name in "abc"]
        asks = await system.spawn(Asks(others))
        assert await world.result(asks.ask("go")) == ["a", "b", "c"]
    assert overlaps == [["a"], ["b"], ["c"]]


# -- what a message may be -----------------------------------------------------------------------------------


async def test_any_value_is_a_message_also_none_and_false(world: World, kind: Kind) -> None:
    values: list[Any] = [None, False, 0, "", (), [], {}, NotImplemented, ValueError, ValueError("kept"), ...]
    got: list[Any] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)))
        for value in values:
            ref.tell(value)
        await world.until(lambda: len(got) == len(values))
    assert all(received is value for received, value in zip(got, values, strict=True))


async def test_any_value_is_a_reply_also_none_and_an_exception(world: World, kind: Kind) -> None:
    values: list[Any] = [None, False, 0, "", (), ValueError("returned, not raised"), StopIteration]
    async with world.system() as system:
        ref = await system.spawn(kind(echo))
        for value in values:
            assert await world.result(ref.ask(value)) is value


async def test_what_a_handler_returns_for_a_told_message_goes_nowhere(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(echo))
        ref.tell("told")
        assert await world.result(ref.ask("asked")) == "asked"
        assert system.statistics().dead_letters == 0


async def test_a_reference_that_is_sent_in_a_message_reaches_the_same_actor(world: World, kind: Kind) -> None:
    got: list[str] = []

    def introduce(ctx: Context[Any], message: ActorRef[Any]) -> None:
        message.tell("hello")

    async with world.system() as system:
        target = await system.spawn(kind(lambda ctx, message: got.append(message)))
        (await system.spawn(kind(introduce))).tell(target)
        await world.until(lambda: got == ["hello"])


async def test_a_reference_equals_itself_only_and_can_be_a_key(world: World, kind: Kind) -> None:
    own: list[ActorRef[Any]] = []
    async with world.system() as system:
        first = await system.spawn(kind(lambda ctx, message: own.append(ctx.ref)))
        second = await system.spawn(kind(ignore))
        await world.result(first.ask("who are you?"))
        assert own == [first]
        assert first != second
        assert {first: 1, second: 2}[own[0]] == 1


async def test_a_handler_sees_its_own_actor_in_its_context(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: (ctx.ref, ctx.actor_id, ctx.system)), name="me")
        assert await world.result(ref.ask("who?")) == (ref, ref.actor_id, system)
        assert ref.actor_id.path == "/me"


async def test_an_actor_without_a_handler_fails_at_its_first_message(world: World) -> None:
    async with world.system() as system:
        ref: ActorRef[Any] = await system.spawn(Actor[Any]())
        ref.tell("anything")
        reason = await world.result(system.wait_stopped(ref))
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, NotImplementedError)


async def test_a_typed_request_is_answered_with_its_type(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref: ActorRef[GetTotal] = await system.spawn(kind(lambda ctx, message: 42))
        total: int = await world.result(ref.ask(GetTotal()))
    assert total == 42


async def test_a_handler_may_use_deadlines_and_task_groups_of_its_own(world: World) -> None:
    class Scopes(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> list[str]:
            log: list[str] = []
            with anyio.move_on_after(0.001):
                await anyio.sleep_forever()
            log.append("moved on")
            async with anyio.create_task_group() as group:
                group.start_soon(self._note, log)
                group.start_soon(self._note, log)
            return log

        async def _note(self, log: list[str]) -> None:
            await anyio.lowlevel.checkpoint()
            log.append("noted")

    async with world.system() as system:
        ref = await system.spawn(Scopes())
        for _ in range(2):
            assert await ref.ask("go") == ["moved on", "noted", "noted"]


async def test_every_message_of_many_senders_is_handled_once(world: World, kind: Kind) -> None:
    senders = 10
    got: list[tuple[int, int]] = []
    async with world.system() as system:
        target = await system.spawn(kind(lambda ctx, message: got.append(message)))

        def tell_many(ctx: Context[Any], sender: int) -> None:
            for number in range(30):
                target.tell((sender, number))

        for sender in range(senders):
            (await system.spawn(kind(tell_many))).tell(sender)
        await world.until(lambda: len(got) >= senders * 30)
        await world.settle()
    assert sorted(got) == [(sender, number) for sender in range(senders) for number in range(30)]
    for sender in range(senders):
        assert [number for who, number in got if who == sender] == list(range(30))
