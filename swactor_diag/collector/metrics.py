"""What a collector tells Prometheus of itself.

Owns: names and meanings of the figures. They belong to one collector, not to the process.
"""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """The figures of one collector."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._records = Counter(
            "swactor_collector_records",
            "Records that were acknowledged, repeats included.",
            ["kind"],
            registry=self._registry,
        )
        self._bytes = Counter(
            "swactor_collector_body_bytes",
            "Bytes of the acknowledged records, inflated.",
            registry=self._registry,
        )
        self._requests = Counter(
            "swactor_collector_requests",
            "Requests by what they ask for and how they were answered.",
            ["endpoint", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "swactor_collector_request_seconds",
            "From a request's headers to the end of its answer.",
            ["endpoint"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self._registry,
        )

        # Finding the figure for a label takes longer than changing it; of these labels there are few.
        self._records_of = cache(self._records.labels)
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)

    def watch(self, name: str, what: str, read: Callable[[], float]) -> None:
        """Add a figure that is read when somebody asks."""
        gauge = Gauge(f"swactor_collector_{name}", what, registry=self._registry)
        gauge.set_function(read)

    def stored(self, kind: str, n_bytes: int) -> None:
        """Count an acknowledged record."""
        self._records_of(kind).inc()
        self._bytes.inc(n_bytes)

    def answered(self, endpoint: str, status: int, *, seconds: float) -> None:
        """Count a request."""
        self._requests_of(endpoint, str(status)).inc()
        self._seconds_of(endpoint).observe(seconds)

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self._registry)
