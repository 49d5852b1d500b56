"""The seam between the driver and whatever makes processes: the kernel, or a script of the simulator.

Owns: the protocols `Spawner`, `Child`, `ChildListener`; how an exit, evidence and a refusal look.
Not here: the implementations (``linux``, ``testing``). All calls and callbacks happen on the loop's thread.
"""

import enum
from collections.abc import Callable
from typing import Protocol, Self

from msgspec import Struct

from swactor_process._errors import ProcessError
from swactor_process.events import SubprocessLeftBehind
from swactor_process.limits import CgroupPlace
from swactor_process.spec import ProcessSpec, Stream

WIDE_PIPE_BYTES = 262_144
"""What a pipe that a child speaks through holds at most, unless somebody else enlarges it."""
STDIN_WRITES_MAX = 16_384
"""Writes that may wait, however short: each takes some 750 bytes besides its own, all of them 12 MB."""


class OomEvidence(Struct, frozen=True):
    """What the kernel's counter of out-of-memory kills says about a child that was killed.

    ``kills`` is how many processes were killed for memory during its life: in its own control group
    (``own_cgroup``), or in that of this node, where it need not have been this child.
    """

    kills: int
    own_cgroup: bool

    def describe(self) -> str:
        """Return what was counted, for people."""
        where = "its own control group" if self.own_cgroup else "the control group of its node"
        return f"{self.kills or 'no'} out-of-memory kill{'' if self.kills == 1 else 's'} in {where} meanwhile"


class ExitStatus(Struct, frozen=True):
    """How the direct child ended. Exactly one of: ``exit_code``, ``signal``, ``status_lost``.

    ``status_lost`` means that it ended but the kernel gave the status to nobody, or to somebody else.
    ``oom`` comes with a KILL that was not sent by `Child.signal`, where the counter can be read; without it
    nothing is known.
    """

    exit_code: int | None = None
    signal: int | None = None
    status_lost: bool = False
    oom: OomEvidence | None = None


class SpawnRole(enum.Enum):
    """What it was that made a spawn fail."""

    PROGRAM = "program"
    CWD = "cwd"
    INTERPRETER = "interpreter"
    PERMISSION = "permission"
    FORMAT = "format"
    SIZE = "size"
    LIMIT = "limit"
    OUTPUT_FILE = "output_file"
    LIMITS = "limits"
    """`ProcessSpec.limits` are beyond what this node may set."""
    CGROUP = "cgroup"
    """There is no control group to be had for `ProcessSpec.cgroup`."""
    START_TIMEOUT = "start_timeout"
    """The program was not loaded within `ProcessSpec.start_timeout_s`."""
    STOPPED = "stopped"
    """A stop was asked for before the program was loaded, or the spawner was closed."""
    UNKNOWN = "unknown"


class SpawnError(ProcessError):
    """No process was started: ``errno_name`` is what the kernel said, ``role`` and ``path`` where to look.

    Trying again can help when ``role`` is `SpawnRole.LIMIT`.
    """

    def __init__(self, *, errno_name: str, role: SpawnRole, path: str, hint: str) -> None:
        super().__init__(f"{errno_name}: {hint}: {path!r}" if path else f"{errno_name}: {hint}")
        self.errno_name, self.role, self.path = errno_name, role, path

    @classmethod
    def of_defect(cls, error: Exception, *, path: str) -> Self:
        """Return what is told of a start of ``path`` that came to nothing by an error nobody foresaw."""
        hint = f"{type(error).__name__}: {error}"
        return cls(errno_name="UNKNOWN", role=SpawnRole.UNKNOWN, path=path, hint=hint)


class WriteOutcome(enum.Enum):
    """What became of bytes for a child's standard input."""

    WRITTEN = "written"
    """The kernel took them all. Whether the child read them nobody knows."""
    CHILD_GONE = "child_gone"
    """The child ended or closed its end before it could have read them all."""
    STDIN_CLOSED = "stdin_closed"
    """There is no standard input, or we closed it before."""
    BUFFER_FULL = "buffer_full"
    """The child reads too slowly; not one byte of this write was taken. Retrying later is safe."""


WriteDone = Callable[[WriteOutcome, int], None]
"""Hears what became of one write, and how many of its bytes were not taken: none of one that was written."""


class ChildListener(Protocol):
    """Hears of a child. Nothing is called before `Spawner.spawn` has returned, nor after `Child.close`.

    Of a child that is still `Child.loading` then, `loaded` or `refused` is called first, once.
    """

    def loaded(self) -> None:
        """The program runs."""
        ...

    def refused(self, error: SpawnError) -> None:
        """The program was not started; nothing else is called, and nothing is left of the child."""
        ...

    def output(self, stream: Stream, data: bytes) -> None:
        """``data`` (never empty) was read."""
        ...

    def eof(self, stream: Stream) -> None:
        """Nothing more will come from ``stream``; once a piped stream."""
        ...

    def exited(self, status: ExitStatus) -> None:
        """The direct child ended; once. Output may still follow."""
        ...


class Child(Protocol):
    """One started process and the group it leads. No method raises because the child is gone."""

    @property
    def pid(self) -> int:
        """The process id, which is its group id too."""
        ...

    @property
    def parent_pid(self) -> int:
        """The process id of this node."""
        ...

    @property
    def start_time(self) -> int | None:
        """Kernel ticks between the machine's boot and the start of the child; None when unreadable."""
        ...

    @property
    def loading(self) -> bool:
        """Whether the program does not run yet, which is told later: for some specs, see `Spawner.spawn`."""
        ...

    @property
    def cgroup(self) -> CgroupPlace | None:
        """What became of `ProcessSpec.cgroup`; None when it asks for none."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether the group is killed when this node dies without stopping it."""
        ...

    def write(self, data: bytes, done: WriteDone) -> None:
        """Queue ``data`` for standard input. ``done`` is called exactly once, maybe before this returns."""
        ...

    def close_stdin(self) -> None:
        """Close standard input when everything queued before was written."""
        ...

    def signal(self, number: int) -> None:
        """Signal the whole group. Does nothing once nobody of it can be left."""
        ...

    def state(self) -> str | None:
        """The kernel's state letter of the direct child; None when there is none."""
        ...

    def pause(self, stream: Stream) -> None:
        """Read nothing more from ``stream`` for now, so that the child waits once the pipe is full.

        Its end is not noticed either. Does nothing to a stream that is not piped, or over.
        """
        ...

    def resume(self, stream: Stream) -> None:
        """Read ``stream`` again; does nothing when it is not paused."""
        ...

    def read_rest(self) -> None:
        """Give the listener what can be read at this moment, if anything; from paused streams too."""
        ...

    def reap(self) -> tuple[int, ...]:
        """After ``exited``: let the kernel forget the child; return who of its group still lives.

        Bytes that are still queued for it end as `WriteOutcome.CHILD_GONE`.
        """
        ...

    def close(self) -> None:
        """Stop listening and close our pipe ends. Bytes still queued end as `WriteOutcome.CHILD_GONE`.

        A child that still lives keeps running, and is still reaped.
        """
        ...


class Spawner(Protocol):
    """Starts processes."""

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> Child:
        """Start ``spec`` in a session of its own, with no other descriptors than the three standard ones.

        With ``limits``, a ``cgroup`` or a ``start_timeout_s``, the child may still be `Child.loading` when
        this returns. The time is for the caller to watch: to kill and close such a child gives it up.

        Raises:
            SpawnError: nothing was started.
        """
        ...

    @property
    def left_behind(self) -> tuple[SubprocessLeftBehind, ...]:
        """What was recognised, when this was made, of the children of earlier boots; for the node to emit."""
        ...
