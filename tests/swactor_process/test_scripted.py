"""Scripted children: what only a script can play."""

import math
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from swactor import Actor, ActorSystem, Context, MailboxPolicy
from swactor_process import (
    CloseStdin,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    ProcessStillAlive,
    SpawnFailed,
    SpawnRole,
    Stop,
    WriteStdin,
    spawn_process,
)
from swactor_process.testing import (
    Exit,
    Program,
    Refusal,
    Say,
    Script,
    ScriptedSpawner,
    Step,
)

from .conftest import Owned, Owner, eventually


@pytest.fixture
async def system() -> AsyncIterator[ActorSystem]:
    async with ActorSystem() as running:
        yield running


async def own(system: ActorSystem, program: Program, **changes: Any) -> tuple[Owned, ScriptedSpawner]:
    """Start ``program`` with an owner of its own."""
    spawner = ScriptedSpawner(system.loop, system.clock, programs={"p": program})
    owned = Owned()
    spec = ProcessSpec(program="p", **{"label": "child", **changes})
    await system.spawn(Owner(owned, spec, spawner, ()))
    return owned, spawner


async def test_fc_024_stop_of_an_unkillable_child_answers_still_alive_and_its_exit_is_told_later(
    system: ActorSystem,
) -> None:
    fate = Exit(after_s=0.3, signal=signal.SIGKILL)
    owned, spawner = await own(system, lambda _: Script(begin=(fate,), unkillable=True))
    await owned.started()

    alive = await owned.process.ask(Stop(grace_s=0.01, deadline_s=0.05))

    assert isinstance(alive, ProcessStillAlive)
    assert (alive.pid, alive.kernel_state) == (spawner.living()[0].pid, "D")
    assert owned.all(ProcessExited) == []
    exited = await owned.exited()
    assert (exited.signal, exited.asked_for, exited.escalated) == (signal.SIGKILL, True, True)
    kinds = [type(heard) for heard in owned.heard]
    assert kinds == [ProcessStarted, ProcessStillAlive, ProcessExited]


async def test_fc_015_a_start_that_is_refused_for_a_moment_is_tried_again(system: ActorSystem) -> None:
    answers: list[Script | Refusal] = [
        Refusal(errno_name="EAGAIN", role=SpawnRole.LIMIT),
        Refusal(errno_name="EAGAIN", role=SpawnRole.LIMIT),
        Script(begin=(Exit(3),)),
    ]
    owned, _ = await own(system, lambda _: answers.pop(0))

    assert (await owned.exited()).exit_code == 3
    assert owned.all(SpawnFailed) == []


async def test_fc_015_a_start_that_is_refused_for_long_fails(system: ActorSystem) -> None:
    owned, _ = await own(system, lambda _: Refusal(errno_name="EAGAIN", role=SpawnRole.LIMIT))

    failed = await owned.failed()

    assert (failed.errno_name, failed.role) == ("EAGAIN", SpawnRole.LIMIT)
    assert owned.heard == [failed]


async def test_fc_018_a_script_that_never_loads_is_given_up(system: ActorSystem) -> None:
    owned, spawner = await own(system, lambda _: Script(load_s=math.inf), start_timeout_s=0.05)

    failed = await owned.failed()

    assert (failed.errno_name, failed.role) == ("ETIMEDOUT", SpawnRole.START_TIMEOUT)
    assert owned.heard == [failed]
    await eventually(lambda: spawner.living() == ())


async def test_a_script_that_loads_in_time_hears_what_was_said_meanwhile(system: ActorSystem) -> None:
    script = Script(load_s=0.05, on_line=lambda line: (Say(line + b"!\n"),))
    owned, _ = await own(system, lambda _: script, start_timeout_s=10.0)
    owned.process.tell(WriteStdin(b"hello\n"))
    owned.process.tell(CloseStdin())
    assert owned.heard == []

    exited = await owned.exited()

    assert (exited.exit_code, owned.lines()) == (0, ["hello!"])
    assert [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessOutput, ProcessExited]


async def test_a_script_answers_lines_one_after_the_other(system: ActorSystem) -> None:
    def answer(line: bytes) -> Iterable[Step]:
        yield Say(line + b": one\n", after_s=0.02)
        yield Say(line + b": two\n", after_s=0.02)

    owned, spawner = await own(system, lambda _: Script(on_line=answer))
    await owned.started()
    assert spawner.living()[0].spec.label == "child"

    owned.process.tell(WriteStdin(b"a\nb\n"))
    await owned.line("b: two")

    assert owned.lines() == ["a: one", "a: two", "b: one", "b: two"]
    assert [output.text for output in owned.all(ProcessOutput)] == owned.lines()


async def test_fc_021_a_kill_from_outside_ends_a_scripted_child(system: ActorSystem) -> None:
    owned, spawner = await own(system, lambda _: Script())
    started = await owned.started()

    spawner.kill(started.pid)

    exited = await owned.exited()
    assert (exited.signal, exited.asked_for) == (signal.SIGKILL, False)
    assert spawner.living() == ()


class Busy(Actor[Any]):
    """Cannot take a second message before the first is handled, and waits with that."""

    def __init__(self, spawner: ScriptedSpawner, gate: Callable[[], Any]) -> None:
        self._spawner, self._gate = spawner, gate
        self.heard: list[Any] = []

    def on_start(self, ctx: Context[Any]) -> None:
        spawn_process(ctx, ProcessSpec(program="p", label="child"), spawner=self._spawner)

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        self.heard.append(message)
        await self._gate()


async def test_fc_008_a_full_mailbox_loses_output_but_no_lifecycle_notification(system: ActorSystem) -> None:
    """What was dropped is counted in the exit."""
    gate: Any = system.loop.waiter()
    said = tuple(Say(b"%d\n" % number) for number in range(10))
    spawner = ScriptedSpawner(
        system.loop, system.clock, programs={"p": lambda _: Script(begin=(*said, Exit(1)))}
    )
    busy = Busy(spawner, gate.wait)
    await system.spawn(busy, mailbox=MailboxPolicy(capacity=2))
    await eventually(lambda: bool(busy.heard) and spawner.living() == ())

    gate.set(None)
    await eventually(lambda: bool(busy.heard) and isinstance(busy.heard[-1], ProcessExited))

    lines = [message for message in busy.heard if isinstance(message, ProcessOutput)]
    assert isinstance(busy.heard[0], ProcessStarted)
    assert busy.heard[-1].dropped_lines == 10 - len(lines) > 0
