"""The launcher: a program that takes limits upon itself and then becomes the child's program.

Owns: joining the cgroup, niceness, resource limits, directory and search for the program, as the child would
have them; telling the node how that went. Nothing of it may be done between fork and exec, nor from outside
once the program runs: it would have begun without.
Not here: the node's side (``_launch``). Runs as a file of its own, without site packages, so it imports
nothing but the standard library.

What it tells, a line each, on a pipe that the kernel closes when the program is loaded: ``no-cgroup ERRNO``
(it goes on without), ``failed STEP ERRNO`` (it ends), ``exec`` (nothing is left to do but that).
"""

import _signal  # type: ignore[import-not-found]  # what `signal` wraps: half of the time of a launch is saved
import errno
import os
import resource
import sys

RLIMITS = {
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
    "address_space_bytes": resource.RLIMIT_AS,
    "stack_bytes": resource.RLIMIT_STACK,
    "locked_bytes": resource.RLIMIT_MEMLOCK,
    "file_bytes": resource.RLIMIT_FSIZE,
    "core_bytes": resource.RLIMIT_CORE,
    "cpu_s": resource.RLIMIT_CPU,
}
IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
FAILED = 127


def take_on(name: str, value: str) -> None:
    """Take one thing upon this process.

    Raises:
        OSError: the kernel refuses.
        ValueError: the same, of a resource limit that only the privileged may have.
    """
    if name in RLIMITS:
        resource.setrlimit(RLIMITS[name], (int(value), int(value)))
    elif name == "nice":
        os.setpriority(os.PRIO_PROCESS, 0, int(value))
    elif name == "cwd":
        os.chdir(value)
    else:
        members = os.open(value, os.O_WRONLY)
        os.write(members, b"0")  # the kernel's word for whoever writes it
        os.close(members)


def undo_python(locale: str | None) -> None:
    """Give the program what it would have without us: Python ignores signals and may set a locale."""
    for name in IGNORED_BY_PYTHON:
        if hasattr(_signal, name):
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    os.environ.pop("LC_CTYPE", None)
    if locale is not None:
        os.environ["LC_CTYPE"] = locale


def launch(report: int, wishes: list[str], command: list[str]) -> None:
    """Do what ``wishes`` say, as ``NAME=VALUE``, then become ``command``. Returns when it cannot."""
    locale: str | None = None
    name = ""
    try:
        for name, value in (wish.split("=", 1) for wish in wishes):
            if name == "locale":
                locale = value
                continue
            try:
                take_on(name, value)
            except OSError as exc:
                if name != "cgroup-if-possible":
                    raise
                os.write(report, b"no-cgroup %d\n" % (exc.errno or 0))
        name = "exec"
        undo_python(locale)
        os.write(report, b"exec\n")
        os.execvp(command[0], command)  # noqa: S606 - running what the owner names is the purpose
    except OSError as exc:
        number = exc.errno or 0
    except ValueError:
        number = errno.EPERM
    os.write(report, b"failed %s %d\n" % (name.encode(), number))


def main() -> None:
    """Be the launcher: the descriptor of the pipe, wishes, ``--`` and the command are the arguments."""
    report = int(sys.argv[1])
    os.set_inheritable(report, False)  # noqa: FBT003 - the library's signature
    split = sys.argv.index("--")
    launch(report, sys.argv[2:split], sys.argv[split + 1 :])
    os._exit(FAILED)


if __name__ == "__main__":
    main()
