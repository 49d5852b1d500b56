"""The supervisor: an actor whose work is to keep its children running.

Owns: starting children in order, applying restart decisions, giving up when the budget is spent.
Not here: the decisions themselves (`_restart`, pure), the life of a single child (`_cell`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from swactor._actor import Actor
from swactor._cell import Cell
from swactor._errors import RestartBudgetSpentError, SwactorError
from swactor._mailbox import DEFAULT_POLICY, MailboxPolicy
from swactor._messages import COMPLETED, ExitKind, ExitReason, Request, Stop
from swactor._moments import ActorRestarted
from swactor._ref import ActorRef
from swactor._restart import (
    TEMPORARY,
    Backoff,
    RestartBudget,
    RestartHistory,
    RestartKind,
    Strategy,
    affected,
    wants_restart,
)
from swactor._states import DOWN, RUNNING

if TYPE_CHECKING:
    from swactor._context import Context


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How a child is started, when it is restarted, how long it may take to stop."""

    id: str
    factory: Callable[[], Actor[Any]]
    restart: RestartKind = RestartKind.PERMANENT
    shutdown_grace_s: float = 5.0
    mailbox: MailboxPolicy = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class GetChild(Request[ActorRef[Any]]):
    """Ask a supervisor for the address of a child; it stays the same across restarts."""

    id: str


@dataclass(frozen=True, slots=True)
class StartChild(Request[ActorRef[Any]]):
    """Ask a supervisor to start one more child, the newest from then on."""

    spec: ChildSpec


class _RestartDue:
    """The delay before a restart is over."""

    __slots__ = ()


_RESTART_DUE = _RestartDue()

SupervisorMessage: TypeAlias = GetChild | StartChild | _RestartDue


class NoSuchChildError(SwactorError):
    """The supervisor has no child with this id (any more)."""

    def __init__(self, child_id: str) -> None:
        super().__init__(f"no child {child_id!r}")
        self.child_id = child_id


class ChildExistsError(SwactorError):
    """The supervisor has a child with this id already; ids are unique within a supervisor."""

    def __init__(self, child_id: str) -> None:
        super().__init__(f"a child {child_id!r} exists already")
        self.child_id = child_id


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    cell: Cell


@dataclass(slots=True)
class _Plan:
    """One restart under way: the children still to stop, those to start afterwards, and the delay between."""

    restart: tuple[str, ...]
    delay_s: float
    to_stop: list[str]


class Supervisor(Actor[SupervisorMessage]):
    """Starts children in the order given, stops them newest first, restarts them as told.

    When the budget is spent it fails with `RestartBudgetSpentError`, so that its own parent decides.
    """

    def __init__(
        self,
        children: Sequence[ChildSpec] = (),
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        budget: RestartBudget | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._specs = tuple(children)
        self._strategy = strategy
        self._backoff = backoff or Backoff()
        self._history = RestartHistory(budget or RestartBudget())
        self._children: dict[str, _Child] = {}
        self._plan: _Plan | None = None
        self._waiting: list[tuple[str, ExitReason]] = []

    def on_start(self, ctx: Context[SupervisorMessage]) -> None:
        """Start the children, in order."""
        self._ctx = ctx
        ctx._cell.child_policy = self._child_down
        for spec in self._specs:
            self._start_child(spec)

    def on_message(self, ctx: Context[SupervisorMessage], message: SupervisorMessage) -> object:
        """Answer about children, start new ones, perform a restart whose delay is over."""
        match message:
            case GetChild(child_id):
                if child_id in self._children:
                    return self._children[child_id].cell.ref
                ctx.defer().fail(NoSuchChildError(child_id))
            case StartChild(spec):
                if spec.id not in self._children:
                    return self._start_child(spec)
                ctx.defer().fail(ChildExistsError(spec.id))
            case _RestartDue():
                if self._plan is not None:
                    self._carry_out(self._plan)
        return None

    def _start_child(self, spec: ChildSpec) -> ActorRef[Any]:
        parent = self._ctx._cell
        cell = parent.system.new_cell(parent, spec.factory(), name=spec.id, policy=spec.mailbox)
        cell.supervised = True
        cell.grace_s = spec.shutdown_grace_s
        self._children[spec.id] = _Child(spec, cell)
        cell.start()
        return cell.ref

    # -- one child came down ------------------------------------------------------------------------------

    def _child_down(self, cell: Cell, reason: ExitReason) -> None:
        child_id = cell.name
        if child_id is None or child_id not in self._children:
            return
        if cell.retired:
            self._let_go(child_id)
            if self._plan is not None and child_id in self._plan.to_stop:
                self._plan.to_stop.remove(child_id)
                self._go_on_stopping(self._plan)
        elif self._plan is not None:
            if child_id in self._plan.to_stop:
                self._plan.to_stop.remove(child_id)
                self._go_on_stopping(self._plan)
            elif child_id not in self._plan.restart:
                self._waiting.append((child_id, reason))
        else:
            self._decide(child_id, reason)

    def _let_go(self, child_id: str) -> None:
        child = self._children.pop(child_id)
        self._ctx._cell.forget_child(child.cell)

    def _decide(self, child_id: str, reason: ExitReason) -> None:
        child = self._children[child_id]
        if not wants_restart(child.spec.restart, reason):
            self._let_go(child_id)
            return
        attempt = self._history.admit(self._ctx.clock.monotonic_ns(), reason.error)
        if attempt is None:
            budget = self._history.budget
            error = RestartBudgetSpentError(child_id, budget.restarts_max, budget.period_s)
            error.__cause__ = self._history.story(reason.error)
            self._ctx._cell._fail(error)
            return
        ids = affected(self._strategy, self._children, child_id)
        delay_s = self._delay_s(attempt) if self._backoff.first_s else 0.0
        others = ids if len(ids) > 1 else ()
        to_stop = [i for i in others if self._children[i].cell.state is not DOWN]
        if to_stop or delay_s:
            self._plan = _Plan(ids, delay_s, to_stop)
            self._go_on_stopping(self._plan)
        else:
            self._start_again(ids, delay_s)

    def _delay_s(self, attempt: int) -> float:
        return self._backoff.delay_s(attempt, self._ctx.random.below(1 << 32) / (1 << 32))

    def _go_on_stopping(self, plan: _Plan) -> None:
        if plan.to_stop:
            child = self._children[plan.to_stop[-1]]
            child.cell.signal(Stop(ExitReason(ExitKind.STOPPED), child.spec.shutdown_grace_s))
        else:
            self._ctx.send_after(plan.delay_s, _RESTART_DUE)

    def _start_again(self, ids: tuple[str, ...], delay_s: float) -> None:
        for child_id in ids:
            child = self._children.get(child_id)
            if child is None:
                continue  # it was stopped for good meanwhile
            if child.spec.restart is TEMPORARY or self._had_finished(child):
                self._let_go(child_id)
                continue
            if self._ctx.system.observers:
                self._ctx.emit(_restarted(child.cell, delay_s))
            child.cell.restart(child.spec.factory())

    @staticmethod
    def _had_finished(child: _Child) -> bool:
        """Whether it had come to an end of its own, for good, just before another one failed."""
        reason = child.cell.reason
        return reason.kind is COMPLETED and not wants_restart(child.spec.restart, reason)

    def _carry_out(self, plan: _Plan) -> None:
        """The delay is over: start what is to be started, then see to who came down meanwhile."""
        self._plan = None
        self._start_again(plan.restart, plan.delay_s)
        waiting, self._waiting = self._waiting, []
        for child_id, reason in waiting:
            if child_id in self._children and self._ctx._cell.state is RUNNING:
                self._child_down(self._children[child_id].cell, reason)


def _restarted(cell: Cell, delay_s: float) -> ActorRestarted:
    return ActorRestarted(
        actor=cell.path,
        actor_type=cell.kind.name,
        restarts=cell.restarts + 1,
        delay_ms=round(delay_s * 1000),
    )
