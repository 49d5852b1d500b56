"""What concerns more than one actor: an exception meant for the whole program, a tell from another thread."""

import threading
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from swactor import Actor, ActorStopped, ActorStuck, ActorSystem, Context, MailboxPolicy
from swactor.testing import Recorder, until


class Leaves(Actor[Any]):
    """Ends the program, or tries to, some time after it began to stop."""

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        if message == "stop first":
            ctx.stop()
            await anyio.sleep(0.001)
        raise SystemExit(3)


class Gated(Actor[Any]):
    def __init__(self, gate: anyio.Event) -> None:
        self._gate = gate

    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        await self._gate.wait()


@pytest.mark.parametrize("message", ["at once", "stop first"])
def test_a_system_exit_in_an_asynchronous_handler_ends_its_actor_and_the_program(
    message: str, every_backend: tuple[str, dict[str, Any]]
) -> None:
    name, options = every_backend
    system = ActorSystem()
    recorder = Recorder(system)

    async def main() -> None:
        async with system:
            ref = await system.spawn(Leaves())
            ref.tell(message)
            await system.wait_stopped(ref)

    if name == "trio":  # a trio program is left by its main task only
        anyio.run(main, backend=name, backend_options=options)
    else:
        with pytest.raises(SystemExit):
            anyio.run(main, backend=name, backend_options=options)
    assert [event.reason for event in recorder.of(ActorStopped)] == ["failed"]
    assert recorder.of(ActorStuck) == ()


class Interrupted(Actor[Any]):
    def on_message(self, ctx: Context[Any], message: Any) -> None:
        raise KeyboardInterrupt


class InterruptedLater(Actor[Any]):
    async def on_message(self, ctx: Context[Any], message: Any) -> None:
        await anyio.lowlevel.checkpoint()
        raise KeyboardInterrupt


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("make", [Interrupted, InterruptedLater])
def test_a_keyboard_interrupt_in_a_handler_ends_its_actor_and_the_program(
    make: type[Actor[Any]], every_backend: tuple[str, dict[str, Any]]
) -> None:
    name, options = every_backend
    system = ActorSystem()
    recorder = Recorder(system)

    async def main() -> None:
        async with system:
            ref = await system.spawn(make())
            ref.tell("now")
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(main, backend=name, backend_options=options)
    assert [event.reason for event in recorder.of(ActorStopped)] == ["failed"]


async def _told_from_a_thread() -> list[str]:
    gate = anyio.Event()
    async with ActorSystem() as system:
        ref = await system.spawn(Gated(gate), mailbox=MailboxPolicy(capacity=1))
        ref.tell("under way")
        await until(lambda: system.statistics().actors[0].handling is not None)
        ref.tell("waits")
        thread = threading.Thread(target=lambda: system.loop.call_from_thread(partial(ref.tell, "too much")))
        thread.start()
        thread.join()
        alive = anyio.Event()
        system.loop.call_from_thread(alive.set)
        await alive.wait()
        gate.set()
    return ["the rest goes on"]


def test_a_mailbox_that_refuses_what_another_thread_tells_hurts_nobody_else(
    every_backend: tuple[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    name, options = every_backend
    assert anyio.run(_told_from_a_thread, backend=name, backend_options=options) == ["the rest goes on"]
    assert "MailboxFullError" in caplog.text
