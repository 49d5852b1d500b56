"""The event loop that is running, behind one protocol: here asyncio's, uvloop's too.

Owns: how a callback, a timer, a task, a descriptor watch and a waiter look on asyncio; finding the loop.
Not here: the same on trio (`_trio_loop`), what runs when (`_runqueue`). A simulator's virtual loop is an
asyncio loop and needs nothing more.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from swactor._behind import Behind

if TYPE_CHECKING:
    from swactor.abc import Cancellable, Loop, Parker, Waiter

T = TypeVar("T")
log = logging.getLogger("swactor")


def running_loop() -> Loop:
    """Return the loop that the caller runs on; outside asyncio that must be trio, which says so otherwise."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        from swactor._trio_loop import TrioLoop  # here: it needs trio, which few have

        return TrioLoop()
    return AsyncioLoop()


def _future_maker(loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Future[Any]]:
    """Return ``loop.create_future``, or what that does where it is asyncio's own, for a frame less."""
    if type(loop).create_future is asyncio.BaseEventLoop.create_future:
        return partial(asyncio.Future, loop=loop)
    return loop.create_future


class _AsyncioWaiter(Generic[T]):
    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def set(self, value: T) -> None:
        try:  # noqa: SIM105 - a context manager for it would be felt
            self._future.set_result(value)
        except asyncio.InvalidStateError:
            pass  # it was set already, or cancelled

    def fail(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def wait(self) -> asyncio.Future[T]:
        return self._future


class _AsyncioParker:
    __slots__ = ("_future", "_new_future")

    def __init__(self, new_future: Callable[[], asyncio.Future[None]]) -> None:
        self._new_future = new_future
        self._future: asyncio.Future[None] | None = None

    def park(self) -> asyncio.Future[None]:
        self._future = future = self._new_future()
        return future

    def unpark(self) -> None:
        if self._future is not None:
            try:  # noqa: SIM105 - a context manager for it would be felt
                self._future.set_result(None)
            except asyncio.InvalidStateError:
                pass  # it goes on already, or was cancelled


class _Task(asyncio.Task[None]):
    """A task that takes its first step also when it is cancelled before, as a trio task does.

    Else a coroutine that is to tidy up, or to say that it has ended, would never run; uvloop lets timers that
    are due, a grace for example, go ahead of tasks that were just created.
    """

    __slots__ = ()

    def cancel(self, msg: object = None) -> bool:
        coroutine = self.get_coro()
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            self.get_loop().call_soon(super().cancel, msg)
            return True
        return super().cancel(msg)


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
        self._behind = Behind(time_s=self.time_s, call_soon=self.call_soon)
        self._new_future: Callable[[], asyncio.Future[Any]] = _future_maker(self._loop)
        # asyncio keeps only weak references to tasks; insertion-ordered, so nothing depends on addresses.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._forget = self._tasks.pop  # one for all tasks: there may be many

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn, in order."""
        self._loop.call_soon(callback, context=self._context)

    def call_behind(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` behind a descriptor's callback that is under way, else on the next turn."""
        if not self._behind.add(callback):
            self._loop.call_soon(callback, context=self._context)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run ``callback`` after ``delay_s`` seconds."""
        return self._loop.call_later(delay_s, callback, context=self._context)

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop soon."""
        self._loop.call_soon_threadsafe(callback, context=self._context)

    def start_task(self, coroutine: Coroutine[object, object, None], *, name: str) -> Cancellable:
        """Run ``coroutine`` as a task that is kept until it ends."""
        task = _Task(
            coroutine,
            loop=self._loop,
            name=name,
            context=self._context.copy(),
        )
        self._tasks[task] = None
        task.add_done_callback(self._forget, context=self._context)
        return task

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable."""
        run = self._behind.run
        self._context.copy().run(self._loop.add_reader, descriptor, run, callback)  # it has no ``context=``
        return _DescriptorWatch(lambda: self._loop.remove_reader(descriptor))

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is writable."""
        self._context.copy().run(self._loop.add_writer, descriptor, self._behind.run, callback)
        return _DescriptorWatch(lambda: self._loop.remove_writer(descriptor))

    def waiter(self) -> Waiter[T]:
        """Return a waiter on a bare future."""
        return _AsyncioWaiter(self._new_future())

    def parker(self) -> Parker:
        """Return a parker that makes a bare future each time."""
        return _AsyncioParker(self._new_future)

    def close(self) -> None:
        """Nothing is held."""
