"""The system lane: what each signal does to its actor, ahead of user messages.

Owns: acting on signals in their order, and the `Down` that a handler is told before what waits already.
Not here: how a signal comes, and when somebody looks at it (`_cell`); what an end means to others (`_ends`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swactor._ends import child_down, link_down
from swactor._messages import ChildDown, Down, HookDone, LinkDown, Signal, Stop
from swactor._states import RUNNING

if TYPE_CHECKING:
    from swactor._cell import Cell


def see_to_signals(cell: Cell) -> None:
    """Act on signals; a synchronous actor then handles the `Down` that overtook user messages."""
    signals, cell.signals = cell.signals, None
    for signal in signals or ():
        try:
            _act_on(cell, signal)
        except Exception as error:  # noqa: BLE001 - a supervisor's own policy may raise
            cell.fail(error)
    if cell.downs and not cell.waits:
        _handle_downs(cell)


def _act_on(cell: Cell, signal: Signal) -> None:
    match signal:
        case Stop():
            cell.stop_asked(signal.reason, signal.grace_s, for_good=signal.for_good)
        case ChildDown():
            child_down(cell, signal)
        case HookDone():
            cell.hook_done(signal.error)
        case LinkDown():
            link_down(cell, signal)
        case Down():
            _hear_down(cell, signal)


def _hear_down(cell: Cell, down: Down) -> None:
    if cell.ties is not None:
        cell.ties.watching.pop(down.ref, None)
    if cell.downs is None:
        cell.downs = []
    cell.downs.append(down)
    if cell.state is RUNNING and cell.waits:
        cell.look_up()


def _handle_downs(cell: Cell) -> None:
    """Handle what overtakes user messages, until a signal comes or the actor ends."""
    while cell.downs and not cell.signals and cell.state is RUNNING:
        down = cell.downs.pop(0)
        cell.taken += 1
        try:
            cell.actor.on_message(cell.context, down)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the actor ends by it
            cell.handler_failed(error, down)
