"""How this host is attached to its network: the part of block ``host.network`` that seldom changes.

Owns: `AddressingReader` (addresses, MTU and state of interfaces, routes, sockets, connection tracking, IPv6),
its pure parsers and the seam `Links`. Read again every `REFRESH_S` seconds; in between the last values are
given.
Not here: counters (``kernel_net``, which puts both into the block), names (``dns``), the real `Links`.

From ``net/if_inet6``, ``net/route``, ``net/ipv6_route``, ``net/udp``, ``net/udp6`` and ``sys/net`` below the
proc root (proc(5)), and from `Links`. A file that is not there is absent with its reason; one bad row costs
that row.
"""

import ipaddress
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from swactor.abc import Clock
from swactor_diag.introspect._procfs import ProcReadError, ProcRoot, read_table
from swactor_diag.schema.network import Route, UdpSocket

REFRESH_S = 30.0
ROUTES_MAX = 64
SOCKETS_MAX = 32
ADDRESSES_MAX = 256

_ROUTE_FLAG_UP = 0x1
_ROUTE_FLAG_LOCAL = 0x80000000


class LinkState(Struct, frozen=True):
    """Of one interface."""

    mtu: int
    up: bool


class Links(Protocol):
    """The interfaces of this process's network namespace, besides what ``/proc`` says of them."""

    def addresses(self) -> Sequence[tuple[str, str]]:
        """Return each IPv4 address behind the name of the interface that has it.

        Raises:
            ProcReadError: the kernel does not say.
        """
        ...

    def state(self, name: str) -> LinkState | None:
        """Return the state of an interface, None when there is none of that name or nobody can be asked."""
        ...


class NoLinks:
    """A machine that says nothing of its interfaces."""

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """See `Links.addresses`."""
        raise ProcReadError("addresses", "nobody to ask")

    def state(self, name: str) -> None:
        """See `Links.state`."""


class InterfaceFacts(Struct, frozen=True):
    """What is known of one interface besides its counters."""

    addresses: tuple[str, ...] = ()
    mtu: int | UnsetType = UNSET
    up: bool | UnsetType = UNSET


class Addressing(Struct, frozen=True, kw_only=True):
    """Everything at one moment."""

    interfaces: dict[str, InterfaceFacts] = {}
    local_addresses: tuple[str, ...] = ()
    """Addresses of interfaces that are not listed."""
    routes: tuple[Route, ...] = ()
    routes_omitted: int | UnsetType = UNSET
    sockets: tuple[UdpSocket, ...] = ()
    sockets_omitted: int | UnsetType = UNSET
    conntrack_count: int | UnsetType = UNSET
    ipv6_enabled: bool | UnsetType = UNSET
    reasons: tuple[str, ...] = ()


class AddressingReader:
    """Reads the kernel's text about the interfaces it is asked for."""

    def __init__(self, *, proc: ProcRoot, links: Links, clock: Clock) -> None:
        self._proc = proc
        self._links = links
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
        ways = [table("net/route"), table("net/ipv6_route")]
        routes, routes_omitted = parse_routes(*(one.text for one in ways))
        addresses, strays = self._addresses(table("net/if_inet6").text, reasons)
        udp = [table("net/udp"), table("net/udp6")]
        sockets, omitted = parse_sockets(*(one.text for one in udp))
        v6_disabled = self._number("sys/net/ipv6/conf/all/disable_ipv6")
        return Addressing(
            interfaces={name: self._interface(name, addresses[name]) for name in self._names},
            local_addresses=tuple(strays[:ADDRESSES_MAX]),
            routes=routes,
            routes_omitted=UNSET if any(one.has_more for one in ways) else routes_omitted,
            sockets=sockets,
            sockets_omitted=UNSET if any(one.has_more for one in udp) else omitted,
            conntrack_count=self._number("sys/net/netfilter/nf_conntrack_count"),
            ipv6_enabled=UNSET if v6_disabled is UNSET else v6_disabled == 0,
            reasons=tuple(reasons),
        )

    def _addresses(self, v6: str, reasons: list[str]) -> tuple[dict[str, list[str]], list[str]]:
        """Return the addresses of the interfaces that were asked for, and all others."""
        found: dict[str, list[str]] = {name: [] for name in self._names}
        strays: list[str] = []
        try:
            v4 = self._links.addresses()
        except ProcReadError as error:
            reasons.append(str(error))
            v4 = ()
        for name, address in v4:
            found.get(name, strays).append(address)
        for line in v6.splitlines():
            name, digits = parse_address_v6(line)
            listed = found.get(name, strays)
            if len(listed) < ADDRESSES_MAX and (address := _v6(digits)):
                listed.append(address)
        return found, strays

    def _interface(self, name: str, addresses: list[str]) -> InterfaceFacts:
        state = self._links.state(name)
        return InterfaceFacts(
            addresses=tuple(addresses[:ADDRESSES_MAX]),
            mtu=UNSET if state is None else state.mtu,
            up=UNSET if state is None else state.up,
        )

    def _number(self, path: str) -> int | UnsetType:
        """Return the number in a file of one, absent when it cannot be read: there is nobody to say why."""
        try:
            return int(self._proc.read_text(path) or "", 0)
        except (ProcReadError, ValueError):
            return UNSET


def parse_address_v6(line: str) -> tuple[str, str]:
    """Return interface and digits of a row of ``net/if_inet6``, blank if it is malformed."""
    words = line.split()
    return (words[5], words[0]) if len(words) == 6 else ("", "")


def parse_routes(v4: str, v6: str) -> tuple[tuple[Route, ...], int]:
    """Return the routes of ``net/route`` and ``net/ipv6_route`` that lead somewhere, and how many others do.

    The default ones come first. Blackholes, our own addresses and multicast lead nowhere.
    """
    rows: list[tuple[bool, Callable[[list[str]], Route], list[str]]] = []
    for line in v4.splitlines()[1:]:
        words = line.split()
        with suppress(IndexError, ValueError):
            if words[0] != "*" and int(words[3], 16) & _ROUTE_FLAG_UP:
                rows.append((not int(words[7], 16), _route_v4, words))
    for line in v6.splitlines():
        words = line.split()
        with suppress(IndexError, ValueError):
            flags, local = int(words[8], 16), words[0].startswith("ff") or words[9] == "lo"
            if flags & _ROUTE_FLAG_UP and not flags & _ROUTE_FLAG_LOCAL and not local:
                rows.append((not int(words[1], 16), _route_v6, words))
    rows.sort(key=lambda row: not row[0])
    shown: list[Route] = []
    for _, route, words in rows[:ROUTES_MAX]:
        with suppress(IndexError, ValueError, struct.error):
            shown.append(route(words))
    return tuple(shown), max(0, len(rows) - ROUTES_MAX)


def _route_v4(words: list[str]) -> Route:
    via = _v4(words[2])
    return Route(
        family="v4",
        destination=f"{_v4(words[1])}/{int(words[7], 16).bit_count()}",
        gateway=UNSET if via == "0.0.0.0" else via,  # noqa: S104 - the kernel's word for none
        interface=words[0],
    )


def _route_v6(words: list[str]) -> Route:
    destination, via = (str(ipaddress.IPv6Address(bytes.fromhex(words[at]))) for at in (0, 4))
    return Route(
        family="v6",
        destination=f"{destination}/{int(words[1], 16)}",
        gateway=UNSET if via == "::" else via,
        interface=words[9],
    )


def parse_sockets(*texts: str) -> tuple[tuple[UdpSocket, ...], int]:
    """Return the sockets of ``net/udp`` and ``net/udp6`` that lost most, and how many others there are."""
    rows: list[tuple[int, int, list[str]]] = []
    for text in texts:
        for line in text.splitlines()[1:]:
            words = line.split()
            with suppress(IndexError, ValueError):
                rows.append((int(words[12]), int(words[4].partition(":")[2], 16), words))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    shown: list[UdpSocket] = []
    for drops, waiting, words in rows[:SOCKETS_MAX]:
        with suppress(ValueError, struct.error):
            shown.append(
                UdpSocket(
                    local_addr=_endpoint(words[1]),
                    remote_addr=_endpoint(words[2]),
                    state=words[3][:2],
                    inode=int(words[9]),
                    rx_queue_bytes=waiting,
                    drops=drops,
                )
            )
    return tuple(shown), len(rows) - len(shown)


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
