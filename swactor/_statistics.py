"""The current values of a system: what an introspector reads.

Owns: the frozen records that `ActorSystem.statistics` returns. Moments are events instead (`_moments`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """One actor, now."""

    path: str
    serial: int
    actor_type: str
    state: str
    depth: int
    """User messages that wait."""
    handled: int
    """Messages handled since it was first started."""
    dropped: int
    """Messages lost to a full mailbox."""
    restarts: int
    handling: str | None
    """Type of the message an asynchronous actor is busy with."""


@dataclass(frozen=True, slots=True)
class SystemStatistics:
    """One system, now; actors in the order of the tree, parents first."""

    actors: tuple[ActorStatistics, ...]
    ready: int
    """Actors that wait for their turn."""
    dead_letters: int
