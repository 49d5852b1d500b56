"""What random trees have found, each reduced to what it takes."""

from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorFailed,
    ActorSystem,
    Backoff,
    ChildSpec,
    Context,
    GetChild,
    MailboxPolicy,
    Strategy,
    Supervisor,
)
from swactor.testing import ManualClock, Recorder, until

AT_ONCE = Backoff(first_s=0.0)


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


class Ends(Actor[Any]):
    def on_message(self, ctx: Context[Any], message: Any) -> None:
        if message == "fail":
            raise RuntimeError("asked to")
        ctx.stop()


@pytest.mark.parametrize("last_wish", ["stop", "link", "monitor"])
async def test_what_a_life_was_still_to_be_told_is_not_told_to_the_next(last_wish: str) -> None:
    heard: list[object] = []

    class Child(Actor[Any]):
        def on_message(self, ctx: Context[Any], message: Any) -> object:
            heard.append(message)
            if message == "fail":
                match last_wish:
                    case "stop":
                        ctx.stop()
                    case "link":
                        ctx.link(failed)
                    case "monitor":
                        ctx.monitor(failed)
                raise RuntimeError("asked to")
            return message

    async with ActorSystem() as system:
        failed = await system.spawn(Ends())
        failed.tell("fail")
        await system.wait_stopped(failed)
        supervisor = await system.spawn(Supervisor([ChildSpec("child", Child)], backoff=AT_ONCE))
        child = await supervisor.ask(GetChild("child"))
        child.tell("fail")
        for message in ("alive", "and well"):
            assert await child.ask(message) == message
        restarts = [
            actor.restarts for actor in system.statistics().actors if actor.actor_type.endswith("Child")
        ]
    assert restarts == [1]
    assert heard == ["fail", "alive", "and well"]


async def test_who_waits_for_room_goes_on_when_the_message_that_filled_the_mailbox_ends_a_life() -> None:
    handled: list[str] = []

    class Child(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            if message == "fail":
                raise RuntimeError("asked to")
            handled.append(message)

    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        specs = [_small("child", Child, capacity=1)]
        supervisor = await system.spawn(Supervisor(specs, backoff=AT_ONCE))
        child = await supervisor.ask(GetChild("child"))
        child.tell("fail")
        await clock.run(child.send("next"))
        await until(lambda: handled == ["next"], clock)


async def test_who_waits_for_room_goes_on_when_a_task_is_given_up() -> None:
    handled: list[str] = []
    opened, released = anyio.Event(), anyio.Event()

    class Child(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            await opened.wait()

        async def on_message(self, ctx: Context[str], message: str) -> None:
            handled.append(message)
            while message == "hang" and not released.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await released.wait()
                except BaseException:  # noqa: BLE001 - it ignores its cancellation on purpose
                    continue

    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system, anyio.create_task_group() as group:
        specs = [_small("hangs", Child, capacity=2), ChildSpec("fails", Ends)]
        supervisor = await system.spawn(Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, backoff=AT_ONCE))
        hangs = await supervisor.ask(GetChild("hangs"))
        hangs.tell("handled")
        hangs.tell("hang")
        group.start_soon(hangs.send, "next")
        await clock.settle()
        opened.set()
        await clock.settle()
        (await supervisor.ask(GetChild("fails"))).tell("fail")
        await clock.advance(60.0)
        in_time = list(handled)
        released.set()
        group.cancel_scope.cancel()
    assert in_time == ["handled", "hang", "next"]


async def test_nothing_is_started_again_while_the_system_shuts_down() -> None:
    class Family(Actor[Any]):
        def on_start(self, ctx: Context[Any]) -> None:
            ctx.spawn(Ends())

        def on_message(self, ctx: Context[Any], message: Any) -> None:
            raise RuntimeError("asked to")

    system = ActorSystem()
    recorder = Recorder(system)
    async with system:
        supervisor = await system.spawn(Supervisor([ChildSpec("family", Family)], backoff=AT_ONCE))
        child = await supervisor.ask(GetChild("family"))
        await system.spawn(Ends())
        child.tell("fail")
        await system.shutdown()
    assert [event.error_type for event in recorder.of(ActorFailed)] == ["RuntimeError"]


def _small(name: str, factory: type[Actor[Any]], *, capacity: int) -> ChildSpec:
    return ChildSpec(name, factory, mailbox=MailboxPolicy(capacity=capacity))
