"""What the cluster's introspectors look at, or that there is nothing to look at yet or any more.

Owns: the part of a cluster they need, and the one rule they share: not running is "no data", not a failure.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from swactor.cluster import ClusterNotRunningError, LinksView, NamesView, SwimView

V = TypeVar("V")


class ClusterSurfaces(Protocol):
    """The surfaces of `swactor.cluster.Cluster`; each raises `ClusterNotRunningError` while it is stopped."""

    def swim_view(self) -> SwimView:
        """Return what the failure detector believes."""
        ...

    def names_view(self) -> NamesView:
        """Return every name."""
        ...

    def links_view(self) -> LinksView:
        """Return how each peer is reached."""
        ...


def while_running(read: Callable[[], V]) -> V | None:
    """Return what ``read`` returns, or None while the cluster is not running."""
    try:
        return read()
    except ClusterNotRunningError:
        return None
