"""An owner that is behind: with `WhenFull.PAUSE` its child waits for it, and nothing is lost."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from swactor import Actor, ActorRef, ActorSystem, Context, MailboxPolicy
from swactor_process import (
    Chunks,
    LinePart,
    Lines,
    LinuxSpawner,
    ProcessChunk,
    ProcessCommand,
    ProcessExited,
    ProcessLines,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    Stop,
    TailOnly,
    WhenFull,
    spawn_process,
)
from swactor_process._outbox import OUTPUT_COST_BYTES
from swactor_process.testing import Exit, Say, Script, ScriptedSpawner

from .conftest import eventually, is_alive, sh

PAUSING = Lines(when_full=WhenFull.PAUSE)


class Slow(Actor[Any]):
    """Takes its first message, then nothing until the gate is opened; hears one message at a time."""

    def __init__(self, spec: ProcessSpec, spawner: Spawner, watchers: tuple[ActorRef[Any], ...]) -> None:
        self._spec, self._spawner, self._watchers = spec, spawner, watchers
        self.gate = anyio.Event()
        self.process: ActorRef[ProcessCommand]
        self.heard: list[Any] = []

    def on_start(self, ctx: Context[Any]) -> None:
        self.process = spawn_process(ctx, self._spec, spawner=self._spawner, watchers=self._watchers)

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        self.heard.append(message)
        await self.gate.wait()

    def lines(self) -> list[str]:
        return [message.text for message in self.heard if isinstance(message, ProcessOutput)]

    async def exited(self) -> ProcessExited:
        await eventually(lambda: bool(self.heard) and isinstance(self.heard[-1], ProcessExited))
        exited: ProcessExited = self.heard[-1]
        return exited


class Watcher(Actor[Any]):
    """Hears of start and exit whatever the owner does."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        self.heard.append(message)


class Bench:
    """A system, and slow owners with room for four messages."""

    def __init__(self, system: ActorSystem, spawner: LinuxSpawner) -> None:
        self.system, self.spawner = system, spawner
        self.watcher = Watcher()

    async def start(self, spec: ProcessSpec, spawner: Spawner | None = None, *, capacity: int = 4) -> Slow:
        watching = await self.system.spawn(self.watcher)
        slow = Slow(spec, spawner or self.spawner, (watching,))
        await self.system.spawn(slow, mailbox=MailboxPolicy(capacity=capacity))
        return slow

    async def exit_seen(self, *, timeout_s: float) -> ProcessExited:
        await eventually(lambda: len(self.watcher.heard) == 2, timeout_s=timeout_s)
        exited: ProcessExited = self.watcher.heard[1]
        return exited


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with ActorSystem() as system:
        with LinuxSpawner(system.loop) as spawner:
            yield Bench(system, spawner)
            await system.shutdown()


LONG_LINES = "head -c 60000 /dev/zero | tr '\\0' x > {0}; echo >> {0}; for i in $(seq 100); do cat {0}; done"


async def test_fc_008_a_mailbox_of_any_capacity_takes_only_so_many_bytes(
    bench: Bench, tmp_path: Path
) -> None:
    """A hundred lines of 60,000 bytes for an owner that is busy, with room for 10,000 messages."""
    script = LONG_LINES.format(tmp_path / "line")
    slow = await bench.start(sh(script, mailbox_bytes=1_000_000), capacity=10_000)

    exited = await bench.exit_seen(timeout_s=10.0)
    slow.gate.set()
    await slow.exited()

    held_bytes = 60_000 * len(slow.lines())
    assert 800_000 < held_bytes <= 1_000_000
    assert exited.dropped_bytes == 6_000_000 - held_bytes
    assert exited.dropped_lines == 100 - len(slow.lines())


async def test_fc_008_what_a_line_takes_besides_its_bytes_counts_too(bench: Bench) -> None:
    slow = await bench.start(sh("yes '' | head -n 300000", mailbox_bytes=1_000_000), capacity=1_000_000)

    exited = await bench.exit_seen(timeout_s=10.0)
    slow.gate.set()
    await slow.exited()

    assert 0 < len(slow.lines()) <= 1_000_000 // OUTPUT_COST_BYTES
    assert exited.dropped_lines == 300_000 - len(slow.lines())


async def test_fc_008_of_a_batch_that_is_dropped_every_line_counts(bench: Bench) -> None:
    batched = Lines(batched=True)
    slow = await bench.start(sh("yes '' | head -n 3000000", stdout=batched, mailbox_bytes=1_000_000))

    exited = await bench.exit_seen(timeout_s=10.0)
    slow.gate.set()
    await slow.exited()

    told = sum(len(message) for message in slow.heard if isinstance(message, ProcessLines))
    assert 0 < told <= 1_000_000
    assert (exited.dropped_lines, exited.dropped_bytes) == (3_000_000 - told, 3_000_000 - told)


async def test_fc_008_a_child_waits_for_an_owner_with_room_for_messages_but_not_for_bytes(
    bench: Bench, tmp_path: Path
) -> None:
    mark = tmp_path / "written"
    script = f"{LONG_LINES.format(tmp_path / 'line')}; touch {mark}"
    slow = await bench.start(
        sh(script, stdout=PAUSING, mailbox_bytes=200_000, backlog_bytes=0), capacity=10_000
    )
    await eventually(lambda: bool(slow.heard))
    await never(mark.exists)

    slow.gate.set()
    exited = await slow.exited()

    assert (len(slow.lines()), exited.dropped_lines) == (100, 0)


async def test_one_line_is_always_taken_and_the_next_ones_when_the_owner_has_come_so_far(
    bench: Bench,
) -> None:
    slow = await bench.start(sh("seq 1 2000", stdout=PAUSING, mailbox_bytes=0), capacity=10_000)
    slow.gate.set()

    exited = await slow.exited()

    assert slow.lines() == [str(number) for number in range(1, 2001)]
    assert exited.dropped_lines == 0


async def never(spoken: Any) -> None:
    """Expect that ``spoken`` stays false; what happens at all happens within milliseconds."""
    with pytest.raises(TimeoutError):
        await eventually(spoken, timeout_s=0.15)


async def test_the_child_waits_while_its_owner_is_behind_and_every_line_comes(
    bench: Bench, tmp_path: Path
) -> None:
    mark = tmp_path / "written"
    slow = await bench.start(sh(f"seq 1 30000; touch {mark}; exit 3", stdout=PAUSING, backlog_bytes=10_000))
    await eventually(lambda: bool(slow.heard))
    await never(mark.exists)

    slow.gate.set()

    exited = await slow.exited()
    assert slow.lines() == [str(number) for number in range(1, 30_001)]
    assert (exited.exit_code, exited.dropped_lines, exited.eof_reached) == (3, 0, True)
    assert mark.exists()


async def test_batches_of_lines_wait_too(bench: Bench) -> None:
    policy = Lines(when_full=WhenFull.PAUSE, batched=True)
    slow = await bench.start(sh("seq 1 300000", stdout=policy, backlog_bytes=10_000))
    await eventually(lambda: bool(slow.heard))
    await never(lambda: not is_alive(slow.heard[0].pid))

    slow.gate.set()

    exited = await slow.exited()
    texts = [text for message in slow.heard if isinstance(message, ProcessLines) for text in message.texts]
    assert texts == [str(number) for number in range(1, 300_001)]
    assert exited.dropped_lines == 0


async def test_chunks_wait_too(bench: Bench) -> None:
    policy = Chunks(chunk_max_bytes=5_000, when_full=WhenFull.PAUSE)
    slow = await bench.start(sh("head -c 1000000 /dev/zero", stdout=policy, backlog_bytes=10_000))
    await eventually(lambda: bool(slow.heard))
    await never(lambda: not is_alive(slow.heard[0].pid))

    slow.gate.set()

    exited = await slow.exited()
    chunks = [message for message in slow.heard if isinstance(message, ProcessChunk)]
    assert sum(len(chunk.data) for chunk in chunks) == 1_000_000
    assert exited.dropped_bytes == 0


async def test_a_scripted_child_waits_too(bench: Bench) -> None:
    said = tuple(Say(b"%d" % number + b"x" * 9_999 + b"\n") for number in range(30))
    spawner = ScriptedSpawner(
        bench.system.loop,
        bench.system.clock,
        programs={"p": lambda _: Script(begin=(*said, Exit(3)))},
    )
    spec = ProcessSpec(program="p", label="child", stdout=PAUSING, backlog_bytes=10_000)
    slow = await bench.start(spec, spawner)
    await eventually(lambda: bool(slow.heard))
    await never(lambda: spawner.living() == ())

    slow.gate.set()

    exited = await slow.exited()
    assert len(slow.lines()) == 30
    assert (exited.exit_code, exited.dropped_lines) == (3, 0)


async def test_what_is_not_to_wait_is_dropped_meanwhile(bench: Bench) -> None:
    script = "seq 1 30000; seq 1 1000 >&2; exit 3"
    slow = await bench.start(sh(script, stdout=PAUSING, stderr=Lines(), backlog_bytes=10_000_000))
    await bench.exit_seen(timeout_s=10.0)

    slow.gate.set()

    exited = await slow.exited()
    assert len(slow.lines()) == 30_000
    assert (exited.dropped_lines, exited.dropped_bytes) == (1_000, len("".join(map(str, range(1, 1001)))))


async def test_fc_001_the_exit_is_seen_while_the_stream_is_paused_and_a_grandchild_writes(
    bench: Bench,
) -> None:
    """What is read after the exit is bounded, in time and in memory; what is beyond is counted."""
    script = f"yes {'x' * 500} & sleep 0.1; exit 3"
    # On a busy machine it takes a while to write more than the 4 MiB that may wait then.
    slow = await bench.start(sh(script, stdout=PAUSING, backlog_bytes=10_000, linger_s=3.0))

    seen = await bench.exit_seen(timeout_s=10.0)

    assert (seen.exit_code, seen.eof_reached) == (3, False)
    assert seen.dropped_lines > 0
    os.killpg(seen.pid, signal.SIGKILL)
    slow.gate.set()
    assert await slow.exited() == seen
    assert sum(len(line) + 128 for line in slow.lines()) < 4_300_000


async def test_fc_008_the_exit_of_a_child_that_was_killed_while_it_waited_is_seen_at_once(
    bench: Bench,
) -> None:
    slow = await bench.start(sh("exec seq 1 30000", stdout=PAUSING, backlog_bytes=10_000))
    await eventually(lambda: bool(slow.heard))
    started: ProcessStarted = slow.heard[0]
    await never(lambda: not is_alive(started.pid))
    os.kill(started.pid, signal.SIGKILL)

    seen = await bench.exit_seen(timeout_s=5.0)

    assert (seen.signal, seen.eof_reached, seen.dropped_lines) == (signal.SIGKILL, True, 0)
    slow.gate.set()
    assert await slow.exited() == seen
    outputs = [message for message in slow.heard if isinstance(message, ProcessOutput)]
    assert [output.text for output in outputs[:-1]] == [str(number) for number in range(1, len(outputs))]
    assert outputs[-1].part is LinePart.WHOLE


async def test_fc_011_the_last_words_are_there_although_the_owner_is_behind(bench: Bench) -> None:
    script = "seq 1 30000 >&2 & head -c 60000 /dev/zero; wait; printf FINAL >&2; exit 2"
    slow = await bench.start(sh(script, stderr=PAUSING, stdout=TailOnly(), backlog_bytes=10_000))
    await eventually(lambda: bool(slow.heard))
    await never(lambda: not is_alive(slow.heard[0].pid))

    slow.gate.set()

    exited = await slow.exited()
    assert exited.stderr_tail.endswith("30000\nFINAL")
    assert slow.lines()[-1] == "FINAL"
    assert exited.dropped_lines == 0


async def test_a_child_that_is_to_end_does_not_wait_for_its_owner_any_more(bench: Bench) -> None:
    """It may have more to write than a pipe holds before it can end; its owner waits for that end."""
    script = "trap 'seq 1 30000; exit 0' TERM; seq 1 30000; while :; do sleep 0.02; done"
    slow = await bench.start(sh(script, stdout=PAUSING, backlog_bytes=10_000, grace_s=30, deadline_s=60))
    await eventually(lambda: bool(slow.heard))
    await never(lambda: not is_alive(slow.heard[0].pid))

    stopped = await slow.process.ask(Stop(), timeout_s=10.0)

    assert isinstance(stopped, ProcessExited)
    assert (stopped.exit_code, stopped.escalated) == (0, False)
    assert stopped.dropped_lines > 0
    slow.gate.set()
    assert await slow.exited() == stopped


async def test_fc_008_a_flood_that_nobody_waits_for_is_read_within_bounds(bench: Bench) -> None:
    """400 MB, most of which are dropped: the owner takes nothing, and has room for four pieces."""
    before_kb = _resident_kb()
    slow = await bench.start(sh("head -c 400000000 /dev/zero; exit 3"))

    seen = await bench.exit_seen(timeout_s=20.0)

    assert _resident_kb() - before_kb < 50_000
    slow.gate.set()
    exited = await slow.exited()
    pieces = [message for message in slow.heard if isinstance(message, ProcessOutput)]
    assert sum(len(piece.line) for piece in pieces) + exited.dropped_bytes == 400_000_000
    assert exited == seen
    assert exited.dropped_lines > 6_000


def _resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])
