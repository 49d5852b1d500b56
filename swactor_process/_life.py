"""One start of one child: performs what the session decides, and feeds it what happens.

Owns: tickets of writes, pending replies.
Not here: any decision (``session``), what is told (``_telling``), timers (``_timers``), the mailbox in front
(``driver``).

What the child does reaches the session straight from the loop's callbacks, not through the mailbox: a full
mailbox must not lose an exit, and an actor that is stopping still has to see its child end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any

from swactor import ActorRef, Context, Reply
from swactor.abc import Waiter
from swactor_process._effects import (
    AnnounceChunks,
    AnnounceExited,
    AnnounceFailed,
    AnnounceLines,
    AnnouncePiece,
    AnnounceReady,
    AnnounceStarted,
    AnnounceStillAlive,
    AnswerWrite,
    BoundBacklog,
    CancelTimer,
    CheckGroup,
    CloseChild,
    CloseChildStdin,
    Effect,
    PauseReading,
    ProbeReadiness,
    ReadRest,
    ResumeReading,
    Retire,
    SetTimer,
    SignalGroup,
    StartChild,
    StopProbing,
    Timer,
    WriteChild,
    WriteFile,
)
from swactor_process._files import OutputFiles
from swactor_process._owed import Owed
from swactor_process._probing import Prober
from swactor_process._signals import KILL
from swactor_process._telling import Telling
from swactor_process._timers import Timers
from swactor_process.messages import (
    ProcessExited,
    SpawnFailed,
    Stop,
    StopResult,
)
from swactor_process.session import Session
from swactor_process.spawner import Child, ExitStatus, Spawner, SpawnError, WriteOutcome
from swactor_process.spec import ProcessSpec, Stream
from swactor_process.surroundings import Surroundings
from swactor_process.transitions import State

OWNER_STOP_GRACE_S = 3.0
OWNER_STOP_DEADLINE_S = 4.5
"""At most this long when the end of the actor asks, not the owner: it has 5 s unless told otherwise."""


class Life:
    """One start of one child: performs the session's effects, and feeds it what happens."""

    def __init__(
        self,
        ctx: Context[Any],
        spec: ProcessSpec,
        spawner: Spawner,
        surroundings: Surroundings,
        *,
        owner: ActorRef[Any],
        watchers: tuple[ActorRef[Any], ...],
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._ctx = ctx
        self._clock, self._loop = ctx.clock, ctx.loop
        self._spec = spec
        self._spawner = spawner
        self._session = Session(spec)
        self._files = OutputFiles(spec, surroundings)
        self._prober = Prober(spec, surroundings, self._probed)
        self._owner, self._watchers = owner, watchers
        self._on_broken = on_broken
        self._child: Child | None = None
        self._timers = Timers(ctx, self._timer_fired)
        self._effects: deque[Effect] = deque()
        self._performing = False
        self._writes: dict[int, tuple[int, Reply[WriteOutcome] | None]] = {}
        self._tickets = 0
        self._lost_stdin_bytes = 0
        self._stops = Owed[StopResult, None]()
        self._spawned_s: float | None = None  # set while the session has yet to hear of the start
        self._exited_at_ms = 0
        self._last: ProcessExited | SpawnFailed | None = None

    @cached_property
    def _telling(self) -> Telling:
        # Made when there is something to tell: the child need not wait for it.
        return Telling(
            self._ctx,
            self._spec,
            owner=self._owner,
            watchers=self._watchers,
            on_level=self._level_changed,
        )

    @cached_property
    def _settled(self) -> Waiter[None]:
        return self._loop.waiter()

    @property
    def over(self) -> bool:
        """Whether the last notification was made."""
        return self._last is not None

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    # commands

    def start(self) -> None:
        """Begin."""
        self._prober.before_start()
        self._perform(self._session.start())

    def write(self, data: bytes, reply: Reply[WriteOutcome] | None) -> None:
        """Write, and answer with the outcome."""
        self._tickets += 1
        self._writes[self._tickets] = (len(data), reply)
        self._perform(self._session.on_write_asked(data, self._tickets))

    def close_stdin(self) -> None:
        """Close standard input."""
        self._perform(self._session.on_close_stdin_asked())

    def mark_ready(self) -> None:
        """Take the owner's word for it."""
        self._perform(self._session.on_marked_ready(self._now_s()))

    def signal(self, number: int) -> None:
        """Signal the group."""
        self._perform(self._session.on_signal_asked(number))

    def stop(self, stop: Stop, reply: Reply[StopResult] | None) -> None:
        """Stop, and answer with how it ended."""
        if reply is not None:
            self._stops.add(reply, None)
        if self._last is not None:
            self._answer_stops(self._last)
            return
        grace_s = self._spec.grace_s if stop.grace_s is None else stop.grace_s
        deadline_s = self._spec.deadline_s if stop.deadline_s is None else stop.deadline_s
        self._begin()
        self._perform(self._session.on_stop_asked(self._now_s(), grace_s=grace_s, deadline_s=deadline_s))

    def end(self) -> Awaitable[None] | None:
        """Stop because the actor ends; over when the child has ended or will not."""
        if self._session.state is not State.EXITED:
            return self._stop_and_wait()
        self._close()
        return None

    async def _stop_and_wait(self) -> None:
        self._begin()
        grace_s = min(self._spec.grace_s, OWNER_STOP_GRACE_S)
        deadline_s = min(self._spec.deadline_s, OWNER_STOP_DEADLINE_S)
        try:
            self._perform(self._session.on_stop_asked(self._now_s(), grace_s=grace_s, deadline_s=deadline_s))
            await self._settled.wait()
        except BaseException:
            # The time is up: no more grace. The exit is still seen and told when it comes.
            self._perform(self._session.on_stop_asked(self._now_s(), grace_s=0.0, deadline_s=deadline_s))
            raise

    # what the child does: ChildListener

    def loaded(self) -> None:
        """See `ChildListener.loaded`."""
        self._react(self._session.on_spawned(self._now_s()))

    def refused(self, error: SpawnError) -> None:
        """See `ChildListener.refused`."""
        self._react(self._session.on_refused(error))

    def output(self, stream: Stream, data: bytes) -> None:
        """See `ChildListener.output`."""
        self._begin()
        self._react(self._session.on_output(stream, data, self._now_s()))

    def eof(self, stream: Stream) -> None:
        """See `ChildListener.eof`."""
        self._begin()
        self._react(self._session.on_eof(stream, self._now_s()))

    def exited(self, status: ExitStatus) -> None:
        """See `ChildListener.exited`."""
        self._begin()
        self._exited_at_ms = self._clock.wall_ms()
        self._react(self._session.on_exited(status, self._now_s()))

    def _timer_fired(self, timer: Timer) -> None:
        self._react(self._session.on_timer(timer, self._now_s()))

    def _react(self, effects: list[Effect]) -> None:
        """Perform effects outside of a handler: what raises must fail the actor, not vanish in the loop."""
        try:
            self._perform(effects)
        except Exception as error:  # noqa: BLE001 - whatever it is, the actor fails with it
            self._break(error)

    def _break(self, error: Exception) -> None:
        self._effects.clear()
        if self._child is not None:
            self._child.signal(KILL)
        if self._session.state is State.EXITED:
            self._close()  # it was the last word that could not be said
        self._on_broken(error)

    def _level_changed(self, behind: bool) -> None:  # noqa: FBT001 - the level is one of two
        """More output waits for the owner than should, or no more."""
        react = self._session.on_owner_behind if behind else self._session.on_owner_caught_up
        self._react(react())

    def _probed(self, met: bool) -> None:  # noqa: FBT001 - a yes or no
        self._react(self._session.on_probed(self._now_s(), met=met))

    # effects

    def _perform(self, effects: list[Effect]) -> None:
        """Perform ``effects`` and those that follow from them, in order."""
        self._effects.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects:
                self._perform_one(self._effects.popleft())
        finally:
            self._performing = False

    def _perform_one(self, effect: Effect) -> None:
        match effect:  # what is frequent, or waited for, comes first
            case AnnounceLines():
                self._telling.lines(effect)
            case CheckGroup():
                survivors = self._running_child().reap()
                self._perform(self._session.on_group(survivors, self._now_s()))
            case AnnounceExited():
                self._say_last(self._told_exited(effect))
            case Retire():
                self._loop.call_soon(self._retire)  # the owner is told first
            case StartChild():
                # In another turn of the loop: what the kernel does for it takes long enough.
                self._loop.call_soon(self._start_child)
            case AnnounceStarted():
                self._telling.started(self._running_child())
            case SignalGroup():
                self._running_child().signal(effect.number)
            case AnnounceChunks():
                self._telling.chunks(effect)
            case CancelTimer():
                self._timers.cancel(effect.timer)
            case SetTimer():
                self._timers.set(effect.timer, effect.delay_s)
            case AnnouncePiece():
                self._telling.piece(effect)
            case WriteFile():
                self._write_file(effect)
            case ProbeReadiness():
                self._prober.ask()
            case StopProbing():
                self._prober.stop()
            case BoundBacklog():
                self._telling.bound()
            case AnswerWrite():
                self._written(effect.ticket, effect.outcome, self._writes[effect.ticket][0])
            case AnnounceReady() | AnnounceStillAlive() | AnnounceFailed():
                self._announce(effect)
            case _:
                self._command_child(effect, self._running_child())

    def _start_child(self) -> None:
        if self.over:
            return  # stopped meanwhile
        try:
            self._files.open()
            self._child = self._spawner.spawn(self._spec, self)
        except SpawnError as error:
            self._react(self._session.on_refused(error))
        except Exception as error:  # noqa: BLE001 - the last word says what it was; the actor fails, not retires
            failed = self._session.on_refused(SpawnError.of_defect(error, path=self._spec.program))
            self._react([effect for effect in failed if not isinstance(effect, Retire)])
            self._break(error)
        else:
            if self._child.loading:
                self._react(self._session.on_loading())
            else:
                self._spawned_s = self._now_s()
                # In another turn again: what was done so far has held the loop long enough.
                self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Have the session hear of the start, before anything else that has happened since."""
        if self._spawned_s is not None:
            spawned_s, self._spawned_s = self._spawned_s, None
            self._react(self._session.on_spawned(spawned_s))

    def _command_child(
        self,
        effect: WriteChild | CloseChildStdin | PauseReading | ResumeReading | ReadRest | CloseChild,
        child: Child,
    ) -> None:
        match effect:
            case WriteChild():
                child.write(effect.data, partial(self._written, effect.ticket))
            case CloseChildStdin():
                child.close_stdin()
            case PauseReading():
                child.pause(effect.stream)
            case ResumeReading():
                child.resume(effect.stream)
            case ReadRest():
                child.read_rest()
            case CloseChild():
                child.close()

    def _running_child(self) -> Child:
        if self._child is None:
            raise RuntimeError("the session commands a child that was not started")
        return self._child

    def _written(self, ticket: int, outcome: WriteOutcome, lost_bytes: int) -> None:
        _, reply = self._writes.pop(ticket)
        if reply is None:
            self._lost_stdin_bytes += lost_bytes
        else:
            reply.send(outcome)

    def _write_file(self, effect: WriteFile) -> None:
        trouble = self._files.write(effect.stream, effect.data)
        if trouble is not None:
            self._telling.file_failed(effect.stream, *trouble)

    # notifications

    def _announce(self, effect: AnnounceReady | AnnounceStillAlive | AnnounceFailed) -> None:
        match effect:
            case AnnounceReady():
                self._telling.ready(effect)
            case AnnounceStillAlive():
                self._answer_stops(self._telling.still_alive(self._running_child()))
                self._settled.set(None)
            case AnnounceFailed():
                self._say_last(self._telling.failed(effect.error))

    def _told_exited(self, effect: AnnounceExited) -> ProcessExited:
        return self._telling.exited(
            self._running_child(),
            effect,
            exited_at_ms=self._exited_at_ms,
            lost_stdin_bytes=self._lost_stdin_bytes,
            lost_file_bytes=self._files.lost_bytes,
        )

    def _say_last(self, last: ProcessExited | SpawnFailed) -> None:
        self._last = last
        self._answer_stops(last)

    def _retire(self) -> None:
        self._close()
        self._ctx.stop(self._last)

    def _close(self) -> None:
        """Close everything; nothing is left to be told. Does nothing the second time."""
        if self._child is not None:
            self._child.close()
        self._files.close()
        self._settled.set(None)

    def _answer_stops(self, result: StopResult) -> None:
        for reply, _ in self._stops.take():
            reply.send(result)
