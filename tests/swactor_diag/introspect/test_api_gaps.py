"""What a bundle says that the transport library cannot be asked for follows from the linked library."""

from types import ModuleType

import iroh
import pytest

from swactor import SystemClock
from swactor.cluster import ClusterNotRunningError, LinksView, NamesView, SwimView
from swactor.cluster.transport import TransportFacts
from swactor.cluster.transport.iroh import IrohTransport
from swactor_diag.introspect.transport import TransportIntrospector
from swactor_diag.schema.events import Custom


class RemoteInfo:
    """As a newer binding might have it: the connection type is a field again."""

    def __init__(self, *, conn_type: str) -> None:
        self.conn_type = conn_type


def newer_binding() -> ModuleType:
    module = ModuleType("iroh")
    module.__dict__.update(vars(iroh) | {"RemoteInfo": RemoteInfo})
    return module


class ClusterOf:
    """A cluster of which only the transport matters."""

    def __init__(self, transport: IrohTransport) -> None:
        self._transport = transport

    def swim_view(self) -> SwimView:
        raise ClusterNotRunningError("not here")

    def names_view(self) -> NamesView:
        raise ClusterNotRunningError("not here")

    def links_view(self) -> LinksView:
        return LinksView(connections=(), transport=self._transport.facts(), refused=(), dropped=())


def observed() -> tuple[tuple[str, ...], list[dict[str, object]], TransportFacts]:
    """The gaps in a snapshot, those in the events of two observations, and what the transport says."""
    transport = IrohTransport(b"\x07" * 32, relay_url=None, alpn=b"test", clock=SystemClock())
    introspector = TransportIntrospector(ClusterOf(transport), clock=SystemClock())
    block, _ = introspector.observe(), introspector.observe()
    assert block is not None
    events = [event.fields for event in introspector.take_events() if isinstance(event, Custom)]
    return block.api_gaps, events, transport.facts()


def test_the_gaps_are_in_the_snapshots_and_once_in_the_events_with_the_linked_version() -> None:
    gaps, (event,), facts = observed()
    assert "RemoteInfo.conn_type" in gaps
    assert event["fields"] == list(gaps)
    assert event["iroh_version"] == dict(facts.versions)["iroh"]


def test_a_newer_library_that_has_a_field_closes_its_gap_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaps, _, _ = observed()

    monkeypatch.setattr("swactor.cluster.transport.iroh.iroh", newer_binding())

    newer_gaps, (event,), _ = observed()
    assert set(gaps) - set(newer_gaps) == {"RemoteInfo.conn_type"}
    assert event["fields"] == list(newer_gaps)
