"""Does the driver keep its promises whatever children and owners do? Thousands of children, random torments.

Each child behaves as its dice say, gets random commands at random moments, and its owner may fail, stop or be
killed meanwhile. Then it is judged: exactly one start and one exit, or one refusal, in order; nothing is left
of children, zombies, descriptors, threads, tasks and actors. The exit status is 1 when anything is wrong.

What a child has to bear follows from ``--seed`` and its number, so ``--only`` repeats it alone.
"""

import argparse
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio

if not __package__:  # started as a file: its packages lie beside its folder
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.measure import Progress
from benches.torture_plan import Deed, Fate, Plan, make_plan
from benches.torture_verdict import Case, Resources, marked, own_children, own_threads
from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    AskTimeoutError,
    Context,
    Event,
    MailboxFullError,
    MailboxPolicy,
)
from swactor.abc import Loop
from swactor_process import (
    LinuxSpawner,
    PortableSpawner,
    ProcessCommand,
    ProcessExited,
    ProcessStarted,
    ProcessStillAlive,
    Spawner,
    SpawnFailed,
    Stop,
    WriteOutcome,
    WriteStdin,
    spawn_process,
)
from swactor_process.events import SubprocessSpawnFailed

RealSpawner = LinuxSpawner | PortableSpawner
SPAWNERS: dict[str, Callable[[Loop], RealSpawner]] = {
    "linux": LinuxSpawner,
    "portable": PortableSpawner,
}
LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
WARM_UP = 16
"""So many children come first, and do not count."""
LAST_WORD_S = 60.0
"""A child that is not over by then will never be; a busy loop gives a slow owner a turn every 0.1 s or so."""
SETTLE_S = 15.0
"""For what goes away by itself to be gone: timers, tasks, what a child left behind for a second."""
FAULTS_SHOWN = 20


@dataclass
class Outcome:
    """How a run went; ``faults`` is empty if all is well."""

    exits: int = 0
    refusals: int = 0
    took_s: float = 0.0
    before: Resources | None = None
    after: Resources | None = None
    faults: list[str] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Judge ``case``, of which nothing more will be heard."""
        self.exits += case.is_exited
        self.refusals += case.is_refused
        self.faults += [f"{case.plan}: {fault}" for fault in case.judge()]

    def __str__(self) -> str:
        held = f"held {self.before} before, {self.after} after"
        children = self.exits + self.refusals
        sums = f"{children} children: {self.exits} exits, {self.refusals} refusals, {self.took_s:.0f} s"
        verdict = f"{len(self.faults)} faults" if self.faults else "ok"
        return "\n".join([*self.faults[:FAULTS_SHOWN], held, f"torture: {verdict}; {sums}"])


class Owner(Actor[Any]):
    """Owns one child, and takes note of what it hears."""

    def __init__(self, case: Case, spawner: Spawner, watcher: ActorRef[Any]) -> None:
        self._case, self._spawner, self._watcher = case, spawner, watcher
        self.process: ActorRef[ProcessCommand]

    def on_start(self, ctx: Context[Any]) -> None:
        self.process = spawn_process(
            ctx, self._case.plan.spec, spawner=self._spawner, watchers=(self._watcher,)
        )

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        if message is Fate.FAIL:
            raise RuntimeError("as the dice say")
        self._case.owner_hears(message)
        return None


class SluggishOwner(Owner):
    """The same, slower."""

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        await anyio.sleep(0.001)
        return super().on_message(ctx, message)


class Ledger(Actor[Any]):
    """Hears of every start and exit; observes the refusals, of which nobody tells a watcher."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        if isinstance(message, ProcessStarted | ProcessExited):
            self.cases[message.label].watcher_hears(message)

    def observe(self, event: Event) -> None:
        """See `Observer.observe`."""
        if isinstance(event, SubprocessSpawnFailed):
            self.cases[event.label].observer_hears(event)


class Torture:
    """One run on a system and a spawner that are there."""

    def __init__(self, system: ActorSystem, spawner: RealSpawner, *, seed: int, folder: Path) -> None:
        self._system, self._spawner = system, spawner
        self._seed, self._folder = seed, folder
        self._ledger = Ledger()
        self._watcher: ActorRef[Any]
        self._other_threads: set[int] = set()
        self.mark = f"torture-{os.getpid()}-{time.monotonic_ns()}"
        self.outcome = Outcome()

    async def run(self, numbers: Iterable[int], *, at_once: int, on_child: Callable[[int], None]) -> None:
        """Torment the children of these numbers, so many at once."""
        outcome = self.outcome
        self._system.attach(self._ledger)
        self._watcher = await self._system.spawn(self._ledger, mailbox=MailboxPolicy(capacity=1_000_000))
        others = own_children()
        self._other_threads = own_threads()  # an idle one of a pool ends when it likes
        await self._torment_all(range(-WARM_UP, 0), at_once=WARM_UP)  # opens what is opened once
        self._ledger.cases.clear()
        outcome.before = await self._settled(None)
        began_s = time.perf_counter()
        await self._torment_all(numbers, at_once=at_once, on_child=on_child)
        outcome.took_s = time.perf_counter() - began_s
        outcome.after = await self._settled(outcome.before)
        for case in self._ledger.cases.values():
            outcome.add(case)
        if outcome.after != outcome.before:
            outcome.faults.append(f"held {outcome.before} before, and {outcome.after} after")
        if left := own_children() - others - {self._spawner.guardian_pid}:
            outcome.faults.append(f"children are left, or not reaped: {sorted(left)}")

    async def _torment_all(
        self, numbers: Iterable[int], *, at_once: int, on_child: Callable[[int], None] = lambda _: None
    ) -> None:
        left, done = iter(numbers), count(1)

        async def torment_one_after_the_other() -> None:
            for number in left:
                await self._torment(make_plan(self._seed, number, folder=self._folder, mark=self.mark))
                on_child(next(done))

        async with anyio.create_task_group() as tasks:
            for _ in range(at_once):
                tasks.start_soon(torment_one_after_the_other)

    async def _settled(self, wanted: Resources | None) -> Resources:
        """Return what is held; with ``wanted``, once it is that, or time is up."""
        until_s = anyio.current_time() + SETTLE_S
        while True:
            await anyio.sleep(0.05)
            held = Resources.now(
                tasks=len(anyio.get_running_tasks()),
                actors=len(self._system.statistics().actors),
                other_threads=self._other_threads,
            )
            if wanted in {None, held} or anyio.current_time() > until_s:
                return held

    async def _torment(self, plan: Plan) -> None:
        """Start one child, do to it what is planned, and wait until it is over."""
        case = self._ledger.cases[plan.spec.label] = Case(plan)
        owner = (SluggishOwner if plan.sluggish else Owner)(case, self._spawner, self._watcher)
        capacity = 2 if plan.sluggish else 1_000
        ref = await self._system.spawn(owner, mailbox=MailboxPolicy(capacity=capacity))
        async with anyio.create_task_group() as tasks:
            for at_s, deed in plan.deeds:
                tasks.start_soon(self._do, case, owner, ref, at_s, deed)
            with anyio.move_on_after(LAST_WORD_S) as waiting:
                await case.wait_over()
        if waiting.cancelled_caught:
            case.faults.append(f"no last word within {LAST_WORD_S:g} s")
        await self._system.stop_actor(ref)

    async def _do(self, case: Case, owner: Owner, ref: ActorRef[Any], at_s: float, deed: Deed) -> None:
        await anyio.sleep(at_s)
        match deed:
            case Fate.FAIL:
                await ref.send(deed)
            case Fate.STOP:
                await self._system.stop_actor(ref)
            case Fate.KILL:
                await self._system.stop_actor(ref, grace_s=0.0)
            case WriteStdin() | Stop() if case.plan.asks:
                await _ask(case, owner.process, deed)
            case _:
                with contextlib.suppress(MailboxFullError):
                    owner.process.tell(deed)


async def _ask(case: Case, process: ActorRef[ProcessCommand], deed: WriteStdin | Stop) -> None:
    try:
        answer = await process.ask(deed, timeout_s=LAST_WORD_S)
    except ActorDeadError:
        return  # it was over before
    except AskTimeoutError:
        case.faults.append(f"no answer to {type(deed).__name__}")
        return
    wanted = (
        (WriteOutcome,) if isinstance(deed, WriteStdin) else (ProcessExited, ProcessStillAlive, SpawnFailed)
    )
    if not isinstance(answer, wanted):
        case.faults.append(f"{type(deed).__name__} was answered with {answer!r}")


async def torture(
    make_spawner: Callable[[Loop], RealSpawner],
    numbers: Iterable[int],
    *,
    seed: int,
    at_once: int,
    on_child: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Torment the children of these numbers, and see that nothing is left of them."""
    with tempfile.TemporaryDirectory() as folder:
        async with ActorSystem() as system:
            with make_spawner(system.loop) as spawner:
                run = Torture(system, spawner, seed=seed, folder=Path(folder))
                await run.run(numbers, at_once=at_once, on_child=on_child)
                await system.shutdown()
    # Who ended unasked may have left somebody behind; the guard has now killed them.
    with anyio.move_on_after(SETTLE_S) as waiting:
        while marked(run.mark):  # noqa: ASYNC110 - the kernel sends no event for this
            await anyio.sleep(0.05)
    if waiting.cancelled_caught:
        run.outcome.faults.append(f"alive after all: {marked(run.mark)}")
    return run.outcome


def main() -> int:
    """Run it as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--children", type=int, default=5_000, help="how many (%(default)s)")
    parser.add_argument("--at-once", type=int, default=64, help="so many at the same time (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the dice (%(default)s)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="torment this child alone")
    parser.add_argument("--spawner", choices=SPAWNERS, default="linux", help="(%(default)s)")
    parser.add_argument("--loop", choices=LOOPS, default="asyncio", help="(%(default)s)")
    options = parser.parse_args()
    logging.getLogger("swactor").setLevel(logging.CRITICAL)  # owners fail by the hundred, as planned
    progress = Progress(1)
    progress.begin(f"torturing children on {options.loop}, seed {options.seed}")
    numbers = range(options.children) if options.only is None else (options.only,)
    run = partial(
        torture,
        SPAWNERS[options.spawner],
        numbers,
        seed=options.seed,
        at_once=options.at_once,
        on_child=lambda count: progress.part(f"{count} of {len(numbers)}"),
    )
    backend, backend_options = LOOPS[options.loop]
    outcome = anyio.run(run, backend=backend, backend_options=backend_options)
    progress.end()
    print(outcome)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
