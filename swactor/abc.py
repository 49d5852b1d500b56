"""The protocols that others implement: what an `ActorSystem` is built from and what it reports to.

Owns: the seams between actors and the outside world that every layer shares. Production and the simulator
hand different implementations to the same code. Seams of one layer only (transport, spawner, proc, sink)
are declared in that layer.
"""

from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Protocol, TypeVar, runtime_checkable

from swactor._events import Event

T = TypeVar("T")


class Clock(Protocol):
    """Where times come from. Durations are monotonic; only wall times are shown to people."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC; may jump either way."""
        ...


@runtime_checkable
class RawClock(Clock, Protocol):
    """A clock that also gives the wall time as the machine counts it, for less than ``wall_ms`` costs."""

    def wall_s(self) -> float:
        """Seconds since the Unix epoch, UTC, to the microsecond; may jump either way."""
        ...


class RandomStream(Protocol):
    """An endless row of random numbers."""

    def below(self, bound: int) -> int:
        """Return an integer, uniform in ``0 <= n < bound``; ``bound`` is at least 1."""
        ...

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` random bytes: unpredictable in production, reproducible in a simulation."""
        ...


class Random(Protocol):
    """A family of independent streams, so that one more draw here never shifts a draw there."""

    def stream(self, *key: str) -> RandomStream:
        """Return the stream of ``key``. Equal keys of one seed give equal streams."""
        ...


class Cancellable(Protocol):
    """Something scheduled that can be called off."""

    def cancel(self) -> object:
        """Call it off; does nothing when it already happened or was called off before."""
        ...


class Waiter(Protocol[T]):
    """A result that one coroutine waits for and anybody may set, once."""

    def done(self) -> bool:
        """Whether a result or an error was set."""
        ...

    def set(self, value: T) -> None:
        """Set the result; does nothing when one was set before."""
        ...

    def fail(self, error: BaseException) -> None:
        """Set an error for the waiting coroutine; does nothing when a result was set before."""
        ...

    def wait(self) -> Awaitable[T]:
        """Return what to await for the result; raises the error if that was set."""
        ...


class Parker(Protocol):
    """Where one coroutine waits again and again until somebody has it go on."""

    def park(self) -> Awaitable[None]:
        """Return what to await, at once: it ends with the next `unpark`."""
        ...

    def unpark(self) -> None:
        """Have the coroutine that is parked go on; does nothing when none is."""
        ...


class Scheduler(Protocol):
    """What runs callbacks: on the next turn, or later. The part of a `Loop` that most ports need.

    Everything runs on the loop's own thread. A callback that raises is reported by the backend's own
    means and stops nothing else.
    """

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the next turn of the loop."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run ``callback`` after ``delay_s`` seconds."""
        ...


class Loop(Scheduler, Protocol):
    """The event loop as actors see it: callbacks, tasks, descriptors. One implementation a backend.

    Callbacks and tasks see the context variables of where the `Loop` was made, not those of who started them.
    """

    def call_behind(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` behind a descriptor's callback that is under way, else on the next turn.

        Also on the next turn when what ran behind callbacks has held the loop for some time already.
        """
        ...

    def time_s(self) -> float:
        """Seconds of the time that ``call_later`` goes by, since an arbitrary start."""
        ...

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop soon; the only method that another thread may call.

        Raises:
            RuntimeError: the loop has ended.
        """
        ...

    def start_task(self, coroutine: Coroutine[object, object, None], *, name: str) -> Cancellable:
        """Run ``coroutine`` as a task; cancelling throws the backend's cancellation into it.

        Where it waits first, not before: what a coroutine does until then it does in any case. What it raises
        is reported by the backend's own means and stops nothing else.
        """
        ...

    def watch_readable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is readable, until cancelled."""
        ...

    def watch_writable(self, descriptor: int, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` whenever ``descriptor`` is writable, until cancelled."""
        ...

    def waiter(self) -> Waiter[T]:
        """Return a fresh `Waiter`."""
        ...

    def parker(self) -> Parker:
        """Return a fresh `Parker`."""
        ...

    def close(self) -> None:
        """Let go of what this port itself holds of the backend. What is started later works all the same."""
        ...


class Watchdog(Protocol):
    """Notices what holds the event loop too long. Production has a thread for it; a simulation needs none."""

    def start(
        self, loop: Loop, clock: Clock, *, found: Callable[[FrameType], None], over: Callable[[float], None]
    ) -> None:
        """Watch ``loop``, on whose thread this is called, until stopped.

        Each time the loop is held longer than the watchdog's bound, ``found(frame)`` is called while it is,
        from whatever thread the watchdog has, with the frame that the loop's thread is in; then, once that
        is over, ``over(held_s)`` on the loop's own thread: for each ``found`` one, in the same order, though
        another block may be found before.
        """
        ...

    def stop(self) -> None:
        """Stop watching."""
        ...


class Observer(Protocol):
    """Hears of moments. Called inside the runtime, so it only takes note: no waiting, no tells back."""

    def observe(self, event: Event) -> None:
        """Take note of ``event``. An observer that raises is reported once and detached."""
        ...
