"""Asks that would wait for themselves: refused where that can be seen, else ended by their timeout."""

from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorRef,
    AskCircleError,
    AskTimeoutError,
    Context,
    Reply,
)

from .conftest import ASYNC, Kind, World, collecting, is_handling


class Route(Actor[list[Any]]):
    """Passes a question on along the route that it holds; the last one answers."""

    async def on_message(self, ctx: Context[Any], message: list[Any]) -> object:
        if not message:
            return "end"
        next_one, *rest = message
        return await next_one.ask(rest, timeout_s=3600)


class CarefulRoute(Route):
    """Says so when the question went in a circle."""

    async def on_message(self, ctx: Context[Any], message: list[Any]) -> object:
        try:
            return await super().on_message(ctx, message)
        except AskCircleError as error:
            return [actor.path for actor in error.chain]


async def test_fc_071_asking_oneself_is_refused(world: World) -> None:
    async with world.system() as system:
        ref = await system.spawn(CarefulRoute(), name="self")
        assert await world.result(ref.ask([ref])) == ["/self", "/self"]


async def test_fc_071_a_circle_of_asks_is_refused_and_names_the_chain(world: World) -> None:
    async with world.system() as system:
        a = await system.spawn(CarefulRoute(), name="a")
        b = await system.spawn(CarefulRoute(), name="b")
        c = await system.spawn(CarefulRoute(), name="c")
        assert await world.result(a.ask([b, c, a])) == ["/c", "/a", "/b", "/c"]


async def test_fc_071_a_circle_that_nobody_catches_fails_all_who_waited_for_it(world: World) -> None:
    async with world.system() as system:
        a = await system.spawn(Route(), name="a")
        b = await system.spawn(Route(), name="b")
        with pytest.raises(AskCircleError) as caught:
            await world.result(a.ask([b, a]))
        await world.until(lambda: system.statistics().actors == ())
    assert [actor.path for actor in caught.value.chain] == ["/b", "/a", "/b"]


async def test_fc_071_a_circle_is_found_when_one_of_its_actors_asks_two_at_once(
    world: World, kind: Kind
) -> None:
    slow_replies: list[Reply[Any]] = []
    back_replies: list[Reply[Any]] = []
    async with world.system() as system:
        slow = await system.spawn(kind(collecting(slow_replies)))
        gate = await system.spawn(kind(collecting(back_replies)))

        class AsksTwo(Actor[Any]):
            async def on_message(self, ctx: Context[Any], message: Any) -> None:
                async with anyio.create_task_group() as group:
                    group.start_soon(back.ask, "go")
                    group.start_soon(slow.ask, "wait")

        class AsksBack(Actor[Any]):
            async def on_message(self, ctx: Context[Any], message: Any) -> object:
                await gate.ask("wait")
                return await two.ask("back", timeout_s=0.05)

        two = await system.spawn(AsksTwo(), name="two")
        back = await system.spawn(AsksBack(), name="back")
        two.tell("go")
        await world.until(lambda: len(slow_replies) == len(back_replies) == 1)
        back_replies[0].send("now ask back, while the other answer is still to come")
        reason = await world.result(system.wait_stopped(back))
        slow_replies[0].send("done")
    assert isinstance(reason.error, AskCircleError)


async def test_asks_in_a_row_are_no_circle(world: World) -> None:
    async with world.system() as system:
        a, b, c = [await system.spawn(Route()) for _ in range(3)]
        assert await world.result(a.ask([b, c])) == "end"
        assert await world.result(c.ask([b, a])) == "end"
        assert await world.result(b.ask([c])) == "end"


async def test_an_ask_that_timed_out_is_no_longer_part_of_a_circle(world: World, kind: Kind) -> None:
    replies: list[Reply[Any]] = []

    class GivesUp(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> object:
            if message == "ping":
                return "pong"
            try:
                return await message.ask("ask", timeout_s=0.001)
            except AskTimeoutError:
                return "gave up"

    async with world.system() as system:
        ref = await system.spawn(kind(collecting(replies)))
        gives_up = await system.spawn(GivesUp())
        assert await world.result(gives_up.ask(ref)) == "gave up"

        class AsksBack(Actor[Any]):
            async def on_message(self, ctx: Context[Any], message: Any) -> object:
                return await gives_up.ask("ping")

        assert await world.result((await system.spawn(AsksBack())).ask("go")) == "pong"


async def test_what_a_handler_starts_is_not_taken_for_the_actor_that_happened_to_ask(world: World) -> None:
    answers: list[object] = []

    class Starter(Actor[Any]):
        """Starts a task from a synchronous handler; the task asks the actor that asked first."""

        def __init__(self) -> None:
            self.asker: ActorRef[Any] | None = None

        def on_message(self, ctx: Context[Any], message: Any) -> object:
            ctx.loop.start_task(self._ask(), name="helper")
            return "started"

        async def _ask(self) -> None:
            assert self.asker is not None
            answers.append(await self.asker.ask("ping", timeout_s=5.0))

    class Asker(Actor[Any]):
        def __init__(self, starter: ActorRef[Any]) -> None:
            self._starter = starter

        async def on_message(self, ctx: Context[Any], message: Any) -> object:
            return await self._starter.ask("start") if message == "go" else "pong"

    async with world.system() as system:
        actor = Starter()
        actor.asker = await system.spawn(Asker(await system.spawn(actor)))
        assert await world.result(actor.asker.ask("go")) == "started"
        await world.until(lambda: answers == ["pong"])


async def test_fc_071_who_deferred_a_reply_cannot_ask_whom_it_owes_it(world: World) -> None:
    replies: list[Reply[Any]] = []
    refused: list[AskCircleError] = []

    async def owe(ctx: Context[Any], message: Any) -> None:
        if message == "question":
            replies.append(ctx.defer())
            ctx.ref.tell("ask back")
        else:
            try:
                await asker.ask("in return")
            except AskCircleError as error:
                refused.append(error)

    async with world.system() as system:
        owing = await system.spawn(ASYNC(owe))
        asker = await system.spawn(ASYNC(lambda ctx, message: owing.ask("question")))
        asker.tell("go")
        await world.until(lambda: len(refused) == 1)
        assert refused[0].chain == (owing.actor_id, asker.actor_id, owing.actor_id)
        replies[0].send("answer")
        await world.until(lambda: not is_handling(system, asker))


async def test_fc_071_a_circle_through_whoever_holds_a_reply_ends_by_its_timeout(world: World) -> None:
    ends: list[BaseException] = []

    def pass_on(ctx: Context[Any], message: Any) -> None:
        if message == "question":
            holder.tell(ctx.defer())

    async def hold(ctx: Context[Any], reply: Reply[Any]) -> None:
        try:
            reply.send(await asker.ask("what was it?", timeout_s=0.01))
        except AskTimeoutError as error:
            ends.append(error)
            reply.fail(error)

    async def ask(ctx: Context[Any], message: Any) -> None:
        try:
            await middle.ask("question", timeout_s=3600)
        except AskTimeoutError as error:
            ends.append(error)

    async with world.system() as system:
        holder, middle = await system.spawn(ASYNC(hold)), await system.spawn(ASYNC(pass_on))
        asker = await system.spawn(ASYNC(ask))
        asker.tell("go")
        await world.until(lambda: len(ends) == 2)
        assert not is_handling(system, asker)
