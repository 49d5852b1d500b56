"""What the names that this node depends on mean from here: snapshot block ``host.dns``. Emits no events.

Relays and the collector; what is an address already has no entry. As with probes, an observation begins the
next round of lookups when the last one is `PERIOD_S` old, and returns what is known so far.
"""

from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from msgspec import UNSET

from swactor.abc import Cancellable, Clock, Scheduler
from swactor_diag.introspect._reach import Resolved, Resolver
from swactor_diag.schema.network import DnsEntry

PERIOD_S = 30.0
LIMIT_S = 5.0
NAMES_MAX = 16
RECORDS_MAX = 16
ERROR_CHARS_MAX = 200


class DnsIntrospector:
    """Looks up the host names of the URLs that ``urls`` returns, and of those that it ever returned."""

    name = "host.dns"
    record = tuple

    def __init__(
        self, *, clock: Clock, scheduler: Scheduler, resolver: Resolver, urls: Callable[[], Sequence[str]]
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._resolver = resolver
        self._urls = urls
        self._entries: dict[str, DnsEntry | None] = {}
        self._running: dict[str, tuple[Cancellable, Cancellable]] = {}
        self._began_ns: int | None = None

    def observe(self) -> tuple[DnsEntry, ...] | None:
        """Return what each name meant when it was last looked up, None when there is none."""
        for url in self._urls():
            host = host_name(url)
            if host is not None and len(self._entries) < NAMES_MAX:
                self._entries.setdefault(host, None)
        now_ns = self._clock.monotonic_ns()
        if self._began_ns is None or now_ns - self._began_ns >= PERIOD_S * 1e9:
            self._began_ns = now_ns if self._entries else None
            for host in self._entries:
                self._look_up(host)
        return tuple(entry for _, entry in sorted(self._entries.items()) if entry is not None) or None

    def close(self) -> None:
        """Call off what is under way."""
        self._began_ns = None
        for host in list(self._running):
            self._cancel(host)

    def _look_up(self, host: str) -> None:
        self._cancel(host)
        late = Resolved(error=f"no answer within {LIMIT_S:g} s")
        self._running[host] = (
            self._scheduler.call_later(LIMIT_S, partial(self._resolved, host, late)),
            self._resolver.resolve(host, partial(self._resolved, host)),
        )

    def _resolved(self, host: str, resolved: Resolved) -> None:
        self._cancel(host)
        found = resolved.addresses[:RECORDS_MAX]
        self._entries[host] = DnsEntry(
            hostname=host,
            a_records=tuple(address for address in found if ":" not in address),
            aaaa_records=tuple(address for address in found if ":" in address),
            resolved_at_ms=self._clock.wall_ms(),
            error=resolved.error[:ERROR_CHARS_MAX] or UNSET,
        )

    def _cancel(self, host: str) -> None:
        for part in self._running.pop(host, ()):
            part.cancel()


def host_name(url: str) -> str | None:
    """Return the host of ``url`` if it is a name that has to be looked up."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    if not host or ":" in host or host.replace(".", "").isdigit():
        return None
    return host.rstrip(".")
