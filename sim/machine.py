"""One simulated machine as its ``/proc`` text shows it: processes, and the counters of its network.

Owns: the text of the files that introspectors read, so that the production parsers run, and the memory and
load that each process has. Implements `swactor_diag.introspect.ProcRoot` and `.host.Links`.
Not here: what children do and which live (`sim.processes`), packets (`sim.network`).
"""

from collections.abc import Callable

from msgspec import Struct

from sim.network import HostCounters
from sim.streams import SimRandom
from swactor.abc import Clock
from swactor_diag.introspect.host import LinkState
from swactor_diag.schema.blocks import PythonFacts

TICKS_PER_S = 100
PAGE_BYTES = 4096
NS_PER_TICK = 1_000_000_000 // TICKS_PER_S
"""Machines boot when the run starts, so kernel ticks are virtual time."""

MIB = 1024 * 1024

_SNMP_NAMES = "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti"
_DEV_HEAD = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)


# Out through 10.0.0.254; 10.0.0.0/16 is on the wire. Addresses as a little-endian machine prints them.
_ROUTES = (
    "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    "eth0 00000000 FE00000A 0003 0 0 0 00000000 0 0 0\n"
    "eth0 0000000A 00000000 0001 0 0 0 0000FFFF 0 0 0\n"
)

_LINKS = {"lo": LinkState(mtu=65536, up=True), "eth0": LinkState(mtu=1500, up=True)}


def host_address(number: int) -> str:
    """Return the address of the host with this number, which is below 65,535."""
    return f"10.0.{(number + 1) // 256}.{(number + 1) % 256}"


class Running(Struct, frozen=True):
    """One living process."""

    pid: int
    parent_pid: int
    command: tuple[str, ...]
    start_ticks: int
    state: str = "S"


class _Size(Struct, frozen=True):
    """What a process uses; drawn once a process."""

    vm_bytes: int
    rss_bytes: int
    threads: int
    descriptors: int
    busy_ppm: int
    """Share of one core."""


class Machine:
    """One host. ``running`` tells which processes live right now."""

    def __init__(
        self,
        *,
        number: int,
        clock: Clock,
        random: SimRandom,
        counters: HostCounters,
        running: Callable[[int], Running | None],
    ) -> None:
        self._number = number
        self._address = host_address(number)
        self._clock = clock
        self._random = random
        self._counters = counters
        self._running = running
        self._sizes: dict[int, _Size] = {}
        self._files: dict[str, Callable[[], str]] = {
            "net/dev": self._dev,
            "net/snmp": self._snmp,
            "net/route": lambda: _ROUTES,
            "net/ipv6_route": lambda: "",
            "net/if_inet6": lambda: "",
            "net/udp": lambda: "",
            "net/udp6": lambda: "",
            "sys/net/ipv6/conf/all/disable_ipv6": lambda: "1\n",
            "self/ns/net": self._namespace,
            "stat": self._kernel_stat,
        }

    # -- ProcRoot ------------------------------------------------------------------------------------------

    def read_text(self, path: str) -> str | None:
        """Return the text of a file below ``/proc``, or None when there is none."""
        whole = self._files.get(path)
        if whole is not None:
            return whole()
        pid, _, name = path.partition("/")
        process = self._running(int(pid)) if pid.isdecimal() else None
        if process is None:
            return None
        if name == "stat":
            return self._stat(process)
        return "".join(f"{argument}\0" for argument in process.command) if name == "cmdline" else None

    def list_dir(self, path: str) -> tuple[str, ...] | None:
        """Return the descriptors of a process; other folders are not there."""
        pid, _, name = path.partition("/")
        process = self._running(int(pid)) if pid.isdecimal() else None
        if process is None or name != "fd":
            return None
        return tuple(str(number) for number in range(self._size(process.pid).descriptors))

    # -- Links ---------------------------------------------------------------------------------------------

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """Return each address with its interface."""
        return ("lo", "127.0.0.1"), ("eth0", self._address)

    def state(self, name: str) -> LinkState | None:
        """Return the state of an interface, all of which are up."""
        return _LINKS.get(name)

    def interpreter(self) -> PythonFacts:
        """Return what the node's interpreter counts: it collects at an even pace."""
        seconds = self._clock.monotonic_ns() // (NS_PER_TICK * TICKS_PER_S)
        return PythonFacts(
            implementation="cpython",
            gc_collections=(2 * seconds, seconds // 5, seconds // 60),
            gc_uncollectable=0,
        )

    def _size(self, pid: int) -> _Size:
        size = self._sizes.get(pid)
        if size is None:
            stream = self._random.stream("process", str(pid))
            size = self._sizes[pid] = _Size(
                vm_bytes=(180 + stream.below(200)) * MIB,
                rss_bytes=(24 + stream.below(40)) * MIB,
                threads=1 + stream.below(4),
                descriptors=6 + stream.below(10),
                busy_ppm=2_000 + stream.below(60_000),
            )
        return size

    def _stat(self, process: Running) -> str:
        size = self._size(process.pid)
        comm = process.command[0].rpartition("/")[2][:15]
        age = self._clock.monotonic_ns() // NS_PER_TICK - process.start_ticks
        cpu = age * size.busy_ppm // 1_000_000
        pid = process.pid
        return (
            f"{pid} ({comm}) {process.state} {process.parent_pid} {pid} {pid} 0 -1 4194304 0 0 0 0 "
            f"{cpu - cpu // 4} {cpu // 4} 0 0 20 0 {size.threads} 0 {process.start_ticks} "
            f"{size.vm_bytes} {size.rss_bytes // PAGE_BYTES} 18446744073709551615 "
            "0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
        )

    def _namespace(self) -> str:
        return f"net:[{4026531840 + self._number}]"

    def _kernel_stat(self) -> str:
        booted_ms = self._clock.wall_ms() - self._clock.monotonic_ns() // 1_000_000
        return f"btime {booted_ms // 1000}\n"

    def _snmp(self) -> str:
        counters = self._counters
        values = f"{counters.rx_packets} 0 0 {counters.tx_packets} 0 0 0 0"
        return f"Udp: {_SNMP_NAMES}\nUdp: {values}\n"

    def _dev(self) -> str:
        counters = self._counters
        lo = "    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        received = f"{counters.rx_bytes} {counters.rx_packets} 0 0 0 0 0 0"
        sent = f"{counters.tx_bytes} {counters.tx_packets} 0 0 0 0 0 0"
        return f"{_DEV_HEAD}{lo}  eth0: {received} {sent}\n"
