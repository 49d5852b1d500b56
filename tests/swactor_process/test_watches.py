"""Many descriptors behind one that the loop watches."""

import os
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from swactor import ActorSystem
from swactor.abc import Loop
from swactor.testing import Conditions
from swactor_process._watches import Watches
from tests.descriptors import open_descriptors


class Pipe:
    """A pipe whose reading end is watched, and what was read from it."""

    def __init__(self, watches: Watches, changed: Callable[[], None]) -> None:
        self.reading, self.writing = os.pipe()
        self.read: list[bytes] = []
        self.then: Callable[[], object] = changed
        self.watch = watches.watch_readable(self.reading, self._readable)

    def _readable(self) -> None:
        self.read.append(os.read(self.reading, 100))
        self.then()

    def write(self, data: bytes) -> None:
        os.write(self.writing, data)

    def close(self) -> None:
        self.watch.cancel()
        os.close(self.reading)
        os.close(self.writing)


class Pipes:
    """Many of them, watched together."""

    def __init__(self, system: ActorSystem, watches: Watches) -> None:
        self.conditions = Conditions(system.loop)
        self.watches = watches
        self.all = [Pipe(self.watches, self.conditions.changed) for _ in range(40)]

    async def until(self, condition: Callable[[], bool]) -> None:
        assert await self.conditions.wait(condition, timeout_s=10)

    def close(self) -> None:
        for pipe in self.all:
            pipe.close()
        self.watches.close()


@pytest.fixture
async def pipes() -> AsyncIterator[Pipes]:
    async with ActorSystem() as system:
        pipes = Pipes(system, Watches(system.loop))
        yield pipes
        pipes.close()


async def test_each_descriptor_has_its_own_callback(pipes: Pipes) -> None:
    for number, pipe in enumerate(pipes.all):
        pipe.write(b"%d" % number)

    await pipes.until(lambda: all(pipe.read for pipe in pipes.all))

    assert [pipe.read for pipe in pipes.all] == [[b"%d" % number] for number in range(40)]


async def test_what_was_called_off_is_not_called_although_it_is_ready(pipes: Pipes) -> None:
    one, other, last = pipes.all[:3]
    one.then, other.then = other.watch.cancel, one.watch.cancel
    for pipe in (one, other, last):
        pipe.write(b"x")

    await pipes.until(lambda: bool(last.read))

    assert [*one.read, *other.read] == [b"x"]


class Reporting:
    """A loop that keeps what it is to report instead of doing so, which would fail the test."""

    def __init__(self, loop: Loop) -> None:
        self.watch_readable = loop.watch_readable
        self.reports: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.reports.append(callback)


async def test_a_callback_that_raises_is_reported_and_costs_the_others_nothing() -> None:
    def fail() -> None:
        raise RuntimeError("of the test")

    async with ActorSystem() as system:
        loop = Reporting(system.loop)
        pipes = Pipes(system, Watches(cast("Loop", loop)))
        bad, *good = pipes.all
        bad.then = fail
        for pipe in pipes.all:
            pipe.write(b"x")

        await pipes.until(lambda: all(pipe.read for pipe in good))

        pipes.close()
    (report,) = loop.reports
    with pytest.raises(RuntimeError, match="of the test"):
        report()


async def test_what_is_watched_when_it_is_closed_is_watched_to_the_end(pipes: Pipes) -> None:
    before = len(open_descriptors())
    pipes.watches.close()
    first, *rest = pipes.all
    first.write(b"x")

    await pipes.until(lambda: bool(first.read))

    for pipe in rest:
        pipe.watch.cancel()
    assert len(open_descriptors()) == before
    first.watch.cancel()
    assert len(open_descriptors()) == before - 1  # that of the watches themselves


async def test_it_can_be_used_again_after_it_was_closed(pipes: Pipes) -> None:
    for pipe in pipes.all:
        pipe.watch.cancel()
    pipes.watches.close()
    again = Pipe(pipes.watches, pipes.conditions.changed)
    again.write(b"x")

    await pipes.until(lambda: bool(again.read))

    again.close()
