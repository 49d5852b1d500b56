"""When a child counts as ready, by each rule. Real children on every event loop, and scripted ones."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from swactor import ActorSystem
from swactor.testing import Conditions
from swactor_process import (
    Inherit,
    MarkReady,
    ProcessExited,
    ProcessNotification,
    ProcessOutput,
    ProcessReady,
    ProcessReadyOverdue,
    ProcessSpec,
    ProcessStarted,
    Readiness,
    ReadyOnFile,
    ReadyOnLine,
    ReadyOnMessage,
    ReadyOnPort,
    Stop,
    Stream,
    TailOnly,
    WriteStdin,
)
from swactor_process.host import HostSurroundings
from swactor_process.testing import Exit, Listen, MakeFile, Say, Script, ScriptedSpawner
from tests.descriptors import open_descriptors

from .conftest import Node, Owned, Owner, eventually, python, sh


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else gets, since it is held, and that nobody listens at."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def never(owned: Owned, kind: type[ProcessNotification]) -> None:
    with pytest.raises(TimeoutError):
        await owned.first(kind, timeout_s=0.1)


async def test_a_matching_line_is_told_once_between_start_and_exit(node: Node) -> None:
    rule = ReadyOnLine(pattern="^listening", stream=Stream.STDERR)
    owned = await node.start(sh("echo loading >&2; echo listening >&2; echo listening >&2", readiness=rule))

    await owned.exited()

    kinds = [type(heard) for heard in owned.heard]
    assert kinds.count(ProcessReady) == 1
    assert kinds.index(ProcessReady) > kinds.index(ProcessOutput)


@pytest.mark.parametrize(
    ("before", "told"), [("x" * 1_019, 1), ("\N{GRINNING FACE}" * 1_019, 1), ("x" * 1_020, 0)]
)
async def test_a_line_is_matched_up_to_so_many_characters(node: Node, before: str, told: int) -> None:
    line = f"{before}ready"
    owned = await node.start(sh(f"echo '{line}'", readiness=ReadyOnLine(pattern="ready")))

    await owned.exited()

    assert owned.lines() == [line]
    assert len(owned.all(ProcessReady)) == told


async def test_the_first_line_meets_the_empty_pattern(node: Node) -> None:
    owned = await node.start(sh("read go; echo; exit 3", readiness=ReadyOnLine()))
    await never(owned, ProcessReady)

    owned.process.tell(WriteStdin(b"go\n"))

    await owned.exited()
    assert [type(heard) for heard in owned.heard] == [
        ProcessStarted,
        ProcessOutput,
        ProcessReady,
        ProcessExited,
    ]


async def test_a_port_that_accepts_connections_is_ready(node: Node, port: int) -> None:
    rule = ReadyOnPort(port, every_s=0.02)
    owned = await node.start(python("listening.py", str(port), readiness=rule))
    await owned.started()
    await never(owned, ProcessReady)

    owned.process.tell(WriteStdin(b"go\n"))

    ready = await owned.first(ProcessReady)
    assert (ready.label, ready.spawn_id) == ("child", owned.all(ProcessStarted)[0].spawn_id)
    assert ready.after_ms >= 95
    await owned.process.ask(Stop())
    assert owned.all(ProcessReadyOverdue) == []
    assert len(owned.all(ProcessReady)) == 1


async def test_a_file_that_comes_into_being_is_ready_and_one_that_was_there_is_not(
    node: Node, tmp_path: Path
) -> None:
    (tmp_path / "ready").touch()
    script = "read go; echo 1 > ready; read go"
    rule = ReadyOnFile("ready", every_s=0.02)
    owned = await node.start(sh(script, cwd=str(tmp_path), readiness=rule))
    await never(owned, ProcessReady)

    owned.process.tell(WriteStdin(b"go\n"))

    await owned.first(ProcessReady)
    assert owned.all(ProcessExited) == []
    await owned.process.ask(Stop())


async def test_the_owner_can_say_that_its_child_is_ready(node: Node) -> None:
    owned = await node.start(sh("read go", readiness=ReadyOnMessage()))
    await owned.started()

    owned.process.tell(MarkReady())
    owned.process.tell(MarkReady())
    owned.process.tell(Stop())
    await owned.exited()

    assert [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessReady, ProcessExited]


async def test_the_word_of_the_owner_counts_for_any_rule(node: Node, port: int) -> None:
    owned = await node.start(sh("read go", readiness=ReadyOnPort(port)))
    await owned.started()

    owned.process.tell(MarkReady())

    await owned.first(ProcessReady)
    await owned.process.ask(Stop())


async def test_without_a_rule_nobody_is_ready(node: Node) -> None:
    owned = await node.start(sh("read go"))
    await owned.started()

    owned.process.tell(MarkReady())
    owned.process.tell(Stop())
    await owned.exited()

    assert [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessExited]


@pytest.mark.parametrize("kind", ["line", "port", "file", "message"])
async def test_who_is_not_ready_in_time_is_told_and_runs_on(node: Node, kind: str, port: int) -> None:
    rules: dict[str, Readiness] = {
        "line": ReadyOnLine(deadline_s=0.05),
        "port": ReadyOnPort(port, deadline_s=0.05, every_s=0.01),
        "file": ReadyOnFile("/nowhere/ready", deadline_s=0.05, every_s=0.01),
        "message": ReadyOnMessage(deadline_s=0.05),
    }
    owned = await node.start(sh("read line; exit 5", readiness=rules[kind]))

    overdue = await owned.first(ProcessReadyOverdue)

    assert overdue.after_ms >= 45  # the timers of a loop are not exact
    owned.process.tell(MarkReady())
    owned.process.tell(WriteStdin(b"go\n"))
    assert (await owned.exited()).exit_code == 5
    assert owned.all(ProcessReady) == []


async def test_a_child_that_ends_or_is_stopped_is_neither_ready_nor_overdue(node: Node, port: int) -> None:
    rule = ReadyOnPort(port, deadline_s=0.3, every_s=0.01)
    ending = await node.start(sh("exit 3", readiness=rule))
    stopping = await node.start(
        sh("trap '' TERM; echo armed; while :; do sleep 0.05; done", readiness=rule, grace_s=0.4)
    )
    await stopping.line("armed")

    await stopping.process.ask(Stop())

    await ending.exited()
    for owned in (ending, stopping):
        assert [*owned.all(ProcessReady), *owned.all(ProcessReadyOverdue)] == []


async def test_a_rule_needs_no_output_policy_but_that_of_a_line(node: Node, tmp_path: Path) -> None:
    rule = ReadyOnFile(str(tmp_path / "ready"), every_s=0.02)
    spec = sh(f"touch {tmp_path}/ready; read go", stdout=Inherit(), stderr=TailOnly(), readiness=rule)

    owned = await node.start(spec)

    await owned.first(ProcessReady)
    await owned.process.ask(Stop())


async def test_asking_for_a_port_holds_no_descriptor_longer_than_it_takes(port: int) -> None:
    async with ActorSystem() as system:
        surroundings, conditions = HostSurroundings(system.loop), Conditions(system.loop)
        answers: list[bool] = []

        def answer(stands: bool) -> None:
            answers.append(stands)
            conditions.changed()

        before = open_descriptors()
        surroundings.try_port("127.0.0.1", port, answer)
        assert answers == []
        assert await conditions.wait(lambda: answers == [False], timeout_s=5.0)
        with socket.create_server(("127.0.0.1", 0)) as server:
            listening = server.getsockname()[1]
            surroundings.try_port("127.0.0.1", listening, answer).cancel()
            surroundings.try_port("127.0.0.1", listening, answer)
            assert await conditions.wait(lambda: len(answers) > 1, timeout_s=5.0)
        assert answers == [False, True]
        # An address for documentation: nobody is there who could answer, so it is asked until it is given up.
        surroundings.try_port("192.0.2.1", 9, answer).cancel()
        await eventually(lambda: open_descriptors() == before)


SCRIPTED: dict[str, tuple[Readiness, tuple[Any, ...]]] = {
    "port": (ReadyOnPort(80, host="10.0.0.1", every_s=0.01), (Listen(80, after_s=0.05),)),
    "file": (ReadyOnFile("ready", every_s=0.01), (MakeFile("ready", after_s=0.05),)),
    "line": (ReadyOnLine(), (Say(b"up\n", after_s=0.05),)),
}


@pytest.mark.parametrize("kind", SCRIPTED)
async def test_scripted_children_become_ready_too(kind: str) -> None:
    rule, steps = SCRIPTED[kind]
    script = Script(begin=(*steps, Exit(after_s=0.2)))
    async with ActorSystem() as system:
        spawner = ScriptedSpawner(system.loop, system.clock, programs={"p": lambda _: script})
        for _ in range(2):  # the second time the file is there already, and the port was given up
            owned = Owned()
            spec = ProcessSpec(program="p", label="child", readiness=rule)
            await system.spawn(Owner(owned, spec, spawner, ()))

            ready = await owned.first(ProcessReady)

            assert ready.after_ms >= 45
            assert owned.all(ProcessExited) == []
            await owned.exited()


async def test_in_a_simulation_no_real_port_is_asked() -> None:
    """A scripted child that listens makes only its scripted port ready."""
    script = Script(begin=(Exit(after_s=0.1),))
    with socket.create_server(("127.0.0.1", 0)) as server:
        rule = ReadyOnPort(server.getsockname()[1], every_s=0.01)
        async with ActorSystem() as system:
            spawner = ScriptedSpawner(system.loop, system.clock, programs={"p": lambda _: script})
            owned = Owned()
            await system.spawn(
                Owner(owned, ProcessSpec(program="p", label="child", readiness=rule), spawner, ())
            )
            with anyio.fail_after(5):
                await owned.exited()

    assert owned.all(ProcessReady) == []
