"""A start that goes through the launcher, seen from the node.

Owns: which starts do, the launcher's command line, what its report means.
Not here: what it does (``_launcher_program``), starting it (``_start``), the child it becomes
(``_real_child``).

The launcher is there after some 10 ms of its own and becomes the program, so process id and start time stay.
It does what nobody may do between fork and exec, and what a thread of this node cannot: when the program's
file system hangs, a process can be killed, a thread inside fork could not even say which process to kill.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from swactor.abc import Cancellable
from swactor_process import _launcher_program
from swactor_process._pipes import Readables
from swactor_process._refusals import explain
from swactor_process.spawner import SpawnError, SpawnRole
from swactor_process.spec import ProcessSpec

REPORT_MAX_BYTES = 4_096
RLIMIT_HINT = "the limits of the spec are beyond what this node may set"
CGROUP_HINT = "the child cannot be put into its control group"
PYTHON_HINT = "this node's Python, which launches the program, cannot be run"


def needs_launcher(spec: ProcessSpec) -> bool:
    """Whether ``spec`` asks for anything that a plain start cannot give."""
    return spec.limits is not None or spec.cgroup is not None or spec.start_timeout_s is not None


def launcher_command(spec: ProcessSpec, *, report: int, cgroup_members: str | None) -> list[str]:
    """Return the command line that becomes ``spec``; ``report`` is the descriptor to tell on."""
    wishes: dict[str, object] = {}
    if spec.cgroup is not None and cgroup_members is not None:
        wishes["cgroup" if spec.cgroup.required else "cgroup-if-possible"] = cgroup_members
    if spec.limits is not None:
        if spec.limits.nice is not None:
            wishes["nice"] = spec.limits.nice
        wishes |= spec.limits.rlimits()
    if spec.cwd is not None:
        wishes["cwd"] = spec.cwd
    locale = (os.environ if spec.env is None else spec.env).get("LC_CTYPE")
    if locale is not None:
        wishes["locale"] = locale
    return [
        sys.executable,
        "-I",
        "-S",
        _launcher_program.__file__,
        str(report),
        *(f"{name}={value}" for name, value in wishes.items()),
        "--",
        *spec.command,
    ]


def explain_start(error: OSError, spec: ProcessSpec) -> SpawnError:
    """Return what ``error``, raised while starting ``spec`` or its launcher, means to people."""
    refusal = explain(error, spec)
    of_python = needs_launcher(spec) and error.filename == sys.executable
    # The launcher's arguments are those of the program, and so are the limits of the system.
    if not of_python or refusal.role in {SpawnRole.SIZE, SpawnRole.LIMIT}:
        return refusal
    return SpawnError(
        errno_name=refusal.errno_name, role=SpawnRole.UNKNOWN, path=sys.executable, hint=PYTHON_HINT
    )


class Outcome(NamedTuple):
    """How a launch went: ``refusal`` says why not; ``no_cgroup`` why it did without one, if it did."""

    refusal: SpawnError | None = None
    no_cgroup: str = ""


def read_report(report: bytes, spec: ProcessSpec) -> Outcome:
    """Return what the launcher of ``spec`` has told until the kernel closed the pipe."""
    no_cgroup = ""
    about_to_exec = False
    for line in report.decode("ascii", "replace").splitlines():
        match line.split():
            case ["no-cgroup", number]:
                no_cgroup = os.strerror(int(number))
            case ["failed", step, number]:
                return Outcome(_refusal(step, int(number), spec))
            case ["exec"]:
                about_to_exec = True
    if about_to_exec:
        return Outcome(no_cgroup=no_cgroup)
    hint = "the launcher ended before it could load the program"
    return Outcome(SpawnError(errno_name="UNKNOWN", role=SpawnRole.UNKNOWN, path=sys.executable, hint=hint))


def _refusal(step: str, number: int, spec: ProcessSpec) -> SpawnError:
    name = errno.errorcode.get(number, "UNKNOWN")
    match step:
        case "exec":
            return explain(OSError(number, os.strerror(number), spec.program), spec)
        case "cwd":
            return explain(OSError(number, os.strerror(number), spec.cwd), spec)
        case "cgroup":
            return SpawnError(errno_name=name, role=SpawnRole.CGROUP, path="", hint=CGROUP_HINT)
        case _:
            return SpawnError(
                errno_name=name, role=SpawnRole.LIMITS, path="", hint=f"limits.{step}: {RLIMIT_HINT}"
            )


class Launch:
    """One start that goes through the launcher, until that has told how it went."""

    def __init__(
        self,
        spec: ProcessSpec,
        readables: Readables,
        descriptor: int,
        on_over: Callable[[Outcome], None],
    ) -> None:
        os.set_blocking(descriptor, False)
        self._spec = spec
        self._descriptor: int | None = descriptor
        self._on_over = on_over
        self._report = b""
        self._watch: Cancellable = readables.watch_readable(descriptor, self.look)

    def look(self) -> None:
        """Read what has been told; at the end, say how it went."""
        if self._descriptor is None:
            return
        try:
            told = os.read(self._descriptor, REPORT_MAX_BYTES)
        except BlockingIOError:
            return
        self._report += told
        if not told or len(self._report) > REPORT_MAX_BYTES:
            self.finish()

    def finish(self) -> None:
        """Say how it went; what was told until now is all, as the pipe or the process has ended."""
        if self._descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                self._report += os.read(self._descriptor, REPORT_MAX_BYTES)
            self.close()
            try:
                outcome = read_report(self._report, self._spec)
            except Exception as error:  # noqa: BLE001 - whatever it is, the owner has to hear that it is over
                outcome = Outcome(SpawnError.of_defect(error, path=self._spec.program))
            self._on_over(outcome)

    def close(self) -> None:
        """Want to know no more."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._watch.cancel()
            os.close(descriptor)
