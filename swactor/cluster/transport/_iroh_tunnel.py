"""The state of the tunnel to the home relay, concluded from signs. Pure: looks in, events out.

Owns: which status follows from the signs, when it changed and why, when bytes last moved.
Not here: taking a look (``_iroh_watch``). iroh itself does not tell the status, so every answer is DERIVED.

The rules: the library's ``online()`` returns at once exactly while the tunnel is up. Down is CONNECTING
until something failed (a dial, the search for the relay, a tunnel that was up), DISCONNECTED from then on. A
tunnel that fell and came back between two looks shows in the close counter and is reported as both.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from swactor import Event
from swactor.cluster.events import RelayChanged, RelaySessionStateChanged
from swactor.cluster.transport._base import FactSource, TunnelFacts, TunnelStatus

COUNTER_MAX: Final = 2**32 - 1
"""The binding reports counters as 32 bits and stays at the highest: a value this high is not known."""

SILENT_RELAY_MS: Final = 3_000
"""A relay that answers at all does so within half a second; one silent for so long is away."""


class Look(Struct, frozen=True):
    """What one look at the endpoint showed."""

    at_ms: int
    watched_ms: int  # since the first look was due, monotonic
    online: bool
    home_url: str | None
    counters: Mapping[str, int]


class TunnelLedger:
    """Remembers the tunnel of one endpoint. ``configured_url`` is the relay it was told to use."""

    def __init__(self, configured_url: str) -> None:
        self._configured_url = configured_url
        self._home_url: str | None = None
        self._status = TunnelStatus.UNKNOWN
        self._reason: str | None = None
        self._changed_at_ms: int | None = None
        self._last: Look | None = None
        self._last_send_at_ms: int | None = None
        self._last_recv_at_ms: int | None = None

    @property
    def home_url(self) -> str | None:
        """The selected home relay; stays set while that relay is dead."""
        return self._home_url

    @property
    def status(self) -> TunnelStatus:
        """The status as of the last look."""
        return self._status

    def observe(self, look: Look) -> list[Event]:
        """Take note of ``look`` and return what has happened since the one before."""
        events: list[Event] = []
        if look.home_url != self._home_url:
            events.append(RelayChanged(old_url=self._home_url, new_url=look.home_url))
            self._home_url = look.home_url
        fell = self._grew(look, "socket:relay_conns_closed")
        if fell and look.online and self._status is TunnelStatus.CONNECTED:
            reason = "the tunnel was closed and opened again between two looks"
            events += self._turn(TunnelStatus.DISCONNECTED, look.at_ms, reason)
        status, reason = self._conclude(look)
        events += self._turn(status, look.at_ms, reason)
        if self._grew(look, "socket:send_relay"):
            self._last_send_at_ms = look.at_ms
        if self._grew(look, "socket:recv_data_relay"):
            self._last_recv_at_ms = look.at_ms
        self._last = look
        return events

    def end(self, at_ms: int) -> list[Event]:
        """The endpoint is about to close, and the tunnel with it."""
        if self._status is TunnelStatus.UNKNOWN:
            return []
        return self._turn(TunnelStatus.DISCONNECTED, at_ms, "the transport was closed")

    def facts(self, counters: Mapping[str, int]) -> TunnelFacts:
        """The tunnel now, with byte totals from ``counters``."""
        return TunnelFacts(
            relay_url=self._home_url or self._configured_url,
            status=self._status,
            status_source=FactSource.DERIVED,
            status_changed_at_ms=self._changed_at_ms,
            last_send_at_ms=self._last_send_at_ms,
            last_recv_at_ms=self._last_recv_at_ms,
            tx_bytes_total=_known(counters, "socket:send_relay"),
            rx_bytes_total=_known(counters, "socket:recv_data_relay"),
            status_reason=self._reason,
        )

    def _conclude(self, look: Look) -> tuple[TunnelStatus, str]:
        """The status that the signs of ``look`` mean, and the sign that decided."""
        if look.online:
            return TunnelStatus.CONNECTED, "the tunnel is up"
        if closed := look.counters.get("socket:relay_conns_closed", 0):
            return TunnelStatus.DISCONNECTED, f"the tunnel is down ({closed} closed since the start)"
        if failed := look.counters.get("socket:relay_conns_failed", 0):
            return TunnelStatus.DISCONNECTED, f"the relay does not let us in ({failed} attempts failed)"
        if look.home_url is None and look.watched_ms >= SILENT_RELAY_MS:
            return TunnelStatus.DISCONNECTED, "the relay does not answer"
        return TunnelStatus.CONNECTING, "no answer yet"

    def _turn(self, status: TunnelStatus, at_ms: int, reason: str) -> list[Event]:
        """Change to ``status``; nothing has happened when it is the status already."""
        self._reason = reason
        if status is self._status:
            return []
        old, self._status, self._changed_at_ms = self._status, status, at_ms
        url = self._home_url or self._configured_url
        return [RelaySessionStateChanged(relay_url=url, from_status=old, to_status=status, reason=reason)]

    def _grew(self, look: Look, counter: str) -> bool:
        """Whether ``counter`` is higher than at the look before."""
        before = 0 if self._last is None else self._last.counters.get(counter, 0)
        return look.counters.get(counter, 0) > before


def _known(counters: Mapping[str, int], name: str) -> int | None:
    """The value of a byte counter; None when there is none or it has reached its end."""
    value = counters.get(name)
    return None if value is None or value >= COUNTER_MAX else value
