"""One run of ``on_start`` or ``on_stop``: inline, or in a task when it has to wait.

Owns: telling the two apart, and that the result arrives once, as a signal of the actor's system lane.
Not here: when a hook runs and what follows from it (`_life`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import anyio

from swactor._errors import ActorDeadError, raise_if_for_the_process
from swactor._messages import HookDone
from swactor._ref import running_cell

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor.abc import Cancellable

Then: TypeAlias = Callable[[BaseException | None], None]


class HookCancelledError(ActorDeadError):
    """A hook was cancelled: because the grace of its actor was over, or by somebody else."""


class Hook:
    """A hook that is waiting for something. Given up, it has no say any more."""

    __slots__ = ("_cell", "_then", "task")

    def __init__(self, cell: Cell, pending: Awaitable[None], then: Then) -> None:
        self._cell = cell
        self._then: Then | None = then
        self.task: Cancellable = cell.system.loop.start_task(self._run(pending), name=f"{cell.path} hook")

    async def _run(self, pending: Awaitable[None]) -> None:
        cell = self._cell  # by this name a watchdog finds whose hook it is
        running_cell.set(cell)
        error: BaseException | None = HookCancelledError(cell.actor_id, "cancelled in on_start or on_stop")
        try:
            await pending
            error = None
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the actor ends by it
            error = raised
            raise_if_for_the_process(raised)
        finally:
            if self._then is not None:
                cell.signal(HookDone(error))

    def done(self, error: BaseException | None) -> None:
        """Go on with what was to follow."""
        then, self._then = self._then, None
        if then is not None:
            then(error)

    def give_up(self) -> None:
        """It ignores its cancellation: go on without it."""
        self._then = None


def run_hook(cell: Cell, call: Callable[[], Awaitable[None] | None], then: Then) -> Hook | None:
    """Call a hook and go on with ``then``; return the `Hook` when that is not done yet."""
    try:
        pending = cell.run_queue.call(call)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the actor ends by it
        then(error)
        raise_if_for_the_process(error)
        return None
    if pending is None:
        then(None)
        return None
    return Hook(cell, pending, then)
