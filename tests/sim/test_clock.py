"""Clocks: monotonic time is shared, wall time is epoch plus offset in whole milliseconds."""

import anyio

from sim.clock import NodeClock, WorldClock
from sim.loop import running_virtual_loop

EPOCH_MS = 1_700_000_000_000


def world_clock() -> WorldClock:
    return WorldClock(running_virtual_loop(), EPOCH_MS)


def node_clock(*, offset_ms: int = 0) -> NodeClock:
    return NodeClock(running_virtual_loop(), EPOCH_MS, offset_ms=offset_ms)


async def test_wall_time_is_epoch_plus_virtual_time() -> None:
    clock = world_clock()
    start_ns = clock.monotonic_ns()

    await anyio.sleep(1.25)

    assert clock.monotonic_ns() - start_ns == 1_250_000_000
    assert clock.wall_ms() == EPOCH_MS + clock.monotonic_ns() // 1_000_000


async def test_a_node_may_be_wrong_about_the_time_but_not_about_durations() -> None:
    world = world_clock()
    node = node_clock(offset_ms=-250)

    await anyio.sleep(60)

    assert node.wall_ms() == world.wall_ms() - 250
    assert node.monotonic_ns() == world.monotonic_ns()


async def test_a_wall_clock_may_jump_back() -> None:
    node = node_clock()
    before_ms = node.wall_ms()

    node.set_offset(-5_000)

    assert node.wall_ms() == before_ms - 5_000
