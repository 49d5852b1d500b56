"""A clock that only the test moves, and the running event loop with its timers hung onto that clock.

Owns: virtual time of one test, shared by all systems that are given the same clock. Only what goes through
``Loop.call_later`` is virtual: an actor's timers, timeouts of asks, graces, restart delays.
Not here: `anyio.sleep`, deadlines of anyio, threads and I/O; they stay on real time.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import anyio

from swactor import running_loop
from swactor.abc import Cancellable, Loop, Parker, Waiter
from swactor.testing._errors import ExpectationError, UnfinishedError
from swactor.testing._idle import SETTLE_LIMIT_S, wait_until_idle
from swactor.testing._timetable import Timer, Timetable

T = TypeVar("T")

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
START_WALL_MS = 1_700_000_000_000
"""What the wall clock shows at the beginning unless the test says otherwise: 2023-11-14 22:13:20 UTC."""
LONGEST_S = 1e9
"""A longer delay, also an endless one, is as long as this: about thirty years."""


class ManualClock:
    """Time that stands still until the test moves it. Implements `swactor.abc.Clock`.

    Give both halves to the system: ``ActorSystem(clock=clock, loop=clock.loop)``. Several systems may share
    one clock. ``settle_limit_s`` is how long the loop may take to come to rest, in real seconds.
    """

    def __init__(self, *, start_wall_ms: int = START_WALL_MS, settle_limit_s: float = SETTLE_LIMIT_S) -> None:
        self._start_wall_ms = start_wall_ms
        self._settle_limit_s = settle_limit_s
        self._now_ns = 0
        self._timetable = Timetable()
        self._loops: list[ManualLoop] = []
        self._moving = anyio.Lock()

    def monotonic_ns(self) -> int:
        """Nanoseconds by which the clock was advanced so far."""
        return self._now_ns

    def wall_ms(self) -> int:
        """The wall time of the beginning, plus what has passed since."""
        return self._start_wall_ms + self._now_ns // NS_PER_MS

    def loop(self) -> "ManualLoop":
        """Return the running loop (asyncio, uvloop or trio) with its timers on this clock."""
        loop = ManualLoop(self, self._timetable, running_loop())
        self._loops.append(loop)
        return loop

    @property
    def next_due_s(self) -> float | None:
        """Seconds until the next timer comes due; None when none is set."""
        due_ns = self._timetable.next_due_ns()
        return None if due_ns is None else (due_ns - self._now_ns) / NS_PER_S

    async def settle(self) -> None:
        """Let everything run that is ready now, and what that makes ready; no time passes.

        Raises:
            NotSettledError: something keeps itself busy.
        """
        async with self._moving:
            await self._rest()

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass: timers fire when they come due, the loop settles after each instant.

        What is ready now runs first, so a timer that a message still to be handled sets is among them. Timers
        of one instant fire in the order in which they were set. Two tasks that advance do so one after the
        other.

        Raises:
            NotSettledError: something keeps itself busy; the clock stands where that happened.
            ValueError: ``seconds`` is negative or not a number.
        """
        if not seconds >= 0:
            raise ValueError(f"time does not go back, so not by {seconds} s")
        async with self._moving:
            await self._move_to(self._now_ns + nanoseconds(seconds))

    async def advance_until(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Move from timer to timer until ``condition`` holds; return whether it did within ``timeout_s``.

        If it did not, exactly these seconds have passed. A ``timeout_s`` of 0 lets the loop settle only.

        Raises:
            NotSettledError: something keeps itself busy.
        """
        end_ns = self._now_ns + nanoseconds(timeout_s)
        await self.settle()
        while not condition():
            due_ns = self._timetable.next_due_ns()
            is_last = due_ns is None or due_ns > end_ns
            async with self._moving:  # to an instant, not by a time: somebody else may move it meanwhile
                await self._move_to(end_ns if due_ns is None else min(due_ns, end_ns))
            if is_last:
                return condition()
        return True

    async def run(self, awaitable: Awaitable[T], *, timeout_s: float = 3600.0) -> T:
        """Await something that needs time to pass, such as an ask or a shutdown, and let it pass.

        Raises:
            UnfinishedError: it was not done after ``timeout_s`` seconds of this clock, and was cancelled.
            NotSettledError: something keeps itself busy.
        """
        results: list[T] = []
        errors: list[Exception] = []

        async def pass_time() -> None:
            try:
                if not await self.advance_until(lambda: bool(results or errors), timeout_s=timeout_s):
                    raise UnfinishedError(timeout_s)
            except ExpectationError as error:
                errors.append(error)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(pass_time)
            try:
                results.append(await awaitable)
            except Exception as error:  # noqa: BLE001 - raised below, without the group around it
                errors.append(error)
            group.cancel_scope.cancel()
        if errors:
            raise errors[0]
        return results[0]

    async def _move_to(self, end_ns: int) -> None:
        await self._rest()
        while (due_ns := self._timetable.next_due_ns()) is not None and due_ns <= end_ns:
            self._now_ns = due_ns
            while timer := self._timetable.pop_due(due_ns):
                timer.fire()
            await self._rest()
        self._now_ns = max(self._now_ns, end_ns)

    async def _rest(self) -> None:
        await wait_until_idle(self._count, limit_s=self._settle_limit_s)

    def _count(self) -> int:
        return sum(loop.callbacks for loop in self._loops)


class ManualLoop:
    """The running loop with the timers of a `ManualClock`. Implements `swactor.abc.Loop`."""

    def __init__(self, clock: ManualClock, timetable: Timetable, running: Loop) -> None:
        self.clock = clock
        self.callbacks = 0
        """How many callbacks were scheduled to run soon."""
        self._timetable = timetable
        self._running = running

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn of the running loop."""
        self.callbacks += 1
        self._running.call_soon(callback)

    def call_behind(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` behind a descriptor's callback that is under way, else on the next turn."""
        self.callbacks += 1
        self._running.call_behind(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run ``callback`` once the clock was advanced by ``delay_s`` seconds; without a delay, next turn."""
        delay_ns = max(0, nanoseconds(delay_s))
        timer = Timer(self.clock.monotonic_ns() + delay_ns, callback, self)
        if delay_ns:
            self._timetable.add(timer)
        else:
            timer.fire()
        return timer

    def time_s(self) -> float:
        """Return the clock's own time."""
        return self.clock.monotonic_ns() / NS_PER_S

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the running loop soon."""
        self._running.call_from_thread(callback)

    def start_task(self, coroutine: Coroutine[object, object, None], *, name: str) -> Cancellable:
        """Run ``coroutine`` as a task of the running loop."""
        return self._running.start_task(coroutine, name=name)

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable, in real time."""
        return self._running.watch_readable(descriptor, callback)

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is writable, in real time."""
        return self._running.watch_writable(descriptor, callback)

    def waiter(self) -> Waiter[T]:
        """Return a waiter of the running loop."""
        return self._running.waiter()

    def parker(self) -> Parker:
        """Return a parker of the running loop."""
        return self._running.parker()

    def close(self) -> None:
        """Let the running loop let go."""
        self._running.close()


def nanoseconds(seconds: float) -> int:
    """Return whole nanoseconds; no delay is longer than `LONGEST_S`."""
    return round(min(seconds, LONGEST_S) * NS_PER_S)
