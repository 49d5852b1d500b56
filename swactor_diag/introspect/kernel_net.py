"""Network counters of the kernel: block ``host.network``, from ``net/snmp``, ``net/snmp6`` and ``net/dev``.

Emits no events. The counters belong to the network namespace, which carries a mark: nodes with equal marks
share the counters. A file or column that is not there is absent and has its reason, as is what no counter can
be: below zero, or wrapped. Values are as read. One that is lower than when it was read last was reset, which
is marked, as is an interface that was not there at the first look: its counters begin with it.

What else ``host.network`` says is read by ``host``.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import UNSET, Struct, UnsetType, structs

from swactor.abc import Clock
from swactor_diag.introspect._base import REASON_CHARS_MAX, IntrospectionError
from swactor_diag.introspect._procfs import (
    FIGURE_MAX,
    ProcReadError,
    ProcRoot,
    ReadOutcome,
    Table,
    read_table,
)
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
_DEVICE_FIELDS = tuple(field.name for field in structs.fields(InterfaceCounters))
_DEVICE_COLUMNS = (0, 1, 2, 3, 8, 9, 10, 11)
"""Bytes, packets, errors and dropped packets of the receiving and of the sending half."""

_DIGITS_MAX = len(str(FIGURE_MAX))

INTERFACES_MAX = 64
"""Interfaces that are listed: the first ones in the kernel's order."""

REASONS_MAX = 20
"""Reasons that are listed; of any more their number is told."""


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
        self._udp = UdpKernelStats()
        self._udp6 = UdpKernelStats()
        self._interfaces: dict[str, NetworkInterface] | None = None

    def observe(self) -> HostNetwork | None:
        """Return what could be read, or None when there is neither file.

        Raises:
            IntrospectionError: neither could be read, and not because there is none.
        """
        reasons: list[str] = []
        snmp = read_table(self._proc, "net/snmp", reasons)
        devices = read_table(self._proc, "net/dev", reasons)
        if snmp.outcome is devices.outcome is ReadOutcome.MISSING:
            return None
        if not snmp.has_text and not devices.has_text:
            raise IntrospectionError(", ".join(reasons))
        udp = _udp(snmp, reasons)
        listed = _interfaces(devices.text, reasons)
        shown = listed[:INTERFACES_MAX]
        around = self._around([interface.name for interface in shown])
        before, self._udp = self._udp, _last_known(udp, self._udp)
        udp6 = self._read_udp6(reasons)
        before6, self._udp6 = self._udp6, _last_known(udp6, self._udp6)
        return HostNetwork(
            interfaces=self._marked(shown, around) if devices.has_text else (),
            interfaces_omitted=UNSET if devices.has_more else len(listed) - len(shown),
            udp_kernel_stats=udp,
            udp_reset=_is_lower(udp, before),
            udp6_kernel_stats=udp6,
            udp6_reset=_is_lower(udp6, before6),
            default_routes=around.routes,
            routes_omitted=around.routes_omitted,
            udp_sockets=around.sockets,
            udp_sockets_omitted=around.sockets_omitted,
            conntrack_count=around.conntrack_count,
            ipv6_enabled=around.ipv6_enabled,
            resolv_conf_nameservers=self._nameservers(),
            local_addresses=around.local_addresses,
            namespace=self._namespace(reasons),
            refreshed_at_ms=self._clock.wall_ms(),
            reasons=_bounded([*reasons, *around.reasons]),
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
        self._interfaces = {name: _remembered(one, before) for name, one in marked.items()}
        return tuple(marked.values())

    def _read_udp6(self, reasons: list[str]) -> UdpKernelStats | UnsetType:
        """Return the counters of UDP over IPv6, which are not among the others; a kernel may do without."""
        try:
            text = self._proc.read_text("net/snmp6")
            return UNSET if text is None else parse_udp6(text, reasons)
        except (ProcReadError, IntrospectionError) as error:
            reasons.append(str(error))
            return UNSET

    def _namespace(self, reasons: list[str]) -> str | UnsetType:
        try:
            return self._proc.read_text("self/ns/net") or UNSET
        except ProcReadError as error:
            reasons.append(str(error))
            return UNSET


def parse_udp(text: str, reasons: list[str]) -> UdpKernelStats:
    """Return the ``Udp:`` row pair of ``net/snmp``; a column that is missing or no counter is absent.

    Raises:
        IntrospectionError: there is no such pair, or no counter in it.
    """
    rows = [line.split() for line in text.splitlines() if line.startswith("Udp:")]
    if len(rows) < 2:
        raise IntrospectionError("net/snmp: the Udp: lines are not a pair of names and values")
    return _counted("net/snmp", zip(rows[0][1:], rows[1][1:], strict=False), reasons)


def parse_udp6(text: str, reasons: list[str]) -> UdpKernelStats:
    """Return the ``Udp6`` rows of ``net/snmp6``, as `parse_udp`."""
    rows = [line.split() for line in text.splitlines() if line.startswith("Udp6")]
    pairs = [(row[0].removeprefix("Udp6"), row[1]) for row in rows if len(row) == 2]
    return _counted("net/snmp6", pairs, reasons)


def _counted(path: str, pairs: Iterable[tuple[str, str]], reasons: list[str]) -> UdpKernelStats:
    known: dict[str, int] = {}
    for column, value in pairs:
        field, count = _UDP_COLUMNS.get(column), _counter(value)
        if field is not None and count is None:
            reasons.append(f"{path}: {column} is no counter: {value[:40]}")
        elif field is not None and count is not None:
            known[field] = count
    if not known:
        raise IntrospectionError(f"{path}: there is no counter of UDP")
    return UdpKernelStats(**known)


def parse_devices(text: str) -> tuple[NetworkInterface, ...]:
    """Return the interfaces of ``net/dev`` in order; a malformed row has no counters."""
    found: list[NetworkInterface] = []
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon:  # there is none in the two lines of the head
            found.append(NetworkInterface(name=name.strip(), counters=_counters(rest.split())))
    return tuple(found)


def _counters(columns: list[str]) -> InterfaceCounters | UnsetType:
    if len(columns) <= _DEVICE_COLUMNS[-1]:
        return UNSET
    numbers = [count for at in _DEVICE_COLUMNS if (count := _counter(columns[at])) is not None]
    return (
        InterfaceCounters(**dict(zip(_DEVICE_FIELDS, numbers, strict=True)))
        if len(numbers) == len(_DEVICE_COLUMNS)
        else UNSET
    )


def _counter(text: str) -> int | None:
    """Return the number, None when it is none or cannot be a counter."""
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        return None
    count = int(text)
    return count if count <= FIGURE_MAX else None


def _udp(snmp: Table, reasons: list[str]) -> UdpKernelStats | UnsetType:
    if not snmp.has_text:
        return UNSET
    try:
        return parse_udp(snmp.text, reasons)
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


def _last_known(now: UdpKernelStats | UnsetType, before: UdpKernelStats) -> UdpKernelStats:
    """Return the counters as they were read last: a look at which one is absent must not hide a reset."""
    return before if isinstance(now, UnsetType) else UdpKernelStats(**(_present(before) | _present(now)))


def _present(stats: UdpKernelStats) -> dict[str, int]:
    return {field: value for field, value in structs.asdict(stats).items() if value is not UNSET}


def _remembered(now: NetworkInterface, before: dict[str, NetworkInterface] | None) -> NetworkInterface:
    """Return what the next look is compared with: the counters as they were read last."""
    last = None if before is None else before.get(now.name)
    if now.counters is not UNSET or last is None:
        return now
    return structs.replace(now, counters=last.counters)


def _bounded(reasons: list[str]) -> tuple[str, ...]:
    listed = [reason[:REASON_CHARS_MAX] for reason in reasons[:REASONS_MAX]]
    if len(reasons) > REASONS_MAX:
        listed.append(f"and {len(reasons) - REASONS_MAX} more")
    return tuple(listed)
