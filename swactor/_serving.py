"""The task of an asynchronous actor: started with its first message, parked while there is nothing to do.

Owns: the loop around ``async def on_message``.
Not here: what a synchronous actor does instead (`Cell.take_turn`), who wakes the task (`Cell.accept`), how
long it may keep the event loop from others (`Hold`).
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import anyio

from swactor._envelopes import answer, opened
from swactor._mailbox import KEPT
from swactor._messages import NOTHING
from swactor._ref import running_cell
from swactor._signals import see_to_signals
from swactor._states import RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from swactor._cell import Cell
    from swactor.abc import Parker

ALONE: Final[Iterable[None]] = (None,)
"""A batch of one message, the usual case, of which nothing can be left."""


async def serve(cell: Cell, parker: Parker) -> None:  # noqa: PLR0912, PLR0915 - each idle actor keeps its frame: one, not two
    """Handle messages of ``cell`` one after the other, parked in between, until the actor stops."""
    running_cell.set(cell)
    era, mailbox = cell.era, cell.opened_mailbox()
    actor: Any = cell.actor  # its ``on_message`` is ``async def``
    context, hold = cell.context, cell.run_queue.hold
    try:
        while cell.state is RUNNING and era == cell.era:
            if cell.signals or cell.downs:
                await _take_what_overtakes(cell)
                if hold.ends(1, cell.system.clock.monotonic_ns()):
                    await _give_way(cell, parker)
                continue
            lane = mailbox.lane
            size = len(lane) if mailbox.room is None else mailbox.let_in()
            batch = ALONE
            if size != 1:
                size = min(size, hold.batch_max)
                cell.batch = batch = repeat(None, size)
            cell.taken += size
            for _ in batch:
                message = lane.popleft()
                if type(message) not in KEPT:
                    cell.current = message
                    await actor.on_message(context, message)
                elif (body := opened(cell, message)) is not NOTHING:
                    cell.current = body
                    answer(cell, message, await actor.on_message(context, body))
                elif era != cell.era:
                    return
                else:
                    cell.taken -= 1  # nothing was handled
                    if cell.is_interrupted() or mailbox.room is not None:
                        cell.cut_batch()
                        break
            else:  # the batch is done; whatever else is to be seen to has left an `Interrupt` in the lane
                if lane and era != cell.era:
                    return
                cell.current = None
                if mailbox.room is not None:
                    mailbox.announce_room()
                if not lane:
                    message = body = None  # an idle actor keeps nothing of what it has handled
                    cell.ref.lane = None
                    await parker.park()
                elif hold.ends(size, mailbox.note_turn(size, cell.system.clock.monotonic_ns())):
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
        see_to_signals(cell)
    elif cell.downs:
        cell.current = down = cell.downs.pop(0)
        cell.taken += 1
        actor: Any = cell.actor
        await actor.on_message(cell.context, down)


async def _give_way(cell: Cell, parker: Parker) -> None:
    """Leave the event loop to whatever else is ready."""
    cell.system.loop.call_soon(parker.unpark)
    await parker.park()
