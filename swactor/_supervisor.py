"""The supervisor: an actor whose work is to keep its children running.

Owns: starting children in order, applying restart decisions, giving up when the budget is spent.
Not here: the decisions themselves (`_restart`, pure), the life of a single child (`_cell`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from swactor._actor import Actor
from swactor._cell import Cell
from swactor._errors import (
    NotAskedError,
    RestartBudgetSpentError,
    SwactorError,
    raise_if_for_the_process,
    tellable,
)
from swactor._mailbox import DEFAULT_POLICY, MailboxPolicy
from swactor._messages import ASKED_TO_STOP, COMPLETED, ExitReason, Request, Stop, error_text
from swactor._moments import ActorRestarted
from swactor._ref import ActorRef
from swactor._restart import (
    ONE_FOR_ONE,
    TEMPORARY,
    Backoff,
    RestartBudget,
    RestartHistory,
    RestartKind,
    Strategy,
    affected,
    wants_restart,
)
from swactor._seconds import check_seconds
from swactor._states import DOWN, ENDED, RUNNING

if TYPE_CHECKING:
    from swactor._context import Context

log = logging.getLogger("swactor")


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How a child is started, when it is restarted, how long it may take to stop."""

    id: str
    """Unique within the supervisor, and the last part of the child's path."""
    factory: Callable[[], Actor[Any]]
    """Called for each life of the child: state begins anew with it."""
    restart: RestartKind = RestartKind.PERMANENT
    shutdown_grace_s: float = 5.0
    """Seconds it has to stop before it is cancelled."""
    mailbox: MailboxPolicy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        """Check the time.

        Raises:
            ValueError: ``shutdown_grace_s`` is no number.
        """
        check_seconds("shutdown_grace_s", self.shutdown_grace_s)


@dataclass(frozen=True, slots=True)
class GetChild(Request[ActorRef[Any]]):
    """Ask a supervisor for the address of a child; it stays the same across restarts.

    The asker gets `NoSuchChildError` when there is none (any more).
    """

    id: str


@dataclass(frozen=True, slots=True)
class StartChild(Request[ActorRef[Any]]):
    """Ask a supervisor to start one more child, the newest from then on; the reply is its address.

    When the id is taken (`ChildExistsError`), or the factory raises, the asker gets the error and there is no
    such child. Once made it is a child like any other: an ``on_start`` that raises is a failure of it, and is
    tried again.
    """

    spec: ChildSpec


@dataclass(slots=True, eq=False)
class _Child:
    spec: ChildSpec
    cell: Cell
    part_of: _Restart | None = None
    """The restart under way, if it is part of one."""


@dataclass(slots=True, eq=False)
class _Restart:
    """A restart under way: those ``to_stop`` are stopped, then the delay passes, then all are started again.

    Stopped newest first, started in this order. It is its own timer: the key of it, and the message that
    comes when the delay is over.
    """

    children: dict[str, _Child]
    delay_s: float
    to_stop: list[_Child] = field(default_factory=list)
    """Those of them that still run, or did when it was last looked at; none: the delay is passing."""


SupervisorMessage: TypeAlias = GetChild | StartChild | _Restart


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


class Supervisor(Actor[SupervisorMessage]):
    """Starts children in the order given, stops them newest first, restarts them as told.

    With ONE_FOR_ONE each child waits for its own restart only; else one restart is under way at a time.
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
        self._group: _Restart | None = None
        """The restart of a group that is under way; there is one at a time, and none with ONE_FOR_ONE."""
        self._down_meanwhile: list[Cell] = []
        """Who came down during that and is no part of it."""

    def on_start(self, ctx: Context[SupervisorMessage]) -> None:
        """Start the children, in order; what a factory raises fails this start."""
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
                _refuse(ctx, NoSuchChildError(child_id))
            case StartChild(spec):
                try:
                    return self._start_child(spec)
                except BaseException as error:  # noqa: BLE001 - whatever a factory raises is the asker's
                    _refuse(ctx, error)
                    raise_if_for_the_process(error)
            case _Restart():
                self._carry_out(message)
        return None

    def _start_child(self, spec: ChildSpec) -> ActorRef[Any]:
        if spec.id in self._children:
            raise ChildExistsError(spec.id)
        parent = self._ctx._cell
        cell = parent.system.new_cell(parent, spec.factory(), name=spec.id, policy=spec.mailbox)
        cell.supervised = True
        cell.own_grace_s = spec.shutdown_grace_s
        self._children[spec.id] = _Child(spec, cell)
        cell.start()
        return cell.ref

    # -- one child came down ------------------------------------------------------------------------------

    def _child_down(self, cell: Cell, reason: ExitReason) -> None:
        child = self._children.get(cell.name or "")
        if child is None or cell.state is not DOWN or cell.reason is not reason:
            return  # it was let go, or started again with another one, before this news was heard
        if cell.retired:
            self._let_go(child)
        elif child.part_of is not None:
            if child.part_of.to_stop:
                self._go_on_stopping(child.part_of)
        elif not wants_restart(child.spec.restart, reason):
            self._let_go(child)
        elif self._group is not None:
            self._down_meanwhile.append(cell)
        else:
            self._decide(child, reason.error)

    def _let_go(self, child: _Child) -> None:
        """It is not to come back: it ends for good, and a restart under way goes on without it."""
        del self._children[child.spec.id]
        self._ctx._cell.forget_child(child.cell)
        restart = child.part_of
        if restart is not None:
            del restart.children[child.spec.id]
            if restart.to_stop:
                self._go_on_stopping(restart)
            elif not restart.children:
                self._ctx.cancel(restart)
                self._carry_out(restart)

    def _decide(self, child: _Child, error: BaseException | None) -> None:
        """Restart ``child``, and whom it takes along, now or later; with the budget spent, fail."""
        before = self._history.admit(child.cell.serial, self._ctx.clock.monotonic_ns(), error)
        if before is None:
            budget = self._history.budget
            spent = RestartBudgetSpentError(child.spec.id, budget.restarts_max, budget.period_s)
            spent.__cause__ = self._history.story(error)
            self._ctx._cell.fail(spent)
            return
        delay_s = self._backoff.drawn_s(before, self._ctx.random) if self._backoff.first_s else 0.0
        if self._strategy is ONE_FOR_ONE and not delay_s:
            self._start_again(child, delay_s)
        else:
            self._begin(child, delay_s)

    # -- a restart that takes its time --------------------------------------------------------------------

    def _begin(self, failed: _Child, delay_s: float) -> None:
        ids = affected(self._strategy, self._children, failed.spec.id)
        restart = _Restart({child_id: self._children[child_id] for child_id in ids}, delay_s)
        for child in restart.children.values():
            child.part_of = restart
            if child.cell.state is not DOWN:
                restart.to_stop.append(child)
        if self._strategy is not ONE_FOR_ONE:
            self._group = restart
        self._go_on_stopping(restart)

    def _go_on_stopping(self, restart: _Restart) -> None:
        """Stop the newest that still runs; when none does, wait for the delay."""
        to_stop = restart.to_stop
        while to_stop and to_stop[-1].cell.state in (DOWN, ENDED):
            to_stop.pop()
        if to_stop:
            newest = to_stop[-1]
            newest.cell.signal(Stop(ASKED_TO_STOP, newest.spec.shutdown_grace_s))
        elif restart.delay_s and restart.children:
            self._ctx.send_after(restart.delay_s, restart)
        else:
            self._carry_out(restart)

    def _carry_out(self, restart: _Restart) -> None:
        """The delay is over: start them, then see to who came down meanwhile."""
        self._group = None
        for child in restart.children.values():
            child.part_of = None
            if _comes_back(child):
                self._start_again(child, restart.delay_s)
            else:
                self._let_go(child)
        down_meanwhile, self._down_meanwhile = self._down_meanwhile, []
        for cell in down_meanwhile:
            if self._ctx._cell.state is RUNNING:
                self._child_down(cell, cell.reason)

    def _start_again(self, child: _Child, delay_s: float) -> None:
        cell = child.cell
        if not cell.system.is_running:
            return  # it would start only in order to be stopped, and could have no children
        if cell.system.observers:
            self._ctx.emit(_restarted(cell, delay_s))
        try:
            actor = child.spec.factory()
        except BaseException as error:  # noqa: BLE001 - whatever a factory raises is the child's failure
            actor = _FactoryFailed(error)
        cell.restart(actor)


class _FactoryFailed(Actor[Any]):
    """Stands in for the fresh instance that could not be made: it fails to start, and why is known."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def on_start(self, ctx: Context[Any]) -> None:  # noqa: ARG002 - the hook's signature
        raise self._error


def _comes_back(child: _Child) -> bool:
    """Whether it is started again with the others: not if it had finished just before, for good."""
    kind, reason = child.spec.restart, child.cell.reason
    if kind is TEMPORARY or child.cell.retired:
        return False
    return reason.kind is not COMPLETED or wants_restart(kind, reason)


def _refuse(ctx: Context[Any], error: BaseException) -> None:
    """Answer with ``error``; when nobody asked, say so to people at least."""
    try:
        reply = ctx.defer()
    except NotAskedError:
        log.exception("%s could not do as told: %s", ctx.actor_id, error_text(error), exc_info=error)
    else:
        reply.fail(tellable(error, ctx.actor_id))


def _restarted(cell: Cell, delay_s: float) -> ActorRestarted:
    return ActorRestarted(
        actor=cell.path,
        actor_type=cell.kind.name,
        restarts=cell.restarts + 1,
        delay_ms=round(delay_s * 1000),
    )
