"""The tables of the documentation that follow from the code; ``make docs`` writes them into their pages.

Owns: what each table says. Not here: where it stands on its page (`pages`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from docs.pages import PAGES, with_parts
from swactor import ActorRef, MailboxPolicy
from swactor._life import CANCEL_WAIT_S, DEFAULT_GRACE_S
from swactor._runqueue import DRAIN_BUDGET_NS, TURN_MESSAGES
from swactor._serving import HOLD_TURNS


def limits() -> str:
    """The limits of the runtime and their defaults."""
    timeout_s = inspect.signature(ActorRef.ask).parameters["timeout_s"].default
    rows = [
        ("messages in one turn of an actor", f"{TURN_MESSAGES}", ""),
        ("budget of one drain of the run queue", f"{DRAIN_BUDGET_NS / 1e6:g} ms", ""),
        ("turns of an asynchronous actor that never waits, within that budget", f"{HOLD_TURNS}", ""),
        ("messages in a mailbox", f"{MailboxPolicy().capacity:,}", "`mailbox=MailboxPolicy(capacity)`"),
        ("time for a reply", f"{timeout_s:g} s", "`ask(..., timeout_s=)`"),
        ("grace of a stop", f"{DEFAULT_GRACE_S:g} s", "`grace_s=`, `ChildSpec(shutdown_grace_s=)`"),
        ("time to notice a cancellation", f"{CANCEL_WAIT_S:g} s", ""),
    ]
    return _table(("limit", "default", "set by"), rows)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "actors.md": {"limits": limits},
}
"""Every generated part, by page and name."""


def written(page: Path) -> str:
    """Return the text of ``page`` as it has to be."""
    parts = {name: make() for name, make in PARTS[page.name].items()}
    return with_parts(page.read_text(encoding="utf-8"), parts)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


if __name__ == "__main__":
    for name in PARTS:
        (PAGES / name).write_text(written(PAGES / name), encoding="utf-8")
