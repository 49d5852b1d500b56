"""Network counters of the kernel: snapshot block ``host.network``, from ``net/snmp`` and ``net/dev``.

Emits no events. The counters belong to the network namespace, which carries a mark: nodes with equal marks
share the counters. A file or column that is not there is absent and has its reason; values are as read. One
that is lower than at the last look was reset (nothing here wraps: the kernel counts in 64 bits), which is
marked, as is an interface that was not there at the first look: its counters begin with it.

What else ``host.network`` says is read by ``host``.
"""

from collections.abc import Callable, Sequence

from msgspec import UNSET, Struct, UnsetType, structs

from swactor.abc import Clock
from swactor_diag.introspect._base import IntrospectionError
from swactor_diag.introspect._procfs import ProcReadError, ProcRoot
from swactor_diag.introspect.host import Addressing, AddressingReader, InterfaceFacts
from swactor_diag.schema.blocks import HostNetwork, InterfaceCounters, NetworkInterface, UdpKernelStats

_UDP_COLUMNS = {
    "InDatagrams": "in_datagrams",
    "NoPorts": "no_ports",
    "InErrors": "in_errors",
    "OutDatagrams": "out_datagrams",
    "RcvbufErrors": "rcvbuf_errors",
    "SndbufErrors": "sndbuf_errors",
}
_DEVICE_COLUMNS_MIN = 12  # up to and including the dropped packets of the sending half


INTERFACES_MAX = 64
"""Interfaces that are listed: the first ones in the kernel's order."""


class KernelNetIntrospector:
    """UDP totals and per-interface counters of this node's network namespace, and how that is attached."""

    name = "host.network"
    record = HostNetwork

    def __init__(
        self,
        *,
        proc: ProcRoot,
        clock: Clock,
        addressing: AddressingReader | None = None,
        nameservers: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._addressing = addressing
        self._nameservers = nameservers
        self._udp: UdpKernelStats | UnsetType = UNSET
        self._interfaces: dict[str, NetworkInterface] | None = None

    def observe(self) -> HostNetwork | None:
        """Return what could be read, or None when there is neither file."""
        reasons: list[str] = []
        snmp = self._text("net/snmp", reasons)
        devices = self._text("net/dev", reasons)
        if snmp is None and devices is None:
            return None
        udp = _udp(snmp, reasons)
        listed = () if devices is None else _interfaces(devices, reasons)
        shown = listed[:INTERFACES_MAX]
        around = self._around([interface.name for interface in shown])
        before, self._udp = self._udp, udp
        return HostNetwork(
            interfaces=self._marked(shown, around),
            interfaces_omitted=len(listed) - len(shown),
            udp_kernel_stats=udp,
            udp_reset=_is_lower(udp, before),
            default_routes=around.routes,
            udp_sockets=around.sockets,
            udp_sockets_omitted=around.sockets_omitted,
            conntrack_count=around.conntrack_count,
            ipv6_enabled=around.ipv6_enabled,
            resolv_conf_nameservers=self._nameservers(),
            local_addresses=around.local_addresses,
            namespace=self._namespace(reasons),
            refreshed_at_ms=self._clock.wall_ms(),
            reasons=(*reasons, *around.reasons),
        )

    def _around(self, names: list[str]) -> Addressing:
        return Addressing() if self._addressing is None else self._addressing.read(names)

    def _marked(self, listed: Sequence[NetworkInterface], around: Addressing) -> tuple[NetworkInterface, ...]:
        """Complete the interfaces, and compare each with itself at the last look."""
        before = self._interfaces
        marked: dict[str, NetworkInterface] = {}
        for interface in listed:
            facts = around.interfaces.get(interface.name, InterfaceFacts())
            last = None if before is None else before.get(interface.name)
            first_seen_at_ms = UNSET if last is None else last.first_seen_at_ms
            if before is not None and last is None:
                first_seen_at_ms = self._clock.wall_ms()
            marked[interface.name] = NetworkInterface(
                name=interface.name,
                addresses=facts.addresses,
                mtu=facts.mtu,
                up=facts.up,
                counters=interface.counters,
                counters_reset=last is not None and _is_lower(interface.counters, last.counters),
                first_seen_at_ms=first_seen_at_ms,
            )
        self._interfaces = marked
        return tuple(marked.values())

    def _text(self, path: str, reasons: list[str]) -> str | None:
        try:
            text = self._proc.read_text(path)
        except ProcReadError as error:
            reasons.append(str(error))
            return None
        if text is None:
            reasons.append(f"{path}: no such file")
        return text

    def _namespace(self, reasons: list[str]) -> str | UnsetType:
        try:
            return self._proc.read_text("self/ns/net") or UNSET
        except ProcReadError as error:
            reasons.append(str(error))
            return UNSET


def parse_udp(text: str) -> UdpKernelStats:
    """Return the ``Udp:`` row pair of ``net/snmp``; a column that is missing is absent.

    Raises:
        IntrospectionError: there is no such pair, or a value is no number.
    """
    rows = [line.split() for line in text.splitlines() if line.startswith("Udp:")]
    if len(rows) < 2:
        raise IntrospectionError("net/snmp: the Udp: lines are not a pair of names and values")
    try:
        values = {name: int(value) for name, value in zip(rows[0][1:], rows[1][1:], strict=False)}
    except ValueError as error:
        raise IntrospectionError("net/snmp: a Udp: value is no number") from error
    known = {field: values[column] for column, field in _UDP_COLUMNS.items() if column in values}
    return UdpKernelStats(**known)


def parse_devices(text: str) -> tuple[NetworkInterface, ...]:
    """Return the interfaces of ``net/dev`` in order; a malformed row has no counters."""
    found: list[NetworkInterface] = []
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if not colon or "|" in line:
            continue
        found.append(NetworkInterface(name=name.strip(), counters=_counters(rest.split())))
    return tuple(found)


def _counters(columns: list[str]) -> InterfaceCounters | UnsetType:
    if len(columns) < _DEVICE_COLUMNS_MIN or not all(column.isdecimal() for column in columns):
        return UNSET
    numbers = [int(column) for column in columns]
    return InterfaceCounters(
        rx_bytes=numbers[0],
        rx_packets=numbers[1],
        rx_errors=numbers[2],
        rx_dropped=numbers[3],
        tx_bytes=numbers[8],
        tx_packets=numbers[9],
        tx_errors=numbers[10],
        tx_dropped=numbers[11],
    )


def _udp(text: str | None, reasons: list[str]) -> UdpKernelStats | UnsetType:
    if text is None:
        return UNSET
    try:
        return parse_udp(text)
    except IntrospectionError as error:
        reasons.append(str(error))
        return UNSET


def _interfaces(text: str, reasons: list[str]) -> tuple[NetworkInterface, ...]:
    interfaces = parse_devices(text)
    reasons += [f"net/dev: malformed row of {item.name}" for item in interfaces if item.counters is UNSET]
    return interfaces


def _is_lower(now: Struct | UnsetType, before: Struct | UnsetType) -> bool:
    """Whether a counter that is in both is lower than it was."""
    if isinstance(now, UnsetType) or isinstance(before, UnsetType):
        return False
    pairs = zip(structs.astuple(now), structs.astuple(before), strict=True)
    return any(a < b for a, b in pairs if a is not UNSET and b is not UNSET)
