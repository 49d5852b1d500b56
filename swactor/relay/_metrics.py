"""The report of a relay as Prometheus text. Owns: names and help of the metrics."""

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from swactor.relay.report import RelayReport

CONTENT_TYPE = CONTENT_TYPE_LATEST


def metrics_text(report: RelayReport) -> bytes:
    """Return ``report`` in the text format of Prometheus. No metric has a label per session or node."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Report(report))
    return generate_latest(registry)


class _Report(Collector):
    def __init__(self, report: RelayReport) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        report = self._report
        yield _gauge("sessions_active", "Open sessions, parked ones included.", report.active_sessions)
        yield _gauge("sessions_parked", "Sessions whose id has a newer one.", report.parked_sessions)
        yield _gauge(
            "draining", "1 while the relay refuses new sessions and closes the open ones.", report.draining
        )
        yield _counter("sessions_opened", "Sessions opened.", report.total_opens)
        yield _counter(
            "sessions_crashed",
            "Sessions of a former process, told from its journal.",
            report.crashed_sessions,
        )
        yield _counter("bytes_received", "Frame bytes from clients.", report.bytes_rx_total)
        yield _counter("bytes_sent", "Frame bytes to clients.", report.bytes_tx_total)
        yield _counter("journal_errors", "Writes to the journal that failed.", report.journal_errors)
        closes = CounterMetricFamily("swactor_relay_sessions_closed", "Sessions ended.", labels=["reason"])
        for reason, count in report.closes_by_reason:
            closes.add_metric([reason], count)
        yield closes
        refusals = CounterMetricFamily("swactor_relay_refusals", "Clients turned away.", labels=["reason"])
        for reason, count in report.refusals_by_reason:
            refusals.add_metric([reason], count)
        yield refusals
        dropped = CounterMetricFamily(
            "swactor_relay_frames_dropped", "Frames not forwarded.", labels=["cause"]
        )
        dropped.add_metric(["queue_full"], report.frames_queue_dropped_total)
        dropped.add_metric(["unroutable"], report.frames_unroutable_total)
        dropped.add_metric(["drill"], report.frames_pair_dropped_total)
        yield dropped


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"swactor_relay_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"swactor_relay_{name}", text, value=value)
