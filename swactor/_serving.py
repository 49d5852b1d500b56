"""The task of an asynchronous actor: started with its first message, parked while there is nothing to do.

Owns: the loop around ``async def on_message``, and how long it may keep the event loop from others.
Not here: what a synchronous actor does instead (`Cell.take_turn`), who wakes the task (`Cell.accept`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from swactor._mailbox import KEPT
from swactor._messages import NOTHING
from swactor._ref import running_cell
from swactor._runqueue import DRAIN_BUDGET_NS
from swactor._states import RUNNING

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor.abc import Parker

BATCH_MESSAGES = 64
"""Messages that a task handles before it looks up: at the clock, at who waits for room."""
HOLD_BATCHES = 16
"""Batches that one task handles at most before it leaves the loop to others."""


class Hold:
    """How long one task that never has to wait may hold the event loop: as long as a drain of the queue."""

    __slots__ = ("_batches", "_ends_ns")

    def __init__(self) -> None:
        self._ends_ns = 0
        self._batches = 0

    def ends(self, now_ns: int) -> bool:
        """Take note of a batch; return whether it was the last before others must have their chance."""
        if not self._batches:
            self._ends_ns = now_ns + DRAIN_BUDGET_NS
        self._batches += 1
        if self._batches < HOLD_BATCHES and now_ns < self._ends_ns:
            return False
        self._batches = 0
        return True


async def serve(cell: Cell, parker: Parker) -> None:
    """Handle messages of ``cell`` one after the other, parked in between, until the actor stops."""
    running_cell.set(cell)
    era, mailbox = cell.era, cell.opened_mailbox()
    handle: Any = cell.actor.on_message  # it is ``async def``
    context, hold = cell.context, Hold()
    try:
        while cell.state is RUNNING and era == cell.era:
            if cell.signals or cell.downs:
                await _take_what_overtakes(cell)
                if hold.ends(cell.system.clock.monotonic_ns()):
                    await _give_way(cell, parker)
                continue
            lane, first = mailbox.lane, cell.handled + 1
            size = len(lane) if mailbox.room is None else mailbox.let_in()
            for handled in range(first, first + (size if size < BATCH_MESSAGES else BATCH_MESSAGES)):  # noqa: FURB136 - `min` would be felt
                message = lane.popleft()
                if type(message) not in KEPT:
                    cell.current = message
                    cell.handled = handled
                    await handle(context, message)
                elif (body := cell.opened(message)) is not NOTHING:
                    cell.current = body
                    cell.handled = handled
                    cell.answer(message, await handle(context, body))
                elif era != cell.era or cell.is_interrupted() or mailbox.room is not None:
                    break
            if era != cell.era:
                return
            cell.current = None
            if mailbox.room is not None:
                mailbox.announce_room()
            if cell.is_interrupted():
                continue
            message = body = None  # an idle actor keeps nothing of what it has handled
            if not lane:
                cell.ref.lane = None
                await parker.park()
            elif hold.ends(mailbox.note_turn(handled + 1 - first, cell.system.clock.monotonic_ns())):
                await _give_way(cell, parker)
    except (anyio.get_cancelled_exc_class(), GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises ends its actor, not the system
        if era == cell.era:
            era = -1
            cell.serving_ended(error, cell.current)
    finally:
        if era == cell.era:  # else it was given up, and another life may be under way
            cell.serving_ended()


async def _take_what_overtakes(cell: Cell) -> None:
    """Act on signals; if there are none, handle one `Down`."""
    if cell.signals:
        cell.see_to_signals()
    elif cell.downs:
        cell.current = down = cell.downs.pop(0)
        cell.handled += 1
        handle: Any = cell.actor.on_message
        await handle(cell.context, down)


async def _give_way(cell: Cell, parker: Parker) -> None:
    """Leave the event loop to whatever else is ready."""
    cell.system.loop.call_soon(parker.unpark)
    await parker.park()
