"""One actor at work: messages come in, turns are taken, handlers run one at a time.

Owns: the way of a message from the mailbox into the handler, and of the result back to who asked. A
synchronous actor runs within turns of the run queue; an asynchronous one has a task that is merely woken.
Not here: order and bounds of messages (`_mailbox`), what is in an envelope (`_envelopes`), what a signal does
(`_signals`), whose turn it is (`_runqueue`), start, stop and children (`_life`).
"""

from __future__ import annotations

from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final

from swactor._envelopes import bury, opened
from swactor._errors import ActorDeadError, raise_if_for_the_process, tellable
from swactor._life import Life
from swactor._mailbox import KEPT, Mailbox, MailboxPolicy
from swactor._messages import (
    ASKED_TO_STOP,
    KILLED,
    NOTHING,
    Down,
    Drained,
    ExitReason,
    Signal,
    Stop,
    TimerFired,
    WithReceipt,
)
from swactor._ref import LocalRef
from swactor._reply import Ask, Reply
from swactor._runqueue import SHORT_TURN_LEFT, TURN_MESSAGES
from swactor._serving import serve
from swactor._signals import see_to_signals
from swactor._states import ENDED, RUNNING, STARTING, STOPPING
from swactor._timers import Timers

if TYPE_CHECKING:
    from swactor._actor import Actor
    from swactor._system import ActorSystem
    from swactor.abc import Parker

NO_BATCH: Final = repeat(None, 0)


class Cell(Life):
    """The runtime's side of one actor.

    ``ref.lane`` says whether somebody is on the way to look at the mailbox of a running actor: the run queue
    or, for an asynchronous one, its task. Then a message is added, and nothing else; else somebody is sent.
    """

    __slots__ = (
        "_deferred",
        "_parker",
        "_queued",
        "asked",
        "asking",
        "batch",
        "current",
        "downs",
        "policy",
        "run_queue",
        "signals",
        "taken",
        "waits",
    )

    def __init__(
        self, system: ActorSystem, actor: Actor[Any], parent: Cell | None, serial: int, policy: MailboxPolicy
    ) -> None:
        Life.__init__(self, system, actor, parent, serial)  # `super()` would be felt: actors are many
        self.ref = LocalRef(self, policy.capacity)
        self.waits = self.kind.waits
        """Whether ``on_message`` is ``async def``, so that a task calls it."""
        self.policy = policy
        self.taken = 0
        """Messages taken out of the mailbox to be handled; those of a batch under way count at its start."""
        self.batch = NO_BATCH
        """Yields once for each message that is left of the batch: it counts without costing anything."""
        self.asking: tuple[Cell, ...] = ()
        """The actors whose replies this one waits for."""
        self.current: object = None
        """The message that an asynchronous handler is busy with."""
        self.asked: Ask[Any] | None = None
        """The ask whose message is being handled."""
        self.signals: list[Signal] | None = None
        """The system lane: what is acted upon before any user message."""
        self.downs: list[Down] | None = None
        """Ends that it is to be told of, ahead of user messages."""
        self._deferred: dict[Ask[Any], None] | None = None
        self.run_queue = system.run_queue
        self._queued = False
        self._parker: Parker | None = None

    def restart(self, actor: Actor[Any]) -> None:
        """Start again with a fresh instance, under the same address and with the same mailbox."""
        self.actor = actor
        self.kind = self.system.kind_of(actor)
        self.waits = self.kind.waits
        if self.signals or self.downs:
            # What the last life was still to be told is not for this one, unless the actor is to be gone.
            kept: list[Signal] = [one for one in self.signals or () if type(one) is Stop and one.for_good]
            self.signals = kept or None
            self.downs = None
        self.state = STARTING
        self._reason = None
        self.restarts += 1
        self.start()

    @property
    def timers(self) -> Timers:
        """The actor's timers."""
        if self._timers is None:
            self._timers = Timers(self.system.loop, self.system.clock, self.force)
        return self._timers

    def opened_mailbox(self) -> Mailbox:
        """Return the mailbox; make it when nothing came so far."""
        if self.mailbox is None:
            self.mailbox = Mailbox(self.policy)
        return self.mailbox

    # -- messages in --------------------------------------------------------------------------------------

    def accept(self, message: object) -> bool:
        """Take a user message, or say False when the mailbox refuses; a dead actor makes it a dead letter."""
        ref = self.ref
        if ref.lane is None and self.state is RUNNING:  # nothing waits, and nobody is on the way to look
            mailbox = self.mailbox or self.opened_mailbox()
            ref.lane = lane = mailbox.lane
            lane.append(message)
            if not self.waits:  # what `_enqueue` does, without the call: each hop of a message is felt here
                run_queue = self.run_queue
                if not self._queued:
                    self._queued = True
                    run_queue.ready.append(self)
                    if not run_queue.awake:
                        run_queue.wake()
                mailbox.since_ns = run_queue.now_ns
            elif self._parker is not None:  # as in `_rouse`, for the same reason
                mailbox.woken_at = self.taken
                mailbox.since_ns = self.system.clock.monotonic_ns()
                self._parker.unpark()
            else:
                self._rouse(mailbox)
            return True
        if self.is_deaf:
            bury(self, message)
            return True
        return self._stamped_mailbox().put(message)

    @property
    def is_deaf(self) -> bool:
        """Whether what is sent becomes a dead letter: the actor has ended, or will not be started again."""
        return self.state is ENDED or (self.state is STOPPING and not self.supervised)

    def force(self, message: TimerFired | Drained) -> None:
        """Take something that must not be lost, whatever the bound: a timer, the end of a drain."""
        if self.state is RUNNING and self.ref.lane is None:
            self.accept(message)
        elif self.state is not ENDED:
            self._stamped_mailbox().lane.append(message)

    def _stamped_mailbox(self) -> Mailbox:
        """Return the mailbox of an actor that nobody is sent to; what comes first waits from now on."""
        mailbox = self.opened_mailbox()
        if not mailbox.lane:
            mailbox.since_ns = self.system.clock.monotonic_ns()
        return mailbox

    def signal(self, signal: Signal) -> None:
        """Take a signal of the system lane; it is acted upon before any user message."""
        if self.state is ENDED:
            return
        if self.signals is None:
            self.signals = [signal]
        else:
            self.signals.append(signal)
        # With somebody at work, even what comes now waits.
        if self.ref.lane is not None and self.mailbox is not None:
            self.mailbox.interrupt()
        self._enqueue()

    def stop(self, grace_s: float) -> None:
        """Stop for good: at once when nothing is under way, else as soon as signals are acted upon."""
        if self._queued:
            self.signal(Stop(ASKED_TO_STOP, grace_s, for_good=True))
        else:
            self.stop_asked(ASKED_TO_STOP, grace_s, for_good=True)

    def drain(self, grace_s: float) -> None:
        """Stop once all that waits now has been handled, or ``grace_s`` are over.

        An actor that is stopping already handles no more messages, and is not started again.
        """
        if self.state is STOPPING:
            self.stop_asked(ASKED_TO_STOP, grace_s, for_good=True)
        elif self.state is not ENDED:
            self.force(Drained(grace_s))
            stop = Stop(ASKED_TO_STOP, grace_s, for_good=True)
            limit = self.system.loop.call_later(grace_s, lambda: self.signal(stop))
            self._drain_limits = (*self._drain_limits, limit)

    def note_time(self, now_ns: int) -> None:
        """What waits came about now, if nobody looked at the clock when it did."""
        if self.mailbox is not None and not self.mailbox.since_ns:
            self.mailbox.since_ns = now_ns

    def _awake(self) -> None:
        """Have somebody look at what waits already."""
        mailbox = self.opened_mailbox()
        self.ref.lane = mailbox.lane
        if self.waits:
            self._rouse(mailbox)
        else:
            self._enqueue()
            mailbox.since_ns = self.run_queue.now_ns

    def look_up(self) -> None:
        """Have an asynchronous actor, idle or at work, look at more than its messages."""
        if self.ref.lane is None:
            self._awake()
        else:
            self.opened_mailbox().interrupt()

    def _rouse(self, mailbox: Mailbox) -> None:
        """Have the task of an asynchronous actor go on; start it when it is needed for the first time."""
        mailbox.woken_at = self.taken
        mailbox.since_ns = self.system.clock.monotonic_ns()
        if self._parker is not None:
            self._parker.unpark()
            return
        self._parker = self.system.loop.parker()
        self._serve_task = self.system.loop.start_task(
            serve(self, self._parker), name=self.name or self.kind.name
        )

    def _enqueue(self) -> None:
        if not self._queued:
            self._queued = True
            self.run_queue.ready.append(self)
            if not self.run_queue.awake:
                self.run_queue.wake()

    # -- a turn -------------------------------------------------------------------------------------------

    def take_turn(self) -> bool:
        """Act on signals, then handle messages until the turn is over; join the queue again if more wait.

        Return whether the turn may have been a long one. An asynchronous actor only acts on signals here: its
        task handles the messages.
        """
        if self.signals or self.downs:
            see_to_signals(self)
            if self.signals:  # others have their turn first, so that a circle of signals stops nobody else
                self.run_queue.ready.append(self)
                return True
        if self.waits:
            self._queued = False
            return False
        mailbox, left = self.mailbox, TURN_MESSAGES
        if mailbox is not None and self.state is RUNNING:
            lane, message = mailbox.lane, None
            # Not `on_message` itself: a bound method is an object more each turn, a call of one is not.
            actor, context = self.actor, self._context or self.context
            try:
                while lane and left:
                    message = lane.popleft()
                    left -= 1
                    if type(message) not in KEPT:
                        actor.on_message(context, message)
                    elif type(message) is Ask:
                        if not message.done:
                            self.asked = message
                            answer = actor.on_message(context, message.message)
                            self.asked = None
                            if message.held_in is None:  # else the reply was deferred
                                message.send(answer)
                    elif (body := opened(self, message)) is not NOTHING:
                        actor.on_message(context, body)
                    else:
                        left += 1  # nothing was handled
                        if self.is_interrupted():
                            break
            except BaseException as error:  # noqa: BLE001 - whatever it is, the actor ends by it
                self.handler_failed(error, message)
            self.taken += TURN_MESSAGES - left
            if mailbox.room is not None:
                mailbox.announce_room()
            if lane:
                mailbox.note_turn(TURN_MESSAGES - left, self.run_queue.now_ns)
                self.run_queue.ready.append(self)
                return True
        if self.signals:
            self.run_queue.ready.append(self)
            return True
        self.ref.lane = None
        self._queued = False
        return left <= SHORT_TURN_LEFT

    # -- what was begun, and how it ends ---------------------------------------------------------------------

    @property
    def handled(self) -> int:
        """How many messages were handled since it was first started, the one under way included."""
        return self.taken - length_hint(self.batch)

    def cut_batch(self) -> None:
        """The batch under way ends here: what is left of it stays in the mailbox."""
        self.taken -= length_hint(self.batch)
        self.batch = NO_BATCH

    def serving_ended(self, error: BaseException | None = None, message: object = None) -> None:
        """The task is done: its handler failed, the actor is to stop, or somebody cancelled the task."""
        self._serve_task = self._parker = self.current = None
        self.cut_batch()
        self.opened_mailbox().announce_room()  # the message that it failed on has left the mailbox
        was_running = self.state is RUNNING
        try:
            if error is not None:
                self.handler_failed(error, message)
            elif was_running:
                self.begin_stop(ExitReason(KILLED))
        finally:  # also when it is left by KeyboardInterrupt or SystemExit
            if not was_running:
                self._stop_next_child()

    def is_interrupted(self) -> bool:
        """Whether there is something to see to before the next message."""
        return bool(self.signals or self.downs) or self.state is not RUNNING

    def defer(self, ask: Ask[Any]) -> Reply[Any]:
        """Leave the answer to whoever holds what is returned; should this life end first, it fails."""
        if self._deferred is None:
            self._deferred = {}
        ask.defer(self._deferred)
        return Reply(ask)

    def _fail_replies(self) -> None:
        if self._deferred or self.asked is not None:
            owed = [*(self._deferred or ()), *(() if self.asked is None else (self.asked,))]
            self.asked = None
            for ask in owed:
                ask.fail(ActorDeadError(self.actor_id, str(self.reason)))

    def handler_failed(self, error: BaseException, message: object) -> None:
        """A handler raised: the asker is told, if there is one, and the actor ends."""
        ask, self.asked = self.asked, None
        if ask is not None:
            ask.fail(tellable(error, self.actor_id))
        body = message.message if isinstance(message, (Ask, TimerFired, WithReceipt)) else message
        self.fail(error, message_type=type(body).__name__)
        if not isinstance(error, Exception):
            raise_if_for_the_process(error)

    def _begin_work(self) -> None:
        if self.downs or (self.mailbox is not None and self.mailbox.lane):
            self._awake()

    def _quit_work(self) -> None:
        if self._parker is not None:
            self.opened_mailbox().interrupt()
            self._parker.unpark()

    def _give_up_work(self) -> None:
        self._parker = self.current = None
        self.cut_batch()
        if self.mailbox is not None:
            self.mailbox.abandon_lane()
            self.mailbox.announce_room()

    def _end_work(self) -> None:
        self.downs = None
        if self.mailbox is not None:
            for message in self.mailbox.empty_out():
                bury(self, message)
            self.mailbox.announce_room()  # nobody needs to wait any more
