"""The life of one child, as a pure state machine: inputs with times in, effects in order out.

Owns: what each allowed input brings about, the queue before the start, how long output is read after the
exit, and that exactly one last word is said.
Not here: what is allowed when (``transitions``), the times of a stop (``_stopping``), what becomes of the
bytes of a stream (``_streams``), performing effects (``_life``). Times are monotonic seconds.
"""

from swactor_process._effects import (
    AnnounceExited,
    AnnounceFailed,
    AnnounceStarted,
    AnswerWrite,
    CancelTimer,
    CheckGroup,
    CloseChild,
    CloseChildStdin,
    Effect,
    ReadRest,
    Retire,
    SetTimer,
    SignalGroup,
    StartChild,
    Timer,
    WriteChild,
)
from swactor_process._pausing import Pausing
from swactor_process._readiness import ReadinessWatch
from swactor_process._signals import KILL
from swactor_process._stopping import Stopping
from swactor_process._streams import StreamEffect, StreamReader
from swactor_process.spawner import STDIN_WRITES_MAX, ExitStatus, SpawnError, SpawnRole, WriteOutcome
from swactor_process.spec import STREAMS, ProcessSpec, Stream
from swactor_process.transitions import TIMER_INPUTS, TRANSITIONS, Input, State

RETRY_DELAYS_S = (0.01, 0.03, 0.06)
"""Pauses before the start is tried again after a momentary limit; the driver adds jitter."""
RETRIED_ERRNOS = frozenset({"EAGAIN"})
GROUP_CHECK_S = 0.01
"""Pause between looks at a group that was killed and is not gone yet."""
QUIET_S = 0.5
"""After the exit, an open stream that brings nothing for so long is not waited for any longer."""
OVERDUE = ("ETIMEDOUT", SpawnRole.START_TIMEOUT, "not loaded in time")
STOPPED = ("ECANCELED", SpawnRole.STOPPED, "stopped before it was loaded")
BEFORE_THE_START = frozenset({State.STARTING, State.LOADING})


class Session:
    """The life of one child of ``spec``. Every method returns effects to perform in order."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.state = State.STARTING
        self._spec = spec
        self._queued: list[Effect] = []
        self._queued_bytes = 0
        self._retries = 0
        self._refusal: SpawnError | None = None  # set while a retry is awaited
        self._stopping = Stopping()
        self._signals: set[int] = set()
        self._started_s = 0.0
        self._exit: tuple[ExitStatus, float] | None = None
        self._asked_for = False
        self._lingers = self._lingered = False
        self._open: set[Stream] = set()
        self._streams: dict[Stream, StreamReader] = {}
        self._pausing = Pausing(spec)
        self._readiness = ReadinessWatch(spec.readiness)

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
        """The child runs: do what was queued meanwhile."""
        if not self._accepts(Input.SPAWNED):
            return []
        self._started_s = now_s
        # Not before: what is done up to the start, the child has to wait for.
        for stream in self._spec.piped():
            self._open.add(stream)
            self._streams[stream] = StreamReader(self._spec, stream)
        effects = [
            *self._end_start_timer(),
            AnnounceStarted(),
            *self._readiness.begin(now_s),
            *self._queued,
        ]
        self._queued = []
        return effects

    def on_loading(self) -> list[Effect]:
        """There is a process, which is going to be the program."""
        if not self._accepts(Input.LOADING_BEGAN):
            return []
        timeout_s = self._spec.start_timeout_s
        return [] if timeout_s is None else [SetTimer(Timer.START, timeout_s)]

    def on_refused(self, error: SpawnError) -> list[Effect]:
        """The spawner refused: try again shortly when that can help, else it is over."""
        momentary = error.errno_name in RETRIED_ERRNOS and self._retries < len(RETRY_DELAYS_S)
        if momentary and self._accepts(Input.REFUSED_FOR_NOW):
            self._refusal = error
            self._retries += 1
            retry = SetTimer(Timer.RETRY, RETRY_DELAYS_S[self._retries - 1])
            return [*self._end_start_timer(), retry]
        return self._fail(error) if self._accepts(Input.REFUSED) else []

    def _give_up(self, why: tuple[str, SpawnRole, str]) -> list[Effect]:
        """Kill what has not become the program; the spawner reaps it when the kernel lets go of it."""
        return [SignalGroup(KILL), CloseChild(), *self._fail(self._error(why))]

    def _error(self, why: tuple[str, SpawnRole, str]) -> SpawnError:
        errno_name, role, hint = why
        return SpawnError(errno_name=errno_name, role=role, path=self._spec.program, hint=hint)

    def _fail(self, error: SpawnError) -> list[Effect]:
        answers: list[Effect] = [
            AnswerWrite(effect.ticket, WriteOutcome.CHILD_GONE)
            for effect in self._queued
            if isinstance(effect, WriteChild)
        ]
        self._queued = []
        return [*answers, *self._end_start_timer(), CancelTimer(Timer.RETRY), AnnounceFailed(error), Retire()]

    def _end_start_timer(self) -> list[Effect]:
        return [] if self._spec.start_timeout_s is None else [CancelTimer(Timer.START)]

    # commands

    def on_stop_asked(self, now_s: float, *, grace_s: float, deadline_s: float) -> list[Effect]:
        """End the child, or what is left of its group; have none started."""
        nothing_started = self.state is State.STARTING
        if not self._accepts(Input.STOP_ASKED):
            return []
        first = not self._stopping.asked
        self._stopping.ask(now_s, grace_s=grace_s, deadline_s=deadline_s)
        match self.state:
            case State.EXITED if nothing_started:
                return self._fail(self._refusal or self._error(STOPPED))
            case State.EXITED:
                return self._give_up(STOPPED)
            case State.DRAINING:
                return [SignalGroup(KILL)]
            case _:
                return self._begin_stop(now_s) if first else self._stopping.timers(now_s)

    def _begin_stop(self, now_s: float) -> list[Effect]:
        return [*self._readiness.end_waiting(), *self._pausing.end(), *self._stopping.begin(now_s)]

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
        if self.state in BEFORE_THE_START:
            is_full = self._queued_bytes and self._queued_bytes >= self._spec.stdin_buffer_bytes
            if is_full or len(self._queued) >= STDIN_WRITES_MAX:
                return [AnswerWrite(ticket, WriteOutcome.BUFFER_FULL)]
            self._queued_bytes += len(data)
        return self._now_or_queued(WriteChild(data, ticket))

    def on_close_stdin_asked(self) -> list[Effect]:
        """Close standard input behind what was written."""
        return self._now_or_queued(CloseChildStdin()) if self._accepts(Input.STDIN_ASKED) else []

    def _now_or_queued(self, effect: Effect) -> list[Effect]:
        if self.state not in BEFORE_THE_START:
            return [effect]
        self._queued.append(effect)
        return []

    # output

    def on_output(self, stream: Stream, data: bytes, now_s: float) -> list[Effect]:
        """Bytes of the child; the tail and the readiness rule look at them too."""
        if stream not in self._open or not self._accepts(Input.OUTPUT):
            return []
        effects = self._announce(self._streams[stream].feed(data), now_s)
        if self.state is not State.DRAINING:
            return effects
        self._readiness.on_drained(stream, len(data))
        return [*effects, SetTimer(Timer.QUIET, QUIET_S)]

    def on_eof(self, stream: Stream, now_s: float) -> list[Effect]:
        """The stream is over: tell its unterminated rest; after the exit the last stream ends it all."""
        if stream not in self._open or not self._accepts(Input.OUTPUT):
            return []
        self._open.discard(stream)
        effects = self._announce(self._streams[stream].end(), now_s)
        if self.state is State.DRAINING and not self._open:
            effects.append(CheckGroup())
        return effects

    def _announce(self, outputs: list[StreamEffect], now_s: float) -> list[Effect]:
        # Also when the child has ended meanwhile: what counts is what it wrote, not what was noticed first.
        effects: list[Effect] = []
        for output in outputs:
            effects.append(output)
            effects += self._readiness.on_output(output, now_s)
        return effects

    def on_probed(self, now_s: float, *, met: bool) -> list[Effect]:
        """It was looked whether the readiness rule is met."""
        return self._readiness.on_probed(now_s, met=met) if self._accepts(Input.PROBED) else []

    def on_marked_ready(self, now_s: float) -> list[Effect]:
        """The owner says that the child is ready."""
        return self._readiness.on_marked(now_s) if self._accepts(Input.READY_MARKED) else []

    def on_owner_behind(self) -> list[Effect]:
        """More output waits for the owner than should: have the child wait, unless it is to end."""
        return self._pausing.pause() if self._accepts(Input.OWNER_BEHIND) else []

    def on_owner_caught_up(self) -> list[Effect]:
        """Little or no output waits any more."""
        return self._pausing.resume() if self._accepts(Input.OWNER_CAUGHT_UP) else []

    # the end

    def on_exited(self, status: ExitStatus, now_s: float) -> list[Effect]:
        """The direct child ended. What a stop has left over of its group is killed."""
        if not self._accepts(Input.CHILD_GONE):
            return []
        self._exit = (status, now_s)
        self._asked_for = self._stopping.asked or status.signal in self._signals
        effects = self._readiness.end_waiting()
        if self._stopping.asked:
            effects += [CancelTimer(Timer.GRACE), CancelTimer(Timer.DEADLINE), SignalGroup(KILL)]
        effects += self._pausing.end()
        if self._open:
            return [*effects, self._linger(), SetTimer(Timer.QUIET, QUIET_S)]
        effects.append(CheckGroup())
        return effects

    def _linger(self) -> Effect:
        self._lingers = True
        return SetTimer(Timer.LINGER, self._spec.linger_s)

    def on_group(self, survivors: tuple[int, ...], now_s: float) -> list[Effect]:
        """Say the last word; a group that was killed gets until the end of the linger time to be gone."""
        if survivors and self._stopping.asked and not self._lingered:
            if self.state is not State.DRAINING:
                return []
            again: list[Effect] = [SetTimer(Timer.GROUP, GROUP_CHECK_S)]
            return again if self._lingers else [self._linger(), *again]
        if not self._accepts(Input.DRAINED) or self._exit is None:
            return []
        status, exited_s = self._exit
        eof_reached = not self._open
        effects: list[Effect] = []
        for stream in [stream for stream in STREAMS if stream in self._open]:
            effects += self._announce(self._streams[stream].end(), now_s)
        if self._lingers:
            effects += [CancelTimer(timer) for timer in (Timer.QUIET, Timer.LINGER, Timer.GROUP)]
        effects.append(
            AnnounceExited(
                status=status,
                asked_for=self._asked_for,
                external=self._is_external(status.signal),
                escalated=self._stopping.escalated,
                uptime_s=exited_s - self._started_s,
                stderr_tail="".join(reader.tail() for reader in self._streams.values()),
                eof_reached=eof_reached,
                survivors=survivors,
            )
        )
        effects.append(Retire())
        return effects

    def _is_external(self, number: int | None) -> bool:
        return number is not None and number not in self._signals | self._stopping.signals

    def on_timer(self, timer: Timer, now_s: float) -> list[Effect]:
        """A timer came due."""
        if not self._accepts(TIMER_INPUTS[timer]):
            return []
        effects: list[Effect]
        match timer:
            case Timer.RETRY:
                self._refusal = None
                effects = [StartChild()]
            case Timer.START:
                effects = self._give_up(OVERDUE)
            case Timer.READY:
                effects = self._readiness.on_overdue(now_s)
            case Timer.PROBE:
                effects = self._readiness.probe()
            case Timer.GRACE:
                effects = self._stopping.escalate()
            case Timer.DEADLINE:
                effects = self._stopping.on_deadline()
            case Timer.QUIET | Timer.LINGER:
                self._lingered = self._lingered or timer is Timer.LINGER
                effects = [ReadRest(), CheckGroup()]
            case Timer.GROUP:
                effects = [CheckGroup()]
        return effects
