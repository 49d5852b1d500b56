"""The names of the cluster as this node knows them: snapshot block ``registry``. Emits no events."""

from swactor.abc import Clock
from swactor_diag.introspect.cluster import ClusterSurfaces, while_running
from swactor_diag.schema.cluster_blocks import RegistryBlock, RegistryEntry


class RegistryIntrospector:
    """Every name, tombstones included."""

    name = "registry"
    record = RegistryBlock

    def __init__(self, cluster: ClusterSurfaces, *, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def observe(self) -> RegistryBlock | None:
        """Return the current values, None while the cluster is not running."""
        names = while_running(self._cluster.names_view)
        if names is None:
            return None
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
