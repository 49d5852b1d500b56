"""What a cancellation from outside leaves behind: nothing, neither of a shutdown nor of a spawn."""

import asyncio
from typing import Any

import anyio
import pytest

from swactor import Actor, ActorDeadError, ActorFailed, ActorStopped, ActorSystem, Context
from swactor.testing import Recorder, until


class SlowToStop(Actor[Any]):
    """Takes its time in ``on_stop``, and tells when it got to the end of it."""

    def __init__(self, told: list[str], go_on: anyio.Event) -> None:
        self._told = told
        self._go_on = go_on

    async def on_stop(self, ctx: Context[Any], reason: object) -> None:
        self._told.append("stopping")
        await self._go_on.wait()
        self._told.append("stopped")


class SlowToStart(Actor[Any]):
    async def on_start(self, ctx: Context[Any]) -> None:
        await anyio.sleep_forever()


async def test_a_shutdown_that_is_cancelled_natively_ends_first_and_is_cancelled_then() -> None:
    told: list[str] = []
    go_on = anyio.Event()
    system = await ActorSystem().__aenter__()
    await system.spawn(SlowToStop(told, go_on))
    shutdown = asyncio.ensure_future(system.shutdown())
    await until(lambda: told == ["stopping"])
    shutdown.cancel()
    await anyio.lowlevel.checkpoint()
    assert not shutdown.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await shutdown
    assert told == ["stopping", "stopped"]
    assert system.statistics().actors == ()


async def test_a_spawn_that_is_cancelled_leaves_no_actor() -> None:
    async with ActorSystem(grace_s=0.01) as system:
        with anyio.move_on_after(0.01):
            await system.spawn(SlowToStart(), name="slow")
        await until(lambda: not system.statistics().actors)
        assert system.whereis("slow") is None


class CancelsItself(Actor[Any]):
    """Its task is cancelled by something that is not the runtime."""

    def __init__(self, where: str) -> None:
        self._where = where

    async def on_start(self, ctx: Context[Any]) -> None:
        await self._cancel("on_start")

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        await self._cancel("on_message")

    async def on_stop(self, ctx: Context[Any], reason: object) -> None:
        await self._cancel("on_stop")

    async def _cancel(self, here: str) -> None:
        if here == self._where:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await anyio.sleep_forever()


@pytest.mark.parametrize("where", ["on_start", "on_message", "on_stop"])
async def test_who_is_cancelled_by_somebody_else_was_killed(where: str) -> None:
    system = ActorSystem()
    recorder = Recorder(system)
    async with system:
        if where == "on_start":
            with pytest.raises(ActorDeadError, match="cancelled in on_start"):
                await system.spawn(CancelsItself(where))
        else:
            ref = await system.spawn(CancelsItself(where))
            ref.tell("work")
            await system.stop_actor(ref, drain=True)
        assert (await recorder.expect(ActorStopped)).reason == "killed"
    assert recorder.of(ActorFailed) == ()  # nothing of it had raised
