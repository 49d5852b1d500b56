"""Descriptors: what their callbacks tell is handled right behind them. In a simulation there are none."""

import socket
from collections.abc import Callable, Iterator

import pytest

from swactor.abc import Loop

from .conftest import REAL_LOOPS, SYNC, World

pytestmark = pytest.mark.parametrize("loop_name", [*REAL_LOOPS, "manual"])


@pytest.fixture
def readable() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        yield ours


def watch(loop: Loop, readable: socket.socket, callback: Callable[[], None]) -> None:
    """Have ``callback`` called once."""

    def once() -> None:
        watching.cancel()
        callback()

    watching = loop.watch_readable(readable.fileno(), once)


async def test_what_a_descriptors_callback_tells_is_handled_before_the_loops_next_turn(
    world: World, readable: socket.socket
) -> None:
    seen: list[str] = []
    async with world.system() as system:
        first = await system.spawn(SYNC(lambda ctx, message: second.tell(message)))
        second = await system.spawn(SYNC(lambda ctx, message: seen.append(message)))

        def tell() -> None:
            system.loop.call_soon(lambda: seen.append("the loop's next turn"))
            first.tell("told")
            seen.append("the callback is over")

        watch(system.loop, readable, tell)
        await world.until(lambda: len(seen) == 3)
    assert seen == ["the callback is over", "told", "the loop's next turn"]
