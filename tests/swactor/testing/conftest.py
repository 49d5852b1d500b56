"""The kit is checked on every loop, in the loop's own time and in manual time."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from swactor import ActorSystem
from swactor.testing import ManualClock


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@pytest.fixture(params=[False, True], ids=["loop's time", "manual time"])
def any_clock(request: pytest.FixtureRequest) -> ManualClock | None:
    """A clock that the test moves, or none: then the loop's own time passes."""
    return ManualClock() if request.param else None


@pytest.fixture
async def system(any_clock: ManualClock | None) -> AsyncIterator[ActorSystem]:
    """A running system in either time."""
    async with system_on(any_clock) as system:
        yield system


def system_on(clock: ManualClock | None) -> ActorSystem:
    """A system in manual time if there is a clock for it, not started."""
    return ActorSystem() if clock is None else ActorSystem(clock=clock, loop=clock.loop)
