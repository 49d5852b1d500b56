"""Ways to own a child process, all doing the same: the kernel's own calls, and what libraries make of them.

Owns: what a start, a kill and a read are, and what of each is timed.
Not here: the ways of actors (`owners`), what is compared (`process`).
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
from typing import NamedTuple

import anyio

READ_BYTES = 65_536
LOADED_S = 0.005
"""After so long a program that was started runs."""
now = time.perf_counter
Command = Sequence[str]


class Meter(DefaultSelector):
    """The selector of the event loop, which sees how long the loop does not look for events, while it is on.

    It is to be off where something else is timed: a way with more turns of the loop would pay for more looks.
    """

    is_on = True

    def __init__(self) -> None:
        super().__init__()
        self._began_s = now()
        self.longest_s = self.busy_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if not self.is_on:
            return super().select(timeout)
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
        """Start something that stays, kill it with a system call; return the seconds until the news."""

    async def stop(self, command: Command) -> float:
        """The same by whoever looks after it; without anybody, as above."""
        return await self.kill(command)

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
            self.reap(child)
            ended.set_result(self._cost(began_s))

        self._meter.reset()
        began_s = now()
        child, pidfd = self.watched(command, notice, streams=streams)
        cost = await ended
        self.forget(child, pidfd)
        return cost

    async def kill(self, command: Command) -> float:
        ended: Future[float] = asyncio.get_running_loop().create_future()

        def notice() -> None:
            self.reap(child)
            ended.set_result(now() - began_s)

        child, pidfd = self.watched(command, notice, streams=True)
        await asyncio.sleep(LOADED_S)
        began_s = now()
        os.killpg(child.pid, signal.SIGKILL)
        took_s = await ended
        self.forget(child, pidfd)
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
        child, descriptor = self.writing(command)
        loop.add_reader(descriptor, read)
        took_s = await ended
        os.close(descriptor)
        self.reap(child)
        return took_s

    @staticmethod
    def writing(command: Command) -> tuple[subprocess.Popen[bytes], int]:
        """Start; return the child and the end of the pipe that it writes to."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        child = subprocess.Popen(command, stdout=writing, start_new_session=True)
        os.close(writing)
        return child, reading

    @staticmethod
    def watched(
        command: Command, notice: Callable[[], None], *, streams: bool
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Start; return the child and its pidfd, on which ``notice`` is called."""
        where = subprocess.PIPE if streams else subprocess.DEVNULL
        child = subprocess.Popen(
            command, stdin=where, stdout=where, stderr=where, bufsize=0, start_new_session=True
        )
        pidfd = os.pidfd_open(child.pid)
        asyncio.get_running_loop().add_reader(pidfd, notice)
        return child, pidfd

    @staticmethod
    def reap(child: subprocess.Popen[bytes]) -> None:
        """Have the kernel forget a child that has ended."""
        os.waitid(os.P_PID, child.pid, os.WEXITED)
        child.returncode = 0  # tells Popen that there is nothing to wait for

    @staticmethod
    def forget(child: subprocess.Popen[bytes], pidfd: int) -> None:
        """Close everything."""
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


class LimitByLine(Limit):
    """A bare read loop that cuts what it read into lines, and does nothing with them."""

    key, title = "lines", "the same, cut into lines"
    cuts_lines = True


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
        await asyncio.sleep(LOADED_S)
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
        await asyncio.sleep(LOADED_S)
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
