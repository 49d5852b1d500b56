"""What becomes of a child's output by the policy of the stream. Real children, every event loop."""

from typing import Any

import pytest

from swactor import Actor, Context
from swactor_process import (
    Chunks,
    LinePart,
    Lines,
    ProcessChunk,
    ProcessExited,
    ProcessLines,
    ProcessOutput,
    ProcessSpec,
    ProcessStarted,
    Spawner,
    Stream,
    WriteStdin,
    spawn_process,
)

from .conftest import Node, eventually, sh


async def test_chunks_are_the_bytes_as_they_came(node: Node) -> None:
    script = r"printf 'a\210\n'; read go; printf '\0\n\nb'; printf oops >&2"
    owned = await node.start(sh(script, stdout=Chunks(), stderr=Chunks()))
    first = await owned.first(ProcessChunk)
    assert (first.stream, first.data) == (Stream.STDOUT, b"a\x88\n")

    owned.process.tell(WriteStdin(b"go\n"))

    exited = await owned.exited()
    assert joined(owned.all(ProcessChunk), Stream.STDOUT) == b"a\x88\n\0\n\nb"
    assert joined(owned.all(ProcessChunk), Stream.STDERR) == b"oops"
    assert (exited.stderr_tail, exited.dropped_lines) == ("oops", 0)
    assert owned.all(ProcessOutput) == []


async def test_a_chunk_is_never_above_its_limit(node: Node) -> None:
    owned = await node.start(sh("head -c 200000 /dev/zero", stdout=Chunks(chunk_max_bytes=1_000)))

    await owned.exited()

    chunks = owned.all(ProcessChunk)
    assert sum(len(chunk.data) for chunk in chunks) == 200_000
    assert max(len(chunk.data) for chunk in chunks) == 1_000
    kinds = [type(heard) for heard in owned.heard]
    assert (kinds[0], kinds[-1]) == (ProcessStarted, ProcessExited)


class Counter(Actor[Any]):
    """An owner that keeps up."""

    def __init__(self, spec: ProcessSpec, spawner: Spawner) -> None:
        self._spec, self._spawner = spec, spawner
        self.lines = 0
        self.exited: ProcessExited | None = None

    def on_start(self, ctx: Context[Any]) -> None:
        spawn_process(ctx, self._spec, spawner=self._spawner)

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        if isinstance(message, ProcessOutput):
            self.lines += 1
        elif isinstance(message, ProcessExited):
            self.exited = message


@pytest.mark.parametrize("line", ["", "0123456789"])
async def test_fc_008_an_owner_that_keeps_up_hears_every_line_however_short(node: Node, line: str) -> None:
    """One read brings 65,536 empty lines; the mailbox has room for 10,000."""
    counter = Counter(sh(f"yes '{line}' | head -n 100000"), node.spawner)
    await node.system.spawn(counter)

    await eventually(lambda: counter.exited is not None)

    assert counter.exited is not None
    assert (counter.lines, counter.exited.dropped_lines) == (100_000, 0)


@pytest.mark.parametrize("batched", [False, True])
async def test_fc_008_an_owner_that_keeps_up_hears_every_piece_however_short(
    node: Node, batched: bool
) -> None:
    """After the linger time the rest would come in one go; a busy machine may take as long."""
    stdout = Lines(line_max_bytes=1, batched=batched)
    counter = Counter(sh("head -c 30000 /dev/zero", stdout=stdout, linger_s=60.0), node.spawner)
    await node.system.spawn(counter)

    await eventually(lambda: counter.exited is not None)

    assert counter.exited is not None
    assert (counter.lines, counter.exited.dropped_lines) == (30_000, 0)


async def test_lines_that_came_together_are_told_together(node: Node) -> None:
    script = r"printf 'a\210\n\nb\n'; read go; printf 'c\nd' ; printf 'oops\n' >&2"
    owned = await node.start(sh(script, stdout=Lines(batched=True)))
    first = await owned.first(ProcessLines)
    assert (first.stream, first.lines, first.texts) == (
        Stream.STDOUT,
        [b"a\x88", b"", b"b"],
        ["a\ufffd", "", "b"],
    )
    assert len(first) == 3

    owned.process.tell(WriteStdin(b"go\n"))

    await owned.exited()
    assert [lines.lines for lines in owned.all(ProcessLines)[1:]] == [[b"c"]]
    rest = [told for told in owned.all(ProcessOutput) if told.stream is Stream.STDOUT]
    assert [(told.line, told.part, told.terminated) for told in rest] == [(b"d", LinePart.WHOLE, False)]
    assert "oops" in owned.lines()


async def test_batches_hold_every_line_of_a_flood_in_order_and_pieces_of_long_ones_between(
    node: Node,
) -> None:
    script = "seq 1 100000; head -c 150 /dev/zero | tr '\\0' x; echo; seq 100001 200000"
    owned = await node.start(sh(script, stdout=Lines(line_max_bytes=100, batched=True)))

    exited = await owned.exited()

    said: list[str] = []
    for told in owned.heard:
        if isinstance(told, ProcessLines):
            said += told.texts
        elif isinstance(told, ProcessOutput):
            said.append(told.part.value)
    numbers = [str(number) for number in range(1, 200_001)]
    assert said == [*numbers[:100_000], "first", "last", *numbers[100_000:]]
    assert exited.dropped_lines == 0


def joined(chunks: list[ProcessChunk], stream: Stream) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.stream is stream)
