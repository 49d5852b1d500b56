"""Starts that come to nothing, though not for the kernel: all hear of it, and nothing is left of them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from swactor import ActorRef, ActorSystem, Context, Down, ExitKind
from swactor_process import (
    LinuxSpawner,
    PortableSpawner,
    ProcessCommand,
    ProcessExited,
    ProcessSpec,
    ProcessStarted,
    SpawnFailed,
    SpawnRole,
    Stop,
    _launch,
    _real_child,
)
from swactor_process._children_file import ChildrenFile
from swactor_process._refusals import explain
from swactor_process._start import ChildPipes
from swactor_process.guardian import Guardian
from swactor_process.spawner import ChildListener
from swactor_process.testing import Script, ScriptedSpawner
from tests.descriptors import open_descriptors

from .conftest import Node, Owned, Owner, eventually, sh


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem() as running:
        yield running


class Defective(ScriptedSpawner):
    """Its author did not think of everything."""

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> Any:
        raise ValueError(f"cannot place {spec.label}")


class Monitor(Owner):
    """Is told how the process actor ends, instead of failing with it."""

    def on_start(self, ctx: Context[Any]) -> None:
        super().on_start(ctx)
        ctx.monitor(self._owned.process)


async def test_a_spawner_that_fails_fails_the_actor(system: ActorSystem) -> None:
    owned = Owned()
    spawner = Defective(system.loop, system.clock, programs={})
    await system.spawn(Monitor(owned, sh("true", label="it"), spawner, ()))

    down = await owned.first(Down)

    assert (down.ref, down.reason.kind) == (owned.process, ExitKind.FAILED)
    assert "cannot place it" in str(down.reason)
    (failed,) = owned.all(SpawnFailed)
    assert (failed.role, failed.errno_name) == (SpawnRole.UNKNOWN, "UNKNOWN")
    assert "ValueError: cannot place it" in failed.message


@pytest.mark.parametrize("kind", [LinuxSpawner, PortableSpawner])
async def test_a_launch_whose_report_cannot_be_explained_is_over_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch, kind: type[LinuxSpawner | PortableSpawner]
) -> None:
    monkeypatch.setattr(_launch, "explain", _breaking(explain, calls=1))
    with kind(node.system.loop) as spawner:
        inner = Node(node.system, spawner)
        owned = await inner.start(ProcessSpec(program="no-such-program", label="x", start_timeout_s=60.0))

        failed = await owned.failed()

        assert owned.heard == [failed]
        assert (failed.role, failed.path) == (SpawnRole.UNKNOWN, "no-such-program")
        assert "RuntimeError: an error of ours" in failed.message
        assert inner.own_children() == []


class Begin:
    """Start the process now."""


class Hasty(Owner):
    """Does not want it any more in the turn in which it has asked for it."""

    def on_start(self, ctx: Context[Any]) -> None:
        """Wait for the word to begin: it comes in a turn."""

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        super().on_message(ctx, message)
        if isinstance(message, Begin):
            super().on_start(ctx)
            self._owned.process.tell(Stop())


async def test_what_is_stopped_before_its_start_is_not_started(system: ActorSystem) -> None:
    starts: list[ProcessSpec] = []

    def program(spec: ProcessSpec) -> Script:
        starts.append(spec)
        return Script()

    spawner = ScriptedSpawner(system.loop, system.clock, programs={"p": program})
    owned = Owned()
    owner = await system.spawn(Hasty(owned, ProcessSpec(program="p", label="it"), spawner, ()))

    owner.tell(Begin())
    failed = await owned.failed()
    await system.shutdown()

    assert (failed.role, failed.errno_name) == (SpawnRole.STOPPED, "ECANCELED")
    assert starts == []


class Deaf:
    """A watcher that cannot be told anything, as one on another node."""

    def tell(self, message: object) -> None:
        raise TypeError(f"{type(message).__name__} stays within a node")


async def test_a_last_word_that_cannot_be_said_fails_the_actor_and_leaves_nothing_open(node: Node) -> None:
    await node.gone(await node.start(sh("exit 0")))  # with the first comes the guard
    descriptors = open_descriptors()
    owned = Owned()
    deaf = cast("ActorRef[Any]", Deaf())
    monitor = await node.system.spawn(Monitor(owned, sh("exit 0"), node.spawner, (deaf,)))

    down = await owned.first(Down)

    assert down.reason.kind is ExitKind.FAILED
    assert "stays within a node" in str(down.reason)
    await node.system.stop_actor(monitor)
    await eventually(lambda: open_descriptors() == descriptors)


class Impatient(ScriptedSpawner):
    """While it starts a child, the owner of that changes its mind."""

    process: ActorRef[ProcessCommand]

    def spawn(self, spec: ProcessSpec, listener: ChildListener) -> Any:
        self.process.tell(Stop())
        return super().spawn(spec, listener)


async def test_what_is_stopped_at_the_moment_of_its_start_was_started(system: ActorSystem) -> None:
    spawner = Impatient(system.loop, system.clock, programs={"p": lambda _: Script()})
    owned = Owned()
    await system.spawn(Owner(owned, ProcessSpec(program="p", label="it"), spawner, ()))
    spawner.process = owned.process

    exited = await owned.exited()

    assert [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessExited]
    assert exited.asked_for


@pytest.mark.parametrize("kind", [LinuxSpawner, PortableSpawner])
@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param((ChildPipes, "start"), id="the start"),
        pytest.param((Guardian, "guard"), id="the guard"),
        pytest.param((ChildrenFile, "add"), id="the children file"),
        pytest.param((_real_child, "PipeReader"), id="the second pipe"),
        pytest.param((_real_child.RealChild, "take"), id="all of it"),
    ],
)
async def test_a_start_that_breaks_leaves_no_child_and_no_descriptor(
    node: Node,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[LinuxSpawner | PortableSpawner],
    breaks: tuple[Any, str],
) -> None:
    """Not by an error of the system, which is a refusal: by one of ours."""
    with kind(node.system.loop, children_file=tmp_path / "children") as spawner:
        part, name = breaks
        inner = Node(node.system, spawner)
        await inner.gone(await inner.start(sh("true", stdin=True)))
        descriptors = open_descriptors()
        monkeypatch.setattr(
            part, name, _breaking(getattr(part, name), calls=2 if name == "PipeReader" else 1)
        )

        with pytest.raises(RuntimeError, match="ours"):
            spawner.spawn(sh("exec sleep 60", stdin=True), cast("ChildListener", None))

        assert inner.own_children() == []
        assert open_descriptors() == descriptors
        monkeypatch.undo()


def _breaking(function: Callable[..., Any], *, calls: int) -> Callable[..., Any]:
    """Return ``function``, of which the last of ``calls`` raises."""
    numbers = iter(range(1, calls + 1))

    def broken(*args: Any, **options: Any) -> Any:
        if next(numbers) == calls:
            raise RuntimeError("an error of ours")
        return function(*args, **options)

    return broken
