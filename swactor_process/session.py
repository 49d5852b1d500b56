"""The life of one child, as a pure state machine: inputs with times in, effects in order out.

Owns: what is allowed when (`TRANSITIONS`), the queue before the start, TERM - grace - KILL - deadline, how
long output is read after the exit, and that exactly one last word is said.
Not here: performing effects, records with names and wall times (``driver``). Times are monotonic seconds.
An input that its state does not know comes too late, and is ignored.
"""

import enum
import re
from collections.abc import Mapping

from msgspec import Struct

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
from swactor_process._signals import KILL, TERM
from swactor_process.output import Line, LineSplitter, Tail
from swactor_process.spawner import ExitStatus, SpawnError, WriteOutcome
from swactor_process.spec import Lines, ProcessSpec, ReadyOnLine, Stream

RETRY_DELAYS_S = (0.01, 0.03, 0.06)
"""Pauses before the start is tried again after a momentary limit; the driver adds jitter."""
RETRIED_ERRNOS = frozenset({"EAGAIN"})
GROUP_CHECK_S = 0.01
"""Pause between looks at a group that was killed and is not gone yet."""
QUIET_S = 0.5
"""After the exit, an open stream that brings nothing for so long is not waited for any longer."""


class State(enum.Enum):
    """Where the child is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DRAINING = "draining"
    """The direct child has ended; output is read on for a while."""
    EXITED = "exited"
    """The last word was said."""


class Input(enum.Enum):
    """What can happen."""

    SPAWNED = enum.auto()
    REFUSED_FOR_NOW = enum.auto()
    REFUSED = enum.auto()
    RETRY_DUE = enum.auto()
    STOP_ASKED = enum.auto()
    SIGNAL_ASKED = enum.auto()
    STDIN_ASKED = enum.auto()
    OUTPUT = enum.auto()
    READY_OVERDUE = enum.auto()
    GRACE_OVER = enum.auto()
    DEADLINE_OVER = enum.auto()
    CHILD_GONE = enum.auto()
    QUIET_OVER = enum.auto()
    LINGER_OVER = enum.auto()
    GROUP_DUE = enum.auto()
    DRAINED = enum.auto()


TRANSITIONS: Mapping[tuple[State, Input], State] = {
    (State.STARTING, Input.SPAWNED): State.RUNNING,
    (State.STARTING, Input.REFUSED_FOR_NOW): State.STARTING,
    (State.STARTING, Input.REFUSED): State.EXITED,
    (State.STARTING, Input.RETRY_DUE): State.STARTING,
    (State.STARTING, Input.STOP_ASKED): State.STARTING,
    (State.STARTING, Input.SIGNAL_ASKED): State.STARTING,
    (State.STARTING, Input.STDIN_ASKED): State.STARTING,
    (State.RUNNING, Input.STOP_ASKED): State.STOPPING,
    (State.RUNNING, Input.SIGNAL_ASKED): State.RUNNING,
    (State.RUNNING, Input.STDIN_ASKED): State.RUNNING,
    (State.RUNNING, Input.OUTPUT): State.RUNNING,
    (State.RUNNING, Input.READY_OVERDUE): State.RUNNING,
    (State.RUNNING, Input.CHILD_GONE): State.DRAINING,
    (State.STOPPING, Input.STOP_ASKED): State.STOPPING,
    (State.STOPPING, Input.SIGNAL_ASKED): State.STOPPING,
    (State.STOPPING, Input.STDIN_ASKED): State.STOPPING,
    (State.STOPPING, Input.OUTPUT): State.STOPPING,
    (State.STOPPING, Input.GRACE_OVER): State.STOPPING,
    (State.STOPPING, Input.DEADLINE_OVER): State.STOPPING,
    (State.STOPPING, Input.CHILD_GONE): State.DRAINING,
    (State.DRAINING, Input.STOP_ASKED): State.DRAINING,
    (State.DRAINING, Input.OUTPUT): State.DRAINING,
    (State.DRAINING, Input.QUIET_OVER): State.DRAINING,
    (State.DRAINING, Input.LINGER_OVER): State.DRAINING,
    (State.DRAINING, Input.GROUP_DUE): State.DRAINING,
    (State.DRAINING, Input.DRAINED): State.EXITED,
}


TIMER_INPUTS: Mapping[Timer, Input] = {
    Timer.RETRY: Input.RETRY_DUE,
    Timer.READY: Input.READY_OVERDUE,
    Timer.GRACE: Input.GRACE_OVER,
    Timer.DEADLINE: Input.DEADLINE_OVER,
    Timer.QUIET: Input.QUIET_OVER,
    Timer.LINGER: Input.LINGER_OVER,
    Timer.GROUP: Input.GROUP_DUE,
}


class Session:
    """The life of one child of ``spec``. Every method returns effects to perform in order."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.state = State.STARTING
        self._spec = spec
        self._queued: list[Effect] = []
        self._queued_bytes = 0
        self._retries = 0
        self._refusal: SpawnError | None = None  # set while a retry is awaited
        self._stop: _StopTimes | None = None
        self._escalated = False
        self._signals: set[int] = set()
        self._started_s = 0.0
        self._exit: tuple[ExitStatus, float] | None = None
        self._asked_for = False
        self._lingered = False
        self._open = set(spec.piped())
        self._streams = {stream: _Reader(spec, stream) for stream in spec.piped()}
        self._readiness = spec.readiness

    def _accepts(self, what: Input) -> bool:
        """Move as the table says; false when the state does not know the input."""
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return False
        self.state = state
        return True

    # starting

    def start(self) -> list[Effect]:
        """Begin."""
        return [StartChild()]

    def on_spawned(self, now_s: float) -> list[Effect]:
        """The child runs: do what was queued meanwhile, and stop it at once if that was asked."""
        if not self._accepts(Input.SPAWNED):
            return []
        self._started_s = now_s
        effects: list[Effect] = [AnnounceStarted()]
        if self._readiness is not None:
            effects.append(SetTimer(Timer.READY, self._readiness.deadline_s))
        effects += self._queued
        self._queued = []
        if self._stop is not None:
            self.state = TRANSITIONS[self.state, Input.STOP_ASKED]
            effects += self._begin_stop(self._stop, now_s)
        return effects

    def on_refused(self, error: SpawnError) -> list[Effect]:
        """The spawner refused: try again shortly when that can help, else it is over."""
        momentary = error.errno_name in RETRIED_ERRNOS and self._retries < len(RETRY_DELAYS_S)
        if momentary and self._stop is None and self._accepts(Input.REFUSED_FOR_NOW):
            self._refusal = error
            self._retries += 1
            return [SetTimer(Timer.RETRY, RETRY_DELAYS_S[self._retries - 1])]
        return self._fail(error)

    def _fail(self, error: SpawnError) -> list[Effect]:
        if not self._accepts(Input.REFUSED):
            return []
        answers: list[Effect] = [
            AnswerWrite(effect.ticket, WriteOutcome.CHILD_GONE)
            for effect in self._queued
            if isinstance(effect, WriteChild)
        ]
        self._queued = []
        return [*answers, CancelTimer(Timer.RETRY), AnnounceFailed(error)]

    # commands

    def on_stop_asked(self, now_s: float, *, grace_s: float, deadline_s: float) -> list[Effect]:
        """End the child, or what is left of its group."""
        if not self._accepts(Input.STOP_ASKED):
            return []
        asked = _StopTimes(now_s + min(grace_s, deadline_s), now_s + deadline_s)
        first = self._stop is None
        stop = asked if self._stop is None else self._stop.at_most(asked, now_s)
        self._stop = stop
        match self.state:
            case State.STARTING:
                return [] if self._refusal is None else self._fail(self._refusal)
            case State.DRAINING:
                return [SignalGroup(KILL)]
            case _:
                return self._begin_stop(stop, now_s) if first else self._stop_timers(stop, now_s)

    def _begin_stop(self, stop: "_StopTimes", now_s: float) -> list[Effect]:
        polite = stop.grace_at_s > now_s
        signals = [SignalGroup(TERM)] if polite else self._escalate()
        return [CancelTimer(Timer.READY), *signals, *self._stop_timers(stop, now_s)]

    def _stop_timers(self, stop: "_StopTimes", now_s: float) -> list[Effect]:
        timers: list[Effect] = [SetTimer(Timer.DEADLINE, max(0.0, stop.deadline_at_s - now_s))]
        if not self._escalated:
            timers.append(SetTimer(Timer.GRACE, max(0.0, stop.grace_at_s - now_s)))
        return timers

    def _escalate(self) -> list[SignalGroup]:
        self._escalated = True
        return [SignalGroup(KILL)]

    def on_signal_asked(self, number: int) -> list[Effect]:
        """Pass a signal on."""
        if not self._accepts(Input.SIGNAL_ASKED):
            return []
        self._signals.add(number)
        return self._now_or_queued(SignalGroup(number))

    def on_write_asked(self, data: bytes, ticket: int) -> list[Effect]:
        """Pass bytes on; a child that has gone, and a full queue before the start, are answered here."""
        if not self._accepts(Input.STDIN_ASKED):
            return [AnswerWrite(ticket, WriteOutcome.CHILD_GONE)]
        if self.state is State.STARTING:
            if self._queued_bytes + len(data) > self._spec.stdin_buffer_bytes:
                return [AnswerWrite(ticket, WriteOutcome.BUFFER_FULL)]
            self._queued_bytes += len(data)
        return self._now_or_queued(WriteChild(data, ticket))

    def on_close_stdin_asked(self) -> list[Effect]:
        """Close standard input behind what was written."""
        return self._now_or_queued(CloseChildStdin()) if self._accepts(Input.STDIN_ASKED) else []

    def _now_or_queued(self, effect: Effect) -> list[Effect]:
        if self.state is not State.STARTING:
            return [effect]
        self._queued.append(effect)
        return []

    # output

    def on_output(self, stream: Stream, data: bytes, now_s: float) -> list[Effect]:
        """Bytes of the child; the tail and the readiness rule look at them too."""
        if stream not in self._open or not self._accepts(Input.OUTPUT):
            return []
        effects = self._announce(stream, self._streams[stream].feed(data), now_s)
        return [*effects, SetTimer(Timer.QUIET, QUIET_S)] if self.state is State.DRAINING else effects

    def on_eof(self, stream: Stream, now_s: float) -> list[Effect]:
        """The stream is over: tell its unterminated rest; after the exit the last stream ends it all."""
        if stream not in self._open or not self._accepts(Input.OUTPUT):
            return []
        self._open.discard(stream)
        effects = self._announce(stream, self._streams[stream].end(), now_s)
        if self.state is State.DRAINING and not self._open:
            effects.append(CheckGroup())
        return effects

    def _announce(self, stream: Stream, lines: list[Line], now_s: float) -> list[Effect]:
        if not lines:
            return []
        effects: list[Effect] = [AnnounceOutput(stream, lines)]
        rule = self._readiness
        # Also when the child has ended meanwhile: what counts is what it wrote, not who was read first.
        if rule is not None and _meets(rule, stream, lines):
            self._readiness = None
            effects += [
                CancelTimer(Timer.READY),
                AnnounceReady(overdue=False, after_s=now_s - self._started_s),
            ]
        return effects

    # the end

    def on_exited(self, status: ExitStatus, now_s: float) -> list[Effect]:
        """The direct child ended. What a stop has left over of its group is killed."""
        if not self._accepts(Input.CHILD_GONE):
            return []
        self._exit = (status, now_s)
        self._asked_for = self._stop is not None or status.signal in self._signals
        effects: list[Effect] = [CancelTimer(timer) for timer in (Timer.READY, Timer.GRACE, Timer.DEADLINE)]
        if self._stop is not None:
            effects.append(SignalGroup(KILL))
        effects.append(SetTimer(Timer.LINGER, self._spec.linger_s))
        effects.append(SetTimer(Timer.QUIET, QUIET_S) if self._open else CheckGroup())
        return effects

    def on_group(self, survivors: tuple[int, ...], now_s: float) -> list[Effect]:
        """Say the last word; a group that was killed gets until the end of the linger time to be gone."""
        if survivors and self._stop is not None and not self._lingered:
            return [SetTimer(Timer.GROUP, GROUP_CHECK_S)] if self.state is State.DRAINING else []
        if not self._accepts(Input.DRAINED) or self._exit is None:
            return []
        status, exited_s = self._exit
        eof_reached = not self._open
        effects: list[Effect] = []
        for stream in [stream for stream in Stream if stream in self._open]:
            effects += self._announce(stream, self._streams[stream].end(), now_s)
        effects += [CancelTimer(timer) for timer in (Timer.QUIET, Timer.LINGER, Timer.GROUP)]
        effects.append(CloseChild())
        stderr = self._streams.get(Stream.STDERR)
        effects.append(
            AnnounceExited(
                status=status,
                asked_for=self._asked_for,
                escalated=self._escalated,
                uptime_s=exited_s - self._started_s,
                stderr_tail="" if stderr is None else stderr.tail.text(),
                eof_reached=eof_reached,
                survivors=survivors,
            )
        )
        return effects

    def on_timer(self, timer: Timer, now_s: float) -> list[Effect]:
        """A timer came due."""
        if not self._accepts(TIMER_INPUTS[timer]):
            return []
        effects: list[Effect]
        match timer:
            case Timer.RETRY:
                self._refusal = None
                effects = [StartChild()]
            case Timer.READY:
                self._readiness = None
                effects = [AnnounceReady(overdue=True, after_s=now_s - self._started_s)]
            case Timer.GRACE:
                effects = list(self._escalate())
            case Timer.DEADLINE:
                effects = [AnnounceStillAlive()]
            case Timer.QUIET | Timer.LINGER:
                self._lingered = self._lingered or timer is Timer.LINGER
                effects = [ReadRest(), CheckGroup()]
            case Timer.GROUP:
                effects = [CheckGroup()]
        return effects


class _StopTimes(Struct, frozen=True):
    """Until when a stopping child may take its time."""

    grace_at_s: float
    deadline_at_s: float

    def at_most(self, other: "_StopTimes", now_s: float) -> "_StopTimes":
        """Return the earlier times of both; a deadline that is over already counts no more."""
        deadline_at_s = other.deadline_at_s
        if self.deadline_at_s > now_s:
            deadline_at_s = min(self.deadline_at_s, deadline_at_s)
        return _StopTimes(min(self.grace_at_s, other.grace_at_s), deadline_at_s)


class _Reader:
    """What becomes of the bytes of one stream."""

    def __init__(self, spec: ProcessSpec, stream: Stream) -> None:
        policy = spec.policy(stream)
        self.tail = Tail(spec.tail_bytes)
        self._splitter = LineSplitter(policy.line_max_bytes) if isinstance(policy, Lines) else None
        self._keeps_tail = stream is Stream.STDERR

    def feed(self, data: bytes) -> list[Line]:
        """Return what ``data`` completes."""
        if self._keeps_tail:
            self.tail.feed(data)
        return [] if self._splitter is None else self._splitter.feed(data)

    def end(self) -> list[Line]:
        """Return the rest."""
        return [] if self._splitter is None else self._splitter.end()


def _meets(rule: ReadyOnLine, stream: Stream, lines: list[Line]) -> bool:
    return stream is rule.stream and any(re.search(rule.pattern, line.text) for line in lines)
