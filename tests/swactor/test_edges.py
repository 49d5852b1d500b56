"""What must hold when things end in the middle of other things."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Backoff,
    ChildSpec,
    Context,
    Down,
    ExitKind,
    GetChild,
    MailboxPolicy,
    Overflow,
    RestartBudget,
    Supervisor,
)

MANY = RestartBudget(restarts_max=10_000)


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


class Fails(Actor[Any]):
    def on_message(self, ctx: Context[Any], message: Any) -> object:
        raise RuntimeError("asked to")


class Echo(Actor[Any]):
    def on_message(self, ctx: Context[Any], message: Any) -> object:
        return message


async def test_a_child_that_waits_for_its_restart_can_be_stopped_for_good() -> None:
    async with ActorSystem() as system:
        slow = Backoff(first_s=3600.0, limit_s=3600.0)
        supervisor = await system.spawn(Supervisor([ChildSpec("a", Fails)], backoff=slow))
        child: ActorRef[Any] = await supervisor.ask(GetChild("a"))
        child.tell("fail")
        await until(lambda: "down" in {actor.state for actor in system.statistics().actors})
        with anyio.fail_after(5):
            await system.stop_actor(child)
        assert [actor.path for actor in system.statistics().actors] == [f"{supervisor.actor_id.path}"]


async def test_a_supervisor_with_a_thousand_children_down_stops() -> None:
    async with ActorSystem() as system:
        specs = [ChildSpec(str(number), Fails) for number in range(1_000)]
        slow = Backoff(first_s=3600.0, limit_s=3600.0)
        supervisor = await system.spawn(Supervisor(specs, backoff=slow, budget=MANY))
        for spec in specs:
            (await supervisor.ask(GetChild(spec.id))).tell("fail")
        await until(lambda: sum(a.state == "down" for a in system.statistics().actors) == 1_000)
        with anyio.fail_after(10):
            await system.stop_actor(supervisor)


async def test_an_overflow_that_drops_keeps_timers_and_asks() -> None:
    ticks: list[str] = []
    opened = anyio.Event()

    class Gate(Actor[Any]):
        def on_start(self, ctx: Context[Any]) -> None:
            ctx.send_every(0.001, "tick")

        async def on_message(self, ctx: Context[Any], message: Any) -> object:
            await opened.wait()
            if message == "tick":
                ticks.append(message)
            return message

    async with ActorSystem() as system:
        policy = MailboxPolicy(capacity=2, overflow=Overflow.DROP_OLDEST)
        gate = await system.spawn(Gate(), mailbox=policy)
        gate.tell("busy")
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await gate.ask("question", timeout_s=5.0))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.sleep(0.02)
            for number in range(50):
                gate.tell(number)
            opened.set()
        assert answers == ["question"]
        await until(lambda: len(ticks) >= 3)


async def test_a_cancellation_that_a_synchronous_handler_raises_ends_its_actor_only() -> None:
    class Raises(Actor[Any]):
        def on_message(self, ctx: Context[Any], message: Any) -> object:
            raise asyncio.CancelledError

    async with ActorSystem() as system:
        victim = await system.spawn(Raises())
        with pytest.raises(ActorDeadError):
            await victim.ask("anything", timeout_s=5.0)
        other = await system.spawn(Echo())
        assert await other.ask("alive") == "alive"
        assert (await system.wait_stopped(victim)).kind is ExitKind.FAILED


async def test_a_task_that_was_given_up_does_not_wake_in_the_next_life() -> None:
    handled: list[tuple[int, str]] = []
    lives = 0
    release = anyio.Event()

    class Stubborn(Actor[str]):
        def __init__(self) -> None:
            nonlocal lives
            lives += 1
            self._life = lives

        async def on_message(self, ctx: Context[str], message: str) -> None:
            if message == "hold":
                while not release.is_set():
                    try:
                        with anyio.CancelScope(shield=True):
                            await release.wait()
                    except BaseException:  # noqa: BLE001 - it ignores its cancellation on purpose
                        continue
                return
            handled.append((self._life, message))

    class Parent(Supervisor):
        pass

    async with ActorSystem() as system:
        soon = Backoff(first_s=0.0, limit_s=0.0)
        supervisor = await system.spawn(Parent([ChildSpec("a", Stubborn)], backoff=soon))
        child: ActorRef[Any] = await supervisor.ask(GetChild("a"))
        child.tell("hold")
        await until(lambda: any(actor.handling == "str" for actor in system.statistics().actors))
        child.cell.begin_stop(child.cell.reason.__class__(ExitKind.FAILED), grace_s=0.01)  # type: ignore[attr-defined]  # a fault that no message can cause
        await until(lambda: lives == 2)
        release.set()
        for number in range(20):
            child.tell(str(number))
        await until(lambda: len(handled) == 20)
    assert handled == [(2, str(number)) for number in range(20)]


async def test_what_a_handler_starts_is_not_taken_for_the_actor_that_happened_to_ask() -> None:
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

    async with ActorSystem() as system:
        actor = Starter()
        actor.asker = await system.spawn(Asker(await system.spawn(actor)))
        assert await actor.asker.ask("go") == "started"
        await until(lambda: answers == ["pong"])


async def test_an_actor_that_ended_is_not_kept_alive_by_what_it_watched() -> None:
    class Watches(Actor[Any]):
        def __init__(self, other: ActorRef[Any]) -> None:
            self._other = other

        def on_start(self, ctx: Context[Any]) -> None:
            ctx.monitor(self._other)

    async with ActorSystem() as system:
        target = await system.spawn(Echo())
        watcher = Watches(target)
        gone = weakref.ref(watcher)
        await system.stop_actor(await system.spawn(watcher))
        del watcher
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("waits", [False, True], ids=["sync", "async"])
async def test_a_parent_that_monitors_a_child_is_told_even_when_the_child_fails_to_start(waits: bool) -> None:
    downs: list[Down] = []

    class Broken(Actor[Any]):
        def on_start(self, ctx: Context[Any]) -> Any:
            return self._later() if waits else 1 / 0

        async def _later(self) -> None:
            raise ZeroDivisionError

    class Parent(Actor[Any]):
        def on_message(self, ctx: Context[Any], message: Any) -> None:
            if isinstance(message, Down):
                downs.append(message)
            else:
                ctx.monitor(ctx.spawn(Broken()))

    async with ActorSystem() as system:
        parent = await system.spawn(Parent())
        parent.tell("spawn")
        await until(lambda: len(downs) == 1)
        assert (await system.stop_actor(parent)).kind is ExitKind.STOPPED


async def test_an_asynchronous_actor_that_never_waits_lets_others_run() -> None:
    class TellsItself(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            ctx.ref.tell(message + 1)

    async with ActorSystem() as system:
        busy = await system.spawn(TellsItself())
        busy.tell(0)
        with anyio.fail_after(5):
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            await system.stop_actor(busy)
