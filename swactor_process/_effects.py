"""What a session wants done: one record for each kind of effect, and the timers it uses.

Not here: when (``session``) and how (``driver``).
"""

import enum

from msgspec import Struct

from swactor_process.output import Piece
from swactor_process.spawner import ExitStatus, SpawnError, WriteOutcome
from swactor_process.spec import Stream


class Timer(enum.Enum):
    """The timers of a session; setting one replaces its predecessor."""

    __hash__ = object.__hash__  # by identity: looked up again and again

    RETRY = "retry"
    START = "start"
    READY = "ready"
    PROBE = "probe"
    GRACE = "grace"
    DEADLINE = "deadline"
    QUIET = "quiet"
    LINGER = "linger"
    GROUP = "group"


class StartChild(Struct, frozen=True):
    """Ask the spawner, unless the last word has been said by then.

    Answer with `Session.on_spawned`, `Session.on_loading` or `Session.on_refused`.
    """


class SetTimer(Struct, frozen=True):
    """Call `Session.on_timer` after ``delay_s``."""

    timer: Timer
    delay_s: float


class CancelTimer(Struct, frozen=True):
    """Call the timer off."""

    timer: Timer


class SignalGroup(Struct, frozen=True):
    """Signal the child's group."""

    number: int


class WriteChild(Struct, frozen=True):
    """Hand ``data`` to the child's standard input; ``ticket`` goes back with the outcome."""

    data: bytes
    ticket: int


class AnswerWrite(Struct, frozen=True):
    """The write of ``ticket`` was not even tried."""

    ticket: int
    outcome: WriteOutcome


class CloseChildStdin(Struct, frozen=True):
    """Close the child's standard input behind what was written."""


class ReadRest(Struct, frozen=True):
    """Read what is there at this moment."""


class PauseReading(Struct, frozen=True):
    """Read nothing more of ``stream`` for now."""

    stream: Stream


class ResumeReading(Struct, frozen=True):
    """Read ``stream`` again."""

    stream: Stream


class BoundBacklog(Struct, frozen=True):
    """Reading is not paused any more: from now on what finds the backlog full is dropped."""


class CheckGroup(Struct, frozen=True):
    """Reap the child and tell `Session.on_group` who of its group still lives."""


class CloseChild(Struct, frozen=True):
    """Let go of the child, which is not to be heard of any more."""


class Retire(Struct, frozen=True):
    """Behind the last word: close everything, and have the actor end."""


class AnnounceStarted(Struct, frozen=True):
    """Tell that the child runs."""


class AnnounceLines(Struct, frozen=True):
    """Tell these whole lines; each has its newline."""

    stream: Stream
    data: bytes


class AnnouncePiece(Struct, frozen=True):
    """Tell this piece of a line."""

    stream: Stream
    piece: Piece


class AnnounceChunks(Struct, frozen=True):
    """Tell these bytes."""

    stream: Stream
    chunks: list[bytes]


class WriteFile(Struct, frozen=True):
    """Append to the file of ``stream``."""

    stream: Stream
    data: bytes


class AnnounceReady(Struct, frozen=True):
    """Tell that the readiness rule was met, or not in time."""

    overdue: bool
    after_s: float


class ProbeReadiness(Struct, frozen=True):
    """Look whether the readiness rule is met, and tell `Session.on_probed`."""


class StopProbing(Struct, frozen=True):
    """Do not look any more."""


class AnnounceStillAlive(Struct, frozen=True):
    """Tell that the stop reached its deadline."""


class AnnounceFailed(Struct, frozen=True):
    """Tell that nothing was started. The last word."""

    error: SpawnError


class AnnounceExited(Struct, frozen=True):
    """Tell how the child ended. The last word."""

    status: ExitStatus
    asked_for: bool
    external: bool
    escalated: bool
    uptime_s: float
    stderr_tail: str
    eof_reached: bool
    survivors: tuple[int, ...]


Effect = (
    StartChild
    | SetTimer
    | CancelTimer
    | SignalGroup
    | WriteChild
    | AnswerWrite
    | CloseChildStdin
    | ReadRest
    | PauseReading
    | ResumeReading
    | BoundBacklog
    | CheckGroup
    | CloseChild
    | Retire
    | AnnounceStarted
    | AnnounceLines
    | AnnouncePiece
    | AnnounceChunks
    | WriteFile
    | AnnounceReady
    | ProbeReadiness
    | StopProbing
    | AnnounceStillAlive
    | AnnounceFailed
    | AnnounceExited
)
