"""What waits in a mailbox and is more than a message: an ask, a receipt, a timer, a drain, an interruption.

Owns: how each is opened, answered, or buried when nobody will handle it. Plain messages come without one.
Not here: which of them may be dropped (`_mailbox`), whose turn it is to open one (`_cell`, `_serving`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swactor._errors import ActorDeadError
from swactor._messages import ASKED_TO_STOP, NOTHING, Drained, Interrupt, TimerFired, WithReceipt
from swactor._reply import Ask
from swactor._signals import see_to_signals

if TYPE_CHECKING:
    from swactor._cell import Cell


def opened(cell: Cell, envelope: object) -> object:
    """Return the message that is to be handled; `NOTHING` when the runtime only spoke to itself."""
    match envelope:
        case Ask():
            if not envelope.done:  # else the asker gave up, and needs no work done
                cell.asked = envelope
                return envelope.message
        case WithReceipt():
            envelope.left()
            return envelope.message
        case TimerFired():
            if cell.timers.accept(envelope):
                return envelope.message
        case Drained():
            cell.stop_asked(ASKED_TO_STOP, envelope.grace_s, for_good=True)
        case Interrupt():
            if cell.signals and cell.waits:  # others act on them at the start of their next turn
                see_to_signals(cell)
    return NOTHING


def answer(cell: Cell, envelope: object, reply: object) -> None:
    """The handler has returned: that is the reply, if one is waited for and was not deferred."""
    if isinstance(envelope, Ask):
        if cell.asked is envelope:  # else this life was given up meanwhile
            cell.asked = None
        if envelope.held_in is None:
            envelope.send(reply)


def bury(cell: Cell, message: object) -> None:
    """A message that nobody will handle: fail its asker, or count it, unless only the runtime said it."""
    if isinstance(message, Ask):
        message.fail(ActorDeadError(cell.actor_id, str(cell.reason)))
    elif isinstance(message, WithReceipt):
        message.left()
        cell.system.dead_letter(cell, message.message)
    elif not isinstance(message, TimerFired | Drained | Interrupt):
        cell.system.dead_letter(cell, message)
