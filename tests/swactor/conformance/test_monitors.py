"""Monitors: whoever watches is told of an end exactly once, with its reason, and is not touched otherwise."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from swactor import Actor, ActorRef, Context, Down, ExitKind, ExitReason

from .conftest import SYNC, Kind, World, echo, fail, ignore, is_handling
from .hanging import Hangs


class Watcher:
    """A handler that monitors and demonitors what it is told to, and keeps the Downs."""

    def __init__(self) -> None:
        self.downs: list[Down] = []
        self.on_down: Callable[[Context[Any], Down], None] | None = None

    def __call__(self, ctx: Context[Any], message: Any) -> None:
        match message:
            case Down():
                self.downs.append(message)
                if self.on_down is not None:
                    self.on_down(ctx, message)
            case ("monitor", other):
                ctx.monitor(other)
            case ("demonitor", other):
                ctx.demonitor(other)

    @property
    def reasons(self) -> list[ExitReason]:
        """Why those that it watched have ended."""
        return [down.reason for down in self.downs]


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


async def test_a_monitor_is_told_exactly_once_with_reason_and_value(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    async with world.system() as system:
        target = await system.spawn(kind(lambda ctx, message: ctx.stop("result")))
        ref = await system.spawn(kind(watcher))
        for _ in range(2):  # monitoring twice is monitoring once
            await world.result(ref.ask(("monitor", target)))
        target.tell("stop")
        await world.until(lambda: len(watcher.downs) == 1)
        await world.result(ref.ask("and now?"))
        await world.settle()
    assert watcher.downs == [Down(target, ExitReason(ExitKind.COMPLETED, value="result"))]


async def test_a_down_carries_the_error_of_a_failure(world: World, kind: Kind, watcher: Watcher) -> None:
    async with world.system() as system:
        target = await system.spawn(kind(fail))
        await world.result((await system.spawn(kind(watcher))).ask(("monitor", target)))
        target.tell("fail")
        await world.until(lambda: len(watcher.downs) == 1)
    assert watcher.reasons[0].kind is ExitKind.FAILED
    assert isinstance(watcher.reasons[0].error, RuntimeError)


async def test_a_down_says_when_an_actor_was_stopped_or_killed(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(watcher))
        for target in (await system.spawn(kind(ignore)), await system.spawn(Hangs())):
            await world.result(ref.ask(("monitor", target)))
            target.tell("hang")
            await world.settle()
            await world.result(system.stop_actor(target, grace_s=0.5))
        await world.until(lambda: len(watcher.downs) == 2)
    assert [reason.kind for reason in watcher.reasons] == [ExitKind.STOPPED, ExitKind.KILLED]


async def test_monitoring_an_actor_that_has_ended_tells_at_once_why_it_had(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    async with world.system() as system:
        target = await system.spawn(kind(lambda ctx, message: ctx.stop("long ago")))
        target.tell("stop")
        await world.result(system.wait_stopped(target))
        ref = await system.spawn(kind(watcher))
        ref.tell(("monitor", target))
        await world.until(lambda: len(watcher.downs) == 1)
        ref.tell(("monitor", target))  # each monitoring of a dead one is told
        await world.until(lambda: len(watcher.downs) == 2)
    assert [reason.value for reason in watcher.reasons] == ["long ago"] * 2


async def test_who_has_stopped_monitoring_is_told_nothing(world: World, kind: Kind) -> None:
    former, other = Watcher(), Watcher()
    async with world.system() as system:
        target = await system.spawn(kind(lambda ctx, message: ctx.stop()))
        refs = [await system.spawn(kind(former)), await system.spawn(kind(other))]
        for ref in refs:
            await world.result(ref.ask(("monitor", target)))
        await world.result(refs[0].ask(("demonitor", target)))
        target.tell("stop")
        await world.until(lambda: len(other.downs) == 1)
        await world.result(refs[0].ask("and now?"))
    assert former.downs == []


async def test_monitoring_again_after_having_stopped_counts(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        ref = await system.spawn(kind(watcher))
        for what in ("demonitor", "monitor", "demonitor", "demonitor", "monitor"):
            await world.result(ref.ask((what, target)))
        await world.result(system.stop_actor(target))
        await world.until(lambda: len(watcher.downs) == 1)
        await world.settle()
    assert len(watcher.downs) == 1


async def test_everybody_who_monitors_is_told(world: World, kind: Kind) -> None:
    watchers = [Watcher() for _ in range(10)]
    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        for watcher in watchers:
            await world.result((await system.spawn(kind(watcher))).ask(("monitor", target)))
        await world.result(system.stop_actor(target))
        await world.until(lambda: all(watcher.downs for watcher in watchers))
        await world.settle()
    assert [len(watcher.downs) for watcher in watchers] == [1] * 10


async def test_two_actors_may_monitor_each_other(world: World, kind: Kind) -> None:
    one, two = Watcher(), Watcher()
    async with world.system() as system:
        first, second = await system.spawn(kind(one)), await system.spawn(kind(two))
        await world.result(first.ask(("monitor", second)))
        await world.result(second.ask(("monitor", first)))
        await world.result(system.stop_actor(first))
        await world.until(lambda: len(two.downs) == 1)
        await world.result(system.stop_actor(second))
    assert one.downs == []


async def test_monitoring_is_one_way_and_fails_nobody(world: World, kind: Kind, watcher: Watcher) -> None:
    async with world.system() as system:
        target = await system.spawn(kind(echo))
        ref = await system.spawn(kind(watcher))
        await world.result(ref.ask(("monitor", target)))
        await world.result(system.stop_actor(ref))
        assert await world.result(target.ask("alive")) == "alive"


async def test_a_watcher_that_ended_gets_no_down_and_none_is_a_dead_letter(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        ref = await system.spawn(kind(watcher))
        await world.result(ref.ask(("monitor", target)))
        await world.result(system.stop_actor(ref))
        await world.result(system.stop_actor(target))
        await world.settle()
        assert system.statistics().dead_letters == 0
    assert watcher.downs == []


async def test_a_busy_watcher_is_told_after_its_current_message_and_before_the_next(world: World) -> None:
    log: list[str] = []
    opened = anyio.Event()

    class Busy(Actor[Any]):
        def __init__(self, target: ActorRef[Any]) -> None:
            self._target = target

        def on_start(self, ctx: Context[Any]) -> None:
            ctx.monitor(self._target)

        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            if message == "wait":
                await opened.wait()
            log.append("down" if isinstance(message, Down) else message)

    async with world.system() as system:
        target = await system.spawn(SYNC(ignore))
        ref = await system.spawn(Busy(target))
        ref.tell("wait")
        ref.tell("next")
        await world.until(lambda: is_handling(system, ref))
        await world.result(system.stop_actor(target))
        await world.settle()
        assert log == []
        opened.set()
        await world.until(lambda: len(log) == 3)
    assert log == ["wait", "down", "next"]


async def test_the_name_of_an_ended_actor_is_free_when_its_down_is_handled(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    holders: list[ActorRef[Any] | None] = []
    watcher.on_down = lambda ctx, down: holders.append(ctx.system.whereis("name"))
    async with world.system() as system:
        target = await system.spawn(kind(ignore), name="name")
        await world.result((await system.spawn(kind(watcher))).ask(("monitor", target)))
        await world.result(system.stop_actor(target))
        await world.until(lambda: len(holders) == 1)
    assert holders == [None]


async def test_who_handles_a_down_may_start_a_successor_of_the_same_name(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    successors: list[ActorRef[Any]] = []

    def replace(ctx: Context[Any], down: Down) -> None:
        successor = ctx.spawn(kind(echo))
        ctx.system.register("name", successor)
        successors.append(successor)

    watcher.on_down = replace
    async with world.system() as system:
        target = await system.spawn(kind(ignore), name="name")
        await world.result((await system.spawn(kind(watcher))).ask(("monitor", target)))
        await world.result(system.stop_actor(target))
        await world.until(lambda: len(successors) == 1)
        assert system.whereis("name") == successors[0] != target
        assert await world.result(successors[0].ask("alive")) == "alive"


async def test_a_handler_that_fails_on_a_down_fails_its_actor(world: World, kind: Kind) -> None:
    watcher = Watcher()

    def refuse(ctx: Context[Any], down: Down) -> None:
        raise ZeroDivisionError

    watcher.on_down = refuse
    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        ref = await system.spawn(kind(watcher))
        await world.result(ref.ask(("monitor", target)))
        await world.result(system.stop_actor(target))
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, ZeroDivisionError)


async def test_a_down_cannot_be_asked_so_its_handler_has_no_reply_to_defer(
    world: World, kind: Kind, watcher: Watcher
) -> None:
    errors: list[str] = []

    def defer(ctx: Context[Any], down: Down) -> None:
        try:
            ctx.defer()
        except Exception as error:  # noqa: BLE001 - its type is what is looked at
            errors.append(type(error).__name__)

    watcher.on_down = defer
    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        ref = await system.spawn(kind(watcher))
        await world.result(ref.ask(("monitor", target)))
        await world.result(system.stop_actor(target))
        await world.until(lambda: len(errors) == 1)
    assert errors == ["NotAskedError"]
