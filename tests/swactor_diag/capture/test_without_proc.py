"""A node on a machine that says nothing: a full snapshot with absences and reasons, and no error."""

import os
import sys
from pathlib import Path

import anyio
from msgspec import UNSET

from swactor import Actor, ActorRef, ActorSystem, Context, Event, SystemClock, SystemRandom
from swactor_diag.identity import MachineFacts
from swactor_diag.introspect import LinuxProc
from swactor_diag.ports import Ports
from swactor_diag.schema.blocks import (
    ActorsBlock,
    IntrospectionOutcome,
    ProcessBlock,
    SubprocessBlock,
    SubprocessStatus,
)
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.events import Error
from swactor_diag.supervisor import Diagnostics
from swactor_process import LinuxSpawner, ProcessSpec, ProcessStarted, spawn_process


class Owner(Actor[object]):
    """Owns a child until it is stopped."""

    def __init__(self, spawner: LinuxSpawner, subprocesses: ActorRef[object]) -> None:
        self._spawner = spawner
        self._subprocesses = subprocesses
        self.started = anyio.Event()

    def on_start(self, ctx: Context[object]) -> None:
        waits = ProcessSpec(program=sys.executable, args=("-c", "input()"), label="worker")
        spawn_process(ctx, waits, spawner=self._spawner)

    def on_message(self, ctx: Context[object], message: object) -> None:
        if isinstance(message, ProcessStarted):
            self._subprocesses.tell(message)
            self.started.set()


class Heard:
    """An Observer that keeps the errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def observe(self, event: Event) -> None:
        if isinstance(event, Error):
            self.errors.append(event.message)


async def test_fc034_an_empty_proc_root_gives_absences_with_reasons_and_one_diagnostic(
    identity: Identity, tmp_path: Path
) -> None:
    nothing = LinuxProc(str(tmp_path))
    ports = Ports(
        clock=SystemClock(),
        random=SystemRandom(),
        spawner=LinuxSpawner,
        proc=nothing,
        machine=MachineFacts(pid=os.getpid()),
    )
    heard = Heard()
    async with ActorSystem() as system:
        system.attach(heard)
        diag = await Diagnostics.from_ports(system, identity, ports=ports)
        spawner = LinuxSpawner(system.loop)
        owner = Owner(spawner, diag.subprocesses)
        await system.spawn(owner)
        await owner.started.wait()
        snapshots = [await diag.snapshot() for _ in range(3)]
    spawner.close()
    body = snapshots[-1].body
    outcomes = {row.name: row.outcome for row in body.introspectors}
    assert IntrospectionOutcome.FAILED not in outcomes.values()
    assert outcomes["host.network"] is IntrospectionOutcome.NO_DATA
    assert isinstance(body.actors, ActorsBlock)
    assert isinstance(body.process, ProcessBlock)
    assert (body.process.rss_bytes, body.process.cpu_ms, body.process.open_fd_count) == (UNSET,) * 3
    assert body.process.reasons == ("stat: no such file",)
    assert isinstance(body.subprocess, SubprocessBlock)
    (child,) = body.subprocess.subprocesses
    assert (child.status, child.reasons, child.rss_bytes) == (SubprocessStatus.UNKNOWN, ("no_proc",), UNSET)
    assert heard.errors == ["there is no /proc here"]
    assert all(snapshot.problems == () for snapshot in snapshots)
