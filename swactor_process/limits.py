"""What the kernel holds a child to: resource limits, niceness, a cgroup of its own.

Owns: the values `Limits` and `Cgroup` of a spec, and the rules they meet.
Not here: how they come into force (``_launch``, ``_cgroups``), whether this node may set them (only the
kernel knows; see `SpawnRole.LIMITS` and `SpawnRole.CGROUP`).
"""

from msgspec import Struct

from swactor_process._rules import check_between, check_count, check_flag

NICE_MIN, NICE_MAX = -20, 19
RLIMIT_MAX = 2**63 - 1
"""More is refused by the kernel, or means that there is no limit."""
OPEN_FILES_MIN = 4
"""Standard input, output and error, and one to load a shared library through."""
ADDRESS_SPACE_BYTES_MIN = 1_048_576
"""About what the C library and the stack take of a program that does nothing."""
STACK_BYTES_MIN = 16_384
"""About what the dynamic loader uses before the program begins."""
CPU_S_MIN = 1
"""With 0 the kernel kills what runs when its clock ticks next, in three starts about one."""

CPUS_MIN, CPUS_MAX = 0.01, 10_000
"""The kernel allots at least 1 ms in each period of 100 ms."""


_LEAST = {
    "open_files": OPEN_FILES_MIN,
    "address_space_bytes": ADDRESS_SPACE_BYTES_MIN,
    "stack_bytes": STACK_BYTES_MIN,
    "cpu_s": CPU_S_MIN,
}
"""With less no usual program is sure to come to its first instruction: it would seem to fail by itself."""


class Limits(Struct, frozen=True, kw_only=True):
    """Resource limits (``setrlimit(2)``) and niceness of a child; None keeps what this node has.

    In force before the first instruction of the program, for what it starts too. Each limit is a hard one,
    so a child without privileges cannot raise it.
    """

    open_files: int | None = None
    """One more than the highest descriptor (``RLIMIT_NOFILE``); 4 at least, to load a program."""
    processes: int | None = None
    """Of the child's user in all, threads counted (``RLIMIT_NPROC``); root is not held to it."""
    address_space_bytes: int | None = None
    """``RLIMIT_AS``; 1 MiB at least, to load a program. Mapped, not used memory: a `Cgroup` limits that."""
    stack_bytes: int | None = None
    """``RLIMIT_STACK``; 16 KiB at least, to load a program."""
    locked_bytes: int | None = None
    """``RLIMIT_MEMLOCK``."""
    file_bytes: int | None = None
    """Of each file that it writes (``RLIMIT_FSIZE``)."""
    core_bytes: int | None = None
    """Of a core dump (``RLIMIT_CORE``)."""
    cpu_s: int | None = None
    """Processor time of each process (``RLIMIT_CPU``), after which the kernel kills it; 1 at least."""
    nice: int | None = None
    """-20 (gets its way) to 19 (yields to all); less than this node's needs privileges."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for field, number in self.rlimits().items():
            check_count(f"limits.{field}", number, least=_LEAST.get(field, 0), most=RLIMIT_MAX)
        if self.nice is not None:
            check_count("limits.nice", self.nice, least=NICE_MIN, most=NICE_MAX)

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
            if number is not None:
                check_count(f"cgroup.{field}", number, least=1, most=RLIMIT_MAX)
        if self.cpus is not None:
            check_between("cgroup.cpus", self.cpus, CPUS_MIN, CPUS_MAX)
        check_flag("cgroup.required", self.required)


class CgroupPlace(Struct, frozen=True):
    """What became of the `Cgroup` of a spec: the directory at ``path``, or None, and ``why_none``."""

    path: str | None
    why_none: str = ""
