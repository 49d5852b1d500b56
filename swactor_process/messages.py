"""What an owner says to a process actor, and what it hears from it.

Owns: the commands and the notifications. Order of the notifications, each exactly once:
`ProcessStarted`, output (any number of `ProcessOutput`, `ProcessLines` and `ProcessChunk`; `ProcessReady`
or `ProcessReadyOverdue` among them), `ProcessExited`; or `SpawnFailed` alone. `ProcessStillAlive` comes
before the exit when a stop took too long. `ProcessGivenUp` comes between attempts.
Not here: who sends what when (``session``). These records stay inside one node.
"""

from __future__ import annotations

from msgspec import Struct

from swactor import ActorRef, Request
from swactor_process._errors import InvalidSpecError
from swactor_process._rules import check_kind, check_seconds
from swactor_process._signals import is_signal, name_of
from swactor_process.limits import CgroupPlace
from swactor_process.output import LinePart
from swactor_process.spawner import OomEvidence, SpawnRole, WriteOutcome
from swactor_process.spec import Stream


class ProcessStarted(Struct, frozen=True, kw_only=True):
    """The kernel runs the program. Forward it, and `ProcessExited`, to diagnostics."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    """Names this start among all starts of this boot; labels and pids do not."""
    label: str
    pid: int
    parent_pid: int
    start_time: int | None
    """Kernel ticks from machine boot to start: with the pid it names a process; None when unreadable."""
    command: tuple[str, ...]
    started_at_ms: int
    guarded: bool
    """Whether the child's group is killed when this node dies without stopping it."""
    cgroup: CgroupPlace | None = None
    """What became of the spec's `Cgroup`; None when it asks for none."""


class ProcessOutput(Struct, frozen=True):
    """One line of the child, or one marked piece of an over-long line, without its newline."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    stream: Stream
    line: bytes
    part: LinePart = LinePart.WHOLE
    terminated: bool = True
    """False: the stream ended here without a newline."""

    @property
    def text(self) -> str:
        """``line`` for people: undecodable bytes are replaced. Decoded each time."""
        return self.line.decode("utf-8", "replace")


class ProcessLines(Struct, frozen=True):
    """Whole lines of the child that came together, one at least; for a stream with `Lines.batched`."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    stream: Stream
    data: bytes
    """All of them, each with its newline."""

    def __len__(self) -> int:
        """Return the number of lines."""
        return self.data.count(b"\n")

    @property
    def lines(self) -> list[bytes]:
        """The lines, without their newlines. Cut each time."""
        lines = self.data.split(b"\n")
        lines.pop()
        return lines

    @property
    def texts(self) -> list[str]:
        """``lines`` for people: undecodable bytes are replaced. Decoded each time."""
        return self.data[:-1].decode("utf-8", "replace").split("\n")


class ProcessChunk(Struct, frozen=True):
    """Bytes of the child as they came, for a stream with the `Chunks` policy."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    stream: Stream
    data: bytes


class ProcessFileFailed(Struct, frozen=True, kw_only=True):
    """Output that should go to a file is being lost; told once for each cause. The child runs on."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    label: str
    stream: Stream
    path: str
    errno_name: str
    message: str


class ProcessReady(Struct, frozen=True, kw_only=True):
    """The readiness rule of the spec is met."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    label: str
    after_ms: int


class ProcessReadyOverdue(Struct, frozen=True, kw_only=True):
    """The readiness rule was not met in time. The child runs on; stopping it is up to the owner."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    label: str
    after_ms: int


class ProcessStillAlive(Struct, frozen=True, kw_only=True):
    """A stop reached its deadline and the child has not ended. It is still watched; its exit will be told."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    label: str
    pid: int
    kernel_state: str | None
    """State letter of the kernel (``D``: inside an uninterruptible call); None when unreadable."""


class ProcessExited(Struct, frozen=True, kw_only=True):
    """The direct child has ended, and its output was read to the end or for a bounded while.

    At most one of ``exit_code`` and ``signal`` is set. Neither: the status was lost (``status_lost``), the
    kernel told it to nobody or to somebody else.
    """

    process: ActorRef[ProcessCommand]
    spawn_id: str
    label: str
    pid: int
    start_time: int | None
    command: tuple[str, ...]
    exit_code: int | None
    signal: int | None
    status_lost: bool
    asked_for: bool
    """The owner had asked for the end: `Stop`, or the very signal of which the child died."""
    escalated: bool
    """KILL was sent because the grace time was over."""
    external: bool = False
    """It died of a signal that this node had not sent: from the kernel, itself, or somebody else."""
    oom: OomEvidence | None = None
    """Comes with an external KILL, where the kernel's counter can be read: evidence, not a verdict."""
    uptime_ms: int
    """From start to end by the monotonic clock: without the time that the machine was suspended."""
    exited_at_ms: int
    stderr_tail: str
    eof_reached: bool
    """False: something else kept an output stream open, reading ended after the linger time."""
    survivors: tuple[int, ...]
    """Process ids of the child's group that still lived when this was told."""
    dropped_lines: int
    """Lines, pieces of lines and chunks that the owner's full mailbox did not take."""
    dropped_bytes: int = 0
    """How many bytes these were."""
    lost_stdin_bytes: int
    """Bytes of `WriteStdin` that were told, not asked, and that the child's pipe did not take."""
    lost_file_bytes: int = 0
    """Bytes of a stream with the policy `ToFile` that could not be written to it."""

    def describe(self) -> str:
        """Return how it ended, for people: ``was killed by SIGKILL after 1.2 s, not by us``."""
        if self.signal is not None:
            how = f"was killed by {name_of(self.signal)}"
        elif self.exit_code is not None:
            how = f"exited with {self.exit_code}"
        else:
            how = "ended, its status is lost"
        who = "not by us" if self.external else "as asked" if self.asked_for else "unasked"
        evidence = "" if self.oom is None else f" ({self.oom.describe()})"
        return f"{how} after {self.uptime_ms / 1000:.1f} s, {who}{evidence}"


class SpawnFailed(Struct, frozen=True, kw_only=True):
    """Nothing was started. ``role`` and ``path`` say what to look at."""

    process: ActorRef[ProcessCommand]
    spawn_id: str
    label: str
    command: tuple[str, ...]
    errno_name: str
    role: SpawnRole
    path: str
    message: str

    def describe(self) -> str:
        """Return what happened, for people."""
        return f"could not be started: {self.message}"


class ProcessGivenUp(Struct, frozen=True, kw_only=True):
    """A process that is kept running (`process_child`) has ended too often; ``last`` is how, the last time.

    The next attempt comes in ``retry_s`` seconds; None: its actor fails, and the supervisor of that decides.
    """

    child: ActorRef[ProcessCommand]
    """The actor that keeps it running."""
    label: str
    last: ProcessExited | SpawnFailed | None
    """None: the driver failed, not the process."""
    retry_s: float | None


StopResult = ProcessExited | ProcessStillAlive | SpawnFailed


class WriteStdin(Struct, Request[WriteOutcome], frozen=True):
    """Write ``data``. Asked, it answers when the kernel has taken it all, or with why not."""

    data: bytes

    def __post_init__(self) -> None:
        """Refuse what is no bytes, and what may change while it waits, in the code that made it up."""
        check_kind("data", self.data, bytes, "bytes, which nobody can change while they wait")


class CloseStdin(Struct, frozen=True):
    """Close standard input after what was written before."""


class MarkReady(Struct, frozen=True):
    """The child is ready: the owner knows. Counts once for any readiness rule that still waits."""


class SendSignal(Struct, frozen=True):
    """Send signal ``number`` to the child's group; nothing happens when it has ended."""

    number: int

    def __post_init__(self) -> None:
        """Refuse a number that no kernel knows here, in the code that made it up."""
        if not is_signal(self.number):
            raise InvalidSpecError("number", "a signal of this system")


class Stop(Struct, Request[StopResult], frozen=True):
    """TERM, and CONT, after the grace time KILL. Asked, it answers with how it ended, or `ProcessStillAlive`.

    None takes the times of the spec. Asking again can shorten the times, never lengthen them.
    """

    grace_s: float | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse times that cannot be waited, in the code that made them up."""
        for field in ("grace_s", "deadline_s"):
            seconds = getattr(self, field)
            if seconds is not None:
                check_seconds(field, seconds)


ProcessCommand = WriteStdin | CloseStdin | MarkReady | SendSignal | Stop
ProcessNotification = (
    ProcessStarted
    | ProcessOutput
    | ProcessLines
    | ProcessChunk
    | ProcessFileFailed
    | ProcessReady
    | ProcessReadyOverdue
    | ProcessStillAlive
    | ProcessExited
    | SpawnFailed
)
