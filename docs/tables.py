"""The tables of the documentation that follow from the code; ``make docs`` writes them into their pages.

Owns: what each table says. Not here: where it stands on its page (`pages`).
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from docs import records
from docs.pages import PAGES, with_parts
from swactor import (
    ActorRef,
    Backoff,
    ExitKind,
    ExitReason,
    MailboxPolicy,
    RestartBudget,
    RestartKind,
    Strategy,
)
from swactor._life import CANCEL_WAIT_S, DEFAULT_GRACE_S
from swactor._restart import affected, wants_restart
from swactor._runqueue import DRAIN_BUDGET_NS, FAST_BATCH_MESSAGES, HOLD_BATCHES, TURN_MESSAGES

CHILDREN = ("a", "b", "c")
ENDED = "b"
"""The child of whose end the tables tell."""
CHILD_ENDS = tuple(kind for kind in ExitKind if kind is not ExitKind.NODE_DOWN)
"""How a child can end; a remote actor is nobody's child."""


def restarts() -> str:
    """Who is started again: restart kind and exit by strategy."""
    rows = [
        (f"`{kind.name}`", f"`{end.name}`", *(_started(strategy, kind, end) for strategy in Strategy))
        for kind in RestartKind
        for end in CHILD_ENDS
    ]
    return _table(("`b` is", "it ends", *(f"`{strategy.name}`" for strategy in Strategy)), rows)


def _started(strategy: Strategy, kind: RestartKind, end: ExitKind) -> str:
    if not wants_restart(kind, ExitReason(end)):
        return "nobody"
    return _names(affected(strategy, CHILDREN, ENDED))


def orders() -> str:
    """In which order children are stopped and started, by strategy."""
    rows = []
    for strategy in Strategy:
        started = affected(strategy, CHILDREN, ENDED)
        stopped = [child for child in reversed(started) if child != ENDED]
        rows.append((f"`{strategy.name}`", _names(stopped) or "nobody", _names(started)))
    return _table(("strategy", "stopped, one after the other", "then started, one after the other"), rows)


def delays() -> str:
    """How long each restart of one child waits by the default backoff, as far as the default budget goes."""
    budget, backoff = RestartBudget(), Backoff()
    rows = [
        (
            str(attempt + 1),
            f"{backoff.delay_s(attempt, 1.0):g} s",
            f"{backoff.delay_s(attempt, 0.0):g} s",
        )
        for attempt in range(budget.restarts_max)
    ]
    return _table((f"restart of one child within {budget.period_s:g} s", "waits more than", "at most"), rows)


def limits() -> str:
    """The limits of the runtime and their defaults."""
    timeout_s = inspect.signature(ActorRef.ask).parameters["timeout_s"].default
    rows = [
        ("messages in one turn of an actor", f"{TURN_MESSAGES}", ""),
        ("budget of one drain of the run queue", f"{DRAIN_BUDGET_NS / 1e6:g} ms", ""),
        (
            "messages that an asynchronous actor handles without waiting, within that budget",
            f"{FAST_BATCH_MESSAGES * HOLD_BATCHES:,}",
            "",
        ),
        ("messages in a mailbox", f"{MailboxPolicy().capacity:,}", "`mailbox=MailboxPolicy(capacity)`"),
        ("time for a reply", f"{timeout_s:g} s", "`ask(..., timeout_s=)`"),
        ("grace of a stop", f"{DEFAULT_GRACE_S:g} s", "`grace_s=`, `ChildSpec(shutdown_grace_s=)`"),
        ("time to notice a cancellation", f"{CANCEL_WAIT_S:g} s", ""),
    ]
    return _table(("limit", "default", "set by"), rows)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "actors.md": {"limits": limits},
    "records.md": {
        "boot": records.boot,
        "events": records.events,
        "snapshot": records.snapshot,
        "manifest": records.manifest,
        "parts": records.parts,
    },
    "supervision.md": {"restarts": restarts, "orders": orders, "delays": delays},
}
"""Every generated part, by page and name."""

FILES: Mapping[str, Callable[[], str]] = {"bundle.schema.json": records.schema_file}
"""Every file that is generated as a whole, by name."""


def written(page: Path) -> str:
    """Return the text of ``page`` as it has to be."""
    parts = {name: make() for name, make in PARTS[page.name].items()}
    return with_parts(page.read_text(encoding="utf-8"), parts)


def _names(children: Iterable[str]) -> str:
    return ", ".join(f"`{child}`" for child in children)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    for name in PARTS:
        (PAGES / name).write_text(written(PAGES / name), encoding="utf-8")
    for name, make in FILES.items():
        (PAGES / name).write_text(make(), encoding="utf-8")
