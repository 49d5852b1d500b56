"""Stopping children, writing to them, and their owner's end. Real children, every event loop."""

import fcntl
import logging
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from swactor import Actor, Context
from swactor_process import (
    CloseStdin,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    SendSignal,
    Stop,
    WriteOutcome,
    WriteStdin,
    _pipes,
)

from .conftest import Node, eventually, is_alive, sh

IGNORES_TERM = "trap '' TERM; echo armed; while :; do sleep 0.05; done"


class Watcher(Actor[Any]):
    """Takes note of what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        self.heard.append(message)


async def test_fc_002_a_stop_reaches_the_real_worker_behind_a_wrapper(node: Node) -> None:
    """The shell forks the worker and waits."""
    owned = await node.start(sh("sleep 600 & echo $!; wait"))
    await owned.first(ProcessOutput)
    worker = int(owned.lines()[0])

    exited = await owned.process.ask(Stop())

    assert isinstance(exited, ProcessExited)
    assert (exited.asked_for, exited.survivors, exited.eof_reached) == (True, (), True)
    assert not is_alive(worker)


async def test_a_child_that_has_stopped_itself_can_obey_a_stop(node: Node) -> None:
    """It sleeps until somebody lets it go on; its last act is not cut off by KILL."""
    owned = await node.start(sh("trap 'echo tidy; exit 9' TERM; echo up; kill -s STOP $$; sleep 60 & wait"))
    await owned.line("up")
    pid = owned.all(ProcessStarted)[0].pid
    await eventually(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")

    exited = await owned.process.ask(Stop())

    assert isinstance(exited, ProcessExited)
    assert (exited.exit_code, exited.escalated, exited.asked_for) == (9, False, True)
    assert owned.lines()[-1] == "tidy"


async def test_fc_002_a_stop_reaches_the_group_whose_leader_has_gone(node: Node) -> None:
    # The worker writes now and then, so the end of the linger time is far away.
    script = "(while :; do echo tick; sleep 0.1; done) & echo $!; exit 0"
    owned = await node.start(sh(script, linger_s=30.0))
    await eventually(lambda: any(line != "tick" for line in owned.lines()))
    worker = next(int(line) for line in owned.lines() if line != "tick")
    await eventually(lambda: not is_alive(owned.all(ProcessStarted)[0].pid))

    owned.process.tell(Stop())

    exited = await owned.exited()
    assert exited.exit_code == 0
    assert not is_alive(worker)


async def test_fc_003_a_child_that_ignores_term_is_killed_after_the_grace_time(node: Node) -> None:
    owned = await node.start(sh(IGNORES_TERM, grace_s=0.2))
    await owned.line("armed")

    exited = await owned.process.ask(Stop())

    assert isinstance(exited, ProcessExited)
    assert (exited.signal, exited.asked_for, exited.escalated) == (signal.SIGKILL, True, True)


async def test_fc_003_a_child_that_obeys_is_not_delayed_by_the_grace_time(node: Node) -> None:
    owned = await node.start(sh("trap 'exit 0' TERM; echo armed; while :; do sleep 0.02; done", grace_s=30.0))
    await owned.line("armed")

    with anyio.fail_after(3):
        exited = await owned.process.ask(Stop(deadline_s=60.0))

    assert isinstance(exited, ProcessExited)
    assert (exited.exit_code, exited.asked_for, exited.escalated) == (0, True, False)


async def test_a_second_stop_can_be_less_patient(node: Node) -> None:
    owned = await node.start(sh(IGNORES_TERM, grace_s=60.0, deadline_s=120.0))
    await owned.line("armed")

    owned.process.tell(Stop())
    exited = await owned.process.ask(Stop(grace_s=0.0))

    assert isinstance(exited, ProcessExited)
    assert exited.escalated


async def test_fc_004_a_stop_right_after_the_start_still_gives_start_and_exit(node: Node) -> None:
    owned = await node.start(sh("sleep 30"))
    owned.process.tell(Stop())

    await owned.exited()

    assert [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessExited]
    assert node.own_children() == []


async def test_fc_007_commands_after_the_exit_do_nothing(node: Node) -> None:
    owned = await node.start(ProcessSpec(program="true", label="short"))
    await owned.exited()

    for _ in range(3):
        owned.process.tell(Stop())
        owned.process.tell(SendSignal(signal.SIGTERM))
        owned.process.tell(CloseStdin())

    await (await node.start(ProcessSpec(program="true", label="short"))).exited()
    assert len(owned.all(ProcessExited)) == 1


async def test_a_signal_is_passed_on_and_counts_as_asked_for_when_it_kills(node: Node) -> None:
    owned = await node.start(sh("trap 'echo got it' USR1; echo armed; while :; do sleep 0.02; done"))
    await owned.line("armed")

    owned.process.tell(SendSignal(signal.SIGUSR1))
    await owned.line("got it")
    owned.process.tell(SendSignal(signal.SIGHUP))

    exited = await owned.exited()
    assert (exited.signal, exited.asked_for) == (signal.SIGHUP, True)


async def test_lines_go_in_and_come_out(node: Node) -> None:
    owned = await node.start(ProcessSpec(program="cat", label="cat"))

    assert await owned.process.ask(WriteStdin(b"one\n")) is WriteOutcome.WRITTEN
    owned.process.tell(WriteStdin(b"two\n"))
    owned.process.tell(CloseStdin())

    exited = await owned.exited()
    assert owned.lines() == ["one", "two"]
    assert (exited.exit_code, exited.asked_for, exited.lost_stdin_bytes) == (0, False, 0)


async def test_fc_022_writing_to_a_child_that_goes_meanwhile_is_answered(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """10 MB to a child that reads nothing and ends; the exit code stays the true one."""
    owned = await node.start(sh("trap 'exit 4' USR1; echo up; while :; do sleep 0.02; done"))
    await owned.line("up")
    outcomes: list[WriteOutcome] = []

    async def write() -> None:
        outcomes.append(await owned.process.ask(WriteStdin(bytes(10_000_000))))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.lowlevel.checkpoint()
        owned.process.tell(SendSignal(signal.SIGUSR1))

    assert outcomes == [WriteOutcome.CHILD_GONE]
    assert (await owned.exited()).exit_code == 4
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_fc_022_bytes_told_and_not_written_are_counted(node: Node) -> None:
    owned = await node.start(sh("trap 'exit 4' TERM; exec <&-; echo closed; while :; do sleep 0.02; done"))
    await owned.line("closed")

    owned.process.tell(WriteStdin(b"0123456789"))
    assert await owned.process.ask(WriteStdin(b"again")) is WriteOutcome.CHILD_GONE
    owned.process.tell(Stop())

    exited = await owned.exited()
    assert (exited.exit_code, exited.lost_stdin_bytes) == (4, 10)


async def test_bytes_that_the_pipe_has_taken_are_not_counted_as_lost(node: Node) -> None:
    """The child reads none of them; those of the second write find no room at all."""
    ours, theirs = os.pipe()
    taken = fcntl.fcntl(theirs, fcntl.F_GETPIPE_SZ)
    os.close(ours)
    os.close(theirs)
    owned = await node.start(sh("trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done"))
    await owned.line("up")

    owned.process.tell(WriteStdin(bytes(taken + 1_000)))
    owned.process.tell(WriteStdin(b"0123456789"))
    owned.process.tell(Stop())

    exited = await owned.exited()
    assert (exited.exit_code, exited.lost_stdin_bytes) == (4, 1_010)


async def test_a_write_above_the_bound_is_refused_and_costs_nothing_else(node: Node) -> None:
    owned = await node.start(sh("read go; exec cat", stdin_buffer_bytes=1000))

    owned.process.tell(WriteStdin(bytes(200_000)))
    outcome = await owned.process.ask(WriteStdin(b"more"))

    assert outcome is WriteOutcome.BUFFER_FULL
    await owned.process.ask(Stop())


async def test_short_writes_to_a_child_that_does_not_read_are_bounded_in_number(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pipes, "STDIN_WRITES_MAX", 10)
    owned = await node.start(sh("read go; exec cat"))

    owned.process.tell(WriteStdin(bytes(200_000)))
    for _ in range(9):
        owned.process.tell(WriteStdin(b""))
    outcome = await owned.process.ask(WriteStdin(b""))

    assert outcome is WriteOutcome.BUFFER_FULL
    await owned.process.ask(Stop())


async def test_fc_004_a_child_ends_with_its_owner_and_watchers_hear_of_it(node: Node) -> None:
    """The owner is gone by then."""
    watcher = Watcher()
    watching = await node.system.spawn(watcher)
    owned = await node.start(sh("sleep 30"), watchers=(watching,))
    started = await owned.started()

    await node.system.stop_actor(node.owners[owned])

    assert not is_alive(started.pid)
    await eventually(lambda: len(watcher.heard) == 2)
    assert watcher.heard[0] == started
    assert (watcher.heard[1].signal, watcher.heard[1].asked_for) == (signal.SIGTERM, True)
    assert node.own_children() == []


async def test_a_stubborn_child_ends_with_its_owner_within_the_owners_grace(node: Node) -> None:
    owned = await node.start(sh(IGNORES_TERM, grace_s=60.0, deadline_s=60.0))
    await owned.line("armed")
    pid = owned.all(ProcessStarted)[0].pid

    await node.system.stop_actor(node.owners[owned], grace_s=0.3)

    await eventually(lambda: not is_alive(pid))
    await eventually(lambda: node.own_children() == [])
