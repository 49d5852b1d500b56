"""One actor's life: started, stopped, perhaps started again, ended; its children and who is tied to it.

Owns: the states, the hooks, the order of an end (own work, children newest first, ``on_stop``, the news), and
the grace that each of these has. Everything optional is None until it is needed.
Not here: messages and turns (`_cell`), what an end means to others (`_ends`), who restarts (`_supervisor`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from swactor._actor import Actor
from swactor._context import Context
from swactor._ends import child_ended, tell_failure
from swactor._errors import ActorDeadError, tellable
from swactor._hook import Hook, HookCancelledError, run_hook
from swactor._ids import ActorId
from swactor._links import Ties
from swactor._messages import (
    ASKED_TO_STOP,
    COMPLETED,
    FAILED,
    KILLED,
    ChildDown,
    ExitReason,
    Stop,
)
from swactor._moments import ActorSpawned, ActorStopped, ActorStuck
from swactor._states import DOWN, ENDED, RUNNING, STARTING, STOPPING

if TYPE_CHECKING:
    from swactor._cell import Cell
    from swactor._mailbox import Mailbox
    from swactor._ref import LocalRef
    from swactor._system import ActorSystem
    from swactor._timers import Timers
    from swactor.abc import Cancellable, Waiter

DEFAULT_GRACE_S = 5.0
"""How long children and hooks may take to stop when nobody said otherwise."""
CANCEL_WAIT_S = 1.0
"""How long a cancelled actor may take to notice before the system goes on without it."""
GONE: Final[Actor[Any]] = Actor()
"""Stands for the instance of an actor that has ended."""


class Life:
    """The part of a `Cell` that outlasts single messages. ``ref.cell`` is this very object, as a `Cell`."""

    __slots__ = (
        "_context",
        "_drain_limits",
        "_end_waiters",
        "_hook",
        "_patience",
        "_reason",
        "_serve_task",
        "_start_waiter",
        "_stop_grace_s",
        "_timers",
        "actor",
        "child_policy",
        "children",
        "era",
        "kind",
        "mailbox",
        "name",
        "own_grace_s",
        "parent",
        "ref",
        "restarts",
        "retired",
        "serial",
        "state",
        "supervised",
        "system",
        "ties",
    )

    def __init__(self, system: ActorSystem, actor: Actor[Any], parent: Cell | None, serial: int) -> None:
        self.system = system
        self.actor = actor
        self.kind = system.kind_of(actor)
        self.parent = parent
        self.serial = serial
        self.name: str | None = None
        self.state = STARTING
        self.restarts = 0
        self.supervised = False
        self.retired = False
        """Whether its supervisor is not to start it again."""
        self.own_grace_s: float | None = None
        """What it is given to stop when its parent does; None: what the parent was given."""
        self._stop_grace_s = DEFAULT_GRACE_S
        """What the stop under way was given."""
        self.era = 0
        """Counts how often a task of this actor was given up; such a task finds itself in another era."""
        self.ref: LocalRef[Any]
        self.mailbox: Mailbox | None = None
        """What waits; None when nothing ever came."""
        self.children: dict[int, Cell] | None = None
        self.child_policy: Callable[[Cell, ExitReason], None] | None = None
        self._reason: ExitReason | None = None
        self._context: Context[Any] | None = None
        self._timers: Timers | None = None
        self._serve_task: Cancellable | None = None
        self._hook: Hook | None = None
        self._patience: Cancellable | None = None
        """The timer at which something else is tried: a cancellation, then going on without the task."""
        self._drain_limits: tuple[Cancellable, ...] = ()
        """The timer of each drain, which ends it whatever lives the actor has until then."""
        self._start_waiter: Waiter[None] | None = None
        self._end_waiters: list[Waiter[ExitReason]] | None = None
        self.ties: Ties | None = None

    @property
    def path(self) -> str:
        """Where in the tree it hangs, from the root."""
        parts: list[str] = []
        here: Life = self
        while here.parent is not None:
            parts.append(here.name or f"{here.kind.name}-{here.serial}")
            here = here.parent
        return "/" + "/".join(reversed(parts)) if parts else ""

    @property
    def actor_id(self) -> ActorId:
        """The actor's id."""
        return ActorId(self.path, self.serial)

    @property
    def context(self) -> Context[Any]:
        """What the actor's hooks are given."""
        if self._context is None:
            self._context = Context(self.ref.cell)
        return self._context

    # -- what the working half provides -------------------------------------------------------------------

    def _begin_work(self) -> None:
        """The actor is running: handle what waits, and what comes."""
        raise NotImplementedError

    def _quit_work(self) -> None:
        """The actor is stopping: no message is handled any more but the one under way."""
        raise NotImplementedError

    def _give_up_work(self) -> None:
        """The task that handles messages ignores its cancellation: go on without it."""
        raise NotImplementedError

    def _fail_replies(self) -> None:
        """This life of the actor is over: whoever it owes a reply need not wait for it."""
        raise NotImplementedError

    def _end_work(self) -> None:
        """The actor has ended: bury what still waits."""
        raise NotImplementedError

    # -- start --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run ``on_start``; messages wait until it is done."""
        if self.system.observers and self.restarts == 0 and self.parent is not None:
            self.system.emit(ActorSpawned(actor=self.path, actor_type=self.kind.name))
        if self.kind.starts:
            self._hook = run_hook(self.ref.cell, lambda: self.actor.on_start(self.context), self._start_done)
        else:
            self.state = RUNNING
            if self.restarts:  # else nothing can have come yet
                self._begin_work()

    def _start_done(self, error: BaseException | None) -> None:
        if self.state is STOPPING:  # asked to stop before it had started
            if error is not None and not isinstance(error, HookCancelledError):
                self.fail(error)
            self._stop_next_child()
        elif isinstance(error, HookCancelledError):
            self._announce_start(error)
            self.begin_stop(ExitReason(KILLED, error))
        elif error is not None:
            self._announce_start(error)
            self.fail(error)
        else:
            self.state = RUNNING
            self._announce_start(None)
            self._begin_work()

    def _announce_start(self, error: BaseException | None) -> None:
        if self._start_waiter is not None:
            if error is None:
                self._start_waiter.set(None)
            else:
                self._start_waiter.fail(tellable(error, self.actor_id))
            self._start_waiter = None

    async def wait_started(self) -> None:
        """Wait until ``on_start`` is done; raise what it raised."""
        if self.state is STARTING:
            self._start_waiter = self.system.loop.waiter()
            await self._start_waiter.wait()
        elif self._reason is not None and self._reason.error is not None:
            raise tellable(self._reason.error, self.actor_id)

    def hook_done(self, error: BaseException | None) -> None:
        """The hook that was waiting has returned, or raised ``error``."""
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.done(error)

    # -- stop ---------------------------------------------------------------------------------------------

    def fail(self, error: BaseException, *, message_type: str | None = None) -> None:
        """End because something raised: say so to people and observers, then stop."""
        tell_failure(self, error, f" on {message_type}" if message_type else "", message_type)
        if self.state is STOPPING:
            self._reason = self.reason.and_then(error)
        else:
            self.begin_stop(ExitReason(FAILED, error))

    def begin_stop(self, reason: ExitReason, grace_s: float = DEFAULT_GRACE_S) -> None:
        """Start the end; a task that still runs may finish its message within ``grace_s``.

        Asked once more, a shorter grace counts and a longer one does not.
        """
        if self.state is STOPPING and self._patience is not None and grace_s < self._stop_grace_s:
            self._stop_grace_s = grace_s
            self._kill_after(grace_s)
        if self.state is not RUNNING and self.state is not STARTING:
            return
        self.state = STOPPING
        self._reason = reason
        self._stop_grace_s = grace_s
        if self._timers is not None:
            self._timers.cancel_all()
        self.ref.lane = None
        if self.mailbox is not None:
            self._quit_work()
        if self._serve_task is not None or self._hook is not None:
            self._kill_after(grace_s)
        else:
            self._stop_next_child()

    def stop_asked(self, reason: ExitReason, grace_s: float, *, for_good: bool) -> None:
        """Somebody wants this actor to end."""
        if for_good and self.supervised:
            self.retired = True
            if self.state is DOWN and self.parent is not None:
                self.parent.signal(ChildDown(self.ref.cell, self.reason, watched=False))
        self.begin_stop(reason, grace_s)

    def _newest_child(self) -> Cell | None:
        """Return the newest child that still lives; those that are down only need to be let go."""
        while self.children:
            serial, newest = self.children.popitem()
            # Back in again at once: only so does taking the newest of very many not search for it each time.
            self.children[serial] = newest
            if newest.state is not DOWN:
                return newest
            self.forget_child(newest)
        return None

    def _stop_next_child(self) -> None:
        if self._patience is not None:
            self._lose_patience()
        newest = self._newest_child() if self.children else None
        if newest is not None:  # newest first: a later child may use an earlier one
            own_s = newest.own_grace_s
            newest.signal(Stop(ASKED_TO_STOP, self._stop_grace_s if own_s is None else own_s))
        elif not self.kind.stops or self.reason.kind is KILLED:
            self._stopped()
        else:
            reason = self.reason
            call = partial(self.actor.on_stop, self.context, reason)
            self._hook = run_hook(self.ref.cell, call, self._stop_done)
            if self._hook is not None:
                self._kill_after(self._stop_grace_s)

    def go_on_stopping(self) -> None:
        """A child has ended: stop the next one, unless this actor's own work is still under way."""
        if self._serve_task is None and self._hook is None:
            self._stop_next_child()

    def forget_child(self, child: Cell) -> None:
        """Let go of a child that has come to its end; one that could have been restarted ends for good."""
        child.finish()
        if self.children is not None:
            self.children.pop(child.serial, None)

    def _stop_done(self, error: BaseException | None) -> None:
        if isinstance(error, HookCancelledError):
            self._reason = ExitReason(KILLED, self.reason.error)
        elif error is not None:
            tell_failure(self, error, " in on_stop")
            self._reason = self.reason.and_then(error)
        self._stopped()

    def _lose_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _kill_after(self, delay_s: float) -> None:
        self._lose_patience()
        self._patience = self.system.loop.call_later(delay_s, self._kill)

    def _kill(self) -> None:
        """The grace is over: cancel whatever still runs, and go on without it if that does not help."""
        self._reason = ExitReason(KILLED, self.reason.error)
        if self._serve_task is not None:
            self._serve_task.cancel()
        if self._hook is not None:
            self._hook.task.cancel()
        self._patience = self.system.loop.call_later(CANCEL_WAIT_S, self._abandon)

    def _abandon(self) -> None:
        self.era += 1
        if self._hook is not None:
            self._hook.give_up()
        self._serve_task = self._hook = None
        self._give_up_work()
        self.system.note_stuck(self.actor_id)
        self.system.emit(ActorStuck(actor=self.path, actor_type=self.kind.name))
        self._stop_next_child()

    def _stopped(self) -> None:
        """This life is over: nothing of it runs any more."""
        if self._patience is not None:
            self._lose_patience()
        if self.mailbox is not None:
            self._fail_replies()
        if self._timers is not None:
            self._timers.cancel_all()  # those that on_stop may have started
        if self.ties is not None:
            self.ties.end_life(self.ref, self.reason)
        if self.supervised and self.parent is not None:
            self.state = DOWN
            self.parent.signal(ChildDown(self.ref.cell, self.reason, watched=False))
        else:
            self.finish()

    def finish(self) -> None:
        """End for good: fail what waits, tell who watches, forget what is held. Once is enough."""
        if self.state is ENDED:
            return
        self.state = ENDED
        for limit in self._drain_limits:
            limit.cancel()
        reason = self._reason = self._reason or ASKED_TO_STOP
        if self.ref in self.system.names.listed:
            self.system.names.forget(self.ref)
        if self.mailbox is not None:
            self._end_work()
        if self._start_waiter is not None:
            done = reason.kind is COMPLETED  # it stopped itself while it started, it did not fail
            self._announce_start(None if done else ActorDeadError(self.actor_id, str(reason)))
        if self.system.observers and self.parent is not None:
            self.system.emit(
                ActorStopped(actor=self.path, actor_type=self.kind.name, reason=reason.kind.value)
            )
        ties, self.ties = self.ties, None
        watched = False
        if ties is not None:
            watched = self.parent is not None and self.parent.ref in ties.watchers
            ties.end(self.ref, reason)
        if self._end_waiters is not None:
            for waiter in self._end_waiters:
                waiter.set(reason)
        self.actor = GONE  # whoever keeps the address of a dead actor keeps none of its state
        self._context = self._timers = self._end_waiters = self.children = self.mailbox = None
        self.child_policy = None
        if self.parent is not None and not self.supervised:
            child_ended(self.parent, self.ref.cell, reason, watched=watched)

    @property
    def reason(self) -> ExitReason:
        """Why the actor ends or ended."""
        return self._reason or ASKED_TO_STOP

    async def wait_ended(self) -> ExitReason:
        """Wait until this actor has ended for good; return why."""
        if self.state is ENDED:
            return self.reason
        waiter: Waiter[ExitReason] = self.system.loop.waiter()
        self._end_waiters = [*(self._end_waiters or ()), waiter]
        try:
            return await waiter.wait()
        finally:
            if self._end_waiters is not None:
                self._end_waiters.remove(waiter)
