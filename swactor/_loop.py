"""The event loop of the backend that is running: asyncio (uvloop too) or trio, behind one protocol.

Owns: how a callback, a timer, a task, a descriptor watch and a waiter look on each backend.
Not here: what runs when (`_runqueue`). A simulator's virtual loop is an asyncio loop and needs nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    import trio

    from swactor.abc import Cancellable, Loop, Parker, Waiter

T = TypeVar("T")
log = logging.getLogger("swactor")


def running_loop() -> Loop:
    """Return the loop that the caller runs on; outside asyncio that must be trio, which says so otherwise."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return TrioLoop()
    return AsyncioLoop()


class _AsyncioWaiter(Generic[T]):
    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def set(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def wait(self) -> asyncio.Future[T]:
        return self._future


class _AsyncioParker:
    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def park(self) -> asyncio.Future[None]:
        self._future = future = self._loop.create_future()
        return future

    def unpark(self) -> None:
        if self._future is not None:
            try:  # noqa: SIM105 - a context manager for it would be felt
                self._future.set_result(None)
            except asyncio.InvalidStateError:
                pass  # it goes on already, or was cancelled


class _DescriptorWatch:
    """A reader or writer callback of an asyncio loop."""

    __slots__ = ("_remove",)

    def __init__(self, remove: Callable[[], object]) -> None:
        self._remove: Callable[[], object] | None = remove

    def cancel(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None


class AsyncioLoop:
    """The running asyncio loop. Create it on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self.time_s = self._loop.time
        # asyncio keeps only weak references to tasks; insertion-ordered, so nothing depends on addresses.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn, in order."""
        self._loop.call_soon(callback, context=self._context)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run ``callback`` after ``delay_s`` seconds."""
        return self._loop.call_later(delay_s, callback, context=self._context)

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop soon."""
        self._loop.call_soon_threadsafe(callback, context=self._context)

    def start_task(self, coroutine: Coroutine[object, object, None], *, name: str) -> Cancellable:
        """Run ``coroutine`` as a task that is kept until it ends."""
        task: asyncio.Task[None] = self._loop.create_task(
            cast("Coroutine[Any, Any, None]", coroutine), name=name, context=self._context.copy()
        )
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable."""
        self._loop.add_reader(descriptor, callback)
        return _DescriptorWatch(lambda: self._loop.remove_reader(descriptor))

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is writable."""
        self._loop.add_writer(descriptor, callback)
        return _DescriptorWatch(lambda: self._loop.remove_writer(descriptor))

    def waiter(self) -> Waiter[T]:
        """Return a waiter on a bare future."""
        future: asyncio.Future[T] = self._loop.create_future()
        return _AsyncioWaiter(future)

    def parker(self) -> Parker:
        """Return a parker that makes a bare future each time."""
        return _AsyncioParker(self._loop)

    def close(self) -> None:
        """Nothing is held."""


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
        import trio

        self._done = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> T:
        import trio

        if not self._done:
            self._task = trio.lowlevel.current_task()

            def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
                self._task = None
                self._done = True  # nobody waits any more, as with a cancelled future
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


class _TrioParker:
    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def park(self) -> None:
        import trio

        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        import trio

        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def unpark(self) -> None:
        import trio

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


class TrioLoop:
    """The running trio loop. Tasks are trio system tasks, so they outlive the scope that created them."""

    def __init__(self) -> None:
        import trio

        self._trio = trio
        self._context = copy_context()
        self._token = trio.lowlevel.current_trio_token()
        self._soon: deque[Callable[[], None]] = deque()
        self._pump: trio.lowlevel.Task | None = None
        self._pump_parked = False
        self._is_closed = False

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn, in order."""
        self._soon.append(callback)
        if self._pump is None:
            self._pump = self._trio.lowlevel.spawn_system_task(
                self._run_soon, name="swactor callbacks", context=self._context.copy()
            )
        else:
            self._wake_pump()

    def _wake_pump(self) -> None:
        if self._pump is not None and self._pump_parked:
            self._pump_parked = False
            self._trio.lowlevel.reschedule(self._pump)

    async def _run_soon(self) -> None:
        try:
            while True:
                # Only what is there now: what these callbacks add waits for the next turn, as on asyncio.
                for _ in range(len(self._soon)):
                    _call(self._soon.popleft())
                if self._soon:
                    await self._trio.lowlevel.checkpoint()
                elif self._is_closed:
                    return
                else:
                    self._pump_parked = True
                    await self._trio.lowlevel.wait_task_rescheduled(self._abort_pump)
        finally:
            self._pump = None

    def _abort_pump(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._pump_parked = False
        return self._trio.lowlevel.Abort.SUCCEEDED

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop soon."""
        try:
            self._token.run_sync_soon(callback)
        except self._trio.RunFinishedError as error:
            raise RuntimeError("the loop has ended") from error

    def time_s(self) -> float:
        """Return the time of trio's clock."""
        return self._trio.current_time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run ``callback`` after ``delay_s`` seconds."""
        timer = _Switch()

        async def sleep_then_call() -> None:
            await self._trio.sleep(max(0.0, delay_s))
            if timer.is_on:
                _call(callback)

        timer.task = self.start_task(sleep_then_call(), name="swactor timer")
        return timer

    def start_task(self, coroutine: Coroutine[object, object, None], *, name: str) -> Cancellable:
        """Run ``coroutine`` as a system task under a cancel scope of its own."""
        scope = self._trio.CancelScope()

        async def run() -> None:
            with scope:
                await cast("Coroutine[Any, Any, None]", coroutine)

        self._trio.lowlevel.spawn_system_task(run, name=name, context=self._context.copy())
        return scope

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable."""
        return self._watch(self._trio.lowlevel.wait_readable, descriptor, callback)

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is writable."""
        return self._watch(self._trio.lowlevel.wait_writable, descriptor, callback)

    def _watch(
        self, wait: Callable[[int], Coroutine[Any, Any, None]], descriptor: int, callback: Callable[[], None]
    ) -> Cancellable:
        watch = _Switch()

        async def watch_until_off() -> None:
            while watch.is_on:
                try:
                    await wait(descriptor)
                except (self._trio.ClosedResourceError, OSError):
                    return  # the owner closed the descriptor before it called the watch off
                if watch.is_on:
                    _call(callback)

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
    except BaseException:
        log.exception("exception in callback %r", callback)
