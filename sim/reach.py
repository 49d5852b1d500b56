"""What a simulated node can reach: names of hosts, and ports on them, by the state of the network right now.

Owns: `Reach`, the resolver and prober of one node. Only the relay's port is open, while the relay is up;
other ports of a host that is there are refused; what is cut off or down says nothing.
Not here: the network (`sim.network`), the relay (`sim.relay`), when something is tried (`swactor_diag`).

Probes draw no random numbers and are not counted as packets: that a node looks changes nothing it sees.
"""

from collections.abc import Callable, Mapping

from sim.loop import NodeScheduler
from sim.network import Network
from sim.relay import SimRelay
from swactor.abc import Cancellable
from swactor_diag.introspect import Answer, Resolved, Transmission, Tried

NAMESERVER = "10.0.0.53"
"""What every simulated machine asks; it always answers at once."""


class Reach:
    """Implements `swactor_diag.introspect.Resolver` and `Prober` for the node on ``host``."""

    def __init__(
        self,
        scheduler: NodeScheduler,
        network: Network,
        relay: SimRelay,
        *,
        host: str,
        port: int,
        addresses: Mapping[str, str],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._relay = relay
        self._host = host
        self._port = port
        self._addresses = addresses

    def resolve(self, host: str, done: Callable[[Resolved], None]) -> Cancellable:
        """See `Resolver.resolve`."""
        address = self._addresses.get(host)
        resolved = Resolved(error=f"no such host: {host}") if address is None else Resolved((address,))
        return self._scheduler.call_later(0.0, lambda: done(resolved))

    def nameservers(self) -> tuple[str, ...]:
        """See `Resolver.nameservers`."""
        return (NAMESERVER,)

    def attempt(
        self, transmission: Transmission, address: str, *, port: int, done: Callable[[Tried], None]
    ) -> Cancellable:
        """See `Prober.attempt`. What nobody answers is left waiting until the node gives it up."""
        target = next((name for name, known in self._addresses.items() if known == address), None)
        round_trip_ns = None if target is None else self._network.round_trip_ns(self._host, target)
        if round_trip_ns is None:
            return _Silence()
        serves = target == self._relay.host and port == self._port and transmission is Transmission.TCP
        tried = Tried(Answer.OK) if serves and self._relay.is_up else Tried(Answer.REFUSED, "ECONNREFUSED")
        return self._scheduler.call_later(round_trip_ns / 1e9, lambda: done(tried))


class _Silence:
    """An attempt that nothing will come of."""

    def cancel(self) -> None:
        """See `Cancellable`."""
