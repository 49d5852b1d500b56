"""What the linked binding lacks is found by looking at it, so that a newer one closes gaps by itself."""

from types import ModuleType

import iroh

from sim.facts import API_GAPS
from swactor.cluster.transport._iroh_gaps import WANTED, api_gaps, linked_versions, native_source

COUNTERS = ("socket:send_relay", "socket:recv_data_relay")


class RelayStatus:
    """A record as a newer binding might generate it."""

    def __init__(self, *, url: str, is_connected: bool, last_error: str | None) -> None:
        self.url, self.is_connected, self.last_error = url, is_connected, last_error


class RemoteInfo:
    """The same, with a method instead of a field."""

    def conn_type(self) -> str:
        return "direct"


def newer_binding() -> ModuleType:
    module = ModuleType("iroh")
    module.__dict__.update(vars(iroh))
    module.__dict__.update(RelayStatus=RelayStatus, RemoteInfo=RemoteInfo)
    return module


def test_todays_binding_lacks_what_a_simulated_node_says_it_lacks() -> None:
    assert api_gaps(iroh, COUNTERS) == API_GAPS


def test_gaps_vanish_when_a_newer_binding_has_the_field_or_method() -> None:
    closed = set(api_gaps(iroh, COUNTERS)) - set(api_gaps(newer_binding(), COUNTERS))

    assert closed == {"RemoteInfo.conn_type", "RelayTunnel.status", "RelayTunnel.last_error"}


def test_an_empty_binding_lacks_everything() -> None:
    assert api_gaps(ModuleType("iroh"), ()) == tuple(WANTED)


def test_the_source_of_a_fact_is_named() -> None:
    assert native_source("RemoteInfo.latency_ms", binding=iroh, counters=()) == "PathSnapshot.rtt_ms"
    assert native_source("RelayTunnel.tx_bytes_total", binding=iroh, counters=COUNTERS) == COUNTERS[0]
    assert native_source("RelayTunnel.tx_bytes_total", binding=iroh, counters=()) is None


def test_versions_are_those_of_the_linked_crates() -> None:
    versions = linked_versions()

    assert set(versions) >= {"wheel", "iroh", "iroh-relay", "noq"}
    assert versions["iroh"] != versions["wheel"]


def test_without_the_distribution_or_its_bill_of_materials_less_is_known() -> None:
    assert linked_versions("no-such-distribution") == {}
    assert set(linked_versions("pytest")) == {"wheel"}
