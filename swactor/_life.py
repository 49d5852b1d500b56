"""One actor's life: started, stopped, perhaps started again, ended; its children and who watches it.

Owns: the states, the hooks, the order of an end (own work, children newest first, ``on_stop``, the news), and
the grace that each of these has. Everything optional is None until it is needed.
Not here: messages and turns (`_cell`), restart decisions (`_supervisor`).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from swactor._context import Context
from swactor._errors import ActorDeadError, ChildFailedError
from swactor._messages import ChildDown, Down, ExitKind, ExitReason, HookDone, Signal, Stop
from swactor._moments import ActorFailed, ActorStuck
from swactor._ref import LocalRef, running_cell

if TYPE_CHECKING:
    from swactor._actor import Actor
    from swactor._cell import Cell
    from swactor._ids import ActorId
    from swactor._ref import ActorRef
    from swactor._system import ActorSystem
    from swactor._timers import Timers
    from swactor.abc import Cancellable, Waiter

log = logging.getLogger("swactor")

DEFAULT_GRACE_S = 5.0
"""How long children and hooks may take to stop when nobody said otherwise."""
CANCEL_WAIT_S = 1.0
"""How long a cancelled actor may take to notice before the system goes on without it."""
ERROR_TEXT_MAX = 2_000
"""Characters of an exception's text that go into an event."""
STOPPED = ExitReason(ExitKind.STOPPED)


class LifeState(enum.Enum):
    """Where in its life an actor is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DOWN = "down"
    """Ended, but its supervisor may start it again; the mailbox is kept."""
    ENDED = "ended"


class Life:
    """The part of a `Cell` that outlasts single messages."""

    __slots__ = (
        "_context",
        "_end_waiters",
        "_era",
        "_grace_s",
        "_hook_task",
        "_hook_then",
        "_kill_timer",
        "_reason",
        "_serve_task",
        "_start_waiter",
        "_timers",
        "_watchers",
        "_watching",
        "actor",
        "actor_id",
        "child_policy",
        "children",
        "grace_s",
        "parent",
        "ref",
        "restarts",
        "retired",
        "state",
        "supervised",
        "system",
    )

    def __init__(
        self,
        system: ActorSystem,
        actor: Actor[Any],
        actor_id: ActorId,
        *,
        parent: Cell | None,
        supervised: bool,
        grace_s: float | None,
    ) -> None:
        self.system = system
        self.actor = actor
        self.actor_id = actor_id
        self.parent = parent
        self.supervised = supervised
        self.grace_s = grace_s
        """What it is given to stop when its parent does; None: what the parent was given."""
        self.retired = False
        """Whether its supervisor is not to start it again."""
        self.ref: LocalRef[Any]
        self.state = LifeState.STARTING
        self.restarts = 0
        self.children: dict[int, Cell] | None = None
        self.child_policy: Callable[[Cell, ExitReason], None] | None = None
        self._reason: ExitReason | None = None
        self._era = 0
        """Counts how often a task of this actor was given up; such a task finds itself in another era."""
        self._grace_s = DEFAULT_GRACE_S
        self._context: Context[Any] | None = None
        self._timers: Timers | None = None
        self._serve_task: Cancellable | None = None
        self._hook_task: Cancellable | None = None
        self._hook_then: Callable[[BaseException | None], None] | None = None
        self._kill_timer: Cancellable | None = None
        self._start_waiter: Waiter[None] | None = None
        self._end_waiters: list[Waiter[ExitReason]] | None = None
        self._watchers: dict[ActorRef[Any], None] | None = None
        self._watching: dict[ActorRef[Any], None] | None = None

    @property
    def type_name(self) -> str:
        """The actor's class, for people."""
        return type(self.actor).__qualname__

    # -- what the working half provides -------------------------------------------------------------------

    def signal(self, signal: Signal) -> None:
        """Take a signal of the system lane; it is acted upon before any user message."""
        raise NotImplementedError

    def _begin_work(self) -> None:
        """The actor is running: handle what waits, and what comes."""
        raise NotImplementedError

    def _quit_work(self) -> None:
        """The actor is stopping: a task that handles messages is to end after the current one."""
        raise NotImplementedError

    def _fail_replies(self) -> None:
        """This life of the actor is over: whoever it owes a reply need not wait for it."""
        raise NotImplementedError

    def _end_work(self) -> None:
        """The actor has ended: bury what still waits."""
        raise NotImplementedError

    # -- hooks --------------------------------------------------------------------------------------------

    def _run_hook(
        self, hook: Callable[[], Awaitable[None] | None], then: Callable[[BaseException | None], None]
    ) -> None:
        """Run ``hook``, in a task when it needs to wait, and go on with ``then``."""
        try:
            pending = hook()
        except Exception as error:  # noqa: BLE001 - a failing hook ends its actor, not the system
            then(error)
            return
        if pending is None:
            then(None)
        else:
            self._hook_then = then
            task = self.system.loop.start_task(self._await_hook(pending), name=f"{self.actor_id} hook")
            self._hook_task = task

    async def _await_hook(self, pending: Awaitable[None]) -> None:
        running_cell.set(self.ref.cell)
        era = self._era
        error: BaseException | None = ActorDeadError(self.actor_id, "cancelled in on_start or on_stop")
        try:
            await pending
            error = None
        except Exception as raised:  # noqa: BLE001 - a failing hook ends its actor, not the system
            error = raised
        finally:
            if era == self._era:  # else it was given up, and another life may be under way
                self.signal(HookDone(error))

    def _hook_done(self, error: BaseException | None) -> None:
        then, self._hook_then = self._hook_then, None
        self._hook_task = None
        if then is not None:
            then(error)

    # -- start --------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context[Any]:
        """What the actor's hooks are given."""
        if self._context is None:
            self._context = Context(self.ref.cell)
        return self._context

    def start(self) -> None:
        """Run ``on_start``; messages wait until it is done."""
        self._run_hook(lambda: self.actor.on_start(self.context), self._start_done)

    def _start_done(self, error: BaseException | None) -> None:
        if self.state is LifeState.STOPPING:  # asked to stop before it had started
            self._stop_next_child()
        elif error is not None:
            self._announce_start(error)
            self._fail(error)
        else:
            self.state = LifeState.RUNNING
            self._announce_start(None)
            self._begin_work()

    def _announce_start(self, error: BaseException | None) -> None:
        if self._start_waiter is not None:
            if error is None:
                self._start_waiter.set(None)
            else:
                self._start_waiter.fail(error)
            self._start_waiter = None

    async def wait_started(self) -> None:
        """Wait until ``on_start`` is done; raise what it raised."""
        if self.state is LifeState.STARTING:
            self._start_waiter = self.system.loop.waiter()
            await self._start_waiter.wait()
        elif self._reason is not None and self._reason.error is not None:
            raise self._reason.error

    # -- stop ---------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException, *, message_type: str | None = None) -> None:
        """End because something raised: say so to people and observers, then stop."""
        during = f" on {message_type}" if message_type else ""
        log.error("%s (%s) failed%s", self.actor_id, self.type_name, during, exc_info=error)
        self.system.emit(
            ActorFailed(
                actor=self.actor_id.path,
                actor_type=self.type_name,
                error_type=type(error).__name__,
                error=str(error)[:ERROR_TEXT_MAX],
                message_type=message_type or UNSET,
            )
        )
        self.begin_stop(ExitReason(ExitKind.FAILED, error))

    def begin_stop(self, reason: ExitReason, *, grace_s: float = DEFAULT_GRACE_S) -> None:
        """Start the end; a task that still runs may finish its message within ``grace_s``."""
        if self.state is LifeState.STOPPING and self._kill_timer is not None and grace_s < self._grace_s:
            self._grace_s = grace_s
            self._kill_after(grace_s)
        if self.state not in {LifeState.STARTING, LifeState.RUNNING}:
            return
        self.state = LifeState.STOPPING
        self._reason = reason
        self._grace_s = grace_s
        if self._timers is not None:
            self._timers.cancel_all()
        if self._serve_task is None and self._hook_task is None:
            self._stop_next_child()
        else:
            self._kill_after(grace_s)
            self._quit_work()

    def _stop_asked(self, stop: Stop) -> None:
        if self.supervised and stop.for_good:
            self.retired = True
            if self.state is LifeState.DOWN and self.parent is not None:
                self.parent.signal(ChildDown(self.ref.cell, self.reason, watched=False))
        self.begin_stop(stop.reason, grace_s=stop.grace_s)

    def _newest_child(self) -> Cell | None:
        """Return the newest child that still lives; those that are down only need to be let go."""
        while self.children:
            newest = self.children[next(reversed(self.children))]
            if newest.state is not LifeState.DOWN:
                return newest
            self.forget_child(newest)
        return None

    def _stop_next_child(self) -> None:
        self._disarm()
        newest = self._newest_child()  # newest first: a later child may use an earlier one
        if newest is not None:
            newest.signal(Stop(STOPPED, self._grace_s if newest.grace_s is None else newest.grace_s))
        elif self._reason is not None and self._reason.kind is ExitKind.KILLED:
            self._stopped()
        else:
            reason = self._reason or STOPPED
            self._run_hook(lambda: self.actor.on_stop(self.context, reason), self._stop_done)
            if self._hook_task is not None:
                self._kill_after(self._grace_s)

    def _child_down(self, down: ChildDown) -> None:
        if self.child_policy is not None and down.cell.supervised and self.state is LifeState.RUNNING:
            self.child_policy(down.cell, down.reason)
            return
        self.forget_child(down.cell)
        if self.state is LifeState.STOPPING:
            if self._serve_task is None and self._hook_task is None:
                self._stop_next_child()
        elif self._suffers_from(down):
            error = ChildFailedError(down.cell.actor_id, str(down.reason))
            error.__cause__ = down.reason.error
            self._fail(error)

    def _suffers_from(self, down: ChildDown) -> bool:
        """Whether this actor fails because a child did: not the root, nor one that is told `Down` anyway."""
        if self.state not in {LifeState.STARTING, LifeState.RUNNING} or self.parent is None:
            return False
        return down.reason.abnormal and not down.watched and down.cell.ref not in (self._watching or ())

    def forget_child(self, child: Cell) -> None:
        """Let go of a child that has come to its end; one that could have been restarted ends for good."""
        child.finish()
        if self.children is not None:
            self.children.pop(child.actor_id.serial, None)

    def _stop_done(self, error: BaseException | None) -> None:
        if error is not None:
            log.error("%s (%s) failed in on_stop", self.actor_id, self.type_name, exc_info=error)
            if self._reason is None or not self._reason.abnormal:
                self._reason = ExitReason(ExitKind.FAILED, error)
        self._stopped()

    def _kill_after(self, delay_s: float) -> None:
        self._disarm()
        self._kill_timer = self.system.loop.call_later(delay_s, self._kill)

    def _disarm(self) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None

    def _kill(self) -> None:
        """The grace is over: cancel whatever still runs, and go on without it if that does not help."""
        self._reason = ExitReason(ExitKind.KILLED)
        for task in (self._serve_task, self._hook_task):
            if task is not None:
                task.cancel()
        self._kill_timer = self.system.loop.call_later(CANCEL_WAIT_S, self._abandon)

    def _abandon(self) -> None:
        self._era += 1
        self._serve_task = self._hook_task = self._hook_then = None
        self.system.emit(ActorStuck(actor=self.actor_id.path, actor_type=self.type_name))
        self._stop_next_child()

    def _stopped(self) -> None:
        self._disarm()
        self._fail_replies()
        if self._timers is not None:
            self._timers.cancel_all()  # those that on_stop may have started
        if self.supervised and self.parent is not None:
            self.state = LifeState.DOWN
            self.parent.signal(ChildDown(self.ref.cell, self._reason or STOPPED, watched=False))
        else:
            self.finish()

    def finish(self) -> None:
        """End for good: fail what waits, tell who watches, forget what is held. Once is enough."""
        if self.state is LifeState.ENDED:
            return
        self.state = LifeState.ENDED
        reason = self._reason or STOPPED
        self.system.names.forget(self.actor_id)
        self._end_work()
        self._announce_start(ActorDeadError(self.actor_id, str(reason)))
        for watched in self._watching or ():
            watched.remove_watcher(self.ref)
        watchers, self._watchers = self._watchers or {}, None
        for watcher in watchers:
            watcher.notify_down(Down(self.ref, reason))
        for waiter in self._end_waiters or ():
            waiter.set(reason)
        self._context = self._timers = self._end_waiters = self._watching = None
        if self.parent is not None and not self.supervised:
            self.parent.signal(ChildDown(self.ref.cell, reason, watched=self.parent.ref in watchers))

    @property
    def reason(self) -> ExitReason:
        """Why the actor ended; only once it has."""
        return self._reason or STOPPED

    async def wait_ended(self) -> ExitReason:
        """Wait until this actor has ended for good; return why."""
        if self.state is LifeState.ENDED:
            return self.reason
        waiter: Waiter[ExitReason] = self.system.loop.waiter()
        self._end_waiters = [*(self._end_waiters or ()), waiter]
        try:
            return await waiter.wait()
        finally:
            if self._end_waiters is not None:
                self._end_waiters.remove(waiter)

    # -- watching -----------------------------------------------------------------------------------------

    def watch(self, other: ActorRef[Any]) -> None:
        """Have this actor told when ``other`` ends; an end of this actor ends the watching."""
        self._watching = self._watching or {}
        self._watching[other] = None
        other.add_watcher(self.ref)

    def unwatch(self, other: ActorRef[Any]) -> None:
        """Do not have it told after all."""
        if self._watching is not None:
            self._watching.pop(other, None)
        other.remove_watcher(self.ref)

    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """Tell ``watcher`` when this actor has ended; at once when it has."""
        if self.state is LifeState.ENDED:
            watcher.notify_down(Down(self.ref, self.reason))
        else:
            self._watchers = self._watchers or {}
            self._watchers[watcher] = None

    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """Do not tell ``watcher`` after all."""
        if self._watchers is not None:
            self._watchers.pop(watcher, None)
