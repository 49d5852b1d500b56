"""A stream that is not read for a while: the child waits, nothing is lost. Real and scripted children."""

from collections.abc import AsyncIterator, Callable

import pytest

from swactor import ActorSystem
from swactor_process import LinuxSpawner, ProcessSpec, Spawner, Stream
from swactor_process.testing import Exit, RecordingListener, Say, Script, ScriptedSpawner

from .conftest import eventually, sh

BYTES = 300_000
BLOCK = 10_000
WRITES = "printf start >&2; head -c 300000 /dev/zero | tr '\\0' x; printf done >&2; exit 3"


def _script(_: ProcessSpec) -> Script:
    said = tuple(Say(b"x" * BLOCK) for _ in range(BYTES // BLOCK))
    start, done = (Say(word, stream=Stream.STDERR) for word in (b"start", b"done"))
    return Script(begin=(start, *said, done, Exit(3)))


@pytest.fixture(params=["real", "scripted"])
async def writing(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Spawner, ActorSystem, ProcessSpec]]:
    """A spawner, its system, and a program that writes 300 kB between two words on stderr."""
    async with ActorSystem() as system:
        if request.param == "real":
            with LinuxSpawner(system.loop) as spawner:
                yield spawner, system, sh(WRITES, guarded=False)
        else:
            scripted = ScriptedSpawner(system.loop, system.clock, programs={"p": _script})
            yield scripted, system, ProcessSpec(program="p", label="child")


Writing = tuple[Spawner, ActorSystem, ProcessSpec]


async def test_a_child_waits_while_its_stream_is_paused_and_nothing_is_lost(writing: Writing) -> None:
    spawner, system, spec = writing
    listener = RecordingListener(system.loop)
    child = spawner.spawn(spec, listener)
    child.pause(Stream.STDOUT)
    child.pause(Stream.STDOUT)
    await listener.until(lambda: listener.data[Stream.STDERR] == b"start")
    await _expect_silence(lambda: bool(listener.data[Stream.STDOUT]) or listener.status is not None)
    assert listener.data[Stream.STDERR] == b"start"

    child.resume(Stream.STDOUT)
    child.resume(Stream.STDOUT)

    assert (await listener.until_over()).exit_code == 3
    assert listener.data == {Stream.STDOUT: b"x" * BYTES, Stream.STDERR: b"startdone"}
    child.pause(Stream.STDOUT)
    child.resume(Stream.STDOUT)
    child.reap()
    child.close()


async def test_the_rest_of_a_paused_stream_and_its_end_can_be_had_after_the_exit() -> None:
    script = Script(begin=(Say(b"words", after_s=0.01), Exit(3)))
    async with ActorSystem() as system:
        with LinuxSpawner(system.loop) as real:
            scripted = ScriptedSpawner(system.loop, system.clock, programs={"p": lambda _: script})
            await _check_rest(real, system, sh("sleep 0.01; printf words; exit 3", guarded=False))
            await _check_rest(scripted, system, ProcessSpec(program="p", label="child"))


async def _check_rest(spawner: Spawner, system: ActorSystem, spec: ProcessSpec) -> None:
    listener = RecordingListener(system.loop)
    child = spawner.spawn(spec, listener)
    child.pause(Stream.STDOUT)
    await listener.until(lambda: {"exited", "eof stderr"} <= set(listener.heard))
    assert "eof stdout" not in listener.heard

    child.read_rest()

    assert listener.data[Stream.STDOUT] == b"words"
    assert listener.heard.count("eof stdout") == 1
    child.reap()
    child.close()


async def test_a_paused_stream_that_is_closed_lets_a_scripted_child_go_on() -> None:
    async with ActorSystem() as system:
        spawner = ScriptedSpawner(system.loop, system.clock, programs={"p": _script})
        child = spawner.spawn(ProcessSpec(program="p", label="child"), RecordingListener(system.loop))
        child.pause(Stream.STDOUT)

        child.close()

        await eventually(lambda: spawner.living() == ())


async def _expect_silence(spoken: Callable[[], bool]) -> None:
    with pytest.raises(TimeoutError):  # what is read at all is read within milliseconds
        await eventually(spoken, timeout_s=0.1)
