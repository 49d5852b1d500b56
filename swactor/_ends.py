"""What the end of one actor means to others: to people and observers, to its parent, to whom it is linked.

Owns: who fails because of whom, and how that is told. Not here: the end itself (`_life`), who is to be told
`Down` (`_links`), restart decisions (`_supervisor`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from swactor._errors import ChildFailedError, LinkedActorFailedError
from swactor._messages import ChildDown, ExitReason, LinkDown, error_text
from swactor._moments import ActorFailed
from swactor._states import RUNNING, STARTING, STOPPING

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._life import Life

log = logging.getLogger("swactor")

ERROR_TEXT_MAX = 2_000
"""Characters of an exception's text that go into an event."""
BECAUSE_OF_ANOTHER: Final = (ChildFailedError, LinkedActorFailedError)
"""Failures that began with another actor."""


def tell_failure(cell: Life, error: BaseException, during: str, message_type: str | None = None) -> None:
    """Say to people and observers that something raised."""
    if log.isEnabledFor(logging.ERROR):
        if isinstance(error, BECAUSE_OF_ANOTHER):  # whose traceback, and all before it, are in the log
            log.error("%s (%s) failed: %s", cell.actor_id, cell.kind.name, error)
        else:
            log.error("%s (%s) failed%s", cell.actor_id, cell.kind.name, during, exc_info=error)
    if cell.system.observers:
        cell.system.emit(
            ActorFailed(
                actor=cell.path,
                actor_type=cell.kind.name,
                error_type=type(error).__name__,
                error=error_text(error)[:ERROR_TEXT_MAX],
                message_type=message_type or UNSET,
            )
        )


def child_ended(parent: Cell, child: Cell, reason: ExitReason, *, watched: bool) -> None:
    """Take note that a child has ended for good; act upon it, if need be, in a turn of the parent's own."""
    if parent.state is RUNNING and not reason.abnormal and parent.children is not None:
        parent.children.pop(child.serial, None)
    else:
        parent.signal(ChildDown(child, reason, watched=watched))


def child_down(parent: Cell, down: ChildDown) -> None:
    """A child has come down: a supervisor decides, others let go of it and may fail with it."""
    if parent.child_policy is not None and down.cell.supervised and parent.state is RUNNING:
        parent.child_policy(down.cell, down.reason)
        return
    parent.forget_child(down.cell)
    if parent.state is STOPPING:
        parent.go_on_stopping()
    elif _suffers_from(parent, down):
        error = ChildFailedError(down.cell.actor_id, _first_why(down.reason))
        error.__cause__ = down.reason.error
        parent.fail(error)


def _suffers_from(parent: Cell, down: ChildDown) -> bool:
    """Whether a parent fails because a child did: not the root, nor one that is told `Down` anyway."""
    if (parent.state is not STARTING and parent.state is not RUNNING) or parent.parent is None:
        return False
    is_watched = down.watched or (parent.ties is not None and down.cell.ref in parent.ties.watching)
    return down.reason.abnormal and not is_watched


def link_down(cell: Cell, down: LinkDown) -> None:
    """The other end of a link failed, so this actor fails."""
    if cell.state is STARTING or cell.state is RUNNING:
        error = LinkedActorFailedError(down.ref.actor_id, _first_why(down.reason))
        error.__cause__ = down.reason.error
        cell.fail(error)


def _first_why(reason: ExitReason) -> str:
    """Return what a failure that passes from actor to actor began with: one text, not one within another."""
    return reason.error.why if isinstance(reason.error, BECAUSE_OF_ANOTHER) else str(reason)
