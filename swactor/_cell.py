"""One actor at work: messages come in, turns are taken, handlers run one at a time.

Owns: the way of a message from the mailbox into the handler, and of the result back to who asked. A
synchronous actor runs within turns of the run queue; an asynchronous one has a task that is merely woken.
Not here: order and bounds of messages (`_mailbox`), turns (`_runqueue`), start, stop and children (`_life`).
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from swactor._errors import ActorDeadError
from swactor._life import STOPPED, Life, LifeState
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
from swactor._ref import LocalRef, running_cell
from swactor._runqueue import TURN_MESSAGES
from swactor._timers import Timers

if TYPE_CHECKING:
    from swactor._actor import Actor
    from swactor._ids import ActorId
    from swactor._ref import Reply
    from swactor._system import ActorSystem
    from swactor.abc import Waiter

_NOTHING = object()
"""What an envelope holds that needs no handling any more."""
_ENVELOPES = frozenset({Ask, TimerFired, Drained})


class Cell(Life):
    """The runtime's side of one actor."""

    __slots__ = (
        "_deferred",
        "_queued",
        "_serves_async",
        "_wakeup",
        "asking",
        "current",
        "handled",
        "mailbox",
        "reply",
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
        grace_s: float | None = None,
    ) -> None:
        super().__init__(system, actor, actor_id, parent=parent, supervised=supervised, grace_s=grace_s)
        self.mailbox = Mailbox(policy)
        self.ref = LocalRef(self)
        self.handled = 0
        self.asking: Cell | None = None
        self.current: str | None = None
        self.reply: Reply[Any] | None = None
        self._serves_async = inspect.iscoroutinefunction(actor.on_message)
        self._deferred: dict[Reply[Any], None] | None = None
        self._queued = False
        self._wakeup: Waiter[None] | None = None

    def restart(self, actor: Actor[Any]) -> None:
        """Start again with a fresh instance, under the same address and with the same mailbox."""
        self.actor = actor
        self._serves_async = inspect.iscoroutinefunction(actor.on_message)
        self.mailbox.awake = False  # a task that was given up still said otherwise
        self._wakeup = None
        self.state = LifeState.STARTING
        self._reason = None
        self.restarts += 1
        self.start()

    @property
    def timers(self) -> Timers:
        """The actor's timers."""
        if self._timers is None:
            self._timers = Timers(self.system.loop, self.system.clock, self._timer_fired)
        return self._timers

    # -- messages in --------------------------------------------------------------------------------------

    def accept(self, message: object) -> bool:
        """Take a user message, or say False when the mailbox refuses; a dead actor makes it a dead letter."""
        if self.state is LifeState.ENDED or (self.state is LifeState.STOPPING and not self.supervised):
            self._bury(message)
            return True
        if not self.mailbox.put(message):
            return False
        self._wake()
        return True

    def signal(self, signal: Signal) -> None:
        """Take a signal of the system lane; it is acted upon before any user message."""
        if self.state is not LifeState.ENDED:
            self.mailbox.signal(signal)
            self._enqueue()

    def drain(self, grace_s: float) -> None:
        """Stop once all that waits now has been handled."""
        if self.state is not LifeState.ENDED:
            self.mailbox.force(Drained(grace_s))
            self._wake()

    def _timer_fired(self, fired: TimerFired) -> None:
        if self.state is not LifeState.ENDED:
            self.mailbox.force(fired)
            self._wake()

    def _wake(self) -> None:
        """Make sure that somebody looks into the mailbox."""
        if not self._serves_async:
            self._enqueue()
        elif self.state is LifeState.RUNNING:
            self.mailbox.awake = True
            if self._wakeup is not None:
                self._wakeup.set(None)
                self._wakeup = None
            elif self._serve_task is None:
                self._serve_task = self.system.loop.start_task(self._serve(), name=str(self.actor_id))

    def _enqueue(self) -> None:
        if not self._queued:
            self._queued = True
            self.mailbox.awake = not self._serves_async
            self.system.run_queue.add(self)

    # -- a synchronous actor's turn -----------------------------------------------------------------------

    def take_turn(self, messages_max: int) -> bool:
        """Act on signals, handle up to ``messages_max`` messages; return whether more wait."""
        mailbox = self.mailbox
        if mailbox.signals:
            self._act_on_signals()
        if not self._serves_async:
            while self.state is LifeState.RUNNING and (mailbox.user or mailbox.urgent):
                if messages_max <= 0:
                    return True
                messages_max -= self._handle_some(messages_max)
                if mailbox.signals:
                    self._act_on_signals()
            mailbox.awake = False
        self._queued = False
        return False

    def _handle_some(self, messages_max: int) -> int:
        """Handle messages until the turn is over, none is left or a signal comes; return how many."""
        mailbox = self.mailbox
        handle = self.actor.on_message
        context = self._context or self.context
        count = 0
        while count < messages_max:
            lane = mailbox.urgent or mailbox.user
            if not lane:
                break
            message = lane.popleft()
            count += 1
            if mailbox.crowded:
                mailbox.announce_room()
            if message.__class__ in _ENVELOPES:
                self._handle_envelope(message)
            else:
                try:
                    handle(context, message)
                except BaseException as error:  # noqa: BLE001 - whatever it is, the actor ends by it
                    self._handler_failed(error, message)
            if mailbox.signals or self.state is not LifeState.RUNNING:
                break
        self.handled += count
        return count

    def _handle_envelope(self, envelope: object) -> None:
        message: object = envelope
        try:
            message, reply = self._open(envelope)
            if message is _NOTHING:
                return
            self.reply = reply
            answer = self.actor.on_message(self._context or self.context, message)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the actor ends by it
            self._handler_failed(error, message)
        else:
            if reply is not None and not reply.deferred:
                reply.send(answer)
        self.reply = None

    # -- an asynchronous actor's task ---------------------------------------------------------------------

    async def _serve(self) -> None:
        """Handle messages one after the other, parked in between, until the actor stops."""
        running_cell.set(self)
        mailbox = self.mailbox
        era = self._era
        left = TURN_MESSAGES
        try:
            while self.state is LifeState.RUNNING and era == self._era:
                lane = mailbox.urgent or mailbox.user
                if mailbox.signals:
                    self._act_on_signals()
                elif lane and left:
                    left -= 1
                    await self._handle_async(lane.popleft())
                else:
                    if not lane:
                        mailbox.awake = False
                    self._wakeup = self.system.loop.waiter()
                    if lane:  # a handler that never had to wait leaves the loop to others for a turn
                        self.system.loop.call_soon(partial(self._wakeup.set, None))
                    await self._wakeup.wait()
                    left = TURN_MESSAGES
        finally:
            if era == self._era:  # else it was given up, and another life may be under way
                mailbox.awake = False
                self._serve_task = self._wakeup = None
                if self.state is LifeState.RUNNING:  # cancelled by somebody else
                    self.begin_stop(ExitReason(ExitKind.KILLED))
                else:
                    self._stop_next_child()

    async def _handle_async(self, message: object) -> None:
        if self.mailbox.crowded:
            self.mailbox.announce_room()
        body, reply = self._open(message) if message.__class__ in _ENVELOPES else (message, None)
        if body is _NOTHING:
            return
        self.handled += 1
        self.reply = reply
        self.current = type(body).__name__
        try:
            answer = await self.actor.on_message(self.context, body)  # type: ignore[misc]  # it is `async def`
        except Exception as error:  # noqa: BLE001 - whatever a handler raises ends its actor, not the system
            self._handler_failed(error, body)
        else:
            if reply is not None and not reply.deferred:
                reply.send(answer)
        finally:
            if reply is not None and not reply.deferred:
                reply.fail(ActorDeadError(self.actor_id, "cancelled while handling the message"))
            self.reply = self.current = None

    # -- both ---------------------------------------------------------------------------------------------

    def _open(self, envelope: object) -> tuple[object, Reply[Any] | None]:
        """Return what is inside, and the reply that is waited for."""
        match envelope:
            case Ask():
                # An asker that gave up meanwhile needs no work done.
                return (_NOTHING, None) if envelope.reply.done else (envelope.message, envelope.reply)
            case TimerFired():
                return (envelope.message if self.timers.accept(envelope) else _NOTHING), None
            case Drained():
                self.begin_stop(STOPPED, grace_s=envelope.grace_s)
        return _NOTHING, None

    def defer(self, reply: Reply[Any]) -> None:
        """Leave the answer to whoever holds ``reply``; should this life of the actor end first, it fails."""
        if self._deferred is None:
            self._deferred = {}
        reply.defer(self._deferred)

    def _fail_replies(self) -> None:
        owed = [*(self._deferred or ()), *(() if self.reply is None else (self.reply,))]
        for reply in owed:
            reply.fail(ActorDeadError(self.actor_id, str(self.reason)))

    def _handler_failed(self, error: BaseException, message: object) -> None:
        reply, self.reply = self.reply, None
        if reply is not None:
            # What is meant for the whole process must not be raised once more wherever somebody asked.
            told = error if isinstance(error, Exception) else ActorDeadError(self.actor_id, repr(error))
            reply.fail(told)
        self._fail(error, message_type=type(message).__name__)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

    def _act_on_signals(self) -> None:
        signals = self.mailbox.signals
        while signals:
            try:
                self._act_on(signals.popleft())
            except Exception as error:  # noqa: BLE001 - a supervisor's own policy may raise
                self._fail(error)

    def _act_on(self, signal: Signal) -> None:
        match signal:
            case Down():
                if self._watching is not None:
                    self._watching.pop(signal.ref, None)
                self.mailbox.overtake(signal)
                self._wake()
            case Stop():
                self._stop_asked(signal)
            case ChildDown():
                self._child_down(signal)
            case HookDone():
                self._hook_done(signal.error)

    def _begin_work(self) -> None:
        if self.mailbox.user or self.mailbox.urgent:
            self._wake()

    def _quit_work(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set(None)

    def _end_work(self) -> None:
        self.mailbox.awake = False
        for message in self.mailbox.empty_out():
            self._bury(message)
        self.mailbox.release_waiting()

    def _bury(self, message: object) -> None:
        """A message that nobody will handle: fail its asker, or count it, unless only the runtime said it."""
        if isinstance(message, Ask):
            message.reply.fail(ActorDeadError(self.actor_id, str(self.reason)))
        elif not isinstance(message, TimerFired | Drained | Down):
            self.system.dead_letter(self.actor_id, message)
