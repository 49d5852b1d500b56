"""Whoever waits for what a callback brings about is woken by it, and only then."""

import anyio
import pytest

from swactor import ActorSystem
from swactor.testing import Conditions


async def test_each_waits_for_its_own_condition(system: ActorSystem) -> None:
    conditions, come, told = Conditions(system.loop), list[str](), list[str]()

    async def wait_for(name: str) -> None:
        if await conditions.wait(lambda: name in come, timeout_s=5.0):
            told.append(name)
            bring("first")

    def bring(name: str) -> None:
        come.append(name)
        conditions.changed()

    system.loop.call_later(0.01, lambda: bring("second"))
    async with anyio.create_task_group() as group:
        group.start_soon(wait_for, "first")
        group.start_soon(wait_for, "second")
    assert told == ["second", "first"]


@pytest.mark.parametrize("timeout_s", [0.0, 0.01])
async def test_what_does_not_come_is_told(system: ActorSystem, timeout_s: float) -> None:
    assert not await Conditions(system.loop).wait(lambda: False, timeout_s=timeout_s)
