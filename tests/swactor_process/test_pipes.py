"""Reading a real pipe whose other side does not stop."""

import os
from collections.abc import Iterator

import pytest

from swactor import ActorSystem
from swactor_process._pipes import READ_BYTES, PipeReader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that is full; its reader closes its own end."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    fill(theirs)
    yield ours, theirs
    os.close(theirs)


def fill(descriptor: int) -> None:
    try:
        while True:
            os.write(descriptor, b"y\n" * 2_048)
    except BlockingIOError:
        pass


@pytest.mark.parametrize("by_line", [False, True])
async def test_fc_001_who_keeps_the_pipe_full_is_not_followed(pipe: tuple[int, int], by_line: bool) -> None:
    sizes: list[int] = []

    def refill(data: bytes) -> None:
        sizes.append(len(data))
        fill(pipe[1])

    async with ActorSystem() as system:
        reader = PipeReader(
            system.loop, system.loop, pipe[0], on_data=refill, on_eof=lambda: None, by_line=by_line
        )
        reader.read_rest()
        reader.close()

    assert sizes[0] == READ_BYTES
    assert len(sizes) == 2
