"""A process that is started again when it ends: the supervisor of one process, as a child of your supervisor.

Owns: `process_child`; when the process is started again, when that is given up, that it is tried again slowly
then; one address for commands, whichever attempt runs.
Not here: one attempt (``driver``), what the owner is told of it (``messages``). Uses the clock and the random
numbers of its system, so a simulation repeats it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, TypeAlias

from msgspec import Struct

from swactor import (
    Actor,
    ActorDeadError,
    ActorRef,
    Backoff,
    ChildSpec,
    Context,
    Down,
    ExitKind,
    ExitReason,
    MailboxFullError,
    Reply,
    RestartBudget,
    RestartBudgetSpentError,
    RestartKind,
)
from swactor_process._errors import ProcessError
from swactor_process._outbox import Outbox
from swactor_process._owed import Owed
from swactor_process._rules import check_period
from swactor_process.driver import Forwarded, ProcessActor, reply_of
from swactor_process.events import SubprocessGivenUp
from swactor_process.messages import (
    ProcessCommand,
    ProcessExited,
    ProcessGivenUp,
    SpawnFailed,
    Stop,
    WriteStdin,
)
from swactor_process.spawner import Spawner, WriteOutcome
from swactor_process.spec import ProcessSpec
from swactor_process.surroundings import Surroundings

BACKOFF = Backoff(first_s=0.2, limit_s=30.0, jitter=0.5)
BUDGET = RestartBudget(restarts_max=8, period_s=300.0)
"""With `BACKOFF`: nine attempts within a minute, then it is given up."""
SLOW_RETRY_S = 300.0
SHUTDOWN_GRACE_S = 5.0

log = logging.getLogger("swactor.process")


class ProcessFailedError(ProcessError):
    """A process ended as it should not have. ``last`` is its last notification."""

    def __init__(self, last: ProcessExited | SpawnFailed) -> None:
        super().__init__(f"{last.label} {last.describe()}")
        self.last = last


class _StartAgain(Struct, frozen=True):
    """To itself: the delay is over."""


KeptMessage: TypeAlias = ProcessCommand | Down | _StartAgain


def process_child(
    id: str,  # noqa: A002 - the name it has in `ChildSpec`
    spec: ProcessSpec,
    *,
    spawner: Spawner,
    owner: ActorRef[Any],
    watchers: tuple[ActorRef[Any], ...] = (),
    restart: RestartKind = RestartKind.PERMANENT,
    backoff: Backoff = BACKOFF,
    budget: RestartBudget = BUDGET,
    slow_retry_s: float | None = SLOW_RETRY_S,
    surroundings: Surroundings | None = None,
) -> ChildSpec:
    """Return the child spec of an actor that keeps ``spec`` running; give it to a `Supervisor`.

    ``owner`` hears every notification of every attempt, each attempt with a ``spawn_id`` of its own, and
    `ProcessGivenUp`. The address of the child takes commands for whichever attempt runs. PERMANENT starts the
    process again whenever it ends, TRANSIENT unless it exited with 0 or was asked to end, TEMPORARY never;
    who is not to be started again completes with the last notification. Stopping the child stops its process.

    Each start waits as ``backoff`` says, by the number of restarts within the period of ``budget``. When the
    budget is spent it is given up: the next attempt comes ``slow_retry_s`` later (less the jitter of
    ``backoff``), and so on until one has lived for a whole period. With None the child fails instead, and its
    supervisor decides.

    Raises:
        InvalidSpecError: ``slow_retry_s`` is no number of seconds above 0.
    """
    if slow_retry_s is not None:
        check_period("slow_retry_s", slow_retry_s)

    def make() -> KeptProcess:
        return KeptProcess(
            spec,
            spawner=spawner,
            owner=owner,
            watchers=watchers,
            restart=restart,
            backoff=backoff,
            budget=budget,
            slow_retry_s=slow_retry_s,
            surroundings=surroundings,
        )

    return ChildSpec(id, make, restart=restart, shutdown_grace_s=SHUTDOWN_GRACE_S)


class KeptProcess(Actor[KeptMessage]):
    """Keeps one process running; see `process_child`."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        spawner: Spawner,
        owner: ActorRef[Any],
        watchers: tuple[ActorRef[Any], ...],
        restart: RestartKind,
        backoff: Backoff,
        budget: RestartBudget,
        slow_retry_s: float | None,
        surroundings: Surroundings | None,
    ) -> None:
        self._spec, self._spawner, self._surroundings = spec, spawner, surroundings
        self._owner, self._watchers = owner, watchers
        self._restart = restart
        self._backoff, self._budget, self._slow_retry_s = backoff, budget, slow_retry_s
        self._process: ActorRef[Any] | None = None
        self._last: ProcessExited | SpawnFailed | None = None
        self._owed = Owed[Any, ProcessCommand]()
        self._started_s = 0.0
        self._restarts_s: deque[float] = deque()  # the moments of those within the period
        self._is_slow = False

    def on_start(self, ctx: Context[KeptMessage]) -> None:
        """Start the first attempt."""
        self._outbox = Outbox(ctx.loop, self._owner)
        self._start(ctx)

    def _start(self, ctx: Context[KeptMessage]) -> None:
        self._started_s = _now_s(ctx)
        process = ProcessActor(
            self._spec,
            spawner=self._spawner,
            owner=self._owner,
            watchers=self._watchers,
            surroundings=self._surroundings,
        )
        self._process = ctx.spawn(process)
        ctx.monitor(self._process)

    def on_message(self, ctx: Context[KeptMessage], message: KeptMessage) -> None:
        """Pass a command on, or see to it that there is a process."""
        match message:
            case Down():
                self._ended(ctx, message)
            case _StartAgain():
                self._start(ctx)
            case _ if self._process is not None:
                self._forward(self._process, message, reply_of(ctx))
            case _:
                self._answer(ctx, message, reply_of(ctx))

    def _forward(self, process: ActorRef[Any], command: ProcessCommand, reply: Reply[Any] | None) -> None:
        if reply is not None:
            self._owed.add(reply, command)
        try:
            process.tell(Forwarded(command, reply))
        except MailboxFullError as error:
            log.warning("%s has lost a %s: %s", self._spec.label, type(command).__name__, error)
            if reply is not None:
                reply.fail(error)

    def _answer(self, ctx: Context[KeptMessage], command: ProcessCommand, reply: Reply[Any] | None) -> None:
        """No process runs: a write fails, a stop has nothing to do, the rest was told."""
        match command:
            case _ if reply is None:
                pass
            case WriteStdin():
                reply.send(WriteOutcome.CHILD_GONE)
            case Stop() if self._last is not None:
                reply.send(self._last)
            case _:
                reply.fail(ActorDeadError(ctx.actor_id, "its process has ended"))

    def _ended(self, ctx: Context[KeptMessage], down: Down) -> None:
        self._process = None
        last = down.reason.value
        self._last = last if isinstance(last, ProcessExited | SpawnFailed) else None
        # What came when it had just ended, it has answered no more.
        for reply, command in self._owed.take():
            self._answer(ctx, command, reply)
        if not self._wants_restart(down.reason):
            ctx.stop(self._last)
            return
        error = down.reason.error or (None if self._last is None else ProcessFailedError(self._last))
        delay_s = self._delay_s(ctx)
        if delay_s is None:
            spent = RestartBudgetSpentError(
                self._spec.label, self._budget.restarts_max, self._budget.period_s
            )
            raise spent from error
        ctx.send_after(delay_s, _StartAgain())

    def _wants_restart(self, reason: ExitReason) -> bool:
        if reason.kind is ExitKind.STOPPED or self._restart is RestartKind.TEMPORARY:
            return False
        as_it_should = isinstance(self._last, ProcessExited) and (
            self._last.asked_for or self._last.exit_code == 0
        )
        return self._restart is RestartKind.PERMANENT or not as_it_should

    def _delay_s(self, ctx: Context[KeptMessage]) -> float | None:
        """Return how long to wait for the next attempt; None when the budget is spent for good."""
        now_s, period_s = _now_s(ctx), self._budget.period_s
        if self._is_slow and now_s - self._started_s < period_s:
            return self._give_up(ctx)
        self._is_slow = False
        while self._restarts_s and self._restarts_s[0] <= now_s - period_s:
            self._restarts_s.popleft()
        if len(self._restarts_s) >= self._budget.restarts_max:
            return self._give_up(ctx)
        self._restarts_s.append(now_s)
        return self._backoff.drawn_s(len(self._restarts_s) - 1, ctx.random)

    def _give_up(self, ctx: Context[KeptMessage]) -> float | None:
        slow_s = self._slow_retry_s
        if slow_s is not None:
            slow_s = Backoff(slow_s, slow_s, self._backoff.jitter).drawn_s(0, ctx.random)
        self._is_slow = True
        self._outbox.tell(
            ProcessGivenUp(child=ctx.ref, label=self._spec.label, last=self._last, retry_s=slow_s)
        )
        ctx.emit(
            SubprocessGivenUp(
                label=self._spec.label,
                last=None if self._last is None else self._last.describe(),
                retry_ms=None if slow_s is None else round(slow_s * 1e3),
            )
        )
        return slow_s


def _now_s(ctx: Context[Any]) -> float:
    return ctx.clock.monotonic_ns() / 1e9
