"""The answer to one ask: who sets it, who waits for it, how long.

Owns: `Ask` (the envelope in a mailbox), the `Reply` that a handler may take over, and the deadlines.
Not here: sending the question (`_ref`), calling the handler (`_cell`).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from swactor._errors import AskTimeoutError

if TYPE_CHECKING:
    from swactor._ref import ActorRef
    from swactor.abc import Cancellable, Loop, Waiter

R = TypeVar("R")

EARLY_S = 1e-6
"""How much before its due time an ask may fail: a timer comes a rounding error early."""
SWEEP_MIN = 64
"""Settled replies, and rows of them, that may lie among those with a deadline before they are swept out."""


class Ask(Generic[R]):
    """A user message on its way, together with the answer that somebody waits for: set once."""

    __slots__ = ("done", "error", "held_in", "message", "value", "waiter")

    def __init__(self, message: object) -> None:
        self.message = message
        self.done = False
        """Whether it is settled, or nobody waits any more: what is set from then on is dropped."""
        self.error: BaseException | None = None
        self.value: R
        self.waiter: Waiter[R] | None = None
        """Who waits for the answer, if it could not be given at once."""
        self.held_in: dict[Ask[Any], None] | None = None
        """Where it stands while somebody who took it over owes it; the handler's return is then no answer."""

    def send(self, value: R) -> None:
        """Answer with ``value``; does nothing when already answered or no longer waited for."""
        if self.done:
            return
        self.done = True
        self.value = value
        if self.held_in is not None:
            self.held_in.pop(self, None)
        if self.waiter is not None:
            self.waiter.set(value)

    def fail(self, error: BaseException) -> None:
        """Answer with an error that the asker sees raised."""
        if self.done:
            return
        self.error = error
        self.give_up()
        if self.waiter is not None:
            self.waiter.fail(error)

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self.done = True
        if self.held_in is not None:
            self.held_in.pop(self, None)

    def defer(self, held_in: dict[Ask[Any], None]) -> None:
        """Stand in ``held_in`` until it is settled."""
        self.held_in = held_in
        if not self.done:  # else the asker gave up while the handler was at it
            held_in[self] = None


class Reply(Generic[R]):
    """An answer that is still owed: what `Context.defer` returns. May be kept, and passed to other actors."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Ask[R]) -> None:
        self._ask = ask

    @property
    def done(self) -> bool:
        """Whether it was given, or nobody waits for it any more."""
        return self._ask.done

    def send(self, value: R) -> None:
        """Answer with ``value``; does nothing when already answered or no longer waited for."""
        self._ask.send(value)

    def fail(self, error: BaseException) -> None:
        """Answer with an error that the asker sees raised; does nothing when nobody waits any more."""
        self._ask.fail(error)


class _Row:
    """The asks that wait equally long: they fall due in the order in which they came."""

    __slots__ = ("asks", "sweep_at", "timer")

    def __init__(self) -> None:
        self.asks: deque[tuple[float, Ask[Any], ActorRef[Any]]] = deque()
        self.sweep_at = SWEEP_MIN
        self.timer: Cancellable | None = None

    def sweep(self) -> None:
        """Forget what is settled: one that waits long must not keep all that came after it."""
        self.asks = deque(entry for entry in self.asks if not entry[1].done)
        self.sweep_at = 2 * len(self.asks) + SWEEP_MIN


class Deadlines:
    """Fails asks whose time is up, with one timer of the loop for all that wait equally long.

    Nearly every ask is answered long before its deadline; a timer for each would cost more than the ask.
    """

    __slots__ = ("_loop", "_rows", "_sweep_at")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._rows: dict[float, _Row] = {}
        self._sweep_at = SWEEP_MIN

    def watch(self, ask: Ask[Any], asked: ActorRef[Any], timeout_s: float) -> None:
        """Fail ``ask`` with `AskTimeoutError` in ``timeout_s`` seconds, unless it is settled by then."""
        row = self._rows.get(timeout_s)
        if row is None:
            if len(self._rows) >= self._sweep_at:
                self._sweep()
            row = self._rows[timeout_s] = _Row()
        asks = row.asks
        while asks and asks[0][1].done:
            asks.popleft()
        asks.append((self._loop.time_s() + timeout_s, ask, asked))
        if len(asks) > row.sweep_at:
            row.sweep()
        if row.timer is None:
            row.timer = self._loop.call_later(timeout_s, partial(self._look, row, timeout_s))

    def _sweep(self) -> None:
        """Forget the rows in which all is settled: whoever asks within what is left of a time fills many."""
        for timeout_s, row in tuple(self._rows.items()):
            if row.timer is not None and all(ask.done for _, ask, _ in row.asks):
                row.timer.cancel()
                del self._rows[timeout_s]
        self._sweep_at = 2 * len(self._rows) + SWEEP_MIN

    def _look(self, row: _Row, timeout_s: float) -> None:
        """Fail what is due; come back for the next one that is not settled, if there is any."""
        now_s = self._loop.time_s()
        while row.asks:
            due_s, ask, asked = row.asks[0]
            if not ask.done and due_s > now_s + EARLY_S:
                row.timer = self._loop.call_later(due_s - now_s, partial(self._look, row, timeout_s))
                return
            row.asks.popleft()
            ask.fail(AskTimeoutError(asked.actor_id, type(ask.message).__name__, timeout_s))
        del self._rows[timeout_s]

    def close(self) -> None:
        """Call the timers off: nobody waits any more."""
        for row in self._rows.values():
            if row.timer is not None:
                row.timer.cancel()
        self._rows.clear()
