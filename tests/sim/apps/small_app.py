"""A small application for tests of the world: an actor that owns one worker, with diagnostics."""

from collections.abc import Mapping

import anyio

from swactor import Actor, ActorRef, ActorSystem, Context
from swactor_diag.identity import identity_from_env
from swactor_diag.ports import Ports
from swactor_diag.supervisor import Diagnostics
from swactor_process import (
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    WriteStdin,
    spawn_process,
)
from swactor_process.testing import Say, Script


class Tick:
    """Time to ask the worker."""


class Owner(Actor[object]):
    """Asks its worker something every second."""

    def __init__(self, spawner: Spawner, subprocesses: ActorRef[object]) -> None:
        self._spawner, self._subprocesses = spawner, subprocesses
        self._worker: ActorRef[object] | None = None
        self._answers = 0

    def on_start(self, ctx: Context[object]) -> None:
        spec = ProcessSpec(program="worker", label="worker", args=("--slow",))
        self._worker = spawn_process(ctx, spec, spawner=self._spawner)  # type: ignore[assignment]  # told bytes only
        ctx.send_every(1.0, Tick())

    def on_message(self, ctx: Context[object], message: object) -> None:
        match message:
            case ProcessStarted() | ProcessExited():
                self._subprocesses.tell(message)
            case ProcessOutput():
                self._answers += 1
            case Tick() if self._worker is not None:
                self._worker.tell(WriteStdin(b"question\n"))


def worker(spec: ProcessSpec) -> Script:
    return Script(
        begin=(Say(b"ready\n", after_s=0.5),), on_line=lambda line: (Say(line + b"!\n", after_s=0.25),)
    )


async def boot(ports: Ports, config: Mapping[str, object]) -> None:
    """Run until killed, or for ``config["seconds"]``."""
    assert ports.transport is not None
    async with ActorSystem(clock=ports.clock, random=ports.random) as system:
        identity = identity_from_env(
            ports.environ,
            ports.transport.node_id,
            clock=ports.clock,
            boot_id=ports.random.stream("boot").token(8).hex(),
            machine=ports.machine,
        )
        diagnostics = await Diagnostics.from_ports(system, identity, ports=ports)
        await ports.transport.start(lambda connection: connection.close(0, ""))
        spawner = ports.spawner(system.loop)
        await system.spawn(Owner(spawner, diagnostics.subprocesses), name="owner")
        seconds = config.get("seconds")
        if isinstance(seconds, int):
            await anyio.sleep(seconds)
            await diagnostics.finalize("done")
        else:
            await anyio.sleep_forever()


async def stubborn(ports: Ports, config: Mapping[str, object]) -> None:
    """A node that would like to say goodbye when it is killed."""
    assert ports.transport is not None
    async with ActorSystem(clock=ports.clock, random=ports.random) as system:
        node_id = ports.transport.node_id
        identity = identity_from_env(ports.environ, node_id, clock=ports.clock, boot_id="boot")
        diagnostics = await Diagnostics.from_ports(system, identity, ports=ports)
        await ports.transport.start(lambda connection: connection.close(0, ""))
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await diagnostics.finalize("killed")
                await ports.transport.close()


async def fail(ports: Ports, config: Mapping[str, object]) -> None:
    """A node that cannot boot."""
    await anyio.sleep(1)
    raise RuntimeError("no such model")


async def leak(ports: Ports, config: Mapping[str, object]) -> None:
    """A node that looks at the real clock."""
    import time

    time.time()
