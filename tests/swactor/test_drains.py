"""A stop that lets what waits be handled first: always bounded, and never undone."""

from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorSystem,
    Backoff,
    ChildSpec,
    Context,
    Event,
    GetChild,
    MailboxPolicy,
    RestartBudget,
    Strategy,
    Supervisor,
)
from swactor.testing import ManualClock, until


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


class Waits(Actor[Any]):
    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        await anyio.sleep_forever()


class Fragile(Actor[Any]):
    def __init__(self, starts: list[str], name: str) -> None:
        self._starts = starts
        self._name = name

    def on_start(self, ctx: Context[Any]) -> None:
        self._starts.append(self._name)

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        if message == "fail":
            raise RuntimeError("asked to")
        await anyio.lowlevel.checkpoint()


async def test_a_drain_asked_for_during_a_stop_does_not_prolong_it() -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        ref = await system.spawn(Waits())
        ref.tell("wait")
        await clock.settle()
        async with anyio.create_task_group() as both:
            both.start_soon(system.stop_actor, ref)
            await clock.settle()
            both.start_soon(lambda: system.stop_actor(ref, drain=True, grace_s=60))
            await clock.settle()
            await clock.advance(5)
        assert clock.monotonic_ns() == 5_000_000_000


async def test_a_drained_child_is_not_started_again_with_its_siblings() -> None:
    starts: list[str] = []
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        supervisor = await system.spawn(
            Supervisor(
                [ChildSpec(name, lambda name=name: Fragile(starts, name)) for name in "ab"],  # type: ignore[misc]  # mypy cannot infer it
                strategy=Strategy.ONE_FOR_ALL,
                budget=RestartBudget(restarts_max=100),
                backoff=Backoff(first_s=1.0, jitter=0.0),
            )
        )
        a, b = [await supervisor.ask(GetChild(name)) for name in "ab"]
        a.tell("fail")
        await clock.settle()  # b was stopped by the plan, both wait for the delay
        reason = await clock.run(system.stop_actor(b, drain=True, grace_s=0.5))
        assert not reason.abnormal
        await clock.advance(10)
        assert starts == ["a", "b", "a"]


async def test_a_drain_is_bounded_also_when_the_actor_fails_meanwhile_and_is_started_again() -> None:
    class StuckOnce(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            if message == "fail":
                await draining.wait()
                raise RuntimeError("asked to")
            await anyio.sleep_forever()

    draining = anyio.Event()
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        supervisor = await system.spawn(
            Supervisor([ChildSpec("a", StuckOnce)], backoff=Backoff(first_s=1.0, jitter=0.0))
        )
        child = await supervisor.ask(GetChild("a"))
        child.tell("fail")
        child.tell("wait for ever")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: system.stop_actor(child, drain=True, grace_s=10.0))
            await clock.settle()
            draining.set()
            await clock.advance(9.9)
            assert [row.state for row in system.statistics().actors] == ["running", "running"]
            await clock.advance(10.1)  # the deadline of the drain, and the grace of the stop
        assert clock.monotonic_ns() == 20_000_000_000


async def test_short_turns_of_slow_handlers_leave_the_loop_its_chance() -> None:
    class Slow(Actor[Any]):
        """Each message takes a millisecond of the only clock there is."""

        def on_message(self, ctx: Context[Any], message: Any) -> None:
            took_ms[0] += 1

    class Clock:
        def monotonic_ns(self) -> int:
            return took_ms[0] * 1_000_000

        def wall_ms(self) -> int:
            return took_ms[0]

    took_ms = [1]
    seen: list[int] = []
    async with ActorSystem(clock=Clock()) as system:
        refs = [await system.spawn(Slow()) for _ in range(8)]
        for ref in refs:
            for _ in range(31):
                ref.tell("work")
        system.loop.call_soon(lambda: seen.append(took_ms[0]))
        await until(lambda: took_ms[0] == 1 + 8 * 31)
    # The callback came right behind the drain that was asked for before it: that one took one turn.
    assert seen == [1 + 31]


async def test_what_is_published_to_a_stopping_member_does_not_count_as_taken() -> None:
    class Joins(Actor[Any]):
        def on_start(self, ctx: Context[Any]) -> None:
            ctx.join("group")

        async def on_stop(self, ctx: Context[Any], reason: object) -> None:
            stopping.set()
            await go_on.wait()

    stopping, go_on = anyio.Event(), anyio.Event()
    async with ActorSystem() as system:
        ref = await system.spawn(Joins())
        assert len(system.members("group")) == 1
        async with anyio.create_task_group() as group:
            group.start_soon(system.stop_actor, ref)
            await stopping.wait()
            before = system.statistics().dead_letters
            assert system.publish("group", "news") == 0
            assert system.statistics().dead_letters == before + 1
            go_on.set()
        assert system.members("group") == ()


async def test_an_on_stop_that_raises_is_told_to_observers() -> None:
    class Breaks(Actor[Any]):
        def on_stop(self, ctx: Context[Any], reason: object) -> None:
            raise RuntimeError("cannot tidy up")

    events: list[Event] = []

    class Hears:
        def observe(self, event: Event) -> None:
            events.append(event)

    async with ActorSystem() as system:
        system.attach(Hears())
        await system.stop_actor(await system.spawn(Breaks(), name="breaks"))
    assert [type(event).__name__ for event in events] == ["ActorSpawned", "ActorFailed", "ActorStopped"]


async def test_a_start_that_fails_after_the_stop_was_asked_is_told_all_the_same() -> None:
    class Breaks(Actor[Any]):
        async def on_start(self, ctx: Context[Any]) -> None:
            await go_on.wait()
            raise RuntimeError("cannot start")

    class Starts(Actor[Any]):
        def on_start(self, ctx: Context[Any]) -> None:
            children.append(ctx.spawn(Breaks()))

    go_on = anyio.Event()
    children: list[Any] = []
    async with ActorSystem() as system:
        await system.spawn(Starts())
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                reasons.append(await system.stop_actor(children[0]))

            reasons: list[Any] = []
            group.start_soon(stop)
            await anyio.lowlevel.checkpoint()
            go_on.set()
    assert str(reasons[0]) == "failed: RuntimeError: cannot start"


async def test_a_child_that_is_drained_while_it_fails_is_not_started_again() -> None:
    clock = ManualClock()
    starts: list[str] = []
    go_on = anyio.Event()

    class SlowToFail(Fragile):
        async def on_stop(self, ctx: Context[Any], reason: object) -> None:
            await go_on.wait()

    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        supervisor = await system.spawn(Supervisor([ChildSpec("a", lambda: SlowToFail(starts, "a"))]))
        a = await supervisor.ask(GetChild("a"))
        a.tell("fail")
        await clock.settle()  # it is in `on_stop` now
        async with anyio.create_task_group() as group:

            async def drain() -> None:
                await system.stop_actor(a, drain=True)

            group.start_soon(drain)
            await clock.settle()
            go_on.set()
        await clock.advance(60)
    assert starts == ["a"]


async def test_news_of_ends_takes_no_room_from_messages() -> None:
    class Busy(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            if message == "watch":
                for child in children:
                    ctx.monitor(child)
                opened.set()
                await go_on.wait()

    opened, go_on = anyio.Event(), anyio.Event()
    async with ActorSystem() as system:
        children = [await system.spawn(Waits()) for _ in range(20)]
        busy = await system.spawn(Busy(), name="busy", mailbox=MailboxPolicy(capacity=3))
        busy.tell("watch")
        await opened.wait()
        busy.tell("one")
        for child in children:
            await system.stop_actor(child)
        await anyio.lowlevel.checkpoint()
        depth = next(actor.depth for actor in system.statistics().actors if actor.path == "/busy")
        assert depth == 1
        busy.tell("two")
        busy.tell("three")
        go_on.set()
