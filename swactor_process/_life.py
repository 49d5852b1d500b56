"""One start of one child: performs what the session decides, and feeds it what happens.

Owns: timers, tickets of writes, pending replies; names and wall times of the notifications; the spawn id.
Not here: any decision (``session``), the mailbox in front (``driver``).

What the child does reaches the session straight from the loop's callbacks, not through the mailbox: a full
mailbox must not lose an exit, and an actor that is stopping still has to see its child end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypedDict

from swactor import ActorRef, Context, Reply
from swactor.abc import Cancellable, Waiter
from swactor_process._effects import (
    AnnounceExited,
    AnnounceFailed,
    AnnounceOutput,
    AnnounceReady,
    AnnounceStarted,
    AnnounceStillAlive,
    AnswerWrite,
    CancelTimer,
    CheckGroup,
    CloseChild,
    CloseChildStdin,
    Effect,
    ReadRest,
    SetTimer,
    SignalGroup,
    StartChild,
    Timer,
    WriteChild,
)
from swactor_process._outbox import Outbox
from swactor_process._signals import KILL
from swactor_process.events import SubprocessSpawnFailed
from swactor_process.messages import (
    ProcessExited,
    ProcessOutput,
    ProcessReady,
    ProcessReadyOverdue,
    ProcessStarted,
    ProcessStillAlive,
    SpawnFailed,
    Stop,
    StopResult,
)
from swactor_process.session import Session
from swactor_process.spawner import Child, ExitStatus, Spawner, SpawnError, WriteOutcome
from swactor_process.spec import ProcessSpec, Stream

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
        # The serial is unique within the system; the token tells restarts and boots apart.
        spawn_id = f"{ctx.actor_id.serial}-{ctx.random.token(6).hex()}"
        self._name: _Name = {"process": ctx.ref, "spawn_id": spawn_id, "label": spec.label}
        self._on_broken = on_broken
        self._owner = Outbox(self._loop, owner)
        self._watchers = [Outbox(self._loop, watcher) for watcher in watchers]
        self._child: Child | None = None
        self._timers: dict[Timer, tuple[int, Cancellable]] = {}
        self._timers_set = 0
        self._effects: deque[Effect] = deque()
        self._performing = False
        self._writes: dict[int, tuple[int, Reply[WriteOutcome] | None]] = {}
        self._tickets = 0
        self._lost_stdin_bytes = 0
        self._stops: list[Reply[StopResult]] = []
        self._exited_at_ms = 0
        self._last: ProcessExited | SpawnFailed | None = None
        self._settled: Waiter[None] = self._loop.waiter()

    @property
    def over(self) -> bool:
        """Whether the last notification was made."""
        return self._last is not None

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    # commands

    def start(self) -> None:
        """Begin."""
        self._perform(self._session.start())

    def write(self, data: bytes, reply: Reply[WriteOutcome] | None) -> None:
        """Write, and answer with the outcome."""
        self._tickets += 1
        self._writes[self._tickets] = (len(data), reply)
        self._perform(self._session.on_write_asked(data, self._tickets))

    def close_stdin(self) -> None:
        """Close standard input."""
        self._perform(self._session.on_close_stdin_asked())

    def signal(self, number: int) -> None:
        """Signal the group."""
        self._perform(self._session.on_signal_asked(number))

    def stop(self, stop: Stop, reply: Reply[StopResult] | None) -> None:
        """Stop, and answer with how it ended."""
        if reply is not None:
            self._stops.append(reply)
        if self._last is not None:
            self._answer_stops(self._last)
            return
        grace_s = self._spec.grace_s if stop.grace_s is None else stop.grace_s
        deadline_s = self._spec.deadline_s if stop.deadline_s is None else stop.deadline_s
        self._perform(self._session.on_stop_asked(self._now_s(), grace_s=grace_s, deadline_s=deadline_s))

    async def end(self) -> None:
        """Stop because the actor ends; return when the child has ended or will not."""
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

    def output(self, stream: Stream, data: bytes) -> None:
        """See `ChildListener.output`."""
        self._react(self._session.on_output(stream, data, self._now_s()))

    def eof(self, stream: Stream) -> None:
        """See `ChildListener.eof`."""
        self._react(self._session.on_eof(stream, self._now_s()))

    def exited(self, status: ExitStatus) -> None:
        """See `ChildListener.exited`."""
        self._exited_at_ms = self._clock.wall_ms()
        self._react(self._session.on_exited(status, self._now_s()))

    def _timer_fired(self, timer: Timer, number: int) -> None:
        # A timer may fire although it was called off in the same turn of the loop.
        if timer in self._timers and self._timers[timer][0] == number:
            del self._timers[timer]
            self._react(self._session.on_timer(timer, self._now_s()))

    def _react(self, effects: list[Effect]) -> None:
        """Perform effects outside of a handler: what raises must fail the actor, not vanish in the loop."""
        try:
            self._perform(effects)
        except Exception as error:  # noqa: BLE001 - whatever it is, the actor fails with it
            self._effects.clear()
            if self._child is not None:
                self._child.signal(KILL)
            self._on_broken(error)

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
        match effect:
            case AnnounceOutput():
                self._announce_output(effect)
            case StartChild():
                self._start_child()
            case SetTimer():
                self._set_timer(effect)
            case CancelTimer():
                self._cancel_timer(effect.timer)
            case AnswerWrite():
                self._written(effect.ticket, effect.outcome)
            case (
                AnnounceStarted()
                | AnnounceReady()
                | AnnounceStillAlive()
                | AnnounceFailed()
                | AnnounceExited()
            ):
                self._announce(effect)
            case _:
                self._command_child(effect)

    def _start_child(self) -> None:
        try:
            self._child = self._spawner.spawn(self._spec, self)
        except SpawnError as error:
            self._perform(self._session.on_refused(error))
        else:
            self._perform(self._session.on_spawned(self._now_s()))

    def _command_child(
        self, effect: SignalGroup | WriteChild | CloseChildStdin | ReadRest | CheckGroup | CloseChild
    ) -> None:
        child = self._running_child()
        match effect:
            case SignalGroup():
                child.signal(effect.number)
            case WriteChild():
                child.write(effect.data, lambda outcome: self._written(effect.ticket, outcome))
            case CloseChildStdin():
                child.close_stdin()
            case ReadRest():
                child.read_rest()
            case CheckGroup():
                self._perform(self._session.on_group(child.reap(), self._now_s()))
            case CloseChild():
                child.close()

    def _running_child(self) -> Child:
        if self._child is None:
            raise RuntimeError("the session commands a child that was not started")
        return self._child

    def _set_timer(self, effect: SetTimer) -> None:
        self._cancel_timer(effect.timer)
        delay_s = effect.delay_s
        if effect.timer is Timer.RETRY:
            # Between half and one and a half, so that many starts refused at once do not return at once.
            delay_s *= 0.5 + self._ctx.random.below(1_000) / 1_000
        self._timers_set += 1
        number = self._timers_set
        handle = self._loop.call_later(delay_s, lambda: self._timer_fired(effect.timer, number))
        self._timers[effect.timer] = (number, handle)

    def _cancel_timer(self, timer: Timer) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running[1].cancel()

    def _written(self, ticket: int, outcome: WriteOutcome) -> None:
        n_bytes, reply = self._writes.pop(ticket)
        if reply is not None:
            reply.send(outcome)
        elif outcome is not WriteOutcome.WRITTEN:
            self._lost_stdin_bytes += n_bytes

    # notifications

    def _announce_output(self, effect: AnnounceOutput) -> None:
        process, spawn_id = self._name["process"], self._name["spawn_id"]
        for line in effect.lines:
            self._owner.offer(
                ProcessOutput(
                    process=process,
                    spawn_id=spawn_id,
                    stream=effect.stream,
                    line=line.data,
                    text=line.text,
                    part=line.part,
                    terminated=line.terminated,
                )
            )

    def _announce(
        self,
        effect: AnnounceStarted | AnnounceReady | AnnounceStillAlive | AnnounceFailed | AnnounceExited,
    ) -> None:
        match effect:
            case AnnounceStarted():
                self._tell_all(self._started())
            case AnnounceReady():
                kind = ProcessReadyOverdue if effect.overdue else ProcessReady
                self._owner.tell(kind(**self._name, after_ms=round(effect.after_s * 1e3)))
            case AnnounceStillAlive():
                child = self._running_child()
                alive = ProcessStillAlive(**self._name, pid=child.pid, kernel_state=child.state())
                self._owner.tell(alive)
                self._answer_stops(alive)
                self._settled.set(None)
            case AnnounceFailed(error=error):
                failed = SpawnFailed(
                    **self._name,
                    command=self._spec.command,
                    errno_name=error.errno_name,
                    role=error.role,
                    path=error.path,
                    message=str(error),
                )
                self._owner.tell(failed)
                self._report(failed)
                self._finish(failed)
            case AnnounceExited():
                exited = self._exit_of(effect)
                self._tell_all(exited)
                self._finish(exited)

    def _started(self) -> ProcessStarted:
        child = self._running_child()
        return ProcessStarted(
            **self._name,
            pid=child.pid,
            parent_pid=child.parent_pid,
            start_time=child.start_time,
            command=self._spec.command,
            started_at_ms=self._clock.wall_ms(),
            guarded=child.guarded,
        )

    def _exit_of(self, effect: AnnounceExited) -> ProcessExited:
        child = self._running_child()
        return ProcessExited(
            **self._name,
            pid=child.pid,
            start_time=child.start_time,
            command=self._spec.command,
            exit_code=effect.status.exit_code,
            signal=effect.status.signal,
            status_lost=effect.status.status_lost,
            asked_for=effect.asked_for,
            escalated=effect.escalated,
            uptime_ms=round(effect.uptime_s * 1e3),
            exited_at_ms=self._exited_at_ms,
            stderr_tail=effect.stderr_tail,
            eof_reached=effect.eof_reached,
            survivors=effect.survivors,
            dropped_lines=self._owner.dropped,
            lost_stdin_bytes=self._lost_stdin_bytes,
        )

    def _tell_all(self, notification: ProcessStarted | ProcessExited) -> None:
        self._owner.tell(notification)
        for watcher in self._watchers:
            watcher.tell(notification)

    def _report(self, failed: SpawnFailed) -> None:
        """Nobody forwards a start that did not happen, so the driver says it; arguments may be secret."""
        self._ctx.emit(
            SubprocessSpawnFailed(
                label=failed.label,
                command=self._spec.program,
                spawn_id=failed.spawn_id,
                errno_name=failed.errno_name,
                role=failed.role.value,
                path=failed.path,
                message=failed.message,
            )
        )

    def _finish(self, last: ProcessExited | SpawnFailed) -> None:
        self._last = last
        self._answer_stops(last)
        self._settled.set(None)
        self._ctx.stop(last)

    def _answer_stops(self, result: StopResult) -> None:
        replies, self._stops = self._stops, []
        for reply in replies:
            reply.send(result)


class _Name(TypedDict):
    """What all notifications of one start have in common."""

    process: ActorRef[Any]
    spawn_id: str
    label: str
