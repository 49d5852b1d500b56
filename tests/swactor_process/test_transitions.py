"""What may happen when: each pair of a state and an input does what the table says, or nothing."""

from collections.abc import Callable

import pytest

from swactor_process import (
    ExitStatus,
    Lines,
    ProcessSpec,
    ReadyOnPort,
    SpawnError,
    SpawnRole,
    Stream,
    WhenFull,
    WriteOutcome,
)
from swactor_process._effects import AnswerWrite, Effect, Timer
from swactor_process.session import Session
from swactor_process.transitions import TIMER_INPUTS, TRANSITIONS, Input, State

SPEC = ProcessSpec(
    program="p", label="l", stdout=Lines(when_full=WhenFull.PAUSE), readiness=ReadyOnPort(80), linger_s=2.0
)
BUSY = SpawnError(errno_name="EAGAIN", role=SpawnRole.LIMIT, path="", hint="busy")
MISSING = SpawnError(errno_name="ENOENT", role=SpawnRole.PROGRAM, path="p", hint="missing")
TICKET = 7
NOW_S = 3.0


def starting() -> Session:
    session = Session(SPEC)
    session.start()
    return session


def loading() -> Session:
    session = starting()
    session.on_loading()
    return session


def running() -> Session:
    session = starting()
    session.on_spawned(0.0)
    return session


def stopping() -> Session:
    session = running()
    session.on_stop_asked(1.0, grace_s=5.0, deadline_s=10.0)
    return session


def draining() -> Session:
    session = running()
    session.on_exited(ExitStatus(exit_code=0), 2.0)
    return session


def exited() -> Session:
    session = draining()
    session.on_group((), 2.5)
    return session


IN_STATE: dict[State, Callable[[], Session]] = {
    State.STARTING: starting,
    State.LOADING: loading,
    State.RUNNING: running,
    State.STOPPING: stopping,
    State.DRAINING: draining,
    State.EXITED: exited,
}


def stop(session: Session) -> list[Effect]:
    return session.on_stop_asked(NOW_S, grace_s=1.0, deadline_s=2.0)


FEED: dict[Input, Callable[[Session], list[Effect]]] = {
    Input.SPAWNED: lambda session: session.on_spawned(NOW_S),
    Input.LOADING_BEGAN: lambda session: session.on_loading(),
    Input.REFUSED_FOR_NOW: lambda session: session.on_refused(BUSY),
    Input.REFUSED: lambda session: session.on_refused(MISSING),
    Input.STOP_ASKED: stop,
    Input.SIGNAL_ASKED: lambda session: session.on_signal_asked(10),
    Input.STDIN_ASKED: lambda session: session.on_write_asked(b"x", TICKET),
    Input.OUTPUT: lambda session: session.on_output(Stream.STDOUT, b"x\n", NOW_S),
    Input.OWNER_BEHIND: lambda session: session.on_owner_behind(),
    Input.OWNER_CAUGHT_UP: lambda session: session.on_owner_caught_up(),
    Input.PROBED: lambda session: session.on_probed(NOW_S, met=True),
    Input.READY_MARKED: lambda session: session.on_marked_ready(NOW_S),
    Input.CHILD_GONE: lambda session: session.on_exited(ExitStatus(exit_code=0), NOW_S),
    Input.DRAINED: lambda session: session.on_group((), NOW_S),
    Input.RETRY_DUE: lambda session: session.on_timer(Timer.RETRY, NOW_S),
    Input.START_OVERDUE: lambda session: session.on_timer(Timer.START, NOW_S),
    Input.PROBE_DUE: lambda session: session.on_timer(Timer.PROBE, NOW_S),
    Input.READY_OVERDUE: lambda session: session.on_timer(Timer.READY, NOW_S),
    Input.GRACE_OVER: lambda session: session.on_timer(Timer.GRACE, NOW_S),
    Input.DEADLINE_OVER: lambda session: session.on_timer(Timer.DEADLINE, NOW_S),
    Input.QUIET_OVER: lambda session: session.on_timer(Timer.QUIET, NOW_S),
    Input.LINGER_OVER: lambda session: session.on_timer(Timer.LINGER, NOW_S),
    Input.GROUP_DUE: lambda session: session.on_timer(Timer.GROUP, NOW_S),
}

MORE_OF: list[tuple[Input, Callable[[Session], list[Effect]]]] = [
    (Input.STDIN_ASKED, lambda session: session.on_close_stdin_asked()),
    (Input.OUTPUT, lambda session: session.on_eof(Stream.STDERR, NOW_S)),
]
"""Other calls that are the same input to the table."""

PAIRS = [(state, what, feed) for state in State for what, feed in [*FEED.items(), *MORE_OF]]


@pytest.mark.parametrize(
    ("state", "what", "feed"), PAIRS, ids=[f"{state.value}-{what.name.lower()}" for state, what, _ in PAIRS]
)
def test_each_pair_does_what_the_table_says(
    state: State, what: Input, feed: Callable[[Session], list[Effect]]
) -> None:
    session = IN_STATE[state]()
    assert session.state is state

    effects = feed(session)

    if (state, what) in TRANSITIONS:
        assert session.state is TRANSITIONS[state, what]
    else:
        assert session.state is state
        # A write is always answered; nothing else may come of what is too late or too early.
        answer = [AnswerWrite(TICKET, WriteOutcome.CHILD_GONE)]
        assert effects == (answer if feed is FEED[Input.STDIN_ASKED] else [])


def test_what_is_ignored_leaves_no_trace() -> None:
    """A state that was offered everything it does not know goes on exactly as one that was not."""
    for state in State:
        offered, untouched = IN_STATE[state](), IN_STATE[state]()
        for what, feed in [*FEED.items(), *MORE_OF]:
            if (state, what) not in TRANSITIONS:
                feed(offered)

        assert _rest_of_life(offered) == _rest_of_life(untouched), state


def _rest_of_life(session: Session) -> list[Effect]:
    effects = [*session.on_spawned(4.0), *session.on_output(Stream.STDOUT, b"more\n", 4.0)]
    effects += session.on_stop_asked(5.0, grace_s=5.0, deadline_s=10.0)
    effects += session.on_exited(ExitStatus(signal=15), 6.0)
    return [*effects, *session.on_timer(Timer.LINGER, 8.0), *session.on_group((), 8.0)]


def test_every_input_is_known_somewhere_and_every_timer_is_an_input() -> None:
    assert {what for _, what in TRANSITIONS} == set(Input) == set(FEED)
    assert set(TIMER_INPUTS) == set(Timer)
    assert len(set(TIMER_INPUTS.values())) == len(Timer)


def test_every_state_can_be_left_but_the_last_and_every_state_leads_to_it() -> None:
    leads_to: dict[State, set[State]] = {state: set() for state in State}
    for (before, _), after in TRANSITIONS.items():
        leads_to[before].add(after)

    assert leads_to[State.EXITED] == set()
    for state in State:
        reached, found = {state}, True
        while found:
            new = {after for before in reached for after in leads_to[before]} - reached
            reached, found = reached | new, bool(new)
        assert State.EXITED in reached
        if state is State.STARTING:
            assert reached == set(State)


def test_the_exit_is_seen_wherever_a_child_runs_and_nowhere_else() -> None:
    seen = {state for state, what in TRANSITIONS if what is Input.CHILD_GONE}

    assert seen == {State.RUNNING, State.STOPPING}


def test_nothing_is_paused_where_a_child_is_to_end() -> None:
    assert {state for state, what in TRANSITIONS if what is Input.OWNER_BEHIND} == {State.RUNNING}
