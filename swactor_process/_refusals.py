"""What it means when the kernel refuses to start a program.

Owns: from an ``OSError`` and the spec to a `SpawnError` that says what to look at.
Not here: starting (``linux``).
"""

import errno
import os
import shutil
from pathlib import Path

from swactor_process.spawner import SpawnError, SpawnRole
from swactor_process.spec import ProcessSpec

_PLAIN = {
    errno.ENOENT: (SpawnRole.PROGRAM, "no such program"),
    errno.ENOTDIR: (SpawnRole.PROGRAM, "a part of the path is not a directory"),
    errno.ELOOP: (SpawnRole.PROGRAM, "symbolic links in a circle"),
    errno.ENAMETOOLONG: (SpawnRole.PROGRAM, "the path is too long"),
    errno.ETXTBSY: (SpawnRole.PROGRAM, "the file is open for writing"),
    errno.EACCES: (SpawnRole.PERMISSION, "not a file that may be executed"),
    errno.EPERM: (SpawnRole.PERMISSION, "not permitted"),
    errno.ENOEXEC: (SpawnRole.FORMAT, "no #! line or wrong architecture"),
    errno.E2BIG: (SpawnRole.SIZE, "arguments and environment are too large"),
    errno.EAGAIN: (SpawnRole.LIMIT, "no room for another process"),
    errno.ENOMEM: (SpawnRole.LIMIT, "not enough memory"),
    errno.EMFILE: (SpawnRole.LIMIT, "too many open files in this node"),
    errno.ENFILE: (SpawnRole.LIMIT, "too many open files on this machine"),
}


def explain(error: OSError, spec: ProcessSpec) -> SpawnError:
    """Return what ``error``, raised while starting ``spec``, means to people.

    Raises nothing: what may not be looked at counts as not there, as for the kernel.
    """
    number = error.errno or 0
    name = errno.errorcode.get(number, "UNKNOWN")
    if spec.cwd is not None and error.filename == spec.cwd and not _may_enter(spec.cwd):
        return SpawnError(
            errno_name=name, role=SpawnRole.CWD, path=spec.cwd, hint="no usable working directory"
        )
    program = _resolve(spec)
    if number == errno.ENOENT and program is not None:
        return SpawnError(
            errno_name=name,
            role=SpawnRole.INTERPRETER,
            path=program,
            hint="interpreter on the #! line (or the program's loader) not found",
        )
    role, hint = _PLAIN.get(number, (SpawnRole.UNKNOWN, os.strerror(number)))
    path = "" if role is SpawnRole.LIMIT else program or spec.program
    return SpawnError(errno_name=name, role=role, path=path, hint=hint)


def _may_enter(directory: str) -> bool:
    return os.path.isdir(directory) and os.access(directory, os.X_OK)  # noqa: PTH112 - `Path.is_dir` may raise


def _resolve(spec: ProcessSpec) -> str | None:
    """Return the existing file that the kernel was asked to execute; None when there is none."""
    if "/" in spec.program:
        path = str(Path(spec.cwd or ".") / spec.program)
        return path if os.path.exists(path) else None  # noqa: PTH110 - `Path.exists` may raise
    search = (spec.env or os.environ).get("PATH", os.defpath)
    return shutil.which(spec.program, path=search)
