"""What the kernel holds a child to: resource limits, niceness, a cgroup of its own.

Owns: the values `Limits` and `Cgroup` of a spec, and the rules they meet.
Not here: how they come into force (``_launch``, ``_cgroups``), whether this node may set them (only the
kernel knows; see `SpawnRole.LIMITS` and `SpawnRole.CGROUP`).
"""

from msgspec import Struct

from swactor_process._errors import InvalidSpecError

NICE_MIN, NICE_MAX = -20, 19
RLIMIT_MAX = 2**63 - 1
"""More is refused by the kernel, or means that there is no limit."""

CPUS_MIN, CPUS_MAX = 0.01, 10_000
"""The kernel allots at least 1 ms in each period of 100 ms."""


class Limits(Struct, frozen=True, kw_only=True):
    """Resource limits (``setrlimit(2)``) and niceness of a child; None keeps what this node has.

    In force before the first instruction of the program, for what it starts too. Each limit is a hard one,
    so a child without privileges cannot raise it.
    """

    open_files: int | None = None
    """One more than the highest descriptor (``RLIMIT_NOFILE``)."""
    processes: int | None = None
    """Of the child's user in all, threads counted (``RLIMIT_NPROC``); root is not held to it."""
    address_space_bytes: int | None = None
    """``RLIMIT_AS``. Mapped, not used memory: a `Cgroup` limits what is used."""
    stack_bytes: int | None = None
    """``RLIMIT_STACK``."""
    locked_bytes: int | None = None
    """``RLIMIT_MEMLOCK``."""
    file_bytes: int | None = None
    """Of each file that it writes (``RLIMIT_FSIZE``)."""
    core_bytes: int | None = None
    """Of a core dump (``RLIMIT_CORE``)."""
    cpu_s: int | None = None
    """Processor time of each process (``RLIMIT_CPU``), after which the kernel kills it."""
    nice: int | None = None
    """-20 (gets its way) to 19 (yields to all); less than this node's needs privileges."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for field, number in self.rlimits().items():
            if not 0 <= number <= RLIMIT_MAX:
                raise InvalidSpecError(f"limits.{field}", f"0 to {RLIMIT_MAX}")
        if self.nice is not None and not NICE_MIN <= self.nice <= NICE_MAX:
            raise InvalidSpecError("limits.nice", f"{NICE_MIN} to {NICE_MAX}")

    def rlimits(self) -> dict[str, int]:
        """Return the resource limits that are set, by the names of the fields."""
        return {
            field: number
            for field in self.__struct_fields__
            if field != "nice" and (number := getattr(self, field)) is not None
        }


class Cgroup(Struct, frozen=True, kw_only=True):
    """A control group (version 2) of its own for a child and all that it starts.

    It is there before the first instruction of the program and removed when all of them have ended. None
    limits nothing: the group still counts out-of-memory kills, and KILL reaches whoever is in it.

    Needs a control group that this node may divide; when there is none, a ``required`` one refuses the start
    (`SpawnRole.CGROUP`), another is missing, and `ProcessStarted.cgroup` says why.
    """

    memory_max_bytes: int | None = None
    """``memory.max``: above it the kernel kills a process of the group."""
    pids_max: int | None = None
    """``pids.max``: processes and threads."""
    cpus: float | None = None
    """``cpu.max``: so many processors' time, such as 0.5 or 2."""
    required: bool = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        for field in ("memory_max_bytes", "pids_max"):
            number = getattr(self, field)
            if number is not None and not 1 <= number <= RLIMIT_MAX:
                raise InvalidSpecError(f"cgroup.{field}", f"1 to {RLIMIT_MAX}")
        if self.cpus is not None and not CPUS_MIN <= self.cpus <= CPUS_MAX:
            raise InvalidSpecError("cgroup.cpus", f"{CPUS_MIN} to {CPUS_MAX}")


class CgroupPlace(Struct, frozen=True):
    """What became of the `Cgroup` of a spec: the directory at ``path``, or None, and ``why_none``."""

    path: str | None
    why_none: str = ""
