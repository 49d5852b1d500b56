"""Ways to own a child process in an actor: the driver, and the least that an actor could do.

Owns: `Driver`, `DriverInBatches`, `DriverInChunks`, `Floor`. Not here: the ways without actors (`children`).
"""

import asyncio
import os
import signal
from asyncio import Future
from collections.abc import Callable
from typing import Any

from benches.children import LOADED_S, READ_BYTES, Command, Limit, StartCost, Way, now
from swactor import Actor, ActorRef, ActorSystem, Context, MailboxPolicy
from swactor_process import (
    Chunks,
    Lines,
    LinuxSpawner,
    Null,
    Output,
    ProcessChunk,
    ProcessExited,
    ProcessLines,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    SpawnFailed,
    Stop,
    spawn_process,
)


class _Request:
    """To the owner: start this; ``told`` is called with the last notification."""

    def __init__(self, spec: ProcessSpec, told: Callable[[object], None]) -> None:
        self.spec, self.told = spec, told
        self.started: Future[ProcessStarted] = asyncio.get_running_loop().create_future()


class Owner(Actor[Any]):
    """Owns one process after the other."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self._request: _Request | None = None
        self.lines = 0

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        match message:
            case ProcessOutput() | ProcessChunk():
                pass
            case ProcessLines():
                self.lines += len(message.lines)
            case ProcessExited() | SpawnFailed() if self._request is not None:
                self._request.told(message)
            case ProcessStarted() if self._request is not None:
                self._request.started.set_result(message)
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
        started, ended = await self._loaded(command)
        began_s = now()
        os.killpg(started.pid, signal.SIGKILL)
        return await ended - began_s

    async def stop(self, command: Command) -> float:
        started, ended = await self._loaded(command)
        began_s = now()
        started.process.tell(Stop(grace_s=0.0))
        return await ended - began_s

    async def _loaded(self, command: Command) -> tuple[ProcessStarted, Future[float]]:
        """Start it; return also when its end will have been told."""
        ended: Future[float] = asyncio.get_running_loop().create_future()
        request = _Request(_spec(command), lambda _: ended.set_result(now()))
        self._owner.tell(request)
        started = await request.started
        await asyncio.sleep(LOADED_S)
        return started, ended

    async def read(self, command: Command) -> float:
        ended: Future[object] = asyncio.get_running_loop().create_future()
        began_s = now()
        self._owner.tell(_Request(_spec(command, stdout=self.stdout), ended.set_result))
        last = await ended
        took_s = now() - began_s
        if not isinstance(last, ProcessExited) or last.dropped_lines or not last.eof_reached:
            raise RuntimeError(f"not all of the output was read: {last}")
        return took_s


class DriverInBatches(Driver):
    """The same; the lines that came together are told together."""

    key, title = "batches", "swactor_process, Lines(batched)"
    stdout = Lines(batched=True)


class DriverInChunks(Driver):
    """The same; output comes as it was read."""

    key, title = "chunks", "swactor_process, Chunks"
    stdout = Chunks()


class Bare(Actor[str]):
    """Does with a child what the limit does, and tells its owner: an actor without any of the driver."""

    pid: int

    def __init__(self, command: Command, *, streams: bool, owner: ActorRef[Any]) -> None:
        self._command, self._streams, self._owner = command, streams, owner

    def on_start(self, ctx: Context[str]) -> None:
        def notice() -> None:
            Limit.reap(child)
            Limit.forget(child, pidfd)
            self._owner.tell("exited")
            ctx.stop()

        child, pidfd = Limit.watched(self._command, notice, streams=self._streams)
        self.pid = child.pid
        self._owner.tell((self, ctx.ref))

    def on_message(self, ctx: Context[str], message: str) -> object:
        os.killpg(self.pid, signal.SIGKILL)
        return None


class BareOwner(Actor[Any]):
    """Owns one bare child after the other."""

    started: Future[tuple[Bare, ActorRef[str]]]
    told: Callable[[], None]

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        match message:
            case bytes():
                pass
            case "exited":
                self.told()
            case (Bare(), _):
                self.started.set_result(message)
            case (command, streams):
                ctx.spawn(Bare(command, streams=streams, owner=ctx.ref))
        return None


class Floor(Way):
    """What two actors cost that do no more than the limit: no driver can be below."""

    key, title = "floor", "floor: the limit in an actor"

    async def open(self) -> None:
        self._system = await ActorSystem().__aenter__()
        self._owner = BareOwner()
        room = MailboxPolicy(capacity=1_000_000)
        self._ref: ActorRef[Any] = await self._system.spawn(self._owner, mailbox=room)

    async def close(self) -> None:
        await self._system.__aexit__(None, None, None)

    async def start(self, command: Command, *, streams: bool) -> StartCost:
        loop = asyncio.get_running_loop()
        ended: Future[StartCost] = loop.create_future()
        self._owner.started = loop.create_future()
        self._owner.told = lambda: ended.set_result(self._cost(began_s))
        self._meter.reset()
        began_s = now()
        self._ref.tell((command, streams))
        return await ended

    async def read(self, command: Command) -> float:
        """Read, cut into lines, and tell each line to an actor, as it is: no driver has less to do a line."""
        loop = asyncio.get_running_loop()
        ended: Future[float] = loop.create_future()
        self._owner.told = lambda: ended.set_result(now() - began_s)

        def read() -> None:
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return
            for line in data.split(b"\n"):
                self._ref.tell(line)
            if not data:
                loop.remove_reader(descriptor)
                self._ref.tell("exited")

        began_s = now()
        child, descriptor = Limit.writing(command)
        loop.add_reader(descriptor, read)
        took_s = await ended
        os.close(descriptor)
        Limit.reap(child)
        return took_s

    async def kill(self, command: Command) -> float:
        bare, _, ended = await self._loaded(command)
        began_s = now()
        os.killpg(bare.pid, signal.SIGKILL)
        return await ended - began_s

    async def stop(self, command: Command) -> float:
        _, process, ended = await self._loaded(command)
        began_s = now()
        process.tell("kill")
        return await ended - began_s

    async def _loaded(self, command: Command) -> tuple[Bare, ActorRef[str], Future[float]]:
        loop = asyncio.get_running_loop()
        ended: Future[float] = loop.create_future()
        self._owner.started = loop.create_future()
        self._owner.told = lambda: ended.set_result(now())
        self._ref.tell((command, True))
        bare, process = await self._owner.started
        await asyncio.sleep(LOADED_S)
        return bare, process, ended


def _spec(command: Command, **changes: Any) -> ProcessSpec:
    return ProcessSpec(program=command[0], args=tuple(command[1:]), **{"label": "bench", **changes})
