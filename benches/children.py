"""Ways to own a child process, all doing the same: the kernel's own calls, the driver, and its alternatives.

Owns: what a start, a kill and a read are, and what of each is timed. Not here: what is compared (`process`).
A time ends when the code of an author would be told, an actor's handler or what awaits the process.
"""

import asyncio
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Sequence
from selectors import DefaultSelector, SelectorKey
from typing import Any, NamedTuple

import anyio

from swactor import Actor, ActorRef, ActorSystem, Context, MailboxPolicy
from swactor_process import (
    Chunks,
    Lines,
    LinuxSpawner,
    Null,
    Output,
    ProcessChunk,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    SpawnFailed,
    Stop,
    spawn_process,
)

READ_BYTES = 65_536
now = time.perf_counter
Command = Sequence[str]


class Meter(DefaultSelector):
    """The selector of the event loop, which sees how long the loop does not look for events."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s = now()
        self.longest_s = self.busy_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        self._turn_over()
        try:
            return super().select(timeout)
        finally:
            self._began_s = now()

    def _turn_over(self) -> None:
        held_s = now() - self._began_s
        self.busy_s += held_s
        self.longest_s = max(self.longest_s, held_s)

    def reset(self) -> None:
        """Count from here on."""
        self._began_s = now()
        self.longest_s = self.busy_s = 0.0

    def taken(self) -> tuple[float, float]:
        """Return the longest turn and all turns together, in seconds, up to here."""
        self._turn_over()
        return self.longest_s, self.busy_s


class StartCost(NamedTuple):
    """What one start of a child that ends at once takes, in seconds."""

    held_s: float
    """The longest that the loop did not look for events, from the request to the news of the exit."""
    busy_s: float
    """All that the loop was busy in between."""
    told_s: float
    """From the request to the news of the exit."""


class Way(ABC):
    """One way to own a child process; ``streams``: with three pipes, or without any."""

    key: str
    title: str

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    async def open(self) -> None:  # noqa: B027 - most need nothing
        """Get ready."""

    async def close(self) -> None:  # noqa: B027 - most need nothing
        """Tidy up."""

    @abstractmethod
    async def start(self, command: Command, *, streams: bool) -> StartCost:
        """Start something that ends at once, and wait for the news."""

    @abstractmethod
    async def kill(self, command: Command) -> float:
        """Start something that stays, kill it; return the seconds from the request to the news."""

    async def read(self, command: Command) -> float:
        """Read all that ``command`` writes; return the seconds from the start to the last byte.

        Raises:
            NotImplementedError: this way does not take part in that.
        """
        raise NotImplementedError

    def _cost(self, began_s: float) -> StartCost:
        told_s = now() - began_s
        held_s, busy_s = self._meter.taken()
        return StartCost(held_s, busy_s, told_s)


class Limit(Way):
    """The least: ``Popen``, a pidfd and a callback. Nobody is told anything, nothing is guarded."""

    key, title = "limit", "limit: Popen, pidfd"
    cuts_lines = False

    async def start(self, command: Command, *, streams: bool) -> StartCost:
        ended: Future[StartCost] = asyncio.get_running_loop().create_future()

        def notice() -> None:
            self._reap(child)
            ended.set_result(self._cost(began_s))

        self._meter.reset()
        began_s = now()
        child, pidfd = self._watched(command, notice, streams=streams)
        cost = await ended
        self._forget(child, pidfd)
        return cost

    async def kill(self, command: Command) -> float:
        ended: Future[float] = asyncio.get_running_loop().create_future()

        def notice() -> None:
            self._reap(child)
            ended.set_result(now() - began_s)

        child, pidfd = self._watched(command, notice, streams=True)
        await asyncio.sleep(0.005)
        began_s = now()
        os.killpg(child.pid, signal.SIGKILL)
        took_s = await ended
        self._forget(child, pidfd)
        return took_s

    async def read(self, command: Command) -> float:
        loop = asyncio.get_running_loop()
        ended: Future[float] = loop.create_future()
        lines = 0

        def read() -> None:
            nonlocal lines
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                loop.remove_reader(descriptor)
                ended.set_result(now() - began_s)
            elif self.cuts_lines:
                lines += len(data.split(b"\n"))

        began_s = now()
        child, descriptor = self._writing(command)
        loop.add_reader(descriptor, read)
        took_s = await ended
        os.close(descriptor)
        self._reap(child)
        return took_s

    @staticmethod
    def _writing(command: Command) -> tuple[subprocess.Popen[bytes], int]:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        child = subprocess.Popen(command, stdout=writing, start_new_session=True)
        os.close(writing)
        return child, reading

    @staticmethod
    def _watched(
        command: Command, notice: Callable[[], None], *, streams: bool
    ) -> tuple[subprocess.Popen[bytes], int]:
        where = subprocess.PIPE if streams else subprocess.DEVNULL
        child = subprocess.Popen(
            command, stdin=where, stdout=where, stderr=where, bufsize=0, start_new_session=True
        )
        pidfd = os.pidfd_open(child.pid)
        asyncio.get_running_loop().add_reader(pidfd, notice)
        return child, pidfd

    @staticmethod
    def _reap(child: subprocess.Popen[bytes]) -> None:
        os.waitid(os.P_PID, child.pid, os.WEXITED)
        child.returncode = 0  # tells Popen that there is nothing to wait for

    @staticmethod
    def _forget(child: subprocess.Popen[bytes], pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


class LimitByLine(Limit):
    """A bare read loop that cuts what it read into lines, and does nothing with them."""

    key, title = "lines", "the same, cut into lines"
    cuts_lines = True


class _Request:
    """To the owner: start this; ``told`` is called with the last notification."""

    def __init__(self, spec: ProcessSpec, told: Callable[[object], None]) -> None:
        self.spec, self.told = spec, told
        self.started: Future[ActorRef[Any]] = asyncio.get_running_loop().create_future()


class Owner(Actor[Any]):
    """Owns one process after the other."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self._request: _Request | None = None

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        match message:
            case ProcessOutput() | ProcessChunk():
                pass
            case ProcessExited() | SpawnFailed() if self._request is not None:
                self._request.told(message)
            case ProcessStarted() if self._request is not None:
                self._request.started.set_result(message.process)
            case _Request():
                self._request = message
                spawn_process(ctx, message.spec, spawner=self._spawner)
        return None


class Driver(Way):
    """``spawn_process`` in an actor, with real children."""

    key, title = "driver", "swactor_process"
    stdout: Output = Lines()

    async def open(self) -> None:
        self._system = await ActorSystem().__aenter__()
        self._spawner = LinuxSpawner(self._system.loop)
        # Roomy, so that no output is dropped: that would be faster.
        room = MailboxPolicy(capacity=1_000_000)
        self._owner = await self._system.spawn(Owner(self._spawner), mailbox=room)

    async def close(self) -> None:
        await self._system.__aexit__(None, None, None)
        self._spawner.close()

    async def start(self, command: Command, *, streams: bool) -> StartCost:
        ended: Future[StartCost] = asyncio.get_running_loop().create_future()
        where = {} if streams else {"stdin": False, "stdout": Null(), "stderr": Null()}
        spec = _spec(command, **where)
        request = _Request(spec, lambda _: ended.set_result(self._cost(began_s)))
        self._meter.reset()
        began_s = now()
        self._owner.tell(request)
        return await ended

    async def kill(self, command: Command) -> float:
        ended: Future[float] = asyncio.get_running_loop().create_future()
        request = _Request(_spec(command), lambda _: ended.set_result(now() - began_s))
        self._owner.tell(request)
        process = await request.started
        await asyncio.sleep(0.005)
        began_s = now()
        process.tell(Stop(grace_s=0.0))
        return await ended

    async def read(self, command: Command) -> float:
        ended: Future[object] = asyncio.get_running_loop().create_future()
        began_s = now()
        self._owner.tell(_Request(_spec(command, stdout=self.stdout), ended.set_result))
        last = await ended
        took_s = now() - began_s
        if not isinstance(last, ProcessExited) or last.dropped_lines or not last.eof_reached:
            raise RuntimeError(f"not all of the output was read: {last}")
        return took_s


class DriverInChunks(Driver):
    """The same; output comes as it was read."""

    key, title = "chunks", "swactor_process, Chunks"
    stdout = Chunks()


class Asyncio(Way):
    """``asyncio.create_subprocess_exec``."""

    key, title = "asyncio", "asyncio exec"

    async def start(self, command: Command, *, streams: bool) -> StartCost:
        self._meter.reset()
        began_s = now()
        process = await self._started(command, streams=streams)
        await process.wait()
        cost = self._cost(began_s)
        await process.communicate()
        return cost

    async def kill(self, command: Command) -> float:
        process = await self._started(command, streams=True)
        await asyncio.sleep(0.005)
        began_s = now()
        process.kill()
        await process.wait()
        took_s = now() - began_s
        await process.communicate()
        return took_s

    async def read(self, command: Command) -> float:
        began_s = now()
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        while await process.stdout.readline():
            pass
        took_s = now() - began_s
        await process.wait()
        return took_s

    @staticmethod
    async def _started(command: Command, *, streams: bool) -> asyncio.subprocess.Process:
        where = subprocess.PIPE if streams else subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *command, stdin=where, stdout=where, stderr=where, start_new_session=True
        )


class Anyio(Way):
    """``anyio.open_process``."""

    key, title = "anyio", "anyio.open_process"

    async def start(self, command: Command, *, streams: bool) -> StartCost:
        self._meter.reset()
        began_s = now()
        process = await self._started(command, streams=streams)
        await process.wait()
        cost = self._cost(began_s)
        await process.aclose()
        return cost

    async def kill(self, command: Command) -> float:
        process = await self._started(command, streams=True)
        await asyncio.sleep(0.005)
        began_s = now()
        process.kill()
        await process.wait()
        took_s = now() - began_s
        await process.aclose()
        return took_s

    @staticmethod
    async def _started(command: Command, *, streams: bool) -> anyio.abc.Process:
        where = subprocess.PIPE if streams else subprocess.DEVNULL
        return await anyio.open_process(
            list(command), stdin=where, stdout=where, stderr=where, start_new_session=True
        )


def _spec(command: Command, **changes: Any) -> ProcessSpec:
    return ProcessSpec(program=command[0], args=tuple(command[1:]), **{"label": "bench", **changes})
