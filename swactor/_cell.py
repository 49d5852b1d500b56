"""One actor's life: started, given its turns, stopped, perhaps started again, ended.

Owns: the state machine of an actor and the rule that its hooks and handlers never overlap. A synchronous
actor runs within turns of the run queue; an asynchronous one has a task that the turns merely wake.
Not here: order and bounds of messages (`_mailbox`), turns (`_runqueue`), restart decisions (`_supervisor`).
"""

from __future__ import annotations

import enum
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from swactor._context import Context
from swactor._errors import ActorDeadError, ChildFailedError
from swactor._mailbox import Mailbox, MailboxPolicy
from swactor._messages import (
    Ask,
    ChildDown,
    Down,
    Drained,
    ExitKind,
    ExitReason,
    HookDone,
    Signal,
    Stop,
    TimerFired,
)
from swactor._moments import ActorFailed, ActorStuck
from swactor._ref import LocalRef, running_cell
from swactor._timers import Timers

if TYPE_CHECKING:
    from swactor._actor import Actor
    from swactor._ids import ActorId
    from swactor._ref import ActorRef, Reply
    from swactor._system import ActorSystem
    from swactor.abc import Cancellable, Waiter

log = logging.getLogger("swactor")

CANCEL_WAIT_S = 1.0
"""How long a cancelled actor may take to notice before the system goes on without it."""
DEFAULT_GRACE_S = 5.0
"""How long children and hooks may take to stop when nobody said otherwise."""
ERROR_TEXT_MAX = 2_000
"""Characters of an exception's text that go into an event."""
STOPPED = ExitReason(ExitKind.STOPPED)


class CellState(enum.Enum):
    """Where in its life an actor is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DOWN = "down"
    """Ended, but its supervisor may start it again; the mailbox is kept."""
    ENDED = "ended"


class Cell:
    """The runtime's side of one actor. Everything optional is None until it is needed."""

    __slots__ = (
        "_context",
        "_ended",
        "_grace_s",
        "_hook_task",
        "_hook_then",
        "_kill_timer",
        "_queued",
        "_reason",
        "_serve_task",
        "_serves_async",
        "_started",
        "_timers",
        "_wakeup",
        "_watchers",
        "actor",
        "actor_id",
        "asking",
        "child_policy",
        "children",
        "current",
        "handled",
        "mailbox",
        "parent",
        "ref",
        "reply",
        "restarts",
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
        policy: MailboxPolicy,
        supervised: bool = False,
    ) -> None:
        self.system = system
        self.actor = actor
        self.actor_id = actor_id
        self.parent = parent
        self.supervised = supervised
        self.mailbox = Mailbox(policy)
        self.ref: LocalRef[Any] = LocalRef(self)
        self.state = CellState.STARTING
        self.children: dict[int, Cell] | None = None
        self.child_policy: Callable[[Cell, ExitReason], None] | None = None
        self.asking: Cell | None = None
        self.current: str | None = None
        self.reply: Reply[Any] | None = None
        self.handled = 0
        self.restarts = 0
        self._serves_async = inspect.iscoroutinefunction(actor.on_message)
        self._queued = False
        self._context: Context[Any] | None = None
        self._reason: ExitReason | None = None
        self._watchers: dict[ActorRef[Any], None] | None = None
        self._timers: Timers | None = None
        self._wakeup: Waiter[None] | None = None
        self._serve_task: Cancellable | None = None
        self._hook_task: Cancellable | None = None
        self._kill_timer: Cancellable | None = None
        self._started: Waiter[None] | None = None
        self._ended: list[Waiter[ExitReason]] | None = None
        self._hook_then: Callable[[BaseException | None], None] | None = None
        self._grace_s = DEFAULT_GRACE_S

    @property
    def context(self) -> Context[Any]:
        """What the actor's hooks are given."""
        if self._context is None:
            self._context = Context(self)
        return self._context

    @property
    def timers(self) -> Timers:
        """The actor's timers."""
        if self._timers is None:
            self._timers = Timers(self.system.loop, self.system.clock, self._timer_fired)
        return self._timers

    @property
    def type_name(self) -> str:
        """The actor's class, for people."""
        return type(self.actor).__qualname__

    # -- messages in ----------------------------------------------------------------------------------------

    def accept(self, message: object) -> bool:
        """Take a user message, or say False when the mailbox refuses; a dead actor makes it a dead letter."""
        if self.state is CellState.ENDED:
            self._bury(message)
            return True
        if not self.mailbox.put(message):
            return False
        self._wake()
        return True

    def signal(self, signal: Signal) -> None:
        """Take a signal of the system lane; it is acted upon before any user message."""
        if self.state is CellState.ENDED:
            return
        self.mailbox.signal(signal)
        self._enqueue()

    def _timer_fired(self, fired: TimerFired) -> None:
        if self.state is not CellState.ENDED:
            self.mailbox.force(fired)
            self._wake()

    def drain(self, grace_s: float) -> None:
        """Stop once all that waits now has been handled."""
        self.mailbox.force(Drained(grace_s))
        self._wake()

    def _wake(self) -> None:
        if not self._serves_async:
            self._enqueue()
        elif self.state is CellState.RUNNING:
            if self._wakeup is not None:
                self._wakeup.set(None)
                self._wakeup = None
            elif self._serve_task is None:
                self._serve_task = self.system.loop.start_task(self._serve(), name=str(self.actor_id))

    def _enqueue(self) -> None:
        if not self._queued:
            self._queued = True
            self.system.run_queue.add(self)

    # -- turns ----------------------------------------------------------------------------------------------

    def take_turn(self, messages_max: int) -> bool:
        """Act on signals, then handle up to ``messages_max`` messages; return whether more wait."""
        mailbox = self.mailbox
        while True:
            while mailbox.signals:
                self._act_on(mailbox.signals.popleft())
            if self._serves_async or self.state is not CellState.RUNNING:
                break
            lane = mailbox.urgent or mailbox.user
            if not lane:
                break
            if messages_max == 0:
                return True
            messages_max -= 1
            self._handle(lane.popleft())
        self._queued = False
        return False

    def _handle(self, message: object) -> None:
        """Run the handler on one message of a synchronous actor."""
        mailbox = self.mailbox
        if mailbox._room is not None:
            mailbox.announce_room()
        if type(message) in _ENVELOPES:
            body, reply = self._open(message)
            if body is _NOTHING:
                return
        else:
            body, reply = message, None
        self.handled += 1
        self.reply = reply
        try:
            answer = self.actor.on_message(self.context, body)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises ends its actor, not the system
            self._handler_failed(error, body)
        else:
            if reply is not None and not reply.deferred:
                reply.send(answer)
        self.reply = None

    async def _serve(self) -> None:
        """Handle messages one after the other, parked in between, until the actor stops."""
        running_cell.set(self)
        mailbox = self.mailbox
        try:
            while self.state is CellState.RUNNING:
                lane = mailbox.urgent or mailbox.user
                if mailbox.signals:
                    self._act_on(mailbox.signals.popleft())
                elif lane:
                    await self._handle_async(lane.popleft())
                else:
                    self._wakeup = self.system.loop.waiter()
                    await self._wakeup.wait()
        finally:
            abandoned = self._serve_task is None
            self._serve_task = self._wakeup = None
            if self.state is CellState.RUNNING:  # cancelled by somebody else
                self._begin_stop(ExitReason(ExitKind.KILLED), grace_s=None)
            elif not abandoned:
                self._stop_next_child()

    async def _handle_async(self, message: object) -> None:
        self.mailbox.announce_room()
        body, reply = self._open(message) if type(message) in _ENVELOPES else (message, None)
        if body is _NOTHING:
            return
        self.handled += 1
        self.reply = reply
        self.current = type(body).__name__
        try:
            answer = await self.actor.on_message(self.context, body)  # type: ignore[misc]  # a coroutine, checked once
        except Exception as error:  # noqa: BLE001 - whatever a handler raises ends its actor, not the system
            self._handler_failed(error, body)
        else:
            if reply is not None and not reply.deferred:
                reply.send(answer)
        finally:
            if reply is not None and not reply.deferred:
                reply.fail(ActorDeadError(self.actor_id, "cancelled while handling the message"))
            self.reply = self.current = None

    def _open(self, message: object) -> tuple[object, Reply[Any] | None]:
        """Return what is inside an envelope, and the reply that is waited for."""
        match message:
            case Ask():
                # An asker that gave up meanwhile needs no work done.
                return (_NOTHING, None) if message.reply.done else (message.message, message.reply)
            case TimerFired():
                return (message.message if self.timers.accept(message) else _NOTHING), None
            case Drained():
                self._begin_stop(STOPPED, grace_s=message.grace_s)
                return _NOTHING, None
            case _:
                return message, None

    def _handler_failed(self, error: Exception, message: object) -> None:
        if self.reply is not None:
            self.reply.fail(error)
        self._fail(error, message_type=type(message).__name__)

    # -- signals --------------------------------------------------------------------------------------------

    def _act_on(self, signal: Signal) -> None:
        match signal:
            case Down():
                self.mailbox.overtake(signal)
                self._wake()
            case Stop():
                self._begin_stop(signal.reason, grace_s=signal.grace_s)
            case ChildDown():
                self._child_down(signal)
            case HookDone():
                then, self._hook_then = self._hook_then, None
                if then is not None:
                    then(signal.error)

    def _child_down(self, down: ChildDown) -> None:
        if self.child_policy is not None and down.cell.supervised and self.state is CellState.RUNNING:
            self.child_policy(down.cell, down.reason)
            return
        if down.cell.state is CellState.DOWN:
            down.cell.finish()
        if self.children is not None:
            self.children.pop(down.cell.actor_id.serial, None)
        if self.state is CellState.STOPPING:
            if self._serve_task is None and self._hook_task is None:
                self._stop_next_child()
        elif down.reason.abnormal and not down.watched and self.parent is not None:
            error = ChildFailedError(down.cell.actor_id, str(down.reason))
            error.__cause__ = down.reason.error
            self._fail(error)

    # -- hooks ----------------------------------------------------------------------------------------------

    def _run_hook(
        self, hook: Callable[[], Awaitable[None] | None], then: Callable[[BaseException | None], None]
    ) -> None:
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
        running_cell.set(self)
        error: BaseException | None = ActorDeadError(self.actor_id, "cancelled in on_start or on_stop")
        try:
            await pending
            error = None
        except Exception as raised:  # noqa: BLE001 - a failing hook ends its actor, not the system
            error = raised
        finally:
            if self._hook_task is not None:  # else nobody waits for this any more
                self._hook_task = None
                self.signal(HookDone(error))

    # -- start ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run ``on_start``; when it needs to wait, a task does that and messages wait too."""
        self._run_hook(lambda: self.actor.on_start(self.context), self._start_done)

    def restart(self, actor: Actor[Any]) -> None:
        """Start again with a fresh instance, under the same address and with the same mailbox."""
        self.actor = actor
        self._serves_async = inspect.iscoroutinefunction(actor.on_message)
        self.state = CellState.STARTING
        self._reason = None
        self.restarts += 1
        self.start()

    def _start_done(self, error: BaseException | None) -> None:
        if self.state is CellState.STOPPING:  # asked to stop before it had started
            self._stop_next_child()
        elif error is not None:
            self._announce_started(error)
            self._fail(error)
        else:
            self.state = CellState.RUNNING
            self._announce_started(None)
            if self.mailbox.user or self.mailbox.urgent:
                self._wake()

    def _announce_started(self, error: BaseException | None) -> None:
        if self._started is not None:
            if error is None:
                self._started.set(None)
            else:
                self._started.fail(error)
            self._started = None

    async def wait_started(self) -> None:
        """Wait until ``on_start`` is done; raise what it raised."""
        if self.state is CellState.STARTING:
            self._started = self.system.loop.waiter()
            await self._started.wait()
        elif self._reason is not None and self._reason.error is not None:
            raise self._reason.error

    # -- stop -----------------------------------------------------------------------------------------------

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
        self._begin_stop(ExitReason(ExitKind.FAILED, error), grace_s=None)

    def _begin_stop(self, reason: ExitReason, *, grace_s: float | None) -> None:
        if self.state not in {CellState.STARTING, CellState.RUNNING}:
            return
        self.state = CellState.STOPPING
        self._reason = reason
        self._grace_s = DEFAULT_GRACE_S if grace_s is None else grace_s
        if self._timers is not None:
            self._timers.cancel_all()
        if self._serve_task is None and self._hook_task is None:
            self._stop_next_child()
        else:
            self._kill_after(self._grace_s)
            if self._wakeup is not None:
                self._wakeup.set(None)

    def _stop_next_child(self) -> None:
        self._disarm()
        if self.children:
            # Newest first: a later child may use an earlier one.
            newest = self.children[next(reversed(self.children))]
            if newest.state is CellState.DOWN:
                self._child_down(ChildDown(newest, STOPPED, watched=False))
            else:
                newest.signal(Stop(STOPPED, self._grace_s))
        elif self._reason is not None and self._reason.kind is ExitKind.KILLED:
            self._stopped()
        else:
            reason = self._reason or STOPPED
            self._run_hook(lambda: self.actor.on_stop(self.context, reason), self._stop_done)
            if self._hook_task is not None:
                self._kill_after(self._grace_s)

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
        self._serve_task = self._hook_task = None  # what still runs finds that nobody is interested any more
        self.system.emit(ActorStuck(actor=self.actor_id.path, actor_type=self.type_name))
        self._stop_next_child()

    def _stopped(self) -> None:
        self._disarm()
        if self.supervised and self.parent is not None:
            self.state = CellState.DOWN
            self.parent.signal(ChildDown(self, self._reason or STOPPED, watched=False))
        else:
            self.finish()

    def finish(self) -> None:
        """End for good: fail what waits, tell who watches, forget what is held."""
        if self.state is CellState.ENDED:
            return
        self.state = CellState.ENDED
        reason = self._reason or STOPPED
        self.system.names.forget(self.actor_id)
        for message in self.mailbox.empty_out():
            self._bury(message)
        self.mailbox.release_waiting()
        self._announce_started(ActorDeadError(self.actor_id, str(reason)))
        watchers, self._watchers = self._watchers or {}, None
        for watcher in watchers:
            watcher.notify_down(Down(self.ref, reason))
        for waiter in self._ended or ():
            waiter.set(reason)
        self._context = self._timers = self._ended = None
        if self.parent is not None and not self.supervised:
            self.parent.signal(ChildDown(self, reason, watched=self.parent.ref in watchers))

    def _bury(self, message: object) -> None:
        """A message that nobody will handle: fail its asker, or count it."""
        if isinstance(message, Ask):
            message.reply.fail(ActorDeadError(self.actor_id, str(self._reason or STOPPED)))
        elif not isinstance(message, TimerFired | Drained):
            self.system.dead_letter(self.actor_id, message)

    # -- watching -------------------------------------------------------------------------------------------

    def add_watcher(self, watcher: ActorRef[Any]) -> None:
        """Tell ``watcher`` when this actor has ended; at once when it has."""
        if self.state is CellState.ENDED:
            watcher.notify_down(Down(self.ref, self._reason or STOPPED))
        else:
            self._watchers = self._watchers or {}
            self._watchers[watcher] = None

    def remove_watcher(self, watcher: ActorRef[Any]) -> None:
        """Do not tell ``watcher`` after all."""
        if self._watchers is not None:
            self._watchers.pop(watcher, None)

    async def wait_ended(self) -> ExitReason:
        """Wait until this actor has ended for good; return why."""
        if self.state is CellState.ENDED:
            return self._reason or STOPPED
        waiter: Waiter[ExitReason] = self.system.loop.waiter()
        self._ended = [*(self._ended or ()), waiter]
        return await waiter.wait()


_NOTHING = object()
_ENVELOPES = frozenset({Ask, TimerFired, Drained})
