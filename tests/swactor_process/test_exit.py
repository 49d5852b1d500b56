"""How a child ends, and what its owner hears of it. Real children, every event loop."""

import os
import signal
import time
from collections import Counter

import anyio
import pytest

from swactor_process import (
    LinePart,
    Lines,
    Null,
    ProcessExited,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    TailOnly,
)
from tests.descriptors import open_descriptors

from .conftest import Node, Owned, eventually, python, sh


async def test_fc_001_exit_is_told_although_a_grandchild_keeps_the_pipe(node: Node) -> None:
    owned = await node.start(sh("sleep 30 & echo $!; sleep 0.1; exit 3"))

    exited = await owned.first(ProcessExited, timeout_s=1.0)

    assert (exited.exit_code, exited.signal) == (3, None)
    assert not exited.eof_reached
    assert exited.survivors == (int(owned.lines()[0]),)
    os.kill(exited.survivors[0], signal.SIGKILL)


async def test_fc_001_reading_goes_on_while_a_grandchild_writes_until_the_linger_time_is_over(
    node: Node,
) -> None:
    """Output keeps coming, and the bound holds all the same."""
    loop = "i=0; while [ $i -lt 100 ]; do echo $i; i=$((i+1)); sleep 0.05; done"
    owned = await node.start(sh(f"({loop}) & exit 0", linger_s=0.8))

    exited = await owned.first(ProcessExited, timeout_s=3.0)

    assert not exited.eof_reached
    assert len(owned.lines()) >= 5
    os.killpg(exited.pid, signal.SIGKILL)


async def test_fc_001_without_linger_time_the_exit_does_not_wait_and_has_all_that_the_child_wrote(
    node: Node,
) -> None:
    """What it has started writes on, and says nothing that matters."""
    script = "(while :; do sleep 0.05; echo noise; done) & seq 5000; echo last >&2; exit 3"
    owned = await node.start(sh(script, linger_s=0.0))

    exited = await owned.exited()

    waited_ms = time.time() * 1e3 - exited.exited_at_ms
    assert (exited.exit_code, exited.eof_reached, exited.stderr_tail) == (3, False, "last\n")
    own = [line for line in owned.lines() if line not in {"noise", "last"}]
    assert own == [str(number) for number in range(1, 5_001)]
    assert waited_ms < 1_000
    os.killpg(exited.pid, signal.SIGKILL)


async def test_fc_005_a_thousand_children_that_end_at_once_are_all_told_in_order(node: Node) -> None:
    all_owned: list[Owned] = []
    for _ in range(20):
        batch = [await node.start(sh("exit 11")) for _ in range(50)]
        for owned in batch:
            await owned.exited()
        all_owned += batch

    exits = [owned.all(ProcessExited)[0] for owned in all_owned]
    assert Counter(exited.exit_code for exited in exits) == {11: 1_000}
    assert all(
        [type(heard) for heard in owned.heard] == [ProcessStarted, ProcessExited] for owned in all_owned
    )
    assert len({exited.spawn_id for exited in exits}) == 1_000


@pytest.mark.parametrize("spawner", ["linux", "portable"])
@pytest.mark.parametrize(("when", "answer"), [("before", "9 None False"), ("after", "None None True")])
async def test_fc_006_a_lost_status_is_said_to_be_lost(
    node: Node, spawner: str, when: str, answer: str
) -> None:
    owned = await node.start(python("spawn_with_sigchld_ignored.py", when, spawner))

    exited = await owned.exited()

    assert (exited.exit_code, exited.stderr_tail) == (0, "")
    assert owned.lines() == [answer]


async def test_fc_008_an_owner_that_reads_slowly_neither_blocks_the_child_nor_loses_the_exit(
    node: Node,
) -> None:
    """Everything is drained; what the full mailbox does not take is counted."""
    owned = await node.start(sh("seq 1 200000"))

    exited = await owned.exited()

    assert exited.exit_code == 0
    assert len(owned.lines()) + exited.dropped_lines == 200_000


async def test_fc_009_a_line_above_the_limit_comes_in_marked_pieces(node: Node) -> None:
    owned = await node.start(
        sh("head -c 2500 /dev/zero | tr '\\0' x; echo; echo after", stdout=Lines(line_max_bytes=1000))
    )

    await owned.exited()

    outputs = owned.all(ProcessOutput)
    assert [(len(output.line), output.part) for output in outputs] == [
        (1000, LinePart.FIRST),
        (1000, LinePart.MIDDLE),
        (500, LinePart.LAST),
        (5, LinePart.WHOLE),
    ]


async def test_fc_010_bytes_that_are_no_text_do_not_end_the_stream(node: Node) -> None:
    owned = await node.start(sh(r"printf 'a\210b\nnext\n'"))

    await owned.exited()

    first, second = owned.all(ProcessOutput)
    assert (first.line, first.text) == (b"a\x88b", "a\N{REPLACEMENT CHARACTER}b")
    assert second.text == "next"


async def test_fc_011_the_exit_carries_the_last_words(node: Node) -> None:
    """Two hundred times, and always the very last bytes."""
    script = "head -c 60000 /dev/zero | tr '\\0' e >&2; printf FINAL >&2; exit 2"
    for _ in range(10):
        batch = [await node.start(sh(script, stderr=TailOnly())) for _ in range(20)]
        for owned in batch:
            exited = await owned.exited()
            assert exited.stderr_tail.endswith("eFINAL")
            assert len(exited.stderr_tail) == 8_192
            assert type(owned.heard[-1]) is ProcessExited


async def test_fc_012_an_unfinished_last_line_is_delivered_and_marked(node: Node) -> None:
    owned = await node.start(sh("printf 'half a line'"))

    await owned.exited()

    (output,) = owned.all(ProcessOutput)
    assert (output.text, output.terminated, output.part) == ("half a line", False, LinePart.WHOLE)


async def test_fc_020_the_exit_says_why(node: Node) -> None:
    owned = await node.start(sh("echo cannot open device >&2; exit 3", label="reader"))

    exited = await owned.exited()

    started = await owned.started()
    assert (exited.exit_code, exited.signal, exited.asked_for, exited.escalated) == (3, None, False, False)
    assert exited.stderr_tail == "cannot open device\n"
    assert (exited.label, exited.pid, exited.spawn_id) == ("reader", started.pid, started.spawn_id)
    assert exited.command == ("sh", "-c", "echo cannot open device >&2; exit 3")
    assert 0 <= exited.uptime_ms < 5_000
    assert exited.exited_at_ms >= started.started_at_ms > 1_600_000_000_000


async def test_fc_021_a_kill_from_outside_was_not_asked_for(node: Node) -> None:
    owned = await node.start(sh("exec sleep 30"))
    started = await owned.started()

    os.kill(started.pid, signal.SIGKILL)

    exited = await owned.exited()
    assert (exited.signal, exited.exit_code) == (signal.SIGKILL, None)
    assert (exited.asked_for, exited.escalated) == (False, False)


async def test_fc_016_a_child_has_no_descriptors_but_its_own(node: Node) -> None:
    inheritable = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    try:
        owned = await node.start(sh("for fd in /proc/self/fd/*; do echo ${fd##*/}; done"))
        await owned.exited()
    finally:
        os.close(inheritable)

    # 3 is the listing itself, where the shell does it in its own process.
    assert set(owned.lines()) - {"3"} == {"0", "1", "2"}


async def test_fc_023_many_short_children_leave_no_zombie_and_no_descriptor(node: Node) -> None:
    await node.gone(await node.start(sh("true")))  # from here on the orphan guard is there
    before = open_descriptors()

    for _ in range(10):
        batch = [await node.start(ProcessSpec(program="true", label="short")) for _ in range(50)]
        for owned in batch:
            await owned.exited()

    await eventually(lambda: open_descriptors() == before)
    assert node.own_children() == []


async def test_fc_025_two_children_with_one_label_are_two(node: Node) -> None:
    one = await node.start(sh("sleep 30", label="worker"))
    two = await node.start(sh("sleep 30", label="worker"))

    first, second = await one.started(), await two.started()

    assert first.label == second.label
    assert first.spawn_id != second.spawn_id
    assert first.pid != second.pid
    assert first.start_time is not None
    assert first.process != second.process


async def test_streams_attached_to_nothing_are_at_their_end(node: Node) -> None:
    owned = await node.start(sh("echo out; echo err >&2; exit 1", stdout=Null(), stderr=Null()))

    with anyio.fail_after(5):
        exited = await owned.exited()

    assert (exited.exit_code, exited.eof_reached, exited.stderr_tail) == (1, True, "")
    assert owned.lines() == []


@pytest.mark.parametrize("number", [signal.SIGRTMIN, signal.SIGRTMIN + 6, signal.SIGRTMAX - 1])
async def test_an_end_by_a_signal_without_a_name_is_described_as_well(node: Node, number: int) -> None:
    """Of the real-time signals only the first and the last have one; each end is described."""
    owned = await node.start(sh("exec sleep 30"))

    os.kill((await owned.started()).pid, number)

    exited = await owned.exited()
    assert exited.signal == number
    named = "SIGRTMIN" if number == signal.SIGRTMIN else f"signal {number}"
    assert exited.describe().startswith(f"was killed by {named}")
