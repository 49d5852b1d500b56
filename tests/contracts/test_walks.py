"""The walks through the code that ``docs/message.md`` tells: each function is where it says, and is called.

A function on that page is `Class.method` or `function()`; its file is named in the same item or paragraph.
"""

import ast
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from docs.pages import PAGES
from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    AskCircleError,
    AskTimeoutError,
    Backoff,
    ChildSpec,
    Context,
    ExitReason,
    GetChild,
    MailboxFullError,
    MailboxPolicy,
    NoSuchChildError,
    RestartBudget,
    RestartKind,
    Strategy,
    Supervisor,
)
from swactor.testing import ManualClock, until

ROOT = PAGES.parent
PAGE = PAGES / "message.md"
FILE = re.compile(r"`(swactor/[\w/]+\.py)`")
FUNCTION = re.compile(r"`([A-Z]\w*\.\w+|\w+\(\))`")


def items(page: str) -> Iterator[str]:
    """Each paragraph, list item and table row of a page."""
    yield from re.split(r"\n\s*\n|\n(?=\d+\. |- |\| )", page)


def functions(item: str) -> set[str]:
    return {name.removesuffix("()") for name in FUNCTION.findall(item)}


def defined(path: Path) -> set[str]:
    """The functions of a file, methods as ``Class.method``."""

    def inside(node: ast.AST, prefix: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + child.name
                yield from inside(child, f"{prefix}{child.name}.")

    return set(inside(ast.parse(path.read_text(encoding="utf-8")), ""))


def test_every_function_is_in_a_file_that_is_named_with_it() -> None:
    for item in items(PAGE.read_text(encoding="utf-8")):
        named = [defined(ROOT / path) for path in FILE.findall(item)]
        assert functions(item) <= set().union(*named), item


def walk(heading: str) -> set[str]:
    """The functions that the walk under ``heading`` names."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    return functions(section)


@contextmanager
def calls() -> Iterator[set[str]]:
    """The functions of the runtime that are called meanwhile, as the page names them."""
    called: set[str] = set()

    def note(frame: FrameType, kind: str, _: object) -> None:
        if kind == "call" and frame.f_globals.get("__name__", "").startswith("swactor."):
            called.add(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)


class Counts(Actor[Any]):
    """Does what it is told by the message; answers how many came before."""

    def __init__(self) -> None:
        self.count = 0

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        self.count += 1
        match message:
            case "fail":
                raise ValueError(message)
            case "stop":
                ctx.stop()
            case "soon":
                ctx.send_after(0.0, "now")
            case "defer":
                ctx.defer()
        return self.count


class Waits(Counts):
    """The same, asynchronous; has a child."""

    def on_start(self, ctx: Context[Any]) -> None:
        ctx.spawn(Counts())

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        await anyio.lowlevel.checkpoint()
        return super().on_message(ctx, message)

    async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
        await anyio.lowlevel.checkpoint()


async def tell() -> None:
    async with ActorSystem() as system:
        await tell_all_kinds_of_things(system, Counts())
        await tell_all_kinds_of_things(system, Waits())


async def tell_all_kinds_of_things(system: ActorSystem, actor: Counts) -> None:
    ref = await system.spawn(actor, mailbox=MailboxPolicy(capacity=2_000))
    await ref.ask("soon")
    await until(lambda: actor.count == 2)
    for _ in range(2_000):
        ref.tell("a burst")
    with pytest.raises(MailboxFullError):
        ref.tell("one too many")
    await ref.send("as soon as there is room")
    await system.stop_actor(ref, drain=True)
    ref.tell("too late")


async def ask() -> None:
    class AsksItself(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> object:
            return await ctx.ref.ask(message)

    async with ActorSystem() as system:
        ref = await system.spawn(Counts())
        for _ in range(100):
            await ref.ask("inline")
        with pytest.raises(AskCircleError):
            await (await system.spawn(AsksItself())).ask("for ever")
        with pytest.raises(AskTimeoutError):
            await ref.ask("defer", timeout_s=0.001)
        async with anyio.create_task_group() as group:
            group.start_soon(expect, ActorDeadError, lambda: ref.ask("defer"))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(expect, ValueError, lambda: ref.ask("fail"))
            group.start_soon(expect, ActorDeadError, lambda: ref.ask("waits in the mailbox"))


async def expect(error: type[Exception], call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    with pytest.raises(error):
        await call()


class Stubborn(Waits):
    """Ignores its cancellation until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = anyio.Event(), anyio.Event()

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        self.begun.set()
        while not self.released.is_set():
            with suppress(anyio.get_cancelled_exc_class()):
                await self.released.wait()
        return None


class Watches(Counts):
    """Monitors another one."""

    def __init__(self, other: ActorRef[Any]) -> None:
        super().__init__()
        self._other = other

    def on_start(self, ctx: Context[Any]) -> None:
        ctx.monitor(self._other)


async def stop() -> None:
    clock = ManualClock()
    async with ActorSystem(clock=clock, loop=clock.loop) as system:
        for actor in (Counts(), Waits()):
            ref = await system.spawn(actor)
            ref.tell("something")
            await system.stop_actor(ref)
        await system.stop_actor(await system.spawn(Counts()), drain=True)
        (await system.spawn(Counts())).tell("stop")
        stubborn = Stubborn()
        ref = await system.spawn(stubborn, name="stubborn")
        await system.spawn(Watches(ref))
        ref.tell("anything")
        await stubborn.begun.wait()
        assert (await clock.run(system.stop_actor(ref))).abnormal
        stubborn.released.set()


async def restart() -> None:
    async with ActorSystem() as system:
        specs = [
            ChildSpec("a", Counts),
            ChildSpec("b", Counts),
            ChildSpec("once", Counts, restart=RestartKind.TEMPORARY),
        ]
        supervisor = await system.spawn(
            Supervisor(
                specs,
                strategy=Strategy.ONE_FOR_ALL,
                budget=RestartBudget(restarts_max=1),
                backoff=Backoff(first_s=0.001),
            )
        )
        child = await supervisor.ask(GetChild("a"))
        with pytest.raises(ValueError, match="fail"):
            await child.ask("fail")
        assert await child.ask("handled by the next life") == 1
        with pytest.raises(NoSuchChildError):
            await supervisor.ask(GetChild("once"))
        with suppress(ActorDeadError):
            child.tell("fail")
        assert (await system.wait_stopped(supervisor)).abnormal


@pytest.mark.parametrize(
    ("heading", "scenario"),
    [("A tell", tell), ("An ask", ask), ("A stop", stop), ("A failure and a restart", restart)],
    ids=["tell", "ask", "stop", "restart"],
)
async def test_every_function_of_a_walk_is_called(
    heading: str, scenario: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    with calls() as called:
        await scenario()
    assert walk(heading) - called == set()
