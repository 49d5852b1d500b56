"""What is done to one child of the torture run: its program, its spec, the commands and their moments.

Owns: the behaviours and what is certain of their ends, and the dice; a child's plan follows from the run's
seed and its own number. Not here: doing it (`torture`), judging it (`torture_verdict`).
"""

import enum
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from swactor_process import (
    Chunks,
    CloseStdin,
    Limits,
    Lines,
    MarkReady,
    Null,
    Output,
    ProcessCommand,
    ProcessSpec,
    Readiness,
    ReadyOnFile,
    ReadyOnLine,
    ReadyOnMessage,
    SendSignal,
    Stop,
    TailOnly,
    ToFile,
    WhenFull,
    WriteStdin,
)

PROGRAM = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "children" / "behaving.sh"
LEFT_ALONE = 0.3
"""This share of the children gets no commands, so that their exits are known beforehand."""
HASTY_S = 0.02
"""About what it takes until the launcher has become the program."""
LAST_STOP_S = 0.4
"""Whoever gets commands is stopped by then."""


class End(NamedTuple):
    """What a child that is left alone ends with: a code, or a signal."""

    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class Behaviour:
    """What a child does; ``end``: how it ends when it is left alone, None if not by itself, or not soon."""

    name: str
    argument: str = ""
    end: End | None = None


class Refused(enum.Enum):
    """A program that cannot be started."""

    NO_PROGRAM = "/nowhere/program"
    NO_PROGRAM_IN_PATH = "no-such-program-anywhere"
    A_DIRECTORY = "/"
    NO_PERMISSION = "/etc/passwd"
    NO_DIRECTORY = "the working directory"


class Fate(enum.Enum):
    """What is done to the owner itself."""

    FAIL = "fail"
    STOP = "stop"
    KILL = "kill"


Deed = ProcessCommand | Fate


@dataclass(frozen=True)
class Plan:
    """One child, and what is done to it at which moments after its start, in seconds."""

    number: int
    spec: ProcessSpec
    behaviour: Behaviour | Refused
    deeds: tuple[tuple[float, Deed], ...] = ()
    sluggish: bool = False
    """Its owner is slow, and its mailbox small."""
    asks: bool = False
    """Commands that can be asked are asked, and have to be answered."""

    @property
    def end(self) -> End | None:
        """How it ends for certain; None when that is open."""
        left_alone = isinstance(self.behaviour, Behaviour) and not self.deeds
        return self.behaviour.end if left_alone and isinstance(self.behaviour, Behaviour) else None

    @property
    def may_be_refused(self) -> bool:
        """Whether the program may not come to run: it is stopped, or its time is over, while it is loaded."""
        launched = self.spec.limits is not None or self.spec.start_timeout_s is not None
        return launched and (bool(self.deeds) or self.spec.start_timeout_s == HASTY_S)

    @property
    def spares_owner(self) -> bool:
        """Whether the owner lives to hear all."""
        return not any(isinstance(deed, Fate) for _, deed in self.deeds)

    def __str__(self) -> str:
        doing = ", ".join(f"{at_s:.3f} s: {_brief(deed)}" for at_s, deed in self.deeds)
        return f"child {self.number} ({self.behaviour}; {doing or 'left alone'})"


def make_plan(seed: int, number: int, *, folder: Path, mark: str) -> Plan:
    """Return what child ``number`` of the run has to bear. Files are made in ``folder``.

    ``mark`` is in the environment of the child and of whatever it starts.
    """
    dice = random.Random(f"{seed}-{number}")
    name = f"child-{number}"
    behaviour: Behaviour | Refused = _behaviour(dice, folder / f"{name}.ready")
    if dice.random() < 0.08:
        behaviour = dice.choice(list(Refused))
    spec = _spec(dice, name, behaviour, folder, mark)
    alone = isinstance(behaviour, Refused) or (behaviour.end is not None and dice.random() < LEFT_ALONE)
    return Plan(
        number=number,
        spec=spec,
        behaviour=behaviour,
        deeds=() if alone else _deeds(dice),
        sluggish=dice.random() < 0.25,
        asks=dice.random() < 0.5,
    )


def _behaviour(dice: random.Random, ready: Path) -> Behaviour:
    code, pause = dice.choice((0, 1, 7, 127, 255)), f"{dice.uniform(0.0, 0.1):.3f}"
    fatal = dice.choice(("KILL", "TERM", "HUP", "USR2"))
    return dice.choice(
        (
            Behaviour("ends", str(code), End(exit_code=code)),
            Behaviour("takes-its-time", pause, End(exit_code=5)),
            Behaviour("dies-by", fatal, End(signal=int(signal.Signals[f"SIG{fatal}"]))),
            Behaviour("speaks", end=End(exit_code=7)),
            Behaviour("floods", end=End(exit_code=6)),
            Behaviour("chatters", end=End(exit_code=2)),
            Behaviour("says-no-text", end=End(exit_code=0)),
            Behaviour("echoes"),
            Behaviour("is-deaf"),
            Behaviour("is-stubborn"),
            Behaviour("obeys-slowly"),
            Behaviour("wraps"),
            Behaviour("leaves-a-talker", end=End(exit_code=0)),
            Behaviour("leaves-a-mute", end=End(exit_code=0)),
            Behaviour("leaves-a-stubborn", pause, End(exit_code=0)),
            Behaviour("sends-off-a-daemon", end=End(exit_code=0)),
            Behaviour("stops-itself"),
            Behaviour("closes-its-streams", pause, End(exit_code=4)),
            Behaviour("breeds", end=End(exit_code=3)),
            Behaviour("gets-ready", str(ready)),
        )
    )


def _spec(
    dice: random.Random, name: str, behaviour: Behaviour | Refused, folder: Path, mark: str
) -> ProcessSpec:
    program, cwd = str(PROGRAM), None
    args: tuple[str, ...] = ()
    match behaviour:
        case Behaviour():
            args = (behaviour.name, behaviour.argument)
        case Refused.NO_DIRECTORY:
            cwd = "/nowhere"
        case Refused():
            program = behaviour.value
    stdout = _output(dice, folder / f"{name}.out")
    return ProcessSpec(
        program=program,
        label=name,
        args=args,
        env={"PATH": "/bin:/usr/bin", "SWACTOR_TORTURE": mark},
        cwd=cwd,
        stdin=dice.random() < 0.8,
        stdout=stdout,
        stderr=_output(dice, folder / f"{name}.err"),
        readiness=_readiness(dice, stdout, folder / f"{name}.ready"),
        grace_s=dice.choice((0.0, 0.05, 0.3)),
        linger_s=dice.choice((0.0, 0.1, 1.0)),
        limits=dice.choice((*[None] * 7, Limits(open_files=64, core_bytes=0))),
        start_timeout_s=dice.choice((*[None] * 10, HASTY_S, 5.0)),
        mailbox_bytes=dice.choice((500, 4_000_000)),
        stdin_buffer_bytes=dice.choice((0, 1_000, 1_000_000)),
        backlog_bytes=dice.choice((0, 100_000)),
    )


def _output(dice: random.Random, path: Path) -> Output:
    when_full = dice.choice(list(WhenFull))
    line_max_bytes = dice.choice((10_000, 65_536))
    return dice.choice(
        (
            Lines(line_max_bytes=line_max_bytes, when_full=when_full),
            Lines(line_max_bytes=line_max_bytes, when_full=when_full, batched=True),
            Chunks(when_full=when_full),
            TailOnly(),
            Null(),
            ToFile(str(path), max_bytes=100_000, keep=1),
        )
    )


def _readiness(dice: random.Random, stdout: Output, ready: Path) -> Readiness | None:
    deadline_s = dice.choice((0.0, 0.01, 5.0))
    rules: list[Readiness | None] = [
        None,
        ReadyOnFile(str(ready), deadline_s=deadline_s, every_s=0.01),
        ReadyOnMessage(deadline_s=deadline_s),
    ]
    if isinstance(stdout, Lines):
        rules.append(ReadyOnLine(deadline_s=deadline_s))
    return dice.choice(rules)


def _deeds(dice: random.Random) -> tuple[tuple[float, Deed], ...]:
    deeds: list[tuple[float, Deed]] = [(_moment(dice), _deed(dice)) for _ in range(dice.randrange(6))]
    if dice.random() < 0.15:
        deeds.append((_moment(dice), dice.choice(list(Fate))))
    deeds.append((LAST_STOP_S * dice.random(), Stop(grace_s=0.1, deadline_s=5.0)))
    return tuple(sorted(deeds, key=lambda deed: deed[0]))


def _moment(dice: random.Random) -> float:
    return dice.choice((0.0, dice.uniform(0.0, 0.01), dice.uniform(0.0, LAST_STOP_S)))


def _deed(dice: random.Random) -> Deed:
    numbers = (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGUSR1,
        signal.SIGSTOP,
        signal.SIGCONT,
        signal.SIGKILL,
    )
    return dice.choice(
        (
            WriteStdin(b"x" * dice.choice((0, 1, 100, 70_000, 1_500_000)) + b"\n"),
            WriteStdin(b"word\n"),
            CloseStdin(),
            SendSignal(dice.choice(numbers)),
            MarkReady(),
            Stop(grace_s=dice.choice((0.0, 0.02, 0.2)), deadline_s=dice.choice((0.0, 0.05, 5.0))),
        )
    )


def _brief(deed: Deed) -> str:
    return f"write {len(deed.data)} bytes" if isinstance(deed, WriteStdin) else str(deed)
