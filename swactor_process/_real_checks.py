"""The checks that every spawner of real processes has to pass too: groups, sessions, descriptors, full pipes.

Owns: `REAL_CHECKS`. Not here: what scripted children can be held to as well (``_spawner_checks``).
"""

import os
from pathlib import Path

from msgspec.structs import replace

from swactor_process._checking import (
    STEP_TIMEOUT_S,
    RealPrograms,
    SpawnerCheckError,
    SpawnerSetup,
    StartedChild,
    require,
)
from swactor_process._guardian_program import DEAD, read_stat
from swactor_process._signals import KILL, TERM
from swactor_process._spawner_checks import Check
from swactor_process.spawner import ExitStatus, WriteOutcome

DESCRIPTORS = Path("/dev/fd")
PIPE_BYTES_MAX = 1_048_576
"""No system gives a pipe more room than this unasked."""
TURNS_MAX = 1_000


def _real(setup: SpawnerSetup) -> RealPrograms:
    if setup.real is None:
        raise ValueError("a spawner of real processes is checked with real programs")
    return setup.real


async def a_child_leads_a_session_of_its_own(setup: SpawnerSetup) -> None:
    """So its process id is the number of its group too."""
    staying = setup.start(setup.programs.stays)
    pid = staying.child.pid
    require(os.getsid(pid) == os.getpgid(pid) == pid, "session and group have the number of the child")
    staying.child.signal(KILL)
    await staying.over()


async def a_child_gets_no_descriptor_but_its_own(setup: SpawnerSetup) -> None:
    """Not even one that is inheritable."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - the library's signature
    try:
        none = await setup.start(_real(setup).has_descriptor(descriptor)).over()
        some = await setup.start(_real(setup).has_descriptor(0)).over()
    finally:
        os.close(descriptor)
    require(none == ExitStatus(exit_code=1), "what this node has open stays its own")
    require(some == ExitStatus(exit_code=0), "the standard ones are there")


async def a_signal_reaches_the_whole_group(setup: SpawnerSetup) -> None:
    """The wrapper, and what it wraps."""
    wrapper = setup.start(_real(setup).wraps_one)
    member = await _member(wrapper)
    wrapper.child.signal(TERM)
    status = await wrapper.ended()
    require(status == ExitStatus(signal=TERM), f"the wrapper is ended by TERM, not {status}")
    await _until_gone(setup, member)
    require(wrapper.child.reap() == (), "nobody of the group is left")
    wrapper.child.close()


async def who_is_left_of_a_group_is_named_and_can_be_signalled_until_it_is_reaped(
    setup: SpawnerSetup,
) -> None:
    """The dead leader keeps the number from being given to somebody else."""
    leaving, other = setup.start(_real(setup).leaves_one), setup.start(_real(setup).leaves_one)
    left, reaped = await _member(leaving), await _member(other)
    for started in (leaving, other):
        require(await started.ended() == ExitStatus(exit_code=0), "the leader's exit is told")
        require(_is_to_be_reaped(started.child.pid), "and it keeps its number until it is reaped")
    leaving.child.signal(KILL)
    await _until_gone(setup, left)
    require(leaving.child.reap() == (), "nobody is left")
    require(other.child.reap() == (reaped,), "one is left")
    other.child.signal(KILL)
    await setup.turn()
    require(_lives(reaped), "once reaped, the number is not signalled any more")
    require(other.child.reap() == (reaped,), "who is left can be asked again")
    os.kill(reaped, KILL)
    await _until_gone(setup, reaped)
    leaving.let_go()
    other.let_go()


async def a_child_that_reads_too_slowly_gets_what_fits_and_the_rest_later(setup: SpawnerSetup) -> None:
    """What does not is refused as a whole; what waits for a child that ends is answered."""
    slow = setup.start(replace(setup.programs.stays, stdin_buffer_bytes=1_000))
    slow.write(b"x" * (PIPE_BYTES_MAX + 1))
    require(slow.outcomes == [], "the first write waits for room")
    slow.write(b"y")
    require(slow.outcomes == [WriteOutcome.BUFFER_FULL], f"the second is refused, not {slow.outcomes}")
    slow.child.signal(KILL)
    await slow.until(lambda: slow.listener.status is not None and len(slow.outcomes) == 2)
    require(slow.outcomes[1] is WriteOutcome.CHILD_GONE, f"the first ends with the child: {slow.outcomes}")
    require(slow.lost[0] == 1, f"the second is lost as a whole, not {slow.lost[0]} of it")
    require(0 < slow.lost[1] <= PIPE_BYTES_MAX, f"of the first, what found no room: {slow.lost[1]}")
    slow.let_go()


async def bytes_that_wait_when_it_is_closed_are_answered(setup: SpawnerSetup) -> None:
    """At once, as those of a child that has gone."""
    slow = setup.start(setup.programs.stays)
    slow.write(b"x" * (PIPE_BYTES_MAX + 1))
    slow.write(b"y")
    slow.child.close()
    require(slow.outcomes == [WriteOutcome.CHILD_GONE] * 2, f"both are gone, not {slow.outcomes}")
    slow.child.signal(KILL)
    await _until_gone(setup, slow.child.pid)


async def a_status_that_somebody_else_took_is_never_made_up(setup: SpawnerSetup) -> None:
    """It is the true one, or it is lost."""
    taken = setup.start(setup.programs.exits_with(9))
    _take_status(taken.child.pid)
    status = await taken.over()
    true_or_lost = (ExitStatus(exit_code=9), ExitStatus(status_lost=True))
    require(status in true_or_lost, f"the true status or none, not {status}")
    taken.child.signal(KILL)


async def many_children_leave_nothing_behind(setup: SpawnerSetup) -> None:
    """No zombie and no descriptor, whichever way they were started."""
    ways = (None, STEP_TIMEOUT_S)
    await setup.turn()  # whatever the spawner opens once is open from here on
    before = _open_descriptors()
    for _ in range(5):
        specs = [replace(setup.programs.exits_with(0), start_timeout_s=way) for way in ways for _ in range(5)]
        children = [setup.start(spec) for spec in specs]
        for started in children:
            await started.over()
        zombies = [started.child.pid for started in children if _exists(started.child.pid)]
        require(not zombies, f"all are reaped, but for {zombies}")
    require(_open_descriptors() == before, f"{before} descriptors are open as before")


REAL_CHECKS: tuple[Check, ...] = (
    a_child_leads_a_session_of_its_own,
    a_child_gets_no_descriptor_but_its_own,
    a_signal_reaches_the_whole_group,
    who_is_left_of_a_group_is_named_and_can_be_signalled_until_it_is_reaped,
    a_child_that_reads_too_slowly_gets_what_fits_and_the_rest_later,
    bytes_that_wait_when_it_is_closed_are_answered,
    a_status_that_somebody_else_took_is_never_made_up,
    many_children_leave_nothing_behind,
)
"""For every spawner of real processes, beside `SPAWNER_CHECKS`; each is one test."""


async def _member(started: StartedChild) -> int:
    """Return the process id of what ``started`` has started."""
    await started.until(lambda: started.out.endswith(b"\n"))
    return int(started.out)


async def _until_gone(setup: SpawnerSetup, pid: int) -> None:
    """Wait until ``pid``, which was signalled, has ended; a turn takes about as long as that."""
    for _ in range(TURNS_MAX):
        if not _lives(pid):
            return
        await setup.turn()
    raise SpawnerCheckError(f"process {pid} is ended by the signal to its group")


def _lives(pid: int) -> bool:
    stat = read_stat(pid)
    return _exists(pid) if stat is None else stat.state not in DEAD


def _is_to_be_reaped(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _take_status(pid: int) -> None:
    os.waitpid(pid, 0)


def _open_descriptors() -> int:
    return len(list(DESCRIPTORS.iterdir()))
