"""The simulated network as a pure model: when does what is sent now arrive, if at all.

Owns: the edges between hosts, their latency and loss drawn from one stream an edge, cuts, hosts that are
down, and the packet counters of each host's kernel.
Not here: time and callbacks (`sim.medium`), relays and tunnels (`sim.relay`), streams (`sim.transport`).

All times are virtual nanoseconds, all decisions are made on integers. One draw decides latency and loss
together and is made whatever else holds, so that a cut or its healing never shifts a later draw.
"""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from sim.streams import SimRandom, Substream

PPM = 1_000_000

RETRANSMIT_NS = 200_000_000
"""How late a lost piece of a tunnel arrives: a tunnel is TCP, so loss is delay, for later pieces too."""

PACKET_BYTES_MAX = 1_400


class Edge(Struct, frozen=True):
    """One direction between two hosts: latency is ``base_ns`` plus up to ``jitter_ns``, uniform."""

    base_ns: int = 0
    jitter_ns: int = 0
    loss_ppm: int = 0


class Drop(Enum):
    """Why something did not arrive. The sender's stack is never told."""

    CUT = "cut"
    HOST_DOWN = "host_down"


class HostCounters(Struct):
    """What the kernel of one host has counted; `sim.proc` shows it as ``/proc`` text."""

    rx_packets: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0

    def received(self, n_bytes: int) -> None:
        """Count what came in."""
        self.rx_packets += 1 if n_bytes <= PACKET_BYTES_MAX else -(-n_bytes // PACKET_BYTES_MAX)
        self.rx_bytes += n_bytes

    def sent(self, n_bytes: int) -> None:
        """Count what went out."""
        self.tx_packets += 1 if n_bytes <= PACKET_BYTES_MAX else -(-n_bytes // PACKET_BYTES_MAX)
        self.tx_bytes += n_bytes


class _Wire:
    """State of one directed edge."""

    __slots__ = ("busy_until_ns", "cuts", "edge", "sender", "stream")

    def __init__(self, edge: Edge, stream: Substream, sender: HostCounters) -> None:
        self.edge = edge
        self.stream = stream
        self.sender = sender
        self.cuts = 0
        self.busy_until_ns = 0


class Network:
    """Hosts and the directed edges between them. Every pair has an edge: a declared one or the default."""

    def __init__(self, random: SimRandom, *, default: Edge, edges: Mapping[tuple[str, str], Edge]) -> None:
        self._random = random
        self._default = default
        self._edges = dict(edges)
        self._wires: dict[tuple[str, str], _Wire] = {}
        self._counters: dict[str, HostCounters] = {}
        self._down: dict[str, None] = {}

    def tunnel_leg(self, source: str, target: str, *, n_bytes: int, now_ns: int) -> int | Drop:
        """Return when a piece of a tunnel arrives, in order behind earlier ones, or why it does not."""
        wire = self._wire(source, target)
        latency_ns, is_lost = _draw(wire)
        wire.sender.sent(n_bytes)
        if wire.cuts:
            return Drop.CUT
        if source in self._down or target in self._down:
            return Drop.HOST_DOWN
        at_ns = now_ns + latency_ns + (RETRANSMIT_NS if is_lost else 0)
        wire.busy_until_ns = max(at_ns, wire.busy_until_ns)
        return wire.busy_until_ns

    def received(self, host: str, n_bytes: int) -> None:
        """Book an arrival; called when it arrives, not when it was sent, so that a snapshot never lies."""
        self.counters(host).received(n_bytes)

    def counters(self, host: str) -> HostCounters:
        """Return the live counters of ``host``."""
        found = self._counters.get(host)
        if found is None:
            found = self._counters[host] = HostCounters()
        return found

    def is_open(self, source: str, target: str) -> bool:
        """Return whether anything sent now from ``source`` could reach ``target``."""
        is_cut = self._wire(source, target).cuts > 0
        return not is_cut and source not in self._down and target not in self._down

    def round_trip_ns(self, source: str, target: str) -> int | None:
        """Return how long there and back takes at least, None when nothing comes back."""
        if not (self.is_open(source, target) and self.is_open(target, source)):
            return None
        return self._wire(source, target).edge.base_ns + self._wire(target, source).edge.base_ns

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from ``source`` to ``target``. Cuts are counted: each needs its `heal`."""
        self._wire(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        """Take one cut back; does nothing where there is none."""
        wire = self._wire(source, target)
        wire.cuts = max(0, wire.cuts - 1)

    def set_up(self, host: str, *, is_up: bool) -> None:
        """Switch a host off or on. While off it neither sends nor receives."""
        if is_up:
            self._down.pop(host, None)
        else:
            self._down[host] = None

    def _wire(self, source: str, target: str) -> _Wire:
        wire = self._wires.get((source, target))
        if wire is None:
            edge = self._edges.get((source, target), self._default)
            wire = _Wire(edge, self._random.stream("link", source, target), self.counters(source))
            self._wires[source, target] = wire
        return wire


def _draw(wire: _Wire) -> tuple[int, bool]:
    """Return latency and whether it is lost: the low half of one draw decides loss, the high half jitter."""
    z = wire.stream.u64()
    edge = wire.edge
    is_lost = ((z & 0xFFFFFFFF) * PPM >> 32) < edge.loss_ppm
    return edge.base_ns + ((z >> 32) * (edge.jitter_ns + 1) >> 32), is_lost
