"""How this host is attached to its network: the part of block ``host.network`` that seldom changes.

Owns: `AddressingReader` (addresses, MTU and state of interfaces, routes, sockets, connection tracking, IPv6)
and its pure parsers. Read again every `REFRESH_S` seconds; in between the last values are given.
Not here: counters (``kernel_net``, which puts both into the block), names (``dns``).

From ``net/if_inet6``, ``net/fib_trie``, ``net/route``, ``net/ipv6_route``, ``net/udp``, ``net/udp6`` and
``sys/net`` below the proc root, and ``class/net`` below the sys root (proc(5), sysfs-class-net).
A file that is not there is absent with its reason; one bad row costs that row.
"""

import ipaddress
import struct
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UNSET, Struct, UnsetType

from swactor.abc import Clock
from swactor_diag.introspect._procfs import ProcReadError, ProcRoot, read_table
from swactor_diag.schema.network import Route, UdpSocket

REFRESH_S = 30.0
ROUTES_MAX = 64
SOCKETS_MAX = 32
ADDRESSES_MAX = 256

_FLAG_UP = 0x1
_ROUTE_FLAG_UP = 0x1
_ROUTE_FLAG_LOCAL = 0x80000000


class InterfaceFacts(Struct, frozen=True):
    """What is known of one interface besides its counters."""

    addresses: tuple[str, ...] = ()
    mtu: int | UnsetType = UNSET
    up: bool | UnsetType = UNSET


class Addressing(Struct, frozen=True, kw_only=True):
    """Everything at one moment."""

    interfaces: dict[str, InterfaceFacts] = {}
    local_addresses: tuple[str, ...] = ()
    """Addresses that belong to no interface that we know of."""
    routes: tuple[Route, ...] = ()
    sockets: tuple[UdpSocket, ...] = ()
    sockets_omitted: int | UnsetType = UNSET
    conntrack_count: int | UnsetType = UNSET
    ipv6_enabled: bool | UnsetType = UNSET
    reasons: tuple[str, ...] = ()


class AddressingReader:
    """Reads the kernel's text about the interfaces it is asked for."""

    def __init__(self, *, proc: ProcRoot, sys: ProcRoot, clock: Clock) -> None:
        self._proc = proc
        self._sys = sys
        self._clock = clock
        self._last = Addressing()
        self._read_ns: int | None = None
        self._names: tuple[str, ...] = ()

    def read(self, names: Sequence[str]) -> Addressing:
        """Return what is known, not older than `REFRESH_S`; new at once when there are other interfaces."""
        now_ns = self._clock.monotonic_ns()
        is_fresh = self._read_ns is not None and now_ns - self._read_ns < REFRESH_S * 1e9
        if not is_fresh or tuple(names) != self._names:
            self._read_ns = now_ns
            self._names = tuple(names)
            self._last = self._read_now()
        return self._last

    def _read_now(self) -> Addressing:
        reasons: list[str] = []
        table = partial(read_table, self._proc, reasons=reasons)
        routes = [
            *parse_routes_v4(table("net/route").text),
            *parse_routes_v6(table("net/ipv6_route").text),
        ]
        addresses, strays = _attributed(
            parse_local_addresses(table("net/fib_trie").text),
            parse_addresses_v6(table("net/if_inet6").text),
            routes,
        )
        udp = [table("net/udp"), table("net/udp6")]
        sockets = [socket for one in udp for socket in parse_sockets(one.text)]
        sockets.sort(key=lambda one: (-(one.drops or 0), -(one.rx_queue_bytes or 0), one.local_addr))
        v6_disabled = self._number("sys/net/ipv6/conf/all/disable_ipv6")
        return Addressing(
            interfaces={name: self._interface(name, addresses.get(name, [])) for name in self._names},
            local_addresses=tuple(strays[:ADDRESSES_MAX]),
            routes=tuple(routes[:ROUTES_MAX]),
            sockets=tuple(sockets[:SOCKETS_MAX]),
            sockets_omitted=UNSET if any(one.has_more for one in udp) else max(0, len(sockets) - SOCKETS_MAX),
            conntrack_count=self._number("sys/net/netfilter/nf_conntrack_count"),
            ipv6_enabled=UNSET if v6_disabled is UNSET else v6_disabled == 0,
            reasons=tuple(reasons),
        )

    def _interface(self, name: str, addresses: list[str]) -> InterfaceFacts:
        folder = f"class/net/{name}"
        mtu, flags = _number(self._sys, f"{folder}/mtu"), _number(self._sys, f"{folder}/flags")
        return InterfaceFacts(
            addresses=tuple(addresses[:ADDRESSES_MAX]),
            mtu=mtu,
            up=UNSET if isinstance(flags, UnsetType) else bool(flags & _FLAG_UP),
        )

    def _number(self, path: str) -> int | UnsetType:
        return _number(self._proc, path)


def parse_local_addresses(text: str) -> tuple[str, ...]:
    """Return this host's own IPv4 addresses from ``net/fib_trie``: leaves marked ``/32 host LOCAL``."""
    found: dict[str, None] = {}
    leaf = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            leaf = words[1]
        elif words == ["/32", "host", "LOCAL"] and leaf:
            found[leaf] = None
    return tuple(found)


def parse_addresses_v6(text: str) -> tuple[tuple[str, str], ...]:
    """Return interface and address of each row of ``net/if_inet6``."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 6 and (address := _v6(words[0])):
            found.append((words[5], address))
    return tuple(found)


def parse_routes_v4(text: str) -> Iterator[Route]:
    """Yield the routes of ``net/route`` that are up."""
    for line in text.splitlines()[1:]:
        words = line.split()
        try:
            interface, destination, gateway, flags, mask = words[0], words[1], words[2], words[3], words[7]
            length = int(mask, 16).bit_count()
            is_up = int(flags, 16) & _ROUTE_FLAG_UP
            shown, via = f"{_v4(destination)}/{length}", _v4(gateway)
        except (IndexError, ValueError, struct.error):
            continue
        if is_up:
            yield Route(
                family="v4",
                destination=shown,
                gateway=UNSET if not int(gateway, 16) else via,
                interface=interface,
            )


def parse_routes_v6(text: str) -> Iterator[Route]:
    """Yield the routes of ``net/ipv6_route`` that lead somewhere: not our own addresses, not multicast."""
    for line in text.splitlines():
        words = line.split()
        if len(words) != 10:
            continue
        destination, gateway = _v6(words[0]), _v6(words[4])
        try:
            length, flags = int(words[1], 16), int(words[8], 16)
        except ValueError:
            continue
        leads = flags & _ROUTE_FLAG_UP and not flags & _ROUTE_FLAG_LOCAL and not words[0].startswith("ff")
        if destination and gateway and leads and words[9] != "lo":
            yield Route(
                family="v6",
                destination=f"{destination}/{length}",
                gateway=UNSET if gateway == "::" else gateway,
                interface=words[9],
            )


def parse_sockets(text: str) -> Iterator[UdpSocket]:
    """Yield the sockets of ``net/udp`` or ``net/udp6``."""
    for line in text.splitlines()[1:]:
        words = line.split()
        try:
            local, remote = _endpoint(words[1]), _endpoint(words[2])
            waiting, inode, drops = int(words[4].partition(":")[2], 16), int(words[9]), int(words[12])
        except (IndexError, ValueError, struct.error):
            continue
        yield UdpSocket(
            local_addr=local,
            remote_addr=remote,
            state=words[3][:2],
            inode=inode,
            rx_queue_bytes=waiting,
            drops=drops,
        )


def _attributed(
    own: Sequence[str], v6: Sequence[tuple[str, str]], routes: Sequence[Route]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return addresses by interface, and those that are on no interface's own network.

    The kernel's text says of which interface an IPv6 address is. Of an IPv4 address it is the interface
    through which the narrowest network around it is reached without a gateway.
    """
    networks = [
        (ipaddress.IPv4Network(route.destination, strict=False), route.interface)
        for route in routes
        if route.family == "v4" and route.gateway is UNSET
    ]
    networks.append((ipaddress.IPv4Network("127.0.0.0/8"), "lo"))
    networks.sort(key=lambda one: -one[0].prefixlen)
    found: dict[str, list[str]] = {}
    strays: list[str] = []
    for text in own:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            continue
        around = next((name for network, name in networks if network.prefixlen and address in network), None)
        (strays if around is None else found.setdefault(around, [])).append(text)
    for name, text in v6:
        found.setdefault(name, []).append(text)
    return found, strays


def _number(root: ProcRoot, path: str) -> int | UnsetType:
    """Return the number in a file of one, absent when it cannot be read: there is nobody to say why."""
    try:
        return int(root.read_text(path) or "", 0)
    except (ProcReadError, ValueError):
        return UNSET


def _endpoint(text: str) -> str:
    """``0100007F:1F90`` is 127.0.0.1:8080."""
    address, _, port = text.partition(":")
    host = _v4(address) if len(address) == 8 else f"[{_v6_words(address)}]"
    return f"{host}:{int(port, 16)}"


def _v4(text: str) -> str:
    """The kernel prints the address as a number of this machine, which has its lowest byte first."""
    return str(ipaddress.IPv4Address(struct.pack("=I", int(text, 16))))


def _v6_words(text: str) -> str:
    """Four numbers of this machine."""
    return str(
        ipaddress.IPv6Address(struct.pack("=4I", *(int(text[at : at + 8], 16) for at in (0, 8, 16, 24))))
    )


def _v6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(bytes.fromhex(text)))
    except ValueError:
        return ""
