"""From looks at an endpoint to the status of its tunnel."""

from swactor import Event
from swactor.cluster.events import RelayChanged, RelaySessionStateChanged
from swactor.cluster.transport import FactSource, TunnelStatus
from swactor.cluster.transport._iroh_tunnel import COUNTER_MAX, Look, TunnelLedger

URL = "http://relay.example:7843/"


def look(
    at_ms: int, *, online: bool, home_url: str | None = URL, watched_ms: int = 0, **counters: int
) -> Look:
    named = {f"socket:{name}": value for name, value in counters.items()}
    return Look(at_ms=at_ms, watched_ms=watched_ms, online=online, home_url=home_url, counters=named)


def turns(events: list[Event]) -> list[tuple[TunnelStatus, TunnelStatus]]:
    return [(e.from_status, e.to_status) for e in events if isinstance(e, RelaySessionStateChanged)]


def test_before_the_first_look_nothing_is_known() -> None:
    facts = TunnelLedger(URL).facts({})

    assert facts.status is TunnelStatus.UNKNOWN
    assert facts.status_source is FactSource.DERIVED
    assert facts.relay_url == URL
    assert facts.tx_bytes_total is None
    assert facts.status_changed_at_ms is None


def test_a_relay_that_answers_makes_connecting_then_connected() -> None:
    tunnel = TunnelLedger(URL)

    first = tunnel.observe(look(10, online=False, home_url=None))
    second = tunnel.observe(look(20, online=True))

    assert turns(first) == [(TunnelStatus.UNKNOWN, TunnelStatus.CONNECTING)]
    assert turns(second) == [(TunnelStatus.CONNECTING, TunnelStatus.CONNECTED)]
    assert second[0] == RelayChanged(old_url=None, new_url=URL)
    assert tunnel.facts({}).status_changed_at_ms == 20
    assert tunnel.observe(look(30, online=True)) == []


def test_a_relay_that_is_away_becomes_disconnected_after_a_while() -> None:
    tunnel = TunnelLedger(URL)

    tunnel.observe(look(0, online=False, home_url=None))
    later = tunnel.observe(look(3_500, online=False, home_url=None, watched_ms=3_500))

    assert turns(later) == [(TunnelStatus.CONNECTING, TunnelStatus.DISCONNECTED)]
    assert tunnel.facts({}).status_reason == "the relay does not answer"


def test_a_relay_that_refuses_us_is_disconnected_at_once() -> None:
    tunnel = TunnelLedger(URL)

    events = tunnel.observe(look(0, online=False, relay_conns_failed=2))

    assert turns(events) == [(TunnelStatus.UNKNOWN, TunnelStatus.DISCONNECTED)]
    assert "2 attempts failed" in (tunnel.facts({}).status_reason or "")


def test_a_lost_tunnel_is_disconnected_although_the_relay_stays_selected() -> None:
    tunnel = TunnelLedger(URL)
    tunnel.observe(look(0, online=True))

    events = tunnel.observe(look(1_000, online=False, relay_conns_closed=1))

    assert turns(events) == [(TunnelStatus.CONNECTED, TunnelStatus.DISCONNECTED)]
    assert tunnel.home_url == URL


def test_a_tunnel_that_fell_and_came_back_between_two_looks_is_reported_as_both() -> None:
    tunnel = TunnelLedger(URL)
    tunnel.observe(look(0, online=True))

    events = tunnel.observe(look(1_000, online=True, relay_conns_closed=1))

    assert turns(events) == [
        (TunnelStatus.CONNECTED, TunnelStatus.DISCONNECTED),
        (TunnelStatus.DISCONNECTED, TunnelStatus.CONNECTED),
    ]


def test_closing_the_transport_ends_the_tunnel_once() -> None:
    tunnel = TunnelLedger(URL)
    assert tunnel.end(0) == []
    tunnel.observe(look(0, online=True))

    assert turns(tunnel.end(5)) == [(TunnelStatus.CONNECTED, TunnelStatus.DISCONNECTED)]
    assert tunnel.end(6) == []


def test_bytes_that_moved_since_the_last_look_date_the_last_use() -> None:
    tunnel = TunnelLedger(URL)
    tunnel.observe(look(0, online=True))
    tunnel.observe(look(1_000, online=True, send_relay=10))
    tunnel.observe(look(2_000, online=True, send_relay=10, recv_data_relay=7))

    facts = tunnel.facts({"socket:send_relay": 10, "socket:recv_data_relay": 7})

    assert (facts.last_send_at_ms, facts.last_recv_at_ms) == (1_000, 2_000)
    assert (facts.tx_bytes_total, facts.rx_bytes_total) == (10, 7)


def test_a_counter_at_its_end_is_unknown_not_four_gigabytes() -> None:
    facts = TunnelLedger(URL).facts({"socket:send_relay": COUNTER_MAX, "socket:recv_data_relay": 0})

    assert facts.tx_bytes_total is None
    assert facts.rx_bytes_total == 0
