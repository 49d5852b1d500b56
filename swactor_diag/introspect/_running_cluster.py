"""The view of a cluster, or that there is none to look at yet or any more.

Owns: the one rule the cluster's three introspectors share: not running is "no data", not a failure.
"""

from collections.abc import Callable

from swactor.cluster import ClusterNotRunningError, ClusterView


def running_view(view: Callable[[], ClusterView]) -> ClusterView | None:
    """Return what ``view`` returns, or None while the cluster is not running."""
    try:
        return view()
    except ClusterNotRunningError:
        return None
