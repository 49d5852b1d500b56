"""An asyncio event loop in virtual time: waiting costs nothing, the clock jumps to the next timer.

Owns: virtual time (0 at the start, whole nanoseconds), the order of timers of one instant (as scheduled),
and the refusal of everything that would bring real time in: threads, sockets, children, signals, names.
Not here: wall clocks (`sim.clock`), inputs that do not pass through a loop (`sim.guards`).

Tests run in it through anyio's pytest plugin: let the fixture ``anyio_backend`` return
``("asyncio", {"loop_factory": VirtualLoop})``.
"""

import asyncio
import heapq
import threading
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import NoReturn, TypeVarTuple

from sim.errors import (
    CHILDREN,
    NAMES,
    SOCKETS,
    BusyLoopError,
    DeadlockError,
    ForbiddenInSimulationError,
    SimulationError,
)

Ts = TypeVarTuple("Ts")

CALLBACKS_PER_INSTANT_MAX = 100_000
"""Callbacks that may run before time has to move; at the limit the loop raises `BusyLoopError`."""

NS_PER_S = 1_000_000_000

_CLOSED = "the virtual loop is closed"

NEVER_NS = 1 << 62
"""146 years. Later timers, ``sleep(inf)`` among them, never run; when only such are left it is a deadlock."""


class _Call(asyncio.Handle):
    """A handle without the debugging aids, which cost as much as the rest of it."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """A timer without the debugging aids."""

    __slots__ = ()

    def __init__(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[object, ...],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        self._when = when_ns / NS_PER_S
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None


class VirtualLoop(BaseEventLoop):
    """The virtual-time loop. Same scheduling as asyncio's own: ready callbacks first in, first out.

    It has its own turn instead of a selector that never waits: a turn is most of what a simulation costs.

    Raises out of ``run_until_complete`` and ``run_forever``:
        DeadlockError: nothing is runnable and no timer is set.
        BusyLoopError: more than ``callbacks_per_instant_max`` callbacks ran without time moving.
    """

    _ready: deque[asyncio.Handle]  # asyncio's
    _stopping: bool  # asyncio's
    _closed: bool  # asyncio's

    def __init__(self, *, callbacks_per_instant_max: int = CALLBACKS_PER_INSTANT_MAX) -> None:
        super().__init__()
        self.now_ns = 0
        """Virtual nanoseconds since the start, exact. Only the loop moves it."""
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []  # a heap: when, order of scheduling
        self._timers_made = 0
        self._timers_cancelled = 0
        self._instant_callbacks = 0
        self._instant_callbacks_max = callbacks_per_instant_max

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self.now_ns / NS_PER_S

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` on the next turn, in order."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        handle = _Call(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule ``callback`` in ``delay`` virtual seconds, rounded to the nanosecond."""
        delay_ns = round(delay * NS_PER_S) if delay < NEVER_NS // NS_PER_S else NEVER_NS
        return self.call_at_ns(self.now_ns + delay_ns, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule ``callback`` at ``when`` virtual seconds, rounded to the nanosecond."""
        when_ns = round(when * NS_PER_S) if when < NEVER_NS // NS_PER_S else NEVER_NS
        return self.call_at_ns(when_ns, callback, *args, context=context)

    def call_at_ns(
        self, when_ns: int, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule ``callback`` at virtual nanosecond ``when_ns``; timers of one instant run as scheduled."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        timer = _Timer(when_ns, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when_ns, self._timers_made, timer))
        return timer

    async def sleep_until_ns(self, when_ns: int) -> None:
        """Wait until virtual nanosecond ``when_ns``; a time that has passed is the next turn."""
        reached: asyncio.Future[None] = self.create_future()
        timer = self.call_at_ns(max(when_ns, self.now_ns), _reach, reached)
        try:
            await reached
        finally:
            timer.cancel()

    def run_forever(self) -> None:
        """Run until stopped. While it runs no thread can be started, by whatever library."""
        start = threading.Thread.start
        threading.Thread.start = _refuse_thread  # type: ignore[assignment,method-assign]  # undone below
        try:
            super().run_forever()
        finally:
            threading.Thread.start = start  # type: ignore[method-assign]  # the original

    def close(self) -> None:
        """Drop what is scheduled, and close."""
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """Run one instant: jump when nothing is ready, then take turns until nothing is left of it.

        A turn runs what is ready or due now; what that makes ready is for the next turn, as on asyncio.
        """
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            self._jump()
        while True:
            while timers and timers[0][0] <= self.now_ns:
                timer = heapq.heappop(timers)[2]
                if not timer._cancelled:
                    ready.append(timer)
            turn = len(ready)
            self._instant_callbacks += turn
            if self._instant_callbacks > self._instant_callbacks_max:
                callbacks, self._instant_callbacks = self._instant_callbacks, 0  # so that cleaning up can run
                raise BusyLoopError(self.now_ns, callbacks, _callback_names(ready))
            for _ in range(turn):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if not ready or self._stopping:
                return

    def _jump(self) -> None:
        """Move time to the next timer that was not cancelled."""
        timers = self._timers
        if 2 * self._timers_cancelled > len(timers):
            timers[:] = [entry for entry in timers if not entry[2].cancelled()]
            heapq.heapify(timers)
            self._timers_cancelled = 0
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers or timers[0][0] >= NEVER_NS:
            raise DeadlockError(self.now_ns, _task_names(self))
        if timers[0][0] > self.now_ns:
            self.now_ns = timers[0][0]
            self._instant_callbacks = 0

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1

    def _process_events(self, event_list: list[object]) -> None:
        """There are no descriptors, so there is nothing to process."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so nobody needs waking."""


def running_virtual_loop() -> VirtualLoop:
    """Return the loop that the caller runs on.

    Raises:
        SimulationError: it is not a virtual one.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise SimulationError(f"a simulation needs a VirtualLoop, not {type(loop).__name__}")
    return loop


class NodeScheduler:
    """The loop as the ports of one simulated node have it. Implements `swactor.abc.Scheduler`.

    Once closed, nothing that was scheduled through it happens any more: its process is dead.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._is_open = True

    def close(self) -> None:
        """Drop everything that was scheduled."""
        self._is_open = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn."""
        self._loop.call_soon(self._run, callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Run ``callback`` after ``delay_s`` virtual seconds."""
        return self._loop.call_later(delay_s, self._run, callback)

    def _run(self, callback: Callable[[], None]) -> None:
        if self._is_open:
            callback()


def _refuse_thread(thread: threading.Thread) -> NoReturn:
    raise ForbiddenInSimulationError(
        f"threads ({thread.name})", "an actor, or a port that the world simulates"
    )


def _reach(reached: asyncio.Future[None]) -> None:
    if not reached.done():
        reached.set_result(None)


def _task_names(loop: asyncio.AbstractEventLoop) -> tuple[str, ...]:
    return tuple(sorted(task.get_name() for task in asyncio.all_tasks(loop)))


def _callback_names(ready: deque[asyncio.Handle]) -> tuple[str, ...]:
    """Name up to five different callbacks: by task where one is behind it, else by function."""
    names: dict[str, None] = {}
    for handle in list(ready)[:100]:
        callback = getattr(handle, "_callback", None)
        owner = getattr(callback, "__self__", None)
        if isinstance(owner, asyncio.Task):
            names[owner.get_name()] = None
        else:
            names[getattr(callback, "__qualname__", type(callback).__qualname__)] = None
    return tuple(names)[:5]


_THREADS = ("threads", "an actor, or a port that the world simulates")
_DESCRIPTORS = ("file descriptors", "a port that the world simulates")
_SIGNALS = ("signals", "a fault of the scenario")

_REFUSED = {
    "run_in_executor": _THREADS,
    "set_default_executor": _THREADS,
    "getaddrinfo": NAMES,
    "getnameinfo": NAMES,
    "create_connection": SOCKETS,
    "create_server": SOCKETS,
    "create_unix_connection": SOCKETS,
    "create_unix_server": SOCKETS,
    "create_datagram_endpoint": SOCKETS,
    "connect_accepted_socket": SOCKETS,
    "start_tls": SOCKETS,
    "sendfile": SOCKETS,
    "sock_accept": SOCKETS,
    "sock_connect": SOCKETS,
    "sock_recv": SOCKETS,
    "sock_recv_into": SOCKETS,
    "sock_recvfrom": SOCKETS,
    "sock_recvfrom_into": SOCKETS,
    "sock_sendall": SOCKETS,
    "sock_sendto": SOCKETS,
    "sock_sendfile": SOCKETS,
    "add_reader": _DESCRIPTORS,
    "remove_reader": _DESCRIPTORS,
    "add_writer": _DESCRIPTORS,
    "remove_writer": _DESCRIPTORS,
    "connect_read_pipe": _DESCRIPTORS,
    "connect_write_pipe": _DESCRIPTORS,
    "subprocess_exec": CHILDREN,
    "subprocess_shell": CHILDREN,
    "add_signal_handler": _SIGNALS,
    "remove_signal_handler": _SIGNALS,
}


def _refusing(name: str, what: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(_loop: VirtualLoop, *_args: object, **_options: object) -> NoReturn:
        raise ForbiddenInSimulationError(f"{what} (loop.{name})", instead)

    refuse.__name__ = name
    return refuse


for _name, (_what, _instead) in _REFUSED.items():
    setattr(VirtualLoop, _name, _refusing(_name, _what, _instead))
