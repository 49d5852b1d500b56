"""What a cancellation from outside leaves behind: nothing, neither of a shutdown nor of a spawn."""

import asyncio
from typing import Any

import anyio
import pytest

from swactor import Actor, ActorSystem, Context
from swactor.testing import until


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
