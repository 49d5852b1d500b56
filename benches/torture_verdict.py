"""What is wrong with what was heard of a child, and with what is left of all of them.

Owns: the order that notifications have to come in, what an exit may say, what counts as left behind.
Not here: doing anything to a child (`torture`).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from benches.torture_plan import Plan, Refused
from swactor_process import (
    ProcessChunk,
    ProcessExited,
    ProcessFileFailed,
    ProcessLines,
    ProcessOutput,
    ProcessReady,
    ProcessReadyOverdue,
    ProcessStarted,
    ProcessStillAlive,
    SpawnFailed,
)
from swactor_process.events import SubprocessSpawnFailed

LETTERS: dict[type[object], str] = {
    ProcessStarted: "s",
    ProcessLines: "o",
    ProcessOutput: "o",
    ProcessChunk: "o",
    ProcessReady: "r",
    ProcessReadyOverdue: "r",
    ProcessFileFailed: "o",
    ProcessStillAlive: "a",
    ProcessExited: "x",
    SpawnFailed: "f",
}
LAST = "xf"
WHOLE = re.compile(r"s[oa]*(r[oa]*)?x|f")
"""All that an owner may hear, each notification a letter."""
BEGUN = re.compile(r"(s([oa]*(r[oa]*)?x?)?|f)?")
"""The same of an owner that ended meanwhile."""


class Case:
    """One child: what was planned, and what was heard of it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.faults: list[str] = []
        """What was wrong already while it lived."""
        self._owner_heard = self._others_heard = ""
        self._ids: set[str] = set()
        self._exit: ProcessExited | None = None
        self._last_word, self._owner_knows = anyio.Event(), anyio.Event()

    def owner_hears(self, message: Any) -> None:
        """The owner was told ``message``."""
        letter = LETTERS.get(type(message), "?")
        self._owner_heard += letter
        self._ids.add(message.spawn_id)
        if letter in LAST:
            self._owner_knows.set()

    def watcher_hears(self, message: ProcessStarted | ProcessExited) -> None:
        """A watcher was told ``message``."""
        self._others_heard += LETTERS[type(message)]
        self._ids.add(message.spawn_id)
        if isinstance(message, ProcessExited):
            self._exit = message
            self._last_word.set()

    def observer_hears(self, refusal: SubprocessSpawnFailed) -> None:
        """There was an event."""
        self._others_heard += "f"
        self._ids.add(refusal.spawn_id)
        self._last_word.set()

    async def wait_over(self) -> None:
        """Return when everybody who lives to hear it has heard the last word."""
        await self._last_word.wait()
        if self.plan.spares_owner:
            await self._owner_knows.wait()

    @property
    def is_exited(self) -> bool:
        """Whether it ran, and ended."""
        return self._exit is not None

    @property
    def is_refused(self) -> bool:
        """Whether it was not started."""
        return "f" in self._others_heard

    def judge(self) -> Iterator[str]:
        """Return all that should not be."""
        yield from self.faults
        wanted = {"f"} if isinstance(self.plan.behaviour, Refused) else {"sx"}
        if self._others_heard not in wanted | ({"f"} if self.plan.may_be_refused else set()):
            yield f"watchers and observers heard {self._others_heard!r}"
        if not (WHOLE if self.plan.spares_owner else BEGUN).fullmatch(self._owner_heard):
            yield f"the owner heard {self._owner_heard!r}"
        if len(self._ids) != 1:
            yield f"one start has several ids: {sorted(self._ids)}"
        if self._exit is not None:
            yield from self._judge_exit(self._exit)

    def _judge_exit(self, exited: ProcessExited) -> Iterator[str]:
        said = (exited.exit_code, exited.signal)
        if exited.status_lost or said.count(None) != 1:
            yield f"neither a code nor a signal, or both: {exited}"
        if self.plan.end is not None and said != self.plan.end:
            yield f"ended with {said}, not {self.plan.end}"
        if self.plan.end is not None and (exited.asked_for or exited.escalated):
            yield f"nobody asked for this end: {exited}"


@dataclass(frozen=True)
class Resources:
    """What this process holds, threads that it had before the run not counted."""

    descriptors: int
    threads: int
    tasks: int
    actors: int

    @classmethod
    def now(cls, *, tasks: int, actors: int, other_threads: set[int]) -> "Resources":
        """Count them."""
        return cls(
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            threads=len(own_threads() - other_threads),
            tasks=tasks,
            actors=actors,
        )


def own_threads() -> set[int]:
    """Return the threads of this process."""
    return {int(folder.name) for folder in Path("/proc/self/task").iterdir()}


def own_children() -> set[int]:
    """Return the process ids that the kernel lists as ours, zombies among them."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for each in lists for pid in each.read_text().split()}


def marked(mark: str) -> list[int]:
    """Return the living processes that have ``mark`` in their environment: children and what they started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue  # gone, a zombie, or somebody else's
    return found
