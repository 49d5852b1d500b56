"""The running trio loop, behind the protocol that asyncio's has too.

Owns: how a callback, a timer, a task, a descriptor watch and a waiter look on trio. Tasks are trio system
tasks, so they outlive the scope that created them; callbacks have one between them, timers another.
Not here: what runs when (`_runqueue`).
"""

from __future__ import annotations

import heapq
import logging
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import trio

from swactor._behind import Behind

if TYPE_CHECKING:
    from swactor.abc import Cancellable, Parker, Waiter

T = TypeVar("T")
log = logging.getLogger("swactor")

SWEEP_MIN = 64
"""Timers that were called off and may lie among the others before they are swept out."""


class _TrioWaiter(Generic[T]):
    __slots__ = ("_done", "_error", "_task", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._task: trio.lowlevel.Task | None = None

    def done(self) -> bool:
        return self._done

    def set(self, value: T) -> None:
        if not self._done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        if not self._done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self._done = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> T:
        if not self._done:
            self._task = trio.lowlevel.current_task()

            def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
                self._task = None
                self._done = True  # nobody waits any more, as with a cancelled future
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)  # it was set, or there is an error


class _TrioParker:
    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def park(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def unpark(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class _Switch:
    """A task that is off at once when it is cancelled, also before its first step.

    A trio task notices its cancellation only at its next checkpoint. Until then the descriptor that it would
    wait for may belong to somebody else.
    """

    __slots__ = ("is_on", "task")

    def __init__(self) -> None:
        self.is_on = True
        self.task: Cancellable | None = None

    def cancel(self) -> None:
        self.is_on = False
        if self.task is not None:
            self.task.cancel()


class _Timer:
    """A callback that is due once. Called off, it stays in the heap until its time or the next sweep."""

    __slots__ = ("_timers", "callback")

    def __init__(self, timers: _Timers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.one_less()


class _Timers:
    """All timers of one loop: in the order in which they are due, whatever order trio runs tasks in.

    One task sleeps until the next of them; there is none while no timer is set.
    """

    def __init__(self, start_task: Callable[[Coroutine[object, object, None], str], object]) -> None:
        self._start_task = start_task
        self._heap: list[tuple[float, int, _Timer]] = []  # when, order of setting
        self._set = 0
        self._live = 0
        self._sleep: trio.CancelScope | None = None
        self._is_running = False

    def add(self, delay_s: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(self, callback)
        self._set += 1
        self._live += 1
        heapq.heappush(self._heap, (trio.current_time() + max(0.0, delay_s), self._set, timer))
        if not self._is_running:
            self._is_running = True
            self._start_task(self._run(), "swactor timers")
        elif self._sleep is not None and self._heap[0][2] is timer:
            self._sleep.cancel()
        return timer

    def one_less(self) -> None:
        self._live -= 1
        if not self._live and self._sleep is not None:
            self._sleep.cancel()
        if len(self._heap) > 2 * self._live + SWEEP_MIN:
            # A timer far ahead that is set anew with every message leaves one behind each time.
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)

    async def _run(self) -> None:
        try:
            while self._live:
                with trio.CancelScope() as self._sleep:
                    await trio.sleep_until(self._heap[0][0])
                self._sleep = None
                now_s, due = trio.current_time(), []
                while self._heap and self._heap[0][0] <= now_s:
                    due.append(heapq.heappop(self._heap)[2])
                for timer in due:  # those that they set wait for the next round
                    callback, timer.callback = timer.callback, None
                    if callback is not None:
                        self._live -= 1
                        _call(callback)
            self._heap.clear()
        finally:
            self._is_running = False


class TrioLoop:
    """The running trio loop. Tasks are trio system tasks, so they outlive the scope that created them."""

    def __init__(self) -> None:
        self._context = copy_context()
        self._behind = Behind(time_s=trio.current_time, call_soon=self.call_soon)
        self._token = trio.lowlevel.current_trio_token()
        self._soon: deque[Callable[[], None]] = deque()
        self._pump: trio.lowlevel.Task | None = None
        self._pump_parked = False
        self._is_closed = False
        self._timers = _Timers(lambda coroutine, name: self.start_task(coroutine, name=name))

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn, in order."""
        self._soon.append(callback)
        if self._pump is None:
            self._pump = trio.lowlevel.spawn_system_task(
                self._run_soon, name="swactor callbacks", context=self._context.copy()
            )
        else:
            self._wake_pump()

    def call_behind(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` behind a descriptor's callback that is under way, else on the next turn."""
        if not self._behind.add(callback):
            self.call_soon(callback)

    def _wake_pump(self) -> None:
        if self._pump is not None and self._pump_parked:
            self._pump_parked = False
            trio.lowlevel.reschedule(self._pump)

    async def _run_soon(self) -> None:
        try:
            while True:
                # Only what is there now: what these callbacks add waits for the next turn, as on asyncio.
                for _ in range(len(self._soon)):
                    _call(self._soon.popleft())
                if self._soon:
                    await trio.lowlevel.checkpoint()
                elif self._is_closed:
                    return
                else:
                    self._pump_parked = True
                    await trio.lowlevel.wait_task_rescheduled(self._abort_pump)
        finally:
            self._pump = None

    def _abort_pump(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._pump_parked = False
        return trio.lowlevel.Abort.SUCCEEDED

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop soon."""
        try:
            self._token.run_sync_soon(self._context.run, _call, callback)
        except trio.RunFinishedError as error:
            raise RuntimeError("the loop has ended") from error

    def time_s(self) -> float:
        """Return the time of trio's clock."""
        return trio.current_time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run ``callback`` after ``delay_s`` seconds."""
        return self._timers.add(delay_s, callback)

    def start_task(self, coroutine: Coroutine[object, object, None], *, name: str) -> Cancellable:
        """Run ``coroutine`` as a system task under a cancel scope of its own.

        What it raises is logged: trio takes the error of a system task for its own, and ends everything. A
        KeyboardInterrupt goes on to the main task.
        """
        scope = trio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    await coroutine
            except trio.Cancelled:
                raise
            except BaseException as error:
                log.exception("exception in task %r", name)
                _pass_on(error)

        trio.lowlevel.spawn_system_task(run, name=name, context=self._context.copy())
        return scope

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable."""
        return self._watch(trio.lowlevel.wait_readable, descriptor, callback)

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is writable."""
        return self._watch(trio.lowlevel.wait_writable, descriptor, callback)

    def _watch(
        self, wait: Callable[[int], Coroutine[Any, Any, None]], descriptor: int, callback: Callable[[], None]
    ) -> Cancellable:
        watch = _Switch()

        async def watch_until_off() -> None:
            while watch.is_on:
                try:
                    await wait(descriptor)
                except (trio.ClosedResourceError, OSError):
                    return  # the owner closed the descriptor before it called the watch off
                if watch.is_on:
                    _call(partial(self._behind.run, callback))

        watch.task = self.start_task(watch_until_off(), name="swactor watch")
        return watch

    def waiter(self) -> Waiter[T]:
        """Return a waiter that reschedules its task directly."""
        return _TrioWaiter()

    def parker(self) -> Parker:
        """Return a parker that reschedules its task directly."""
        return _TrioParker()

    def close(self) -> None:
        """End the task that runs callbacks, once it has none."""
        self._is_closed = True
        self._wake_pump()


def _call(callback: Callable[[], None]) -> None:
    """Run ``callback``; whatever it raises is logged and stops nothing else, least of all the backend."""
    try:
        callback()
    except BaseException as error:
        log.exception("exception in callback %r", callback)
        _pass_on(error)


def _pass_on(error: BaseException) -> None:
    """Give a KeyboardInterrupt to the program as a Ctrl-C is: to the main task, or to the handler it has."""
    if isinstance(error, KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
