"""What comes back from an ask: the reply, once, to the right asker; or an error, soon."""

from typing import Any

import anyio
import msgspec
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    AskTimeoutError,
    Context,
    ExitKind,
    MailboxFullError,
    MailboxPolicy,
    NotAskedError,
    Reply,
    Request,
)

from .conftest import TIMELESS_LOOPS, Kind, World, collecting, echo, ignore, is_handling
from .hanging import Hangs


class Question(msgspec.Struct, Request[str], frozen=True):
    """Asked; the answer is text."""

    text: str = "?"


# -- replies -------------------------------------------------------------------------------------------------


async def test_a_handler_can_tell_whether_it_was_asked(world: World, kind: Kind) -> None:
    seen: list[bool] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: seen.append(ctx.is_asked)))
        await world.result(ref.ask("asked"))
        ref.tell("told")
        await world.until(lambda: len(seen) == 2)
    assert seen == [True, False]


async def test_ask_returns_what_the_handler_returns(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: message * 2))
        assert await world.result(ref.ask(21)) == 42


async def test_each_of_many_concurrent_asks_gets_its_own_answer(world: World, kind: Kind) -> None:
    answers: dict[int, object] = {}
    async with world.system() as system:
        ref = await system.spawn(kind(echo))

        async def ask(number: int) -> None:
            answers[number] = await ref.ask(number)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(ask, number)
    assert answers == {number: number for number in range(50)}


async def test_an_actor_that_asks_handles_nothing_else_until_the_answer(world: World, kind: Kind) -> None:
    log: list[str] = []
    replies: list[Reply[Any]] = []

    class Asks(Actor[str]):
        def __init__(self, other: ActorRef[Any]) -> None:
            self._other = other

        async def on_message(self, ctx: Context[str], message: str) -> None:
            log.append(message)
            if message == "ask":
                log.append(str(await self._other.ask("question")))

    async with world.system() as system:
        asks = await system.spawn(Asks(await system.spawn(kind(collecting(replies)))))
        asks.tell("ask")
        asks.tell("next")
        await world.until(lambda: len(replies) == 1)
        await world.settle()
        assert log == ["ask"]
        replies[0].send("answer")
        await world.until(lambda: len(log) == 3)
    assert log == ["ask", "answer", "next"]


async def test_a_deferred_reply_may_come_later_from_another_message(world: World, kind: Kind) -> None:
    waiting: list[Reply[str]] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "ask":
            waiting.append(ctx.defer())
            ctx.ref.tell("answer")
        else:
            waiting.pop().send("later")

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        assert await world.result(ref.ask("ask")) == "later"


async def test_a_deferred_reply_may_be_sent_by_another_actor(world: World, kind: Kind) -> None:
    async with world.system() as system:
        answerer = await system.spawn(kind(lambda ctx, message: message.send("from the back office")))
        front = await system.spawn(kind(lambda ctx, message: answerer.tell(ctx.defer())))
        assert await world.result(front.ask("ask")) == "from the back office"


async def test_a_deferred_reply_may_be_sent_within_the_same_handler(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> str:
        ctx.defer().send("sent")
        return "returned"

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        assert await world.result(ref.ask("ask")) == "sent"


async def test_deferred_replies_are_sent_in_any_order(world: World, kind: Kind) -> None:
    replies: list[Reply[Any]] = []
    answers: dict[str, object] = {}
    async with world.system() as system:
        ref = await system.spawn(kind(collecting(replies)))

        async def ask(text: str) -> None:
            answers[text] = await ref.ask(text)

        async with anyio.create_task_group() as group:
            for count, text in enumerate("abc", start=1):
                group.start_soon(ask, text)
                await world.until(lambda count=count: len(replies) == count)  # type: ignore[misc]  # bound now
            for reply, text in zip(reversed(replies), "cba", strict=True):
                reply.send(text.upper())
    assert answers == {"a": "A", "b": "B", "c": "C"}


async def test_the_first_answer_to_an_ask_counts(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        reply = ctx.defer()
        reply.send("first")
        reply.send("second")
        reply.fail(RuntimeError("third"))

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        assert await world.result(ref.ask("ask")) == "first"


async def test_an_actor_may_refuse_a_question_and_live_on(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> object:
        if message == "bad":
            ctx.defer().fail(ValueError("a bad question"))
        return message

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        with pytest.raises(ValueError, match="a bad question"):
            await world.result(ref.ask("bad"))
        assert await world.result(ref.ask("good")) == "good"


async def test_a_deferred_reply_does_not_hold_up_the_next_message(world: World, kind: Kind) -> None:
    replies: list[Reply[Any]] = []
    async with world.system() as system:
        ref = await system.spawn(kind(collecting(replies)))
        async with anyio.create_task_group() as group:
            group.start_soon(ref.ask, "later")
            await world.until(lambda: len(replies) == 1)
            assert await world.result(ref.ask("now")) == "at once"
            replies[0].send("at last")


async def test_deferring_a_told_message_fails_the_actor_that_tried(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.defer()))
        ref.tell("told")
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, NotAskedError)
    assert reason.error.actor == ref.actor_id


async def test_a_told_message_after_an_asked_one_has_no_reply_to_defer(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> object:
        if message == "told":
            ctx.defer().send("wrong")
        return "answered"

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        assert await world.result(ref.ask("asked")) == "answered"
        ref.tell("told")
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, NotAskedError)


# -- failures ------------------------------------------------------------------------------------------------


async def test_fc_073_the_asker_gets_the_very_exception_of_the_handler(world: World, kind: Kind) -> None:
    error = ZeroDivisionError("its own")

    def handle(ctx: Context[Any], message: Any) -> None:
        raise error

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        with pytest.raises(ZeroDivisionError) as caught:
            await world.result(ref.ask("ask"))
    assert caught.value is error


async def test_an_actor_that_catches_what_its_question_caused_lives_on(world: World, kind: Kind) -> None:
    class Careful(Actor[ActorRef[Any]]):
        async def on_message(self, ctx: Context[Any], message: ActorRef[Any]) -> str:
            try:
                return str(await message.ask("ask"))
            except ZeroDivisionError:
                return "caught"

    async with world.system() as system:
        careful = await system.spawn(Careful())
        broken = await system.spawn(kind(lambda ctx, message: 1 / 0))
        assert await world.result(careful.ask(broken)) == "caught"
        assert await world.result(careful.ask(await system.spawn(kind(echo)))) == "ask"


async def test_an_actor_that_does_not_catch_what_its_question_caused_fails_too(
    world: World, kind: Kind
) -> None:
    class Careless(Actor[ActorRef[Any]]):
        async def on_message(self, ctx: Context[Any], message: ActorRef[Any]) -> object:
            return await message.ask("ask")

    async with world.system() as system:
        careless = await system.spawn(Careless())
        careless.tell(await system.spawn(kind(lambda ctx, message: 1 / 0)))
        reason = await world.result(system.wait_stopped(careless))
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, ZeroDivisionError)


async def test_fc_072_asking_an_actor_that_has_ended_fails_at_once(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))
        await world.result(system.stop_actor(ref))
        with pytest.raises(ActorDeadError) as caught:
            await world.result(ref.ask("late", timeout_s=3600))
    assert caught.value.actor == ref.actor_id


async def test_fc_072_asks_that_wait_when_the_actor_stops_fail_promptly(world: World, kind: Kind) -> None:
    failures: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.stop() if message == "stop" else None))

        async def ask() -> None:
            try:
                await ref.ask("late", timeout_s=3600)
            except ActorDeadError as error:
                failures.append(error.why)

        ref.tell("stop")
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(ask)
    assert failures == ["completed"] * 100


async def test_fc_072_asks_that_wait_when_the_actor_fails_are_told_why(world: World, kind: Kind) -> None:
    failures: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: 1 / 0))

        async def ask() -> None:
            try:
                await ref.ask("late", timeout_s=3600)
            except ActorDeadError as error:
                failures.append(error.why)

        ref.tell("fail")
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
    assert failures == ["failed: ZeroDivisionError: division by zero"] * 5


async def test_a_deferred_reply_fails_when_the_actor_ends_without_it(world: World, kind: Kind) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "ask":
            ctx.defer()
            ctx.ref.tell("end")
        else:
            ctx.stop()

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        with pytest.raises(ActorDeadError):
            await world.result(ref.ask("ask", timeout_s=3600))


async def test_an_ask_fails_promptly_when_its_handler_is_cancelled(world: World) -> None:
    errors: list[ActorDeadError] = []

    async with world.system() as system:
        ref = await system.spawn(Hangs())

        async def ask() -> None:
            try:
                await ref.ask("ask", timeout_s=3600)
            except ActorDeadError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await world.until(lambda: is_handling(system, ref))
            await world.result(system.stop_actor(ref, grace_s=0.001))
            await world.until(lambda: len(errors) == 1)


async def test_an_ask_of_a_full_mailbox_is_refused_at_once(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore), mailbox=MailboxPolicy(capacity=1))
        ref.tell("fills it")
        with pytest.raises(MailboxFullError):
            await world.result(ref.ask("ask", timeout_s=3600))


# -- deadlines and askers that went away ---------------------------------------------------------------------


async def test_an_ask_that_is_not_answered_times_out_and_the_late_reply_is_dropped(
    world: World, kind: Kind
) -> None:
    late: list[Reply[Any]] = []
    async with world.system() as system:
        ref = await system.spawn(kind(collecting(late)))
        with pytest.raises(AskTimeoutError) as caught:
            await world.result(ref.ask(Question(), timeout_s=0.01))
        late[0].send("too late")
        assert await world.result(ref.ask("now")) == "at once"
    error = caught.value
    assert (error.actor, error.message_type, error.timeout_s) == (ref.actor_id, "Question", 0.01)


@pytest.mark.parametrize("loop_name", TIMELESS_LOOPS)
async def test_fc_071_an_ask_has_a_deadline_when_nobody_gave_it_one(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(collecting([])))
        before_ns = system.clock.monotonic_ns()
        with pytest.raises(AskTimeoutError) as caught:
            await world.result(ref.ask("never answered"))
        waited_s = (system.clock.monotonic_ns() - before_ns) / 1e9
    assert waited_s == caught.value.timeout_s == 5.0


async def test_a_late_reply_is_not_taken_for_the_answer_to_the_next_ask(world: World, kind: Kind) -> None:
    replies: list[Reply[Any]] = []
    async with world.system() as system:
        ref = await system.spawn(kind(collecting(replies)))

        class Asks(Actor[str]):
            async def on_message(self, ctx: Context[str], message: str) -> list[object]:
                try:
                    await ref.ask("first", timeout_s=0.001)
                except AskTimeoutError:
                    replies[0].send("first answer")
                return [await ref.ask("now")]

        asks = await system.spawn(Asks())
        assert await world.result(asks.ask("go")) == ["at once"]


async def test_an_ask_whose_asker_was_cancelled_leaves_nothing_behind(world: World, kind: Kind) -> None:
    replies: list[Reply[Any]] = []
    async with world.system() as system:
        ref = await system.spawn(kind(collecting(replies)))
        async with anyio.create_task_group() as group:
            group.start_soon(ref.ask, "ask")
            await world.until(lambda: len(replies) == 1)
            assert not replies[0].done
            group.cancel_scope.cancel()
        assert replies[0].done
        replies[0].send("nobody waits")
        assert await world.result(ref.ask("now")) == "at once"
        assert system.statistics().dead_letters == 0


async def test_an_actor_that_was_cancelled_while_it_asked_leaves_nothing_behind(
    world: World, kind: Kind
) -> None:
    replies: list[Reply[Any]] = []

    class Asks(Actor[ActorRef[Any]]):
        async def on_message(self, ctx: Context[Any], message: ActorRef[Any]) -> None:
            await message.ask("ask", timeout_s=3600)

    async with world.system() as system:
        ref = await system.spawn(kind(collecting(replies)))
        asks = await system.spawn(Asks())
        asks.tell(ref)
        await world.until(lambda: len(replies) == 1)
        reason = await world.result(system.stop_actor(asks, grace_s=0.001))
        assert reason.kind is ExitKind.KILLED
        assert replies[0].done
        assert await world.result(ref.ask("now")) == "at once"
