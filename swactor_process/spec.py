"""What to run and how to treat it: the value an owner hands to `spawn_process`.

Owns: `ProcessSpec`, the output policies, the readiness rule, and the rules their inputs must meet. A spec
that exists is valid: construction raises `InvalidSpecError`, which names the input and the rule.
Not here: what the kernel holds it to (``limits``), whether the program exists (only the kernel knows; see
``spawner.SpawnError``), restarting (belongs to the supervisor of the owning actor).
"""

import enum
import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from swactor_process._errors import InvalidSpecError
from swactor_process._rules import (
    check_count,
    check_flag,
    check_kind,
    check_period,
    check_seconds,
    check_text,
)
from swactor_process.limits import Cgroup, Limits

LINE_MAX_BYTES = 65_536
CHUNK_MAX_BYTES = 65_536
TAIL_BYTES = 8_192
MAILBOX_BYTES = 4_194_304
BACKLOG_BYTES = 262_144
FILE_MAX_BYTES = 10_485_760
FILE_KEEP = 3
STDIN_BUFFER_BYTES = 1_048_576
LABEL_MAX_CHARS = 200
PORT_MAX = 65_535


class Stream(enum.Enum):
    """An output stream of a child."""

    __hash__ = object.__hash__  # by identity, as they are compared: that of enum.Enum is in Python

    STDOUT = "stdout"
    STDERR = "stderr"


STREAMS = tuple(Stream)
"""All of them; to iterate over an enum takes ten times as long."""


class WhenFull(enum.Enum):
    """What happens to output that finds the owner's mailbox full, of messages or of bytes."""

    DROP = "drop"
    """It is dropped and counted in `ProcessExited`; the child never waits for the owner."""
    PAUSE = "pause"
    """It waits. When too much waits the stream is not read any more, so the child waits too."""


class Lines(Struct, frozen=True, tag=True):
    """Read the stream and give it to the owner line by line (`ProcessOutput`).

    A line above ``line_max_bytes`` comes in marked pieces.
    """

    line_max_bytes: int = LINE_MAX_BYTES
    when_full: WhenFull = WhenFull.DROP
    batched: bool = False
    """Whether whole lines that one read brought come together (`ProcessLines`), for a child that says much:
    to tell each by itself takes many times as long as to read it. Pieces of lines come as ever."""

    def __post_init__(self) -> None:
        """Check every input."""
        check_count("line_max_bytes", self.line_max_bytes, least=1)
        check_kind("when_full", self.when_full, WhenFull, "a WhenFull")
        check_flag("batched", self.batched)


class Chunks(Struct, frozen=True, tag=True):
    """Read the stream and give its bytes to the owner as they come (`ProcessChunk`): for binary protocols.

    A chunk is what one read brought, cut where it is above ``chunk_max_bytes``; its borders mean nothing.
    """

    chunk_max_bytes: int = CHUNK_MAX_BYTES
    when_full: WhenFull = WhenFull.DROP

    def __post_init__(self) -> None:
        """Check every input."""
        check_count("chunk_max_bytes", self.chunk_max_bytes, least=1)
        check_kind("when_full", self.when_full, WhenFull, "a WhenFull")


class TailOnly(Struct, frozen=True, tag=True):
    """Read the stream and keep nothing but its last bytes; the owner is told nothing."""


class ToFile(Struct, frozen=True, tag=True):
    """Read the stream and append it to the file ``path``; the owner is told nothing of what it says.

    Above ``max_bytes`` the file is renamed to ``path.1``, its predecessors to ``path.2`` and so on, and a new
    one begins, between two lines where that is possible; ``keep`` predecessors stay. A relative path is one
    of the node's directory. Both streams may go to one file; no other child may use it meanwhile.

    A file that cannot be opened refuses the start (`SpawnRole.OUTPUT_FILE`). When writing fails later, the
    child runs on: `ProcessFileFailed` tells why, once a cause; what is lost is counted in `ProcessExited`.
    """

    path: str
    max_bytes: int = FILE_MAX_BYTES
    keep: int = FILE_KEEP

    def __post_init__(self) -> None:
        """Check path and limits."""
        check_text("path", self.path)
        if not self.path:
            raise InvalidSpecError("path", "not empty")
        check_count("max_bytes", self.max_bytes, least=1)
        check_count("keep", self.keep, least=0)


class Null(Struct, frozen=True, tag=True):
    """Attach the stream to nothing; there is no tail either."""


class Inherit(Struct, frozen=True, tag=True):
    """Let the child write to the same stream of this node; there is no tail either."""


Output = Lines | Chunks | TailOnly | ToFile | Null | Inherit
_OUTPUTS = (Lines, Chunks, TailOnly, ToFile, Null, Inherit)
_OUTPUT_RULE = f"an instance of {', '.join(kind.__name__ for kind in _OUTPUTS)}"
_NOT_READ = (Null, Inherit)


class ReadyOnLine(Struct, frozen=True, tag=True):
    r"""The child is ready when a line of ``stream`` contains a match of the regular expression ``pattern``.

    The empty pattern is met by the first line. A line is matched as if it ended after 1,024 characters, as is
    each piece of an over-long one. Use no pattern with a repetition inside a repetition, such as
    ``(\w+\s?)*``: a short line can take it for ever, and the whole node with it.
    """

    pattern: str = ""
    stream: Stream = Stream.STDOUT
    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        """Check the expression and the time."""
        check_kind("readiness.pattern", self.pattern, str, "a regular expression, as a str")
        check_kind("readiness.stream", self.stream, Stream, "a Stream")
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as exc:  # too large a repetition, too deep a nesting
            raise InvalidSpecError("readiness.pattern", f"a regular expression ({exc})") from exc
        check_seconds("readiness.deadline_s", self.deadline_s)


class ReadyOnPort(Struct, frozen=True, tag=True):
    """The child is ready when somebody accepts connections at the TCP ``port`` of ``host``, an IP address.

    Asked every ``every_s`` seconds, by a connection that is closed at once. Whether it is the child that
    listens nobody can tell from outside: a port that was taken before makes it ready too early.
    """

    port: int
    host: str = "127.0.0.1"
    deadline_s: float = 30.0
    every_s: float = 0.1

    def __post_init__(self) -> None:
        """Check address and times. Names are refused: looking them up would block the event loop."""
        check_count("readiness.port", self.port, least=1, most=PORT_MAX)
        try:
            ipaddress.ip_address(self.host)
        except ValueError as exc:
            raise InvalidSpecError("readiness.host", "an IP address, not a name") from exc
        check_seconds("readiness.deadline_s", self.deadline_s)
        check_period("readiness.every_s", self.every_s)


class ReadyOnFile(Struct, frozen=True, tag=True):
    """The child is ready when the file ``path`` has come into being, or has changed, since before the start.

    Looked for every ``every_s`` seconds. A relative path is one of the child's directory (``cwd``).
    """

    path: str
    deadline_s: float = 30.0
    every_s: float = 0.1

    def __post_init__(self) -> None:
        """Check path and times."""
        check_text("readiness.path", self.path)
        if not self.path:
            raise InvalidSpecError("readiness.path", "not empty")
        check_seconds("readiness.deadline_s", self.deadline_s)
        check_period("readiness.every_s", self.every_s)


class ReadyOnMessage(Struct, frozen=True, tag=True):
    """The child is ready when its owner says so, with `MarkReady`."""

    deadline_s: float = 30.0

    def __post_init__(self) -> None:
        """Check the time."""
        check_seconds("readiness.deadline_s", self.deadline_s)


Readiness = ReadyOnLine | ReadyOnPort | ReadyOnFile | ReadyOnMessage
"""When a child counts as ready: the owner hears `ProcessReady`.

Without that within ``deadline_s`` it hears `ProcessReadyOverdue`. The child runs on, the owner decides.
"""
_READINESS = (ReadyOnLine, ReadyOnPort, ReadyOnFile, ReadyOnMessage, type(None))
_READINESS_RULE = "None, or an instance of ReadyOnLine, ReadyOnPort, ReadyOnFile, ReadyOnMessage"


class ProcessSpec(Struct, frozen=True, kw_only=True):
    """One program to run, and how its streams and its end are treated.

    ``program`` without a slash is searched in ``PATH``. ``env`` replaces the environment; None inherits it.
    Changing a mapping or list that was passed in changes nothing here.
    ``label`` is for people and need not be unique. A child starts in its own session; signals go to its
    whole group. Stopping is TERM, ``grace_s`` later KILL, and ``deadline_s`` after the request the answer
    "still alive". After the exit, output is read for at most ``linger_s`` more if something keeps it open.
    ``limits`` and ``cgroup`` are what the kernel holds it to. With ``start_timeout_s`` a program that is not
    loaded in time is given up (`SpawnRole.START_TIMEOUT`), and loading it never holds the event loop. Each of
    the three makes a start some 10 ms longer.

    ``mailbox_bytes`` of output lie in the owner's mailbox at most, and one line or chunk; above that it
    counts as full. With `WhenFull.PAUSE`, ``backlog_bytes`` more may wait before no more is read. Each line
    or chunk counts 128 bytes more than it has. ``stdin_buffer_bytes`` may wait to be written, and one write;
    16,384 writes at most. A ``guarded`` child's group is killed when this node dies without stopping it.
    """

    program: str
    label: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    stdin: bool = True
    stdout: Output = Lines()
    stderr: Output = Lines()
    readiness: Readiness | None = None
    grace_s: float = 5.0
    deadline_s: float = 10.0
    linger_s: float = 2.0
    tail_bytes: int = TAIL_BYTES
    mailbox_bytes: int = MAILBOX_BYTES
    backlog_bytes: int = BACKLOG_BYTES
    stdin_buffer_bytes: int = STDIN_BUFFER_BYTES
    guarded: bool = True
    limits: Limits | None = None
    cgroup: Cgroup | None = None
    start_timeout_s: float | None = None

    def __repr__(self) -> str:
        """Say which program it is; arguments and environment may hold secrets, and this goes to logs."""
        return f"ProcessSpec(program={self.program!r}, label={self.label!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Say no more where rich shows it, as in the tracebacks of a typer program."""
        return [("program", self.program), ("label", self.label)]

    def __post_init__(self) -> None:
        """Check every input before the kernel or the standard library sees it."""
        _check_label(self.label)
        check_text("program", self.program)
        if not self.program:
            raise InvalidSpecError("program", "not empty")
        check_kind("args", self.args, (tuple, list), "a tuple of str, one for each argument")
        for index, argument in enumerate(self.args):
            check_text(f"args[{index}]", argument)
        # Copies: the start comes later, when the caller may have changed its own for the next child.
        force_setattr(self, "args", tuple(self.args))
        if self.cwd is not None:
            check_text("cwd", self.cwd)
            if not self.cwd:
                raise InvalidSpecError("cwd", "not empty (None keeps the node's directory)")
        if self.env is not None:
            _check_env(self.env)
            force_setattr(self, "env", dict(self.env))
        check_kind("stdout", self.stdout, _OUTPUTS, _OUTPUT_RULE)
        check_kind("stderr", self.stderr, _OUTPUTS, _OUTPUT_RULE)
        check_kind("readiness", self.readiness, _READINESS, _READINESS_RULE)
        check_kind("limits", self.limits, (Limits, type(None)), "Limits, or None")
        check_kind("cgroup", self.cgroup, (Cgroup, type(None)), "a Cgroup, or None")
        for field in ("stdin", "guarded"):
            check_flag(field, getattr(self, field))
        for field in ("grace_s", "deadline_s", "linger_s"):
            check_seconds(field, getattr(self, field))
        if self.start_timeout_s is not None:
            check_period("start_timeout_s", self.start_timeout_s)
        for field in ("tail_bytes", "mailbox_bytes", "backlog_bytes", "stdin_buffer_bytes"):
            check_count(field, getattr(self, field), least=0)
        if _clash(self.stdout, self.stderr):
            raise InvalidSpecError("stderr.path", "another file than stdout's, or the same limits")
        if isinstance(self.readiness, ReadyOnLine) and not isinstance(
            self.policy(self.readiness.stream), Lines
        ):
            raise InvalidSpecError("readiness.stream", "a stream with the Lines policy")

    @property
    def command(self) -> tuple[str, ...]:
        """Program and arguments, as `ProcessStarted` shows them."""
        return (self.program, *self.args)

    def policy(self, stream: Stream) -> Output:
        """Return the output policy of ``stream``."""
        return self.stdout if stream is Stream.STDOUT else self.stderr

    def piped(self) -> tuple[Stream, ...]:
        """Return the streams this node reads."""
        if isinstance(self.stdout, _NOT_READ):
            return () if isinstance(self.stderr, _NOT_READ) else (Stream.STDERR,)
        return (Stream.STDOUT,) if isinstance(self.stderr, _NOT_READ) else STREAMS

    def pausing(self) -> tuple[Stream, ...]:
        """Return the streams that are not read while their owner is behind."""
        return tuple([stream for stream in STREAMS if pauses(self.policy(stream))])


def pauses(policy: Output) -> bool:
    """Return whether a stream with ``policy`` waits for its owner."""
    return isinstance(policy, (Lines, Chunks)) and policy.when_full is WhenFull.PAUSE


def _clash(one: Output, other: Output) -> bool:
    return isinstance(one, ToFile) and isinstance(other, ToFile) and one.path == other.path and one != other


def _check_label(label: str) -> None:
    check_kind("label", label, str, f"1 to {LABEL_MAX_CHARS} printable characters")
    if not label or len(label) > LABEL_MAX_CHARS or not label.isprintable():
        raise InvalidSpecError("label", f"1 to {LABEL_MAX_CHARS} printable characters")


def _check_env(env: Mapping[str, str]) -> None:
    check_kind("env", env, (dict, Mapping), "a mapping of str to str, or None")
    for name, value in env.items():
        field = f"env[{name!r}]"
        check_text(field, name)
        if not name or "=" in name:
            raise InvalidSpecError(field, "a name that is not empty and has no '='")
        check_text(field, value)
