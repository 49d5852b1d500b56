"""The virtual loop: time jumps, order holds, what would hang is named, what is real is refused."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine

import anyio
import anyio.lowlevel
import pytest

from sim.errors import BusyLoopError, DeadlockError, ForbiddenInSimulationError
from sim.loop import VirtualLoop, running_virtual_loop


def run(
    main: Callable[[], Coroutine[object, object, None]], *, callbacks_per_instant_max: int = 1_000
) -> None:
    def loop_factory() -> VirtualLoop:
        return VirtualLoop(callbacks_per_instant_max=callbacks_per_instant_max)

    anyio.run(main, backend="asyncio", backend_options={"loop_factory": loop_factory})


async def test_an_hour_passes_in_no_time() -> None:
    before_s, before_ns = time.perf_counter(), running_virtual_loop().now_ns

    await anyio.sleep(3600)

    assert running_virtual_loop().now_ns - before_ns == 3_600_000_000_000
    assert time.perf_counter() - before_s < 0.5


async def test_timers_of_one_instant_run_in_the_order_they_were_scheduled() -> None:
    loop, seen = running_virtual_loop(), list[int]()
    when = loop.time() + 10
    for number in range(100):
        loop.call_at(when, seen.append, number)

    await anyio.sleep(10)

    assert seen == list(range(100))


async def test_timers_a_nanosecond_apart_run_at_their_own_instants() -> None:
    loop, seen = running_virtual_loop(), list[int]()
    start_ns = loop.now_ns + 600_000_000_000
    for offset_ns in (2, 0, 1):
        loop.call_at_ns(start_ns + offset_ns, lambda: seen.append(loop.now_ns - start_ns))

    await anyio.sleep(601)

    assert seen == [0, 1, 2]


async def test_a_cancelled_timer_does_not_run() -> None:
    loop, seen = running_virtual_loop(), list[str]()
    loop.call_later(1, seen.append, "cancelled").cancel()
    loop.call_later(1, seen.append, "kept")

    await anyio.sleep(2)

    assert seen == ["kept"]


async def test_a_timeout_fires_at_its_exact_deadline() -> None:
    start_ns = running_virtual_loop().now_ns
    with anyio.move_on_after(0.3):
        await anyio.sleep_forever()

    assert running_virtual_loop().now_ns - start_ns == 300_000_000


def test_nothing_runnable_and_no_timer_is_a_deadlock_that_names_who_waits() -> None:
    async def waits_for_ever() -> None:
        await anyio.Event().wait()

    with pytest.raises(DeadlockError, match="waits_for_ever"):
        run(waits_for_ever)


def test_sleeping_for_ever_alone_is_a_deadlock_too() -> None:
    with pytest.raises(DeadlockError):
        run(anyio.sleep_forever)


def test_a_busy_loop_without_time_is_named() -> None:
    async def spins() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with pytest.raises(BusyLoopError, match="spins") as caught:
        run(spins)
    assert caught.value.callbacks == 1_001


def test_many_callbacks_over_several_instants_are_no_busy_loop() -> None:
    async def works() -> None:
        for _ in range(10):
            for _ in range(500):
                await anyio.lowlevel.checkpoint()
            await anyio.sleep(1)

    run(works)


async def in_thread() -> None:
    await anyio.to_thread.run_sync(time.sleep, 0)


async def in_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, int)


async def in_process() -> None:
    await anyio.run_process([sys.executable, "-c", "1"])


async def over_tcp() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def over_udp() -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0))


async def by_name() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


async def by_signal() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)


async def by_descriptor() -> None:
    asyncio.get_running_loop().add_reader(0, print)


REAL_THINGS = (
    (in_thread, "threads"),
    (in_executor, "threads"),
    (in_process, "child processes"),
    (over_tcp, "sockets"),
    (over_udp, "sockets"),
    (by_name, "name resolution"),
    (by_signal, "signals"),
    (by_descriptor, "file descriptors"),
)


@pytest.mark.parametrize(("act", "what"), REAL_THINGS, ids=lambda value: getattr(value, "__name__", ""))
async def test_what_is_real_is_refused_by_name(
    act: Callable[[], Coroutine[object, object, None]], what: str
) -> None:
    with pytest.raises(ForbiddenInSimulationError, match=f"a simulation has no {what}"):
        await act()


def test_a_thread_starts_before_and_after_a_run() -> None:
    original = threading.Thread.start

    async def main() -> None:
        assert threading.Thread.start is not original

    run(main)

    assert threading.Thread.start is original
