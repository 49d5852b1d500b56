"""Actors that own subprocesses: supervision, names, timers, and two read-only surfaces for diagnostics.

Everything an actor author needs is here; the protocols that ports implement are in ``swactor.abc``.
"""

from swactor._actor import Actor
from swactor._context import Context
from swactor._errors import (
    ActorDeadError,
    AskCircleError,
    AskTimeoutError,
    ChildFailedError,
    LinkedActorFailedError,
    MailboxFullError,
    NameTakenError,
    NotAskedError,
    RestartBudgetSpentError,
    SwactorError,
    SystemStoppingError,
)
from swactor._events import Event
from swactor._ids import ActorId, NodeId, parse_node_id
from swactor._loop import running_loop
from swactor._mailbox import MailboxPolicy, Overflow
from swactor._messages import Down, ExitKind, ExitReason, Request, WithReceipt
from swactor._moments import (
    ActorFailed,
    ActorRestarted,
    ActorSpawned,
    ActorStopped,
    ActorStuck,
    DeadLetters,
    HandlerBlocked,
)
from swactor._ports import SystemClock, SystemRandom
from swactor._ref import ActorRef
from swactor._reply import Reply
from swactor._restart import Backoff, RestartBudget, RestartKind, Strategy
from swactor._statistics import ActorStatistics, SystemStatistics
from swactor._supervisor import (
    ChildExistsError,
    ChildSpec,
    GetChild,
    NoSuchChildError,
    StartChild,
    Supervisor,
)
from swactor._system import ActorSystem, ShutdownReport
from swactor._watchdog import ThreadWatchdog

__all__ = [
    "Actor",
    "ActorDeadError",
    "ActorFailed",
    "ActorId",
    "ActorRef",
    "ActorRestarted",
    "ActorSpawned",
    "ActorStatistics",
    "ActorStopped",
    "ActorStuck",
    "ActorSystem",
    "AskCircleError",
    "AskTimeoutError",
    "Backoff",
    "ChildExistsError",
    "ChildFailedError",
    "ChildSpec",
    "Context",
    "DeadLetters",
    "Down",
    "Event",
    "ExitKind",
    "ExitReason",
    "GetChild",
    "HandlerBlocked",
    "LinkedActorFailedError",
    "MailboxFullError",
    "MailboxPolicy",
    "NameTakenError",
    "NoSuchChildError",
    "NodeId",
    "NotAskedError",
    "Overflow",
    "Reply",
    "Request",
    "RestartBudget",
    "RestartBudgetSpentError",
    "RestartKind",
    "ShutdownReport",
    "StartChild",
    "Strategy",
    "Supervisor",
    "SwactorError",
    "SystemClock",
    "SystemRandom",
    "SystemStatistics",
    "SystemStoppingError",
    "ThreadWatchdog",
    "WithReceipt",
    "parse_node_id",
    "running_loop",
]
