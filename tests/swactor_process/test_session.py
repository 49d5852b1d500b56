"""The life of one child as a pure state machine: inputs in, effects out. No processes, no loop."""

import signal
from collections.abc import Iterable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swactor_process import ExitStatus, ProcessSpec, ReadyOnLine, SpawnError, SpawnRole, Stream, WriteOutcome
from swactor_process._effects import (
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
    CloseChildStdin,
    Effect,
    Retire,
    SetTimer,
    SignalGroup,
    StartChild,
    Timer,
    WriteChild,
)
from swactor_process.session import RETRY_DELAYS_S, Session
from swactor_process.spawner import STDIN_WRITES_MAX
from swactor_process.transitions import State

E = TypeVar("E", bound=Effect)
SPEC = ProcessSpec(program="p", label="l", grace_s=5.0, deadline_s=10.0, linger_s=2.0)
BUSY = SpawnError(errno_name="EAGAIN", role=SpawnRole.LIMIT, path="", hint="busy")
MISSING = SpawnError(errno_name="ENOENT", role=SpawnRole.PROGRAM, path="p", hint="missing")
DONE = ExitStatus(exit_code=0)
TERM, KILL = SignalGroup(signal.SIGTERM), SignalGroup(signal.SIGKILL)


def only(kind: type[E], effects: Iterable[Effect]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def running(spec: ProcessSpec = SPEC) -> Session:
    session = Session(spec)
    assert session.start() == [StartChild()]
    assert session.on_spawned(0.0)[0] == AnnounceStarted()
    return session


def stop(
    session: Session, now_s: float = 1.0, grace_s: float = 5.0, deadline_s: float = 10.0
) -> list[Effect]:
    return session.on_stop_asked(now_s, grace_s=grace_s, deadline_s=deadline_s)


def end_of_output(session: Session, now_s: float) -> list[Effect]:
    return [*session.on_eof(Stream.STDOUT, now_s), *session.on_eof(Stream.STDERR, now_s)]


def test_a_whole_life() -> None:
    session = running()
    effects = session.on_output(Stream.STDOUT, b"hi\n", 0.5)
    effects += end_of_output(session, 1.0)
    assert only(CheckGroup, effects) == []

    effects = session.on_exited(DONE, 1.5)
    assert effects[-1] == CheckGroup()
    (exited,) = only(AnnounceExited, session.on_group((), 1.5))

    assert (exited.status, exited.uptime_s, exited.eof_reached, exited.asked_for) == (DONE, 1.5, True, False)
    assert session.state is State.EXITED


def test_stop_is_term_then_kill_then_still_alive() -> None:
    session = running()

    assert stop(session) == [
        TERM,
        SignalGroup(signal.SIGCONT),
        SetTimer(Timer.DEADLINE, 10.0),
        SetTimer(Timer.GRACE, 5.0),
    ]
    assert session.on_timer(Timer.GRACE, 6.0) == [KILL]
    assert session.on_timer(Timer.DEADLINE, 11.0) == [AnnounceStillAlive()]
    assert session.state is State.STOPPING


def test_the_exit_after_still_alive_is_told_as_escalated() -> None:
    session = running()
    stop(session)
    session.on_timer(Timer.GRACE, 6.0)
    session.on_timer(Timer.DEADLINE, 11.0)
    end_of_output(session, 50.0)

    session.on_exited(ExitStatus(signal=9), 50.0)
    (exited,) = only(AnnounceExited, session.on_group((), 50.0))

    assert (exited.asked_for, exited.escalated) == (True, True)


def test_stop_without_grace_kills_at_once() -> None:
    assert KILL in stop(running(), grace_s=0.0)


def test_the_deadline_bounds_the_grace() -> None:
    effects = stop(running(), grace_s=60.0, deadline_s=3.0)

    assert SetTimer(Timer.GRACE, 3.0) in effects


def test_a_second_stop_shortens_and_never_lengthens() -> None:
    session = running()
    stop(session, now_s=0.0, grace_s=5.0, deadline_s=10.0)

    assert stop(session, now_s=1.0, grace_s=60.0, deadline_s=60.0) == [
        SetTimer(Timer.DEADLINE, 9.0),
        SetTimer(Timer.GRACE, 4.0),
    ]
    assert stop(session, now_s=2.0, grace_s=0.0, deadline_s=1.0) == [
        SetTimer(Timer.DEADLINE, 1.0),
        SetTimer(Timer.GRACE, 0.0),
    ]


def test_a_second_stop_does_not_undo_a_deadline_that_is_due_and_not_told_yet() -> None:
    session = running()
    stop(session, now_s=0.0, grace_s=0.0, deadline_s=1.0)

    assert SetTimer(Timer.DEADLINE, 0.0) in stop(session, now_s=1.0, grace_s=0.0, deadline_s=5.0)

    assert session.on_timer(Timer.DEADLINE, 1.0) == [AnnounceStillAlive()]
    assert SetTimer(Timer.DEADLINE, 5.0) in stop(session, now_s=2.0, grace_s=0.0, deadline_s=5.0)


def test_stop_before_the_start_is_the_end_of_it() -> None:
    session = Session(SPEC)
    session.start()
    session.on_write_asked(b"x", 1)

    answer, *_, failed, _ = stop(session, now_s=0.0)

    assert answer == AnswerWrite(1, WriteOutcome.CHILD_GONE)
    assert isinstance(failed, AnnounceFailed)
    assert (failed.error.role, failed.error.path) == (SpawnRole.STOPPED, "p")
    assert session.on_spawned(0.1) == session.on_loading() == session.on_refused(BUSY) == []
    assert session.state is State.EXITED


def test_stop_while_a_retry_is_awaited_gives_up() -> None:
    session = Session(SPEC)
    session.start()
    assert session.on_refused(BUSY) == [SetTimer(Timer.RETRY, RETRY_DELAYS_S[0])]

    assert only(AnnounceFailed, stop(session)) == [AnnounceFailed(BUSY)]
    assert session.on_timer(Timer.RETRY, 9.0) == []


def test_fc_015_a_momentary_refusal_is_retried_a_bounded_number_of_times() -> None:
    """About 100 ms in all."""
    session = Session(SPEC)
    session.start()
    for delay_s in RETRY_DELAYS_S:
        assert session.on_refused(BUSY) == [SetTimer(Timer.RETRY, delay_s)]
        assert session.on_timer(Timer.RETRY, 1.0) == [StartChild()]

    assert only(AnnounceFailed, session.on_refused(BUSY)) == [AnnounceFailed(BUSY)]
    assert sum(RETRY_DELAYS_S) <= 0.11


def test_a_lasting_refusal_is_final() -> None:
    session = Session(SPEC)
    session.start()
    session.on_write_asked(b"x", 1)

    effects = session.on_refused(MISSING)

    assert effects == [
        AnswerWrite(1, WriteOutcome.CHILD_GONE),
        CancelTimer(Timer.RETRY),
        AnnounceFailed(MISSING),
        Retire(),
    ]


def test_commands_before_the_start_wait_for_it_in_order() -> None:
    session = Session(ProcessSpec(program="p", label="l", stdin_buffer_bytes=3))
    session.start()
    session.on_write_asked(b"abc", 1)
    assert session.on_write_asked(b"d", 2) == [AnswerWrite(2, WriteOutcome.BUFFER_FULL)]
    session.on_signal_asked(10)
    session.on_close_stdin_asked()

    assert session.on_spawned(0.0)[1:] == [WriteChild(b"abc", 1), SignalGroup(10), CloseChildStdin()]


def test_writes_before_the_start_are_bounded_in_number_however_short() -> None:
    session = Session(ProcessSpec(program="p", label="l"))
    session.start()
    answers = [session.on_write_asked(b"", ticket) for ticket in range(STDIN_WRITES_MAX + 1)]

    assert answers[:-1] == [[]] * STDIN_WRITES_MAX
    assert answers[-1] == [AnswerWrite(STDIN_WRITES_MAX, WriteOutcome.BUFFER_FULL)]


def test_fc_011_output_after_the_exit_comes_before_the_last_word() -> None:
    session = running()
    session.on_exited(ExitStatus(exit_code=2), 1.0)

    effects = session.on_output(Stream.STDERR, b"FINAL", 1.1) + end_of_output(session, 1.2)
    assert only(AnnouncePiece, effects)[-1].piece.data == b"FINAL"
    (exited,) = only(AnnounceExited, session.on_group((), 1.2))

    assert exited.stderr_tail == "FINAL"


def test_fc_001_a_stream_that_stays_open_and_silent_is_waited_for_briefly() -> None:
    """Within a second."""
    session = running()
    effects = session.on_exited(DONE, 1.0)
    quiet = [effect for effect in only(SetTimer, effects) if effect.timer is Timer.QUIET]
    assert quiet[0].delay_s < 1.0

    session.on_output(Stream.STDOUT, b"rest", 1.1)
    assert session.on_timer(Timer.QUIET, 1.6)[-1] == CheckGroup()
    effects = session.on_group((42,), 1.6)

    assert only(AnnouncePiece, effects)[0].piece.terminated is False
    (exited,) = only(AnnounceExited, effects)
    assert (exited.eof_reached, exited.survivors) == (False, (42,))


def test_fc_002_a_stop_after_the_exit_kills_the_rest_but_was_not_what_ended_it() -> None:
    session = running()
    session.on_exited(DONE, 1.0)

    assert stop(session, now_s=1.1) == [KILL]
    end_of_output(session, 1.2)
    assert session.on_group((42,), 1.2) == [SetTimer(Timer.GROUP, 0.01)]
    assert session.on_timer(Timer.GROUP, 1.21) == [CheckGroup()]
    (exited,) = only(AnnounceExited, session.on_group((), 1.21))

    assert (exited.asked_for, exited.survivors) == (False, ())


def test_fc_024_a_group_that_does_not_go_is_named_at_the_end_of_the_linger_time() -> None:
    session = running()
    stop(session)
    assert KILL in session.on_exited(ExitStatus(signal=15), 2.0)
    end_of_output(session, 2.0)
    session.on_group((42,), 2.0)
    session.on_timer(Timer.LINGER, 4.0)

    (exited,) = only(AnnounceExited, session.on_group((42,), 4.0))

    assert exited.survivors == (42,)


def test_readiness_is_met_by_the_first_matching_line() -> None:
    session = running(ProcessSpec(program="p", label="l", readiness=ReadyOnLine(pattern="^up")))

    assert only(AnnounceReady, session.on_output(Stream.STDERR, b"up\n", 0.1)) == []
    assert only(AnnounceReady, session.on_output(Stream.STDOUT, b"not up\n", 0.2)) == []
    assert only(AnnounceReady, session.on_output(Stream.STDOUT, b"up\nup\n", 0.3)) == [
        AnnounceReady(overdue=False, after_s=0.3)
    ]
    assert only(AnnounceReady, session.on_output(Stream.STDOUT, b"up\n", 0.4)) == []


@pytest.mark.parametrize(("flood", "told"), [(b"", 1), (b"y\n" * 20_000, 1), (b"y\n" * 200_000, 0)])
def test_fc_001_after_the_exit_lines_count_only_as_far_as_the_child_can_have_written_them(
    flood: bytes, told: int
) -> None:
    session = running(ProcessSpec(program="p", label="l", readiness=ReadyOnLine(pattern="^up")))
    session.on_exited(DONE, 1.0)
    session.on_output(Stream.STDERR, b"y\n" * 200_000, 1.0)
    session.on_output(Stream.STDOUT, flood, 1.0)

    effects = session.on_output(Stream.STDOUT, b"up\n", 1.1)

    assert len(only(AnnounceReady, effects)) == told


def test_fc_022_writing_after_the_exit_is_answered() -> None:
    session = running()
    session.on_exited(DONE, 1.0)

    assert session.on_write_asked(b"late", 7) == [AnswerWrite(7, WriteOutcome.CHILD_GONE)]
    assert session.on_signal_asked(15) == []
    assert session.on_close_stdin_asked() == []


ACTIONS = st.lists(
    st.one_of(
        st.sampled_from(
            ["spawned", "busy", "missing", "signal", "write", "close", "exited", "group", "survivor"]
        ),
        st.tuples(st.just("stop"), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 2.0])),
        st.tuples(st.just("output"), st.sampled_from(Stream), st.sampled_from([b"a", b"b\n", b"\xff\nup\n"])),
        st.tuples(st.just("eof"), st.sampled_from(Stream)),
        st.tuples(st.just("timer"), st.sampled_from(Timer)),
    ),
    max_size=40,
)
ANNOUNCEMENTS = (
    AnnounceStarted,
    AnnounceLines,
    AnnouncePiece,
    AnnounceReady,
    AnnounceStillAlive,
    AnnounceFailed,
    AnnounceExited,
)


@given(ACTIONS, st.booleans())
def test_whatever_happens_in_whatever_order_there_is_one_start_and_one_last_word(
    actions: list[str | tuple[object, ...]], ready: bool
) -> None:
    session = Session(ProcessSpec(program="p", label="l", readiness=ReadyOnLine() if ready else None))
    effects = session.start()
    for ticket, action in enumerate(actions):
        effects += _apply(session, action, now_s=float(ticket), ticket=ticket)
    tickets = sum(action == "write" for action in actions)
    # However it went so far, it comes to an end when the world does.
    end_s = float(len(actions))
    effects += session.on_refused(MISSING)
    effects += session.on_exited(DONE, end_s)
    effects += session.on_timer(Timer.LINGER, end_s)
    effects += session.on_group((), end_s)

    told = [effect for effect in effects if isinstance(effect, ANNOUNCEMENTS)]
    assert session.state is State.EXITED
    assert len(only(AnnounceFailed, told)) + len(only(AnnounceExited, told)) == 1
    if isinstance(told[-1], AnnounceFailed):
        assert len(told) == 1
    else:
        assert isinstance(told[-1], AnnounceExited)
        assert [effect for effect in told if isinstance(effect, AnnounceStarted)] == [told[0]]
    assert len(only(AnnounceReady, told)) <= 1
    assert effects.count(Retire()) == 1
    assert len(only(WriteChild, effects)) + len(only(AnswerWrite, effects)) == tickets
    started = effects.index(AnnounceStarted()) if AnnounceStarted() in effects else len(effects)
    assert not only(SignalGroup, effects[:started])
    assert not only(WriteChild, effects[:started])


def _apply(  # noqa: PLR0911 - one line for each input of the machine
    session: Session, action: str | tuple[object, ...], *, now_s: float, ticket: int
) -> list[Effect]:
    match action:
        case "spawned":
            return session.on_spawned(now_s)
        case "busy" | "missing":
            return session.on_refused(BUSY if action == "busy" else MISSING)
        case "signal":
            return session.on_signal_asked(10)
        case "write":
            return session.on_write_asked(b"x", ticket)
        case "close":
            return session.on_close_stdin_asked()
        case "exited":
            return session.on_exited(ExitStatus(signal=9), now_s)
        case "group" | "survivor":
            return session.on_group((42,) if action == "survivor" else (), now_s)
        case ("stop", float(grace_s), float(deadline_s)):
            return session.on_stop_asked(now_s, grace_s=grace_s, deadline_s=deadline_s)
        case ("output", Stream() as stream, bytes(data)):
            return session.on_output(stream, data, now_s)
        case ("eof", Stream() as stream):
            return session.on_eof(stream, now_s)
        case ("timer", Timer() as timer):
            return session.on_timer(timer, now_s)
    raise AssertionError(f"no such action: {action}")
