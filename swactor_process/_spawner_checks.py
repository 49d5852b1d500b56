"""The checks that every spawner has to pass, one promise of the seam each.

Owns: `SPAWNER_CHECKS`. Not here: what needs real processes (``_real_checks``).
"""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from swactor_process._checking import FLOOD_BYTES, STEP_TIMEOUT_S, SpawnerCheckError, SpawnerSetup, require
from swactor_process._signals import CONT, KILL, TERM
from swactor_process.spawner import ExitStatus, SpawnError, WriteOutcome
from swactor_process.spec import Null, Stream

Check = Callable[[SpawnerSetup], Awaitable[None]]


async def the_exit_code_is_that_of_the_child(setup: SpawnerSetup) -> None:
    """Of many at once too, each its own."""
    codes = (0, 1, 7, 127, 128, 255)
    children = [setup.start(setup.programs.exits_with(code)) for code in codes]
    statuses = [await child.over() for child in children]
    require(statuses == [ExitStatus(exit_code=code) for code in codes], f"exit codes {codes}, not {statuses}")


def _ended_by(status: ExitStatus, number: int) -> bool:
    """Whether it was this signal; evidence may come with KILL only."""
    if number != KILL and status.oom is not None:
        return False
    return replace(status, oom=None) == ExitStatus(signal=number)


async def a_signal_that_ends_a_child_is_its_status(setup: SpawnerSetup) -> None:
    """Whoever sent it: we, or the child itself."""
    for number in (TERM, KILL):
        asked = setup.start(setup.programs.stays)
        asked.child.signal(number)
        status = await asked.over()
        require(_ended_by(status, number), f"ended by signal {number}, not {status}")
    status = await setup.start(setup.programs.kills_itself).over()
    require(_ended_by(status, KILL), f"ended by its own signal {KILL}, not {status}")


async def a_signal_that_is_ignored_or_harmless_ends_nothing(setup: SpawnerSetup) -> None:
    """KILL ends it all the same."""
    stubborn = setup.start(setup.programs.ignores_term)
    await stubborn.until(lambda: stubborn.out == b"ready\n")
    for number in (0, CONT, TERM):
        stubborn.child.signal(number)
    await setup.turn()
    require(stubborn.listener.status is None, "a child that ignores TERM lives on")
    stubborn.child.signal(KILL)
    status = await stubborn.over()
    require(_ended_by(status, KILL), f"KILL ends any child, not {status}")


async def exit_and_ends_of_streams_are_told_once(setup: SpawnerSetup) -> None:
    """With all of the output before the end of its stream."""
    spoken = setup.start(setup.programs.speaks)
    status = await spoken.over()
    await setup.turn()
    heard = spoken.listener.heard
    require(status == ExitStatus(exit_code=7), f"exit code 7, not {status}")
    require((spoken.out, spoken.err) == (b"out\n", b"err"), f"output, not {spoken.listener.data}")
    for stream in ("stdout", "stderr"):
        require(heard.count(f"eof {stream}") == 1, f"the end of {stream} comes once: {heard}")
        require(heard.index(f"output {stream}") < heard.index(f"eof {stream}"), f"in this order: {heard}")
    require(heard.count("exited") == 1, f"the exit comes once: {heard}")


async def much_output_arrives_complete_and_in_order(setup: SpawnerSetup) -> None:
    """In pieces, none of them empty, and nothing after the end of its stream."""
    flood = setup.start(setup.programs.floods)
    status = await flood.over()
    heard = flood.listener.heard
    require(status == ExitStatus(exit_code=3), f"exit code 3, not {status}")
    require(flood.out == b"x" * FLOOD_BYTES, f"{FLOOD_BYTES} bytes, not {len(flood.out)}")
    require(flood.err == b"godone", f"both words on stderr, not {flood.err!r}")
    require(not {"nothing stdout", "nothing stderr"} & set(heard), "no output is empty")
    require("output stdout" not in heard[heard.index("eof stdout") :], "no output comes after the end")


async def a_stream_that_is_not_piped_is_not_heard_of(setup: SpawnerSetup) -> None:
    """Neither its output nor its end."""
    spoken = setup.start(replace(setup.programs.speaks, stdout=Null()))
    await spoken.over()
    await setup.turn()
    wrong = {"output stdout", "eof stdout"} & set(spoken.listener.heard)
    require(not wrong and spoken.err == b"err", f"only stderr is heard, not {spoken.listener.heard}")


async def environment_and_directory_are_those_of_the_spec(setup: SpawnerSetup) -> None:
    """As far as a program can tell."""
    shown = setup.start(
        replace(setup.programs.shows, env={"WORD": "hello", "PATH": "/bin:/usr/bin"}, cwd="/")
    )
    await shown.over()
    require(shown.out == b"hello /\n", f"'hello /', not {shown.out!r}")


async def a_child_has_an_identity_of_its_own(setup: SpawnerSetup) -> None:
    """Process id, start time, parent, state, guard."""
    one, other = setup.start(setup.programs.stays), setup.start(replace(setup.programs.stays, guarded=False))
    first, second = one.child, other.child
    require(first.pid > 1 and second.pid > 1, "process ids above 1")
    require(first.pid != second.pid, "two living children have two process ids")
    require(first.parent_pid == second.parent_pid != first.pid, "and one parent, which is neither")
    known = (first.start_time or 0, second.start_time or 0)
    require(0 <= known[0] <= known[1], f"start times that do not go back, not {known}")
    require(not second.guarded, "a child that is not to be guarded is not")
    state = first.state()
    require(state is None or len(state) == 1, f"a state letter, not {state!r}")
    for started in (one, other):
        before = started.child.start_time
        started.child.signal(KILL)
        await started.over()
        require(started.child.start_time == before, "a start time that stays the same")


async def writes_arrive_in_order_and_are_answered_once(setup: SpawnerSetup) -> None:
    """However the lines are cut."""
    echo = setup.start(setup.programs.echoes)
    for data in (b"one\ntw", b"", b"o\n"):
        echo.write(data)
    await echo.until(lambda: echo.out == b"one\ntwo\n")
    require(echo.outcomes == [WriteOutcome.WRITTEN] * 3, f"three times written, not {echo.outcomes}")
    echo.child.close_stdin()
    require(await echo.over() == ExitStatus(exit_code=0), "the end of its input ends the program")
    require(len(echo.outcomes) == 3, "no write is answered twice")
    require(echo.lost == [0, 0, 0], f"of what is written nothing is lost, not {echo.lost}")


async def closing_stdin_comes_behind_what_was_written(setup: SpawnerSetup) -> None:
    """And what is written from then on is refused."""
    echo = setup.start(setup.programs.echoes)
    echo.write(b"last")
    echo.child.close_stdin()
    echo.child.close_stdin()
    echo.write(b"late")
    status = await echo.over()
    require(echo.outcomes == [WriteOutcome.WRITTEN, WriteOutcome.STDIN_CLOSED], f"not {echo.outcomes}")
    require(echo.lost == [0, 4], f"four bytes are refused, not {echo.lost}")
    require(echo.out.rstrip() == b"last" and status.exit_code == 0, f"'last' is echoed, not {echo.out!r}")


async def a_child_without_stdin_is_at_the_end_of_its_input(setup: SpawnerSetup) -> None:
    """Writes are refused."""
    echo = setup.start(replace(setup.programs.echoes, stdin=False))
    echo.write(b"x\n")
    echo.child.close_stdin()
    require(await echo.over() == ExitStatus(exit_code=0), "the program ends, as there is no input")
    require(echo.outcomes == [WriteOutcome.STDIN_CLOSED], f"refused, not {echo.outcomes}")
    require(echo.lost == [2], f"two bytes are lost, not {echo.lost}")


async def a_write_to_a_child_that_has_gone_says_so(setup: SpawnerSetup) -> None:
    """Also when nothing else has shown it."""
    gone = setup.start(setup.programs.exits_with(4))
    status = await gone.ended()
    gone.write(b"x\n")
    gone.write(b"x\n")
    require(gone.outcomes == [WriteOutcome.CHILD_GONE] * 2, f"twice gone, not {gone.outcomes}")
    require(gone.lost == [2, 2], f"all bytes are lost, not {gone.lost}")
    require(status == ExitStatus(exit_code=4), f"the true exit code 4, not {status}")
    gone.let_go()


async def a_program_that_cannot_be_started_is_refused(setup: SpawnerSetup) -> None:
    """With what the system said, and what to look at."""
    require(bool(setup.programs.refused), "there is something that cannot be started")
    for refused in setup.programs.refused:
        try:
            setup.start(refused.spec)
        except SpawnError as error:
            said = (error.errno_name, error.role, error.path)
            wanted = (refused.errno_name, refused.role, refused.path)
            require(said == wanted, f"{wanted}, not {said}")
            require(error.errno_name in str(error), f"the text has the error's name: {error}")
        else:
            raise SpawnerCheckError(f"{refused.spec.program} cannot be started")


async def a_start_with_a_time_limit_is_told_before_anything_else(setup: SpawnerSetup) -> None:
    """If it was not over at once; all else is as without the limit."""
    spoken = setup.start(replace(setup.programs.speaks, start_timeout_s=STEP_TIMEOUT_S))
    expected = ["loaded"] if spoken.child.loading else []
    pid = spoken.child.pid
    status = await spoken.over()
    heard = spoken.listener.heard
    require(heard[: len(expected)] == expected, f"loading ends first: {heard}")
    require(heard.count("loaded") == len(expected), f"and once: {heard}")
    require(not spoken.child.loading and spoken.child.pid == pid, "the process stays the same")
    require(status == ExitStatus(exit_code=7), f"exit code 7, not {status}")
    require((spoken.out, spoken.err) == (b"out\n", b"err"), f"output, not {spoken.listener.data}")


async def a_program_that_cannot_be_loaded_is_refused_at_once_or_later(setup: SpawnerSetup) -> None:
    """With the same words, and nothing else is heard."""
    for refused in setup.programs.refused:
        try:
            late = setup.start(replace(refused.spec, start_timeout_s=STEP_TIMEOUT_S))
        except SpawnError as raised:
            error = raised
        else:
            error = await late.refused()
        said = (error.errno_name, error.role, error.path)
        wanted = (refused.errno_name, refused.role, refused.path)
        require(said == wanted, f"{wanted}, not {said}")


async def a_start_that_is_given_up_is_not_heard_of_any_more(setup: SpawnerSetup) -> None:
    """It is killed and closed, before the program is loaded or after."""
    given_up = setup.start(replace(setup.programs.stays, start_timeout_s=STEP_TIMEOUT_S))
    given_up.child.signal(KILL)
    given_up.child.close()
    await setup.turn()
    require(given_up.listener.heard == [], f"nothing is heard, not {given_up.listener.heard}")


async def a_child_waits_while_a_stream_is_paused(setup: SpawnerSetup) -> None:
    """The other stream is read meanwhile, and nothing is lost."""
    flood = setup.start(setup.programs.floods)
    for _ in range(2):
        flood.child.pause(Stream.STDOUT)
    await flood.until(lambda: flood.err == b"go")
    await setup.turn()
    require(flood.out == b"" and flood.err == b"go", "a paused stream is not read, so its child waits")
    require(flood.listener.status is None, "and does not end")
    for _ in range(2):
        flood.child.resume(Stream.STDOUT)
    await flood.over()
    require(flood.out == b"x" * FLOOD_BYTES, f"{FLOOD_BYTES} bytes after it goes on, not {len(flood.out)}")


async def the_rest_of_a_paused_stream_can_be_read_after_the_exit(setup: SpawnerSetup) -> None:
    """With its end."""
    spoken = setup.start(setup.programs.speaks)
    spoken.child.pause(Stream.STDOUT)
    await spoken.until(lambda: {"exited", "eof stderr"} <= set(spoken.listener.heard))
    await setup.turn()
    require("eof stdout" not in spoken.listener.heard, "the end of a paused stream is not noticed")
    spoken.child.read_rest()
    require(spoken.out == b"out\n", f"the rest is read, not {spoken.out!r}")
    require(spoken.listener.heard.count("eof stdout") == 1, f"and its end: {spoken.listener.heard}")
    spoken.let_go()


async def nothing_is_heard_after_close(setup: SpawnerSetup) -> None:
    """The child goes on, and is reaped when it ends."""
    spoken, staying = setup.start(setup.programs.speaks), setup.start(setup.programs.stays)
    spoken.child.close()
    staying.child.close()
    await setup.turn()
    staying.child.signal(KILL)
    await setup.turn()
    heard = spoken.listener.heard + staying.listener.heard
    require(not heard, f"nothing is heard after close, not {heard}")


async def everything_may_be_called_on_a_child_that_has_gone(setup: SpawnerSetup) -> None:
    """Any number of times, and nothing happens."""
    gone = setup.start(setup.programs.exits_with(0))
    await gone.ended()
    heard = list(gone.listener.heard)
    child = gone.child
    for _ in range(3):
        for number in (0, TERM, KILL):
            child.signal(number)
        child.close_stdin()
        child.read_rest()
        for stream in Stream:
            child.pause(stream)
            child.resume(stream)
        require(child.reap() == (), "nobody of its group is left")
        child.state()
        child.close()
    gone.write(b"late\n")
    await setup.turn()
    require(gone.listener.heard == heard, f"nothing more is heard, not {gone.listener.heard}")
    require(len(gone.outcomes) == 1 and gone.outcomes[0] is not WriteOutcome.WRITTEN, f"{gone.outcomes}")


SPAWNER_CHECKS: tuple[Check, ...] = (
    the_exit_code_is_that_of_the_child,
    a_signal_that_ends_a_child_is_its_status,
    a_signal_that_is_ignored_or_harmless_ends_nothing,
    exit_and_ends_of_streams_are_told_once,
    much_output_arrives_complete_and_in_order,
    a_stream_that_is_not_piped_is_not_heard_of,
    environment_and_directory_are_those_of_the_spec,
    a_child_has_an_identity_of_its_own,
    writes_arrive_in_order_and_are_answered_once,
    closing_stdin_comes_behind_what_was_written,
    a_child_without_stdin_is_at_the_end_of_its_input,
    a_write_to_a_child_that_has_gone_says_so,
    a_program_that_cannot_be_started_is_refused,
    a_start_with_a_time_limit_is_told_before_anything_else,
    a_program_that_cannot_be_loaded_is_refused_at_once_or_later,
    a_start_that_is_given_up_is_not_heard_of_any_more,
    a_child_waits_while_a_stream_is_paused,
    the_rest_of_a_paused_stream_can_be_read_after_the_exit,
    nothing_is_heard_after_close,
    everything_may_be_called_on_a_child_that_has_gone,
)
"""For every spawner; each is one test."""
