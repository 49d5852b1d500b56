"""A node with real children: what a test of the driver looks at from outside."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from swactor import Actor, ActorRef, ActorSystem, Context
from swactor_process import (
    LinuxSpawner,
    PortableSpawner,
    ProcessCommand,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    SpawnFailed,
    spawn_process,
)

N = TypeVar("N")
ROOT = Path(__file__).parent.parent.parent
CHILDREN = ROOT / "tests" / "fixtures" / "children"


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Run every test here on each event loop."""
    return every_backend


async def eventually(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait for something that gives no sign of its own."""
    with anyio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110 - the kernel sends no event for these
            await anyio.sleep(0.005)


def sh(script: str, **changes: Any) -> ProcessSpec:
    """Return a spec for a shell script."""
    return ProcessSpec(program="sh", args=("-c", script), **{"label": "child", **changes})


def python(program: str, *args: str, **changes: Any) -> ProcessSpec:
    """Return a spec for one of our own programs; it finds the packages of this source tree."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = (str(CHILDREN / program), *args)
    return ProcessSpec(program=sys.executable, args=arguments, env=env, **{"label": "child", **changes})


def is_alive(pid: int) -> bool:
    """Whether ``pid`` runs; a dead process that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


class Owned:
    """One owned process, and what its owner has heard of it."""

    def __init__(self) -> None:
        self.process: ActorRef[ProcessCommand]
        self.heard: list[Any] = []
        self._changed = anyio.Event()

    def hear(self, notification: Any) -> None:
        self.heard.append(notification)
        self._changed.set()
        self._changed = anyio.Event()

    def all(self, kind: type[N]) -> list[N]:
        return [notification for notification in self.heard if isinstance(notification, kind)]

    async def first(self, kind: type[N], *, timeout_s: float = 10.0) -> N:
        """Wait for the first notification of ``kind``."""
        with anyio.fail_after(timeout_s):
            while not self.all(kind):
                await self._changed.wait()
        return self.all(kind)[0]

    async def started(self) -> ProcessStarted:
        return await self.first(ProcessStarted)

    async def exited(self) -> ProcessExited:
        return await self.first(ProcessExited)

    async def failed(self) -> SpawnFailed:
        return await self.first(SpawnFailed)

    async def line(self, text: str) -> None:
        """Wait until the child has written ``text`` as a line."""
        with anyio.fail_after(10):
            while text not in self.lines():
                await self._changed.wait()

    def lines(self) -> list[str]:
        return [output.text for output in self.all(ProcessOutput)]


class Owner(Actor[Any]):
    """Owns one process and takes note of what it hears."""

    def __init__(
        self, owned: Owned, spec: ProcessSpec, spawner: Spawner, watchers: tuple[ActorRef[Any], ...]
    ):
        self._owned, self._spec, self._spawner, self._watchers = owned, spec, spawner, watchers

    def on_start(self, ctx: Context[Any]) -> None:
        self._owned.process = spawn_process(ctx, self._spec, spawner=self._spawner, watchers=self._watchers)

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        self._owned.hear(message)


class Node:
    """An actor system and a spawner of real children."""

    def __init__(self, system: ActorSystem, spawner: LinuxSpawner | PortableSpawner) -> None:
        self.system, self.spawner = system, spawner
        self.owners: dict[Owned, ActorRef[Any]] = {}

    async def start(self, spec: ProcessSpec, *, watchers: tuple[ActorRef[Any], ...] = ()) -> Owned:
        """Start ``spec`` with an owner of its own."""
        owned = Owned()
        self.owners[owned] = await self.system.spawn(Owner(owned, spec, self.spawner, watchers))
        return owned

    async def gone(self, owned: Owned) -> None:
        """Wait until ``owned`` has exited and nothing of it is open any more; its owner ends with it."""
        await owned.exited()
        await self.system.stop_actor(self.owners[owned])

    def own_children(self) -> list[int]:
        """Return the process ids the kernel lists as ours, without the orphan guard."""
        text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
        return [int(pid) for pid in text.split() if int(pid) != self.spawner.guardian_pid]


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with ActorSystem() as system:
        with LinuxSpawner(system.loop) as spawner:
            yield Node(system, spawner)
            await system.shutdown()


@asynccontextmanager
async def standard_streams_closed() -> AsyncIterator[None]:
    """Be a process that was started without them: what it opens gets their numbers, and has to close them."""
    saved = [os.dup(number) for number in range(3)]
    for number in range(3):
        os.close(number)
    try:
        yield
        await eventually(lambda: not any(_is_open(number) for number in range(3)))
    finally:
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
