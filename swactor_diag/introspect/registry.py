"""The names of the cluster as this node knows them: snapshot block ``registry``. Emits no events."""

from collections.abc import Callable

from swactor.abc import Clock
from swactor.cluster import ClusterView
from swactor_diag.introspect._running_cluster import running_view
from swactor_diag.schema.cluster_blocks import RegistryBlock, RegistryEntry


class RegistryIntrospector:
    """Every name, tombstones included."""

    name = "registry"
    record = RegistryBlock

    def __init__(self, view: Callable[[], ClusterView], *, clock: Clock) -> None:
        self._view = view
        self._clock = clock

    def observe(self) -> RegistryBlock | None:
        """Return the current values, None while the cluster is not running."""
        view = running_view(self._view)
        if view is None:
            return None
        names = view.names
        return RegistryBlock(
            entries=tuple(
                RegistryEntry(
                    name=entry.name,
                    actor=f"{entry.path}#{entry.serial}",
                    owner_node_id_hex=entry.owner,
                    generation=entry.generation,
                    logical_timestamp=entry.logical_time,
                    is_tombstone=entry.is_tombstone,
                )
                for entry in names.entries
            ),
            tombstone_count=names.tombstone_count,
            clock=names.clock,
            scraped_at_ms=self._clock.wall_ms(),
        )
