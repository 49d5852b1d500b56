"""What holds the event loop, and whose handler it is.

Owns: the thread that looks (the only one of the runtime), reading its finding off the stack, and the report.
Costs a handler nothing: who is running is not written down anywhere, it is read from the loop's own stack.

A loop that does not come round is invisible from within, so a thread asks it again and again to say that it
is there; Go's and Java's runtimes sample stacks for the same reason.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from swactor._cell import Cell
from swactor._messages import TimerFired, WithReceipt
from swactor._moments import HandlerBlocked
from swactor._reply import Ask

if TYPE_CHECKING:
    from swactor._events import Event
    from swactor.abc import Clock, Loop

log = logging.getLogger("swactor")

STACK_CHARS_MAX = 8_000
"""Characters of a stack that go into an event; the innermost calls are kept."""
LOOKS_A_BOUND = 4
"""How often the watchdog asks the loop within its bound."""
_OURS: Final = frozenset(
    {"swactor._cell", "swactor._serving", "swactor._signals", "swactor._life", "swactor._hook"}
)
"""The modules whose frames know which actor is running."""


class ThreadWatchdog:
    """Asks the loop, from a thread of its own, whether it still comes round. Give one to one `ActorSystem`.

    What holds the loop longer than ``bound_s`` seconds is found once, about then, and measured until it is
    over, to within a quarter of the bound.

    Raises:
        ValueError: ``bound_s`` is not above zero.
    """

    def __init__(self, bound_s: float = 1.0) -> None:
        if bound_s <= 0:
            raise ValueError(f"a watchdog's bound is above zero, not {bound_s:g} s")
        self._bound_s = bound_s
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self, loop: Loop, clock: Clock, *, found: Callable[[FrameType], None], over: Callable[[float], None]
    ) -> None:
        """Watch ``loop``, on whose thread this is called; see `swactor.abc.Watchdog`."""

        def ask_again_and_again() -> None:
            try:
                while not self._stopped.wait(self._bound_s / LOOKS_A_BOUND):
                    asked_ns = clock.monotonic_ns()
                    self._answered.clear()
                    if self._stopped.is_set():  # only now: whoever stops us sets both, this one first
                        return
                    loop.call_from_thread(self._answered.set)
                    if self._answered.wait(self._bound_s):
                        continue
                    frame = sys._current_frames().get(loop_thread)
                    if frame is None:
                        return  # the loop has ended with its thread, without stopping us
                    found(frame)
                    del frame  # it would keep alive whatever its calls hold
                    self._answered.wait()
                    loop.call_from_thread(partial(over, (clock.monotonic_ns() - asked_ns) / 1e9))
            except RuntimeError:
                return  # the loop has ended without stopping us

        loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=ask_again_and_again, name="swactor watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; the thread ends at once."""
        self._stopped.set()
        self._answered.set()
        if self._thread is not None:
            self._thread.join()


class BlockReport:
    """Says who held the loop: to people as soon as it is found, to observers once it is over."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._not_over: deque[HandlerBlocked] = deque()
        """Oldest first: the next one may be found before the loop has taken in that one is over."""

    def found(self, frame: FrameType) -> None:
        """Read the finding off the stack. Called by the watchdog's thread."""
        cell, message = _running(frame)
        stack = "".join(traceback.format_stack(frame))[-STACK_CHARS_MAX:]
        log.warning("%s holds the event loop:\n%s", cell.actor_id if cell is not None else "something", stack)
        self._not_over.append(
            HandlerBlocked(
                actor=UNSET if cell is None else cell.path,
                actor_type=UNSET if cell is None else cell.kind.name,
                message_type=UNSET if message is None else type(message).__name__,
                held_ms=0,
                stack=stack,
            )
        )

    def over(self, held_s: float) -> None:
        """The block found first of those that were not over has ended, after ``held_s`` seconds in all."""
        blocked = self._not_over.popleft()
        self._emit(msgspec.structs.replace(blocked, held_ms=round(held_s * 1000)))


def _running(frame: FrameType) -> tuple[Cell | None, object]:
    """Return the innermost actor on the stack, and the message it handles; None when there is none."""
    here: FrameType | None = frame
    message: object = None
    while here is not None:
        if here.f_globals.get("__name__") in _OURS:
            local = here.f_locals
            if message is None:
                found = next((local[name] for name in ("message", "envelope", "down") if name in local), None)
                message = found.message if isinstance(found, Ask | TimerFired | WithReceipt) else found
            cell = local.get("cell", local.get("self"))
            if isinstance(cell, Cell):
                return cell, message
        here = here.f_back
    return None, None
