"""What becomes of a child's output by the policy of the stream. Real children, every event loop."""

from swactor_process import (
    Chunks,
    ProcessChunk,
    ProcessExited,
    ProcessOutput,
    ProcessStarted,
    Stream,
    WriteStdin,
)

from .conftest import Node, sh


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


def joined(chunks: list[ProcessChunk], stream: Stream) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.stream is stream)
