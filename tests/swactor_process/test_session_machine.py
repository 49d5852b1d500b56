"""A session in a world of its own: whatever happens at whatever time, what is promised of a life holds."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swactor_process import (
    ExitStatus,
    Lines,
    ProcessSpec,
    Readiness,
    ReadyOnLine,
    ReadyOnMessage,
    ReadyOnPort,
    SpawnError,
    SpawnRole,
    Stream,
    WhenFull,
)
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
)
from swactor_process._signals import CONT, KILL, TERM
from swactor_process.session import Session
from swactor_process.transitions import State

BUSY = SpawnError(errno_name="EAGAIN", role=SpawnRole.LIMIT, path="", hint="busy")
MISSING = SpawnError(errno_name="ENOENT", role=SpawnRole.PROGRAM, path="p", hint="missing")
RULES: list[Readiness | None] = [None, ReadyOnLine("up", deadline_s=3.0), ReadyOnPort(80), ReadyOnMessage()]
LINGER_S = 2.0
START_S = 1.5
CLOSE_S = 0.05
"""Looks at a group that is not gone yet come every 10 ms."""
SOON_S = 1e-6
TICKET = 1_000
"""Tickets are multiples of it, so that no signal looks like one."""
SIGNALS = st.sampled_from([10, 12])
TIMES_S = st.sampled_from([0.0, 0.3, 1.0, 4.0])
ENDS = st.sampled_from([ExitStatus(exit_code=0), ExitStatus(signal=10), ExitStatus(status_lost=True)])
TOLD = (
    AnnounceStarted,
    AnnounceLines,
    AnnouncePiece,
    AnnounceChunks,
    AnnounceReady,
    AnnounceStillAlive,
    AnnounceFailed,
    AnnounceExited,
)


class Life(RuleBasedStateMachine):
    """Performs what the session wants as the driver would; the rules are what child, kernel and owner do."""

    session: Session

    @initialize(
        readiness=st.sampled_from(RULES), pausing=st.booleans(), start_s=st.sampled_from([None, START_S])
    )
    def begins(self, readiness: Readiness | None, pausing: bool, start_s: float | None) -> None:
        self.now_s = 0.0
        self.timers: dict[Timer, float] = {}
        self.effects: deque[Effect] = deque()
        self.told: list[tuple[float, Effect]] = []
        self.signals: list[tuple[float, int]] = []
        self.ended_by: list[tuple[int, bool]] = []  # while it lives: TERM or KILL, and whether grace was left
        self.stops: list[tuple[float, float, float]] = []  # asked at, KILL at, deadline at
        self.spawn_pending = False
        self.loading_since_s: float | None = None  # the launcher runs, not the program
        self.start_timeout_s = start_s
        self.spawned_s: float | None = None
        self.gone_s: float | None = None
        self.over = False
        self.group_left = False
        self.unread = b""
        self.open: set[Stream] = set()
        self.paused: set[Stream] = set()
        self.probing = False
        self.asked: list[object] = []  # commands in order, as far as they are to be performed
        self.performed: list[object] = []
        self.tickets = 0
        self.answered = 0
        self.retired = 0
        policy = Lines(when_full=WhenFull.PAUSE) if pausing else Lines()
        spec = ProcessSpec(
            program="p",
            label="l",
            readiness=readiness,
            stdout=policy,
            linger_s=LINGER_S,
            stdin_buffer_bytes=3,
            start_timeout_s=start_s,
        )
        self.session = Session(spec)
        self.perform(self.session.start())

    # what the session wants

    def perform(self, effects: list[Effect]) -> None:
        self.effects.extend(effects)
        while self.effects:
            effect = self.effects.popleft()
            # After the last word there is nothing left to do but to let go, and to answer who writes.
            assert not self.over or isinstance(effect, AnswerWrite | Retire), effect
            if isinstance(effect, TOLD):
                self.told.append((self.now_s, effect))
                self.over = isinstance(effect, AnnounceExited | AnnounceFailed)
                self.spawn_pending = self.spawn_pending and not self.over
            elif self.loading_since_s is not None and isinstance(effect, SignalGroup | CloseChild):
                self.give_up(self.loading_since_s, effect)
            else:
                self.perform_one(effect)

    def give_up(self, loading_since_s: float, effect: SignalGroup | CloseChild) -> None:
        """The launcher is killed and let go of, for a reason."""
        overdue_s = loading_since_s + (self.start_timeout_s or float("inf"))
        assert self.stops or self.now_s >= overdue_s - SOON_S
        if isinstance(effect, SignalGroup):
            assert effect.number == KILL
        else:
            self.loading_since_s = None

    def perform_one(self, effect: Effect) -> None:
        match effect:
            case StartChild():
                self.spawn_pending = True
            case SetTimer(timer=timer, delay_s=delay_s):
                assert delay_s >= 0
                self.timers[timer] = self.now_s + delay_s
            case CancelTimer(timer=timer):
                self.timers.pop(timer, None)
            case SignalGroup(number=number):
                if number in {TERM, KILL} and self.gone_s is None:
                    grace_left = all(kill_s > self.now_s for _, kill_s, _ in self.stops)
                    self.ended_by.append((number, grace_left))
                self.signals.append((self.now_s, number))
                if number not in {TERM, CONT, KILL}:
                    self.performed.append(number)
            case WriteChild(ticket=ticket):
                self.performed.append(ticket)
                self.answered += 1
            case AnswerWrite(ticket=ticket):
                self.answered += 1
                if ticket in self.asked:
                    self.asked.remove(ticket)
            case CloseChildStdin():
                self.performed.append("close")
            case Retire():
                self.retired += 1
            case PauseReading(stream=stream):
                self.paused.add(stream)
            case ResumeReading(stream=stream):
                self.paused.discard(stream)
            case ProbeReadiness() | StopProbing():
                self.probing = isinstance(effect, ProbeReadiness)
            case ReadRest():
                data, self.unread = self.unread, b""
                if data and Stream.STDOUT in self.open:
                    self.effects.extend(self.session.on_output(Stream.STDOUT, data, self.now_s))
            case CheckGroup():
                survivors = (42,) if self.group_left else ()
                self.effects.extend(self.session.on_group(survivors, self.now_s))

    # what the kernel does

    @precondition(lambda self: self.spawn_pending)
    @rule()
    def the_child_is_started(self) -> None:
        assert not self.stops  # who is asked to stop before is not started at all
        self.spawn_pending = False
        self.spawned_s = self.now_s
        self.group_left = True
        self.open = set(Stream)
        self.perform(self.session.on_spawned(self.now_s))

    @precondition(lambda self: self.spawn_pending)
    @rule(busy=st.booleans())
    def the_start_is_refused(self, busy: bool) -> None:
        self.spawn_pending = False
        self.perform(self.session.on_refused(BUSY if busy else MISSING))

    @precondition(lambda self: self.spawn_pending)
    @rule()
    def the_launcher_is_started(self) -> None:
        self.spawn_pending = False
        self.loading_since_s = self.now_s
        self.perform(self.session.on_loading())

    @precondition(lambda self: self.loading_since_s is not None)
    @rule()
    def the_launcher_becomes_the_program(self) -> None:
        self.loading_since_s = None
        self.the_child_is_started()

    @precondition(lambda self: self.loading_since_s is not None)
    @rule(busy=st.booleans())
    def the_launcher_cannot_become_the_program(self, busy: bool) -> None:
        self.loading_since_s = None
        self.the_start_is_refused(busy)

    @rule(seconds=st.sampled_from([0.0, 0.2, 0.6, 2.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.timers:
            timer = min(self.timers, key=lambda timer: self.timers[timer])
            if self.timers[timer] > until_s:
                break
            self.now_s = max(self.now_s, self.timers.pop(timer))
            self.perform(self.session.on_timer(timer, self.now_s))
        self.now_s = until_s

    # what the owner does

    @rule(grace_s=TIMES_S, deadline_s=TIMES_S)
    def a_stop_is_asked(self, grace_s: float, deadline_s: float) -> None:
        self.stops.append((self.now_s, self.now_s + min(grace_s, deadline_s), self.now_s + deadline_s))
        self.perform(self.session.on_stop_asked(self.now_s, grace_s=grace_s, deadline_s=deadline_s))

    @rule(number=SIGNALS)
    def a_signal_is_asked(self, number: int) -> None:
        self.note_command(number)
        self.perform(self.session.on_signal_asked(number))

    @rule(data=st.sampled_from([b"x", b"xx"]))
    def a_write_is_asked(self, data: bytes) -> None:
        self.tickets += TICKET
        self.note_command(self.tickets)
        self.perform(self.session.on_write_asked(data, self.tickets))

    @rule()
    def the_end_of_input_is_asked(self) -> None:
        self.note_command("close")
        self.perform(self.session.on_close_stdin_asked())

    def note_command(self, command: object) -> None:
        if self.gone_s is None and not self.over:
            self.asked.append(command)

    @rule(behind=st.booleans())
    def the_owner_falls_behind_or_catches_up(self, behind: bool) -> None:
        self.perform(self.session.on_owner_behind() if behind else self.session.on_owner_caught_up())

    @rule()
    def the_owner_says_that_it_is_ready(self) -> None:
        self.perform(self.session.on_marked_ready(self.now_s))

    # what the child does

    @precondition(lambda self: Stream.STDOUT in self.open - self.paused)
    @rule(data=st.sampled_from([b"a", b"up\n", b"\xff\n"]))
    def it_writes(self, data: bytes) -> None:
        self.perform(self.session.on_output(Stream.STDOUT, data, self.now_s))

    @precondition(lambda self: Stream.STDOUT in self.open)
    @rule()
    def it_writes_what_nobody_has_read_yet(self) -> None:
        self.unread = b"rest\n"

    @precondition(lambda self: self.open - self.paused)
    @rule(stream=st.sampled_from(Stream))
    def it_closes_a_stream(self, stream: Stream) -> None:
        if stream in self.open - self.paused:
            self.open.discard(stream)
            self.perform(self.session.on_eof(stream, self.now_s))

    @precondition(lambda self: self.probing)
    @rule(met=st.booleans())
    def it_is_probed(self, met: bool) -> None:
        self.probing = False
        self.perform(self.session.on_probed(self.now_s, met=met))

    @precondition(lambda self: self.spawned_s is not None and self.gone_s is None)
    @rule(status=ENDS)
    def it_ends(self, status: ExitStatus) -> None:
        self.gone_s = self.now_s
        self.perform(self.session.on_exited(status, self.now_s))

    @precondition(lambda self: self.gone_s is not None)
    @rule()
    def the_rest_of_its_group_ends(self) -> None:
        self.group_left = False

    @precondition(lambda self: self.gone_s is not None or self.over)
    @rule(what=st.sampled_from(["started", "loading", "refused", "ended", "output", "eof", "probed"]))
    def something_comes_late(self, what: str) -> None:
        """A second time, or when it does not matter any more: nothing comes of it."""
        told = list(self.told)
        match what:
            case "started":
                self.perform(self.session.on_spawned(self.now_s))
            case "loading":
                self.perform(self.session.on_loading())
            case "refused":
                self.perform(self.session.on_refused(BUSY))
            case "ended":
                self.perform(self.session.on_exited(ExitStatus(exit_code=1), self.now_s))
            case "output" if Stream.STDOUT not in self.open:
                self.perform(self.session.on_output(Stream.STDOUT, b"late\n", self.now_s))
            case "eof" if Stream.STDERR not in self.open:
                self.perform(self.session.on_eof(Stream.STDERR, self.now_s))
            case "probed":
                self.perform(self.session.on_probed(self.now_s, met=True))
        assert self.told == told

    # what is promised

    @invariant()
    def one_start_comes_first_and_one_last_word_last(self) -> None:
        told = [effect for _, effect in self.told]
        if any(isinstance(effect, AnnounceFailed) for effect in told):
            assert len(told) == 1
        elif told:
            assert [effect for effect in told if isinstance(effect, AnnounceStarted)] == told[:1]
        last = [effect for effect in told if isinstance(effect, AnnounceExited | AnnounceFailed)]
        assert last == told[len(told) - len(last) :]
        assert len(last) == self.over

    @invariant()
    def after_the_last_word_nothing_is_left(self) -> None:
        if self.over:
            assert self.timers == {}
            assert not self.probing
            assert self.retired == 1
            assert self.session.state is State.EXITED

    @invariant()
    def a_start_is_given_up_in_time(self) -> None:
        if self.loading_since_s is not None and self.start_timeout_s is not None:
            assert self.now_s <= self.loading_since_s + self.start_timeout_s + SOON_S

    @invariant()
    def it_is_told_once_whether_it_is_ready(self) -> None:
        assert sum(isinstance(effect, AnnounceReady) for _, effect in self.told) <= 1

    @invariant()
    def a_stop_ends_it_or_is_told_that_it_lives(self) -> None:
        if self.spawned_s is None:
            return
        alive = [at_s for at_s, effect in self.told if isinstance(effect, AnnounceStillAlive)]
        for asked_s, _, deadline_s in self.stops:
            due_s = max(deadline_s, self.spawned_s) + SOON_S
            ended = self.gone_s is not None and self.gone_s <= due_s
            if self.now_s > due_s and not ended:
                assert any(asked_s - SOON_S <= at_s <= due_s for at_s in alive)

    @invariant()
    def a_living_child_is_killed_only_when_its_grace_is_over(self) -> None:
        for at_s, number in self.signals:
            if number == KILL and (self.gone_s is None or at_s < self.gone_s):
                assert any(kill_s <= at_s + SOON_S for _, kill_s, _ in self.stops)

    @invariant()
    def nobody_is_ended_unasked_or_asked_politely_twice(self) -> None:
        numbers = [number for _, number in self.signals]
        assert numbers.count(TERM) <= 1
        if not self.stops:
            assert TERM not in numbers
            assert KILL not in numbers

    @invariant()
    def who_has_grace_left_is_asked_politely_first(self) -> None:
        for number, grace_left in self.ended_by[:1]:
            assert number == (TERM if grace_left else KILL)

    @invariant()
    def the_last_word_comes_within_the_linger_time(self) -> None:
        if self.gone_s is not None and self.now_s > self.gone_s + LINGER_S + CLOSE_S:
            assert self.over

    @invariant()
    def commands_are_performed_once_in_order_and_never_before_the_start(self) -> None:
        assert self.performed == ([] if self.spawned_s is None else self.asked)
        assert self.signals == [] or self.spawned_s is not None

    @invariant()
    def every_write_is_answered_once_but_those_that_wait_for_the_start(self) -> None:
        started = self.spawned_s is not None
        waiting = 0 if started else sum(isinstance(what, int) and what >= TICKET for what in self.asked)
        assert self.answered + waiting == self.tickets // TICKET

    @invariant()
    def only_a_running_child_waits_for_its_owner(self) -> None:
        assert not self.paused or self.session.state is State.RUNNING

    def teardown(self) -> None:
        """However it went so far, it comes to an end when the world does."""
        while not self.over:
            if self.spawn_pending:
                self.the_child_is_started()
            elif self.loading_since_s is not None:
                self.the_launcher_becomes_the_program()
            elif self.gone_s is None and self.spawned_s is not None:
                self.it_ends(ExitStatus(exit_code=0))
            self.time_passes(100.0)
        self.one_start_comes_first_and_one_last_word_last()
        self.after_the_last_word_nothing_is_left()
        self.every_write_is_answered_once_but_those_that_wait_for_the_start()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
