"""Can this node reach what it depends on? Snapshot block ``probes``: the collector's echo, the relay's port.

Emits no events: the outcome of a probe is a value. An observation begins the next round when the last one is
`PERIOD_S` old, and returns what is known so far: it waits for nothing. Each round looks every name up again
and uses fresh sockets, so that the outcome follows the network; each target has `LIMIT_S` for all of it.

A target is one port and one protocol, and says nothing about another. The relay's is tried with TCP, as a
relay is: a closed port is ``refused``, silence is ``timeout``, a name without address is ``unresolved``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from swactor.abc import Cancellable, Clock, Scheduler
from swactor_diag.introspect._reach import Answer, Prober, Resolved, Resolver, Transmission, Tried
from swactor_diag.schema.network import Probe, ProbeOutcome, ProbesBlock

log = logging.getLogger("swactor_diag")

PERIOD_S = 10.0
LIMIT_S = 0.75
TARGETS_MAX = 16
"""Targets that are known; more of them are ignored, newest first."""
ADDRESSES_MAX = 4
"""Addresses of one name that are tried in a round; the next one only when one failed for another reason."""
ERROR_CHARS_MAX = 200

DEFAULT_PORTS = {"http": 80, "https": 443}


class ProbeTarget(Struct, frozen=True):
    """One port that is tried."""

    label: str
    kind: str
    host: str
    port: int
    transmission: Transmission


class ProbesIntrospector:
    """Tries the targets it was given, and the relays it hears of."""

    name = "probes"
    record = ProbesBlock

    def __init__(
        self,
        *,
        clock: Clock,
        scheduler: Scheduler,
        resolver: Resolver,
        prober: Prober,
        targets: Sequence[ProbeTarget] = (),
        relay_urls: Callable[[], Sequence[str]] = tuple,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._resolver = resolver
        self._prober = prober
        self._relay_urls = relay_urls
        self._limit_s = limit_s
        self._tracks: dict[ProbeTarget, _Track] = {}
        self._began_ns: int | None = None
        for target in targets:
            self._add(target)

    def observe(self) -> ProbesBlock | None:
        """Return what each target said last, None when there is nothing to try."""
        for url in self._relay_urls():
            target = relay_target(url)
            if target is not None:
                self._add(target)
        if not self._tracks:
            return None
        now_ns = self._clock.monotonic_ns()
        if self._began_ns is None or now_ns - self._began_ns >= PERIOD_S * 1e9:
            self._began_ns = now_ns
            for track in self._tracks.values():
                track.begin()
        rows = sorted(
            (track.row() for track in self._tracks.values()), key=lambda row: (row.kind, row.target)
        )
        return ProbesBlock(probes=tuple(rows), scraped_at_ms=self._clock.wall_ms())

    def close(self) -> None:
        """Call off what is under way."""
        self._began_ns = None
        for track in self._tracks.values():
            track.cancel()

    def _add(self, target: ProbeTarget) -> None:
        if target not in self._tracks and len(self._tracks) < TARGETS_MAX:
            self._tracks[target] = _Track(
                target,
                clock=self._clock,
                scheduler=self._scheduler,
                resolver=self._resolver,
                prober=self._prober,
                limit_s=self._limit_s,
            )


class _Track:
    """One target: what it said last, and the attempt under way."""

    def __init__(
        self,
        target: ProbeTarget,
        *,
        clock: Clock,
        scheduler: Scheduler,
        resolver: Resolver,
        prober: Prober,
        limit_s: float,
    ) -> None:
        self._target = target
        self._clock = clock
        self._scheduler = scheduler
        self._resolver = resolver
        self._prober = prober
        self._limit_s = limit_s
        self._running: list[Cancellable] = []
        self._sent_ns = 0
        self._address = ""
        self._rest: tuple[str, ...] = ()
        self._row = Probe(
            target=target.label,
            kind=target.kind,
            host=target.host,
            port=target.port,
            protocol=target.transmission.value,
            last_outcome=ProbeOutcome.PENDING,
        )
        self._began_ms = 0

    def row(self) -> Probe:
        """Return what the last attempt that has ended said."""
        return self._row

    def begin(self) -> None:
        """Begin an attempt; one that is still under way has had its time."""
        self.cancel()
        self._began_ms = self._clock.wall_ms()
        self._address = ""
        self._running = [
            self._scheduler.call_later(self._limit_s, self._late),
            self._resolver.resolve(self._target.host, self._resolved),
        ]

    def cancel(self) -> None:
        """Call the attempt off; it was none."""
        running, self._running = self._running, []
        for part in running:
            part.cancel()

    def _late(self) -> None:
        if self._address:
            self._end(ProbeOutcome.TIMEOUT, error=f"no answer within {self._limit_s:g} s")
        else:
            self._end(ProbeOutcome.UNRESOLVED, error=f"no address within {self._limit_s:g} s")

    def _resolved(self, resolved: Resolved) -> None:
        self._rest = resolved.addresses[:ADDRESSES_MAX]
        if self._rest:
            self._next_address()
        else:
            self._end(ProbeOutcome.UNRESOLVED, error=resolved.error or "the name has no address")

    def _next_address(self) -> None:
        self._address, *rest = self._rest
        self._rest = tuple(rest)
        self._sent_ns = self._clock.monotonic_ns()
        target = self._target
        self._running.append(
            self._prober.attempt(target.transmission, self._address, port=target.port, done=self._tried)
        )

    def _tried(self, tried: Tried) -> None:
        if tried.answer is Answer.ERROR and self._rest:
            self._next_address()
            return
        rtt_ms = (self._clock.monotonic_ns() - self._sent_ns) // 1_000_000
        self._end(
            ProbeOutcome(tried.answer.value),
            rtt_ms=rtt_ms if tried.answer is Answer.OK else None,
            error=tried.error,
        )

    def _end(self, outcome: ProbeOutcome, *, rtt_ms: int | None = None, error: str = "") -> None:
        self.cancel()
        before = self._row
        self._row = Probe(
            target=before.target,
            kind=before.kind,
            host=before.host,
            port=before.port,
            protocol=before.protocol,
            resolved_addr=self._address or UNSET,
            last_attempted_at_ms=self._began_ms,
            last_outcome=outcome,
            last_rtt_ms=UNSET if rtt_ms is None else rtt_ms,
            last_error=error[:ERROR_CHARS_MAX] or UNSET,
            attempts=before.attempts + 1,
            successes=before.successes + (outcome is ProbeOutcome.OK),
        )


def relay_target(url: str) -> ProbeTarget | None:
    """Return the port that a relay listens at, None when ``url`` names none."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if not parts.hostname or port is None:
        return None
    host = parts.hostname.rstrip(".")
    return ProbeTarget(f"relay-port-{host}", "tcp_relay", host, port, Transmission.TCP)


def targets_from_env(environ: Mapping[str, str]) -> tuple[ProbeTarget, ...]:
    """Return what the environment tells to try: ``SWACTOR_DIAG_UDP_ECHO`` is ``host:port`` of an echo.

    One that cannot be read is no reason for a node not to start: it is logged, and not tried.
    """
    echo = environ.get("SWACTOR_DIAG_UDP_ECHO", "").strip()
    if not echo:
        return ()
    try:
        parts = urlsplit(f"//{echo}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        log.warning("SWACTOR_DIAG_UDP_ECHO must be host:port, not %r: the echo is not probed", echo)
        return ()
    return (ProbeTarget("collector_udp_echo", "udp_echo", host, port, Transmission.UDP),)
