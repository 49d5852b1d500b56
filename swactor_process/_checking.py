"""What the checks of a spawner are made of: programs to start, somebody who listens, one started child.

Owns: `StandardPrograms`, `RecordingListener`, `SpawnerSetup`, `StartedChild`.
Not here: the checks (``_spawner_checks``, ``_real_checks``). Public as ``swactor_process.testing``.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from swactor.abc import Loop
from swactor.testing import Conditions
from swactor_process._errors import ProcessError
from swactor_process.spawner import ExitStatus, Spawner, SpawnError, SpawnRole, WriteOutcome
from swactor_process.spec import ProcessSpec, Stream

STEP_TIMEOUT_S = 10.0
"""How long a check waits for one thing to happen, in the loop's time."""
FLOOD_BYTES = 300_000
"""More than pipes hold."""


class SpawnerCheckError(ProcessError):
    """The spawner breaks a promise of the seam; the text says which."""


def require(holds: bool, rule: str) -> None:  # noqa: FBT001 - reads like an assertion
    """Raise unless ``holds``.

    Raises:
        SpawnerCheckError: it does not.
    """
    if not holds:
        raise SpawnerCheckError(rule)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A program that cannot be started, and what has to be said of it."""

    spec: ProcessSpec
    errno_name: str
    role: SpawnRole
    path: str


@dataclass(frozen=True, kw_only=True)
class StandardPrograms:
    """The programs that the checks start, as the spawner at hand knows them."""

    exits_with: Callable[[int], ProcessSpec]
    """Ends at once with this code."""
    speaks: ProcessSpec
    """Writes ``out`` and a newline, ``err`` to stderr without one, ends with 7."""
    floods: ProcessSpec
    """Writes ``go`` to stderr, `FLOOD_BYTES` times ``x`` to stdout, ``done`` to stderr, and ends with 3."""
    shows: ProcessSpec
    """Writes the variable ``WORD``, a blank, its directory and a newline."""
    echoes: ProcessSpec
    """Repeats each line of its input; ends with 0 when it is closed."""
    stays: ProcessSpec
    """Does nothing for a minute, and reads nothing."""
    ignores_term: ProcessSpec
    """Writes ``ready`` and a newline, then stays; TERM does not end it."""
    kills_itself: ProcessSpec
    """Sends KILL to itself."""
    refused: Sequence[Refused]
    """What cannot be started: at least a program that does not exist."""


@dataclass(frozen=True, kw_only=True)
class RealPrograms:
    """What the checks of real spawners start beyond that: programs that need a kernel."""

    has_descriptor: Callable[[int], ProcessSpec]
    """Ends with 0 when it has this descriptor, with 1 otherwise."""
    leaves_one: ProcessSpec
    """Starts a process that stays and holds no stream, writes its process id and a newline, ends with 0."""
    wraps_one: ProcessSpec
    """The same, but waits for it."""


class RecordingListener:
    """Keeps what a child does; a test waits for what it wants to see."""

    def __init__(self, loop: Loop) -> None:
        self._conditions = Conditions(loop)
        self.heard: list[str] = []
        self.data = {Stream.STDOUT: b"", Stream.STDERR: b""}
        self.status: ExitStatus | None = None
        self.refusal: SpawnError | None = None

    def loaded(self) -> None:
        """See `ChildListener.loaded`."""
        self._note("loaded")

    def refused(self, error: SpawnError) -> None:
        """See `ChildListener.refused`."""
        self.refusal = error
        self._note("refused")

    def output(self, stream: Stream, data: bytes) -> None:
        """See `ChildListener.output`."""
        self.data[stream] += data
        self._note(f"output {stream.value}" if data else f"nothing {stream.value}")

    def eof(self, stream: Stream) -> None:
        """See `ChildListener.eof`."""
        self._note(f"eof {stream.value}")

    def exited(self, status: ExitStatus) -> None:
        """See `ChildListener.exited`."""
        self.status = status
        self._note("exited")

    def _note(self, what: str) -> None:
        self.heard.append(what)
        self.look_again()

    def look_again(self) -> None:
        """Something that is waited for may have changed, of which the child says nothing."""
        self._conditions.changed()

    async def until(self, condition: Callable[[], bool], *, timeout_s: float = STEP_TIMEOUT_S) -> None:
        """Wait until ``condition`` holds.

        Raises:
            TimeoutError: it does not, for too long.
        """
        if not await self._conditions.wait(condition, timeout_s=timeout_s):
            raise TimeoutError(f"heard {self.heard}")

    async def until_over(self, streams: Collection[Stream] = tuple(Stream)) -> ExitStatus:
        """Wait for the exit and the end of ``streams``; return the status."""
        over = {"exited", *(f"eof {stream.value}" for stream in streams)}
        await self.until(lambda: over <= set(self.heard))
        if self.status is None:
            raise AssertionError("exited without a status")
        return self.status


class StartedChild:
    """One child that was started, what was heard of it, and what became of writes to it."""

    def __init__(self, setup: "SpawnerSetup", spec: ProcessSpec) -> None:
        self._spec = spec
        self.listener = RecordingListener(setup.loop)
        self.outcomes: list[WriteOutcome] = []
        self.lost: list[int] = []
        self.child = setup.spawner.spawn(spec, self.listener)
        require(not self.listener.heard, "nothing is heard before spawn() has returned")

    @property
    def out(self) -> bytes:
        """What it wrote to its standard output until now."""
        return self.listener.data[Stream.STDOUT]

    @property
    def err(self) -> bytes:
        """What it wrote to its standard error until now."""
        return self.listener.data[Stream.STDERR]

    def write(self, data: bytes) -> None:
        """Write, and keep the outcome, and how many bytes were not taken."""
        self.child.write(data, self._written)

    def _written(self, outcome: WriteOutcome, lost_bytes: int) -> None:
        self.outcomes.append(outcome)
        self.lost.append(lost_bytes)
        self.listener.look_again()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds, see `RecordingListener.until`."""
        await self.listener.until(condition)

    async def ended(self) -> ExitStatus:
        """Wait for its end and that of its streams; return the status. It is not reaped."""
        return await self.listener.until_over(self._spec.piped())

    async def refused(self) -> SpawnError:
        """Wait until it is refused, which is all that may be heard; return why."""
        await self.until(lambda: self.listener.heard != [])
        error = self.listener.refusal
        if error is None or self.listener.heard != ["refused"]:
            raise SpawnerCheckError(f"{self._spec.program} is refused: {self.listener.heard}")
        return error

    async def over(self) -> ExitStatus:
        """The same, and let go of it."""
        status = await self.ended()
        self.let_go()
        return status

    def let_go(self) -> None:
        """Reap and close."""
        self.child.reap()
        self.child.close()


@dataclass(frozen=True, kw_only=True)
class SpawnerSetup:
    """A spawner to be checked, the loop it runs on, and its programs."""

    spawner: Spawner
    loop: Loop
    programs: StandardPrograms
    real: RealPrograms | None = None
    """Needed by `REAL_CHECKS` only."""

    def start(self, spec: ProcessSpec) -> StartedChild:
        """Start ``spec``."""
        return StartedChild(self, spec)

    async def turn(self) -> None:
        """Wait until everything that was due has happened: a child was started after it, and has ended."""
        await self.start(self.programs.exits_with(0)).over()
