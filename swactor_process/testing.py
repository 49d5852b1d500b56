"""The kit for tests of programs that own processes: scripted children, and the suite for spawners.

Owns: `check_spawner`, what it needs, and the public names of the scripted children (made in ``_scripted``).
Not here: real children (``linux``).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from swactor.abc import Loop
from swactor.testing import Conditions
from swactor_process._scripted import (
    Exit,
    Program,
    Refusal,
    Say,
    Script,
    ScriptedChild,
    ScriptedSpawner,
    Step,
)
from swactor_process._signals import KILL, TERM
from swactor_process.spawner import Child, ExitStatus, Spawner, SpawnError, SpawnRole, WriteOutcome
from swactor_process.spec import ProcessSpec, Stream

__all__ = [
    "SCRIPTED_PROGRAMS",
    "SCRIPTED_STANDARD",
    "Exit",
    "Program",
    "RecordingListener",
    "Refusal",
    "Say",
    "Script",
    "ScriptedChild",
    "ScriptedSpawner",
    "StandardPrograms",
    "Step",
    "check_spawner",
]


@dataclass(frozen=True, kw_only=True)
class StandardPrograms:
    """The programs that `check_spawner` starts, as the spawner at hand knows them."""

    exits_with_7: ProcessSpec
    """Writes ``out`` and a newline, ``err`` to stderr without one, ends with 7."""
    echoes: ProcessSpec
    """Repeats each line of its input; ends with 0 when it is closed."""
    stays: ProcessSpec
    """Does nothing for a minute."""
    ignores_term: ProcessSpec
    """Writes ``ready`` and a newline, then stays; TERM does not end it."""
    missing: ProcessSpec
    """No such program."""


def _scripted_standard() -> Mapping[str, Program]:
    def echo(line: bytes) -> Iterable[Step]:
        return (Say(line + b"\n", after_s=0.001),)

    exits = (Say(b"out\n"), Say(b"err", stream=Stream.STDERR), Exit(7, after_s=0.001))
    stays = (Exit(after_s=60.0),)
    stubborn = frozenset({TERM})
    return {
        "exits-with-7": lambda _: Script(begin=exits),
        "echoes": lambda _: Script(on_line=echo),
        "stays": lambda _: Script(begin=stays),
        "ignores-term": lambda _: Script(begin=(Say(b"ready\n"), *stays), ignores=stubborn),
    }


SCRIPTED_STANDARD: Mapping[str, Program] = _scripted_standard()
SCRIPTED_PROGRAMS = StandardPrograms(
    exits_with_7=ProcessSpec(program="exits-with-7", label="exits"),
    echoes=ProcessSpec(program="echoes", label="echoes"),
    stays=ProcessSpec(program="stays", label="stays"),
    ignores_term=ProcessSpec(program="ignores-term", label="ignores"),
    missing=ProcessSpec(program="missing", label="missing"),
)


class RecordingListener:
    """Keeps what a child does; a test waits for what it wants to see."""

    def __init__(self, loop: Loop) -> None:
        self._conditions = Conditions(loop)
        self.heard: list[str] = []
        self.data = {Stream.STDOUT: b"", Stream.STDERR: b""}
        self.status: ExitStatus | None = None

    def output(self, stream: Stream, data: bytes) -> None:
        """See `ChildListener.output`."""
        self.data[stream] += data
        self._note(f"output {stream.value}")

    def eof(self, stream: Stream) -> None:
        """See `ChildListener.eof`."""
        self._note(f"eof {stream.value}")

    def exited(self, status: ExitStatus) -> None:
        """See `ChildListener.exited`."""
        self.status = status
        self._note("exited")

    def _note(self, what: str) -> None:
        self.heard.append(what)
        self._conditions.changed()

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        """Wait until ``condition`` holds.

        Raises:
            TimeoutError: it does not, for too long.
        """
        if not await self._conditions.wait(condition, timeout_s=timeout_s):
            raise TimeoutError(f"heard {self.heard}")

    async def until_over(self) -> ExitStatus:
        """Wait for the exit and the end of both streams; return the status."""
        over = {"exited", "eof stdout", "eof stderr"}
        await self.until(lambda: over <= set(self.heard))
        if self.status is None:
            raise AssertionError("exited without a status")
        return self.status


async def check_spawner(spawner: Spawner, loop: Loop, programs: StandardPrograms) -> None:
    """Raise `AssertionError` where ``spawner`` does not do what the driver builds upon."""
    await _check_exit_and_output(spawner, loop, programs)
    await _check_stdin(spawner, loop, programs)
    await _check_signals(spawner, loop, programs)
    await _check_silence_after_close(spawner, loop, programs)
    try:
        spawner.spawn(programs.missing, RecordingListener(loop))
    except SpawnError as error:
        _expect((error.errno_name, error.role) == ("ENOENT", SpawnRole.PROGRAM), f"missing program: {error}")
    else:
        raise AssertionError("a program that does not exist was started")


def _expect(truth: bool, what: str) -> None:  # noqa: FBT001 - reads like the assert statement it stands for
    if not truth:
        raise AssertionError(what)


async def _check_exit_and_output(spawner: Spawner, loop: Loop, programs: StandardPrograms) -> None:
    listener = RecordingListener(loop)
    child = spawner.spawn(programs.exits_with_7, listener)
    _expect(not listener.heard, "the listener was called before spawn returned")
    _expect(child.pid > 1, "a process id above 1")
    status = await listener.until_over()
    _expect(status == ExitStatus(exit_code=7), f"exit status {status}")
    _expect(listener.data == {Stream.STDOUT: b"out\n", Stream.STDERR: b"err"}, f"output {listener.data}")
    for once in ("exited", "eof stdout", "eof stderr"):
        _expect(listener.heard.count(once) == 1, f"{once}: {listener.heard}")
    _expect(child.reap() == (), "no survivors")
    outcomes: list[WriteOutcome] = []
    child.signal(TERM)
    child.close_stdin()
    child.close()
    child.close()
    child.write(b"late\n", outcomes.append)
    _expect(len(outcomes) == 1 and outcomes[0] is not WriteOutcome.WRITTEN, f"late write: {outcomes}")


async def _check_stdin(spawner: Spawner, loop: Loop, programs: StandardPrograms) -> None:
    listener = RecordingListener(loop)
    child = spawner.spawn(programs.echoes, listener)
    outcomes: list[WriteOutcome] = []
    child.write(b"one\ntw", outcomes.append)
    child.write(b"o\n", outcomes.append)
    await listener.until(lambda: listener.data[Stream.STDOUT] == b"one\ntwo\n")
    _expect(outcomes == [WriteOutcome.WRITTEN] * 2, f"outcomes {outcomes}")
    child.close_stdin()
    child.write(b"three\n", outcomes.append)
    _expect(outcomes[2:] == [WriteOutcome.STDIN_CLOSED], f"write after close: {outcomes}")
    _expect(await listener.until_over() == ExitStatus(exit_code=0), f"echo ended: {listener.status}")
    child.reap()
    child.close()


async def _check_signals(spawner: Spawner, loop: Loop, programs: StandardPrograms) -> None:
    obeying, stubborn = RecordingListener(loop), RecordingListener(loop)
    first = spawner.spawn(programs.stays, obeying)
    second = spawner.spawn(programs.ignores_term, stubborn)
    _expect(first.pid != second.pid, "two living children have two process ids")
    await stubborn.until(lambda: stubborn.data[Stream.STDOUT] == b"ready\n")
    first.signal(TERM)
    second.signal(TERM)
    _expect(await obeying.until_over() == ExitStatus(signal=TERM), f"TERM: {obeying.status}")
    _expect(stubborn.status is None, "a child that ignores TERM has ended")
    second.signal(KILL)
    _expect(await stubborn.until_over() == ExitStatus(signal=KILL), f"KILL: {stubborn.status}")
    for child in (first, second):
        child.reap()
        child.close()


async def _check_silence_after_close(spawner: Spawner, loop: Loop, programs: StandardPrograms) -> None:
    listener = RecordingListener(loop)
    child: Child = spawner.spawn(programs.exits_with_7, listener)
    child.close()
    other = RecordingListener(loop)
    later = spawner.spawn(programs.exits_with_7, other)
    await other.until_over()
    later.reap()
    later.close()
    _expect(not listener.heard, f"heard after close: {listener.heard}")
