"""The sections of a summary, one a file: ``TITLE``, pure ``rows(run)``, ``render(rows)``.

Owns: their order. A section without data renders one line that says what would supply it.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from swactor_diag.postproc import load
from swactor_diag.postproc.sections import (
    application,
    dials,
    event_totals,
    first_dead,
    gossip,
    hosts,
    nodes,
    relay_sessions,
    run,
    unread,
    workers,
)

__all__ = ["SECTIONS", "Section"]

_R = TypeVar("_R")


class Section(NamedTuple):
    """One part of the summary."""

    title: str
    body: Callable[[load.Run], str]


def _section(title: str, rows: Callable[[load.Run], _R], render: Callable[[_R], str]) -> Section:
    return Section(title, lambda run: render(rows(run)))


SECTIONS = (
    _section(run.TITLE, run.rows, run.render),
    _section(nodes.TITLE, nodes.rows, nodes.render),
    _section(hosts.TITLE, hosts.rows, hosts.render),
    _section(workers.TITLE, workers.rows, workers.render),
    _section(application.TITLE, application.rows, application.render),
    _section(first_dead.TITLE, first_dead.rows, first_dead.render),
    _section(relay_sessions.TITLE, relay_sessions.rows, relay_sessions.render),
    _section(gossip.TITLE, gossip.rows, gossip.render),
    _section(dials.TITLE, dials.rows, dials.render),
    _section(event_totals.TITLE, event_totals.rows, event_totals.render),
    _section(unread.TITLE, unread.rows, unread.render),
)
