"""Kernel counters: as read, absent with a reason, never a zero that was not measured."""

from pathlib import Path
from typing import Protocol

import msgspec
import pytest
from msgspec import UNSET

from swactor.abc import Clock
from swactor_diag.introspect import IntrospectionError, LinuxProc, ProcReadError, ProcRoot
from swactor_diag.introspect._procfs import FILE_BYTES_MAX, ReadOutcome, Table, read_table
from swactor_diag.introspect.host import AddressingReader, Links, NoLinks
from swactor_diag.introspect.kernel_net import KernelNetIntrospector, parse_devices, parse_udp
from swactor_diag.schema.blocks import HostNetwork, InterfaceCounters, UdpKernelStats


class Proc(ProcRoot, Protocol):
    files: dict[str, str | ProcReadError]


class SettableClock(Clock, Protocol):
    now_ms: int


SNMP = "Udp: InDatagrams NoPorts InErrors OutDatagrams\nUdp: 4993 31 0 5104\n"
DEVICES = "Inter-| Receive | Transmit\n face |bytes\n  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"


def observed(proc: ProcRoot, clock: Clock) -> HostNetwork:
    network = KernelNetIntrospector(proc=proc, clock=clock).observe()
    assert network is not None
    return network


def test_captured_files_of_a_linux_machine(captured: Path, clock: Clock) -> None:
    network = observed(LinuxProc(str(captured)), clock)
    assert msgspec.to_builtins(network.udp_kernel_stats) == {
        "in_datagrams": 4993,
        "no_ports": 31,
        "in_errors": 0,
        "out_datagrams": 5104,
        "rcvbuf_errors": 0,
        "sndbuf_errors": 0,
    }
    assert msgspec.to_builtins(network.udp6_kernel_stats) == {
        "in_datagrams": 17,
        "no_ports": 1,
        "in_errors": 999,
        "out_datagrams": 1001,
        "rcvbuf_errors": 999,
        "sndbuf_errors": 0,
    }
    assert [interface.name for interface in network.interfaces] == ["lo", "ifb0", "ifb1", "eth0"]
    counters = network.interfaces[3].counters
    assert isinstance(counters, InterfaceCounters)
    assert (counters.rx_bytes, counters.rx_packets, counters.tx_bytes, counters.tx_packets) == (
        110463286,
        3818,
        308106,
        2970,
    )


def test_a_column_that_the_kernel_does_not_have_is_absent() -> None:
    stats = parse_udp(SNMP, [])
    assert (stats.out_datagrams, stats.rcvbuf_errors) == (5104, UNSET)


@pytest.mark.parametrize("text", ["", "Udp: InDatagrams NoPorts\n", "Udp: InDatagrams\nUdp: many\n"])
def test_fc037_names_without_values_are_no_counters(text: str) -> None:
    with pytest.raises(IntrospectionError):
        parse_udp(text, [])


def test_fc037_the_other_counters_are_still_reported_and_the_reason_is_given(
    proc: Proc, clock: Clock
) -> None:
    proc.files |= {"net/snmp": "Udp: InDatagrams NoPorts\n", "net/dev": DEVICES}
    network = observed(proc, clock)
    assert network.udp_kernel_stats is UNSET
    assert [interface.name for interface in network.interfaces] == ["eth0"]
    assert any("net/snmp" in reason for reason in network.reasons)


def test_udp_over_ipv6_is_counted_apart_and_a_kernel_without_it_is_no_failure(
    proc: Proc, clock: Clock
) -> None:
    introspector = KernelNetIntrospector(proc=proc, clock=clock)
    proc.files["net/snmp"] = SNMP

    def seen(snmp6: str | ProcReadError | None) -> HostNetwork:
        proc.files.pop("net/snmp6", None)
        if snmp6 is not None:
            proc.files["net/snmp6"] = snmp6
        network = introspector.observe()
        assert network is not None
        assert isinstance(network.udp_kernel_stats, UdpKernelStats)
        return network

    network = seen("Udp6InDatagrams 9\nUdp6RcvbufErrors 900\nUdpLite6InDatagrams 7\n")
    assert network.udp6_kernel_stats == UdpKernelStats(in_datagrams=9, rcvbuf_errors=900)
    absent, denied, empty = seen(None), seen(ProcReadError("net/snmp6", "EACCES")), seen("Ip6InReceives 1\n")
    assert [one.udp6_kernel_stats for one in (absent, denied, empty)] == [UNSET] * 3
    assert not any("snmp6" in reason for reason in absent.reasons)
    assert "net/snmp6: EACCES" in denied.reasons
    assert "net/snmp6: there is no counter of UDP" in empty.reasons
    network = seen("Udp6RcvbufErrors 3\n")
    assert (network.udp6_reset, network.udp_reset) == (True, False)


def test_fc037_a_file_that_is_denied_is_absent_with_the_reason(proc: Proc, clock: Clock) -> None:
    proc.files |= {"net/snmp": SNMP, "net/dev": ProcReadError("net/dev", "EACCES")}
    network = observed(proc, clock)
    assert network.interfaces == ()
    assert "net/dev: EACCES" in network.reasons


@pytest.mark.parametrize("other", [{}, {"net/snmp": ProcReadError("net/snmp", "EMFILE")}])
def test_files_that_cannot_be_read_are_a_failure_and_not_a_machine_without_network(
    proc: Proc, clock: Clock, other: dict[str, str | ProcReadError]
) -> None:
    proc.files |= {"net/dev": ProcReadError("net/dev", "EMFILE"), **other}
    with pytest.raises(IntrospectionError, match="net/dev: EMFILE"):
        KernelNetIntrospector(proc=proc, clock=clock).observe()


def test_a_failure_is_one_whatever_its_reason_says(proc: Proc, clock: Clock) -> None:
    for path in ("net/dev", "net/snmp"):
        proc.files[path] = ProcReadError(path, "no such file")
    with pytest.raises(IntrospectionError, match="net/snmp: no such file, net/dev: no such file"):
        KernelNetIntrospector(proc=proc, clock=clock).observe()


def test_of_a_file_that_cannot_be_read_nobody_claims_to_have_counted_the_rows(
    proc: Proc, clock: Clock
) -> None:
    proc.files |= {"net/snmp": SNMP, "net/dev": ProcReadError("net/dev", "EACCES")}
    proc.files |= {"net/udp": "", "net/udp6": ProcReadError("net/udp6", "EACCES")}
    addressing = AddressingReader(proc=proc, links=NoLinks(), clock=clock)
    network = KernelNetIntrospector(proc=proc, clock=clock, addressing=addressing).observe()
    assert network is not None
    assert (network.interfaces_omitted, network.udp_sockets_omitted) == (UNSET, UNSET)


def test_without_any_file_there_is_no_block(proc: Proc, clock: Clock) -> None:
    assert KernelNetIntrospector(proc=proc, clock=clock).observe() is None


@pytest.mark.parametrize("bad", ["-7", str(2**64 - 7), "9" * 5_000, "n/a"])
def test_fc033_what_cannot_be_a_counter_costs_its_column_and_says_so(
    proc: Proc, clock: Clock, bad: str
) -> None:
    proc.files["net/snmp"] = f"Udp: InDatagrams NewThing InErrors\nUdp: 10 n/a {bad}\n"
    proc.files["net/dev"] = f"eth0: 1 {bad} 3 4 5 6 7 8 9 10 11 12\nlo: 1 2 3 4 {bad} 6 7 8 9 10 11 12\n"
    network = observed(proc, clock)
    assert msgspec.to_builtins(network.udp_kernel_stats) == {"in_datagrams": 10}
    assert [interface.counters is UNSET for interface in network.interfaces] == [True, False]
    assert network.reasons == (
        f"net/snmp: InErrors is no counter: {bad[:40]}",
        "net/dev: malformed row of eth0",
    )
    assert msgspec.json.encode(network)


def test_the_reasons_are_bounded(proc: Proc, clock: Clock) -> None:
    proc.files |= {"net/snmp": SNMP, "net/dev": "".join(f"e{number}:\n" for number in range(5_000))}
    reasons = observed(proc, clock).reasons
    assert len(reasons) == 21
    assert reasons[-1] == "and 4980 more"


def test_a_malformed_interface_row_is_an_interface_without_counters() -> None:
    rows = parse_devices("eth0: 1 2 x\nlo: " + "7 " * 16)
    assert [(row.name, row.counters is UNSET) for row in rows] == [("eth0", True), ("lo", False)]


def test_fc038_the_namespace_is_marked(proc: Proc, clock: Clock) -> None:
    proc.files |= {"net/snmp": SNMP, "self/ns/net": "net:[4026531840]"}
    assert observed(proc, clock).namespace == "net:[4026531840]"
    assert LinuxProc().read_text("self/ns/net") is not None


def dev(**dropped: int) -> str:
    """A device file in which each interface has dropped so many packets."""
    rows = [f"{name}: 1 2 3 {count} 5 6 7 8 9 10 11 12 13 14 15 16" for name, count in dropped.items()]
    return "\n".join(rows) + "\n"


def test_fc035_a_counter_that_went_down_is_as_read_and_marked(proc: Proc, clock: Clock) -> None:
    introspector = KernelNetIntrospector(proc=proc, clock=clock)
    marks: list[tuple[object, ...]] = []
    for dropped, datagrams in ((900, 50), (901, 51), (3, 51), (4, 7), (4, 7)):
        proc.files |= {"net/dev": dev(eth0=dropped), "net/snmp": f"Udp: InDatagrams\nUdp: {datagrams}\n"}
        network = introspector.observe()
        assert network is not None
        counters = network.interfaces[0].counters
        assert isinstance(counters, InterfaceCounters)
        marks.append((counters.rx_dropped, network.interfaces[0].counters_reset, network.udp_reset))
    assert marks == [
        (900, False, False),
        (901, False, False),
        (3, True, False),
        (4, False, True),
        (4, False, False),
    ]


@pytest.mark.parametrize("lost", ["the file", "the values"])
def test_fc035_a_look_at_which_nothing_can_be_read_hides_no_reset_and_makes_no_interface_new(
    proc: Proc, clock: Clock, lost: str
) -> None:
    introspector = KernelNetIntrospector(proc=proc, clock=clock)

    def look(devices: str | ProcReadError, snmp: str | ProcReadError) -> HostNetwork:
        proc.files |= {"net/dev": devices, "net/snmp": snmp, "self/ns/net": "net:[1]"}
        network = introspector.observe()
        assert network is not None
        return network

    denied = lost == "the file"
    look(dev(eth0=900), "Udp: InDatagrams InErrors\nUdp: 10 900\n")
    look(ProcReadError("net/dev", "EMFILE") if denied else "eth0: ?\n", "Udp: InDatagrams\nUdp: 10\n")
    look(dev(eth0=900), ProcReadError("net/snmp", "EMFILE") if denied else "Udp: InErrors\nUdp: ?\n")
    look(ProcReadError("net/dev", "EMFILE") if denied else "eth0: ?\n", "Udp: InDatagrams\nUdp: 10\n")
    network = look(dev(eth0=3), "Udp: InDatagrams InErrors\nUdp: 10 3\n")
    assert network.udp_reset
    assert network.interfaces[0].counters_reset
    assert network.interfaces[0].first_seen_at_ms is UNSET


def test_fc036_an_interface_that_appears_says_since_when_and_one_that_goes_costs_nothing(
    proc: Proc, clock: SettableClock
) -> None:
    introspector = KernelNetIntrospector(proc=proc, clock=clock)
    seen: list[dict[str, object]] = []
    for interfaces in ({"eth0": 1}, {"eth0": 1, "veth0": 9}, {"eth0": 1, "veth0": 9}, {"eth0": 1}):
        proc.files["net/dev"] = dev(**interfaces)
        clock.now_ms += 5_000
        network = introspector.observe()
        assert network is not None
        seen.append({interface.name: interface.first_seen_at_ms for interface in network.interfaces})
    appeared_at_ms = clock.now_ms - 10_000
    both = {"eth0": UNSET, "veth0": appeared_at_ms}
    assert seen == [{"eth0": UNSET}, both, both, {"eth0": UNSET}]


def test_fc038_nodes_in_two_namespaces_have_two_marks_and_in_one_the_same(proc: Proc, clock: Clock) -> None:
    proc.files |= {"net/dev": DEVICES, "self/ns/net": "net:[1]"}
    marks = [observed(proc, clock).namespace, observed(proc, clock).namespace]
    proc.files["self/ns/net"] = "net:[2]"
    marks.append(observed(proc, clock).namespace)
    assert marks == ["net:[1]", "net:[1]", "net:[2]"]


def test_more_interfaces_than_anybody_reads_are_counted(proc: Proc, clock: Clock) -> None:
    proc.files["net/dev"] = dev(**{f"veth{number}": 1 for number in range(500)})
    network = observed(proc, clock)
    assert (len(network.interfaces), network.interfaces_omitted) == (64, 436)


def test_what_is_longer_than_is_read_says_so_and_nobody_claims_to_have_counted_the_rest(
    tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(dev(eth0=1) + "\n" * FILE_BYTES_MAX)
    (tmp_path / "net/udp").write_text("\n" * (FILE_BYTES_MAX + 1))
    proc = LinuxProc(str(tmp_path))
    addressing = AddressingReader(proc=proc, links=NoLinks(), clock=clock)
    network = KernelNetIntrospector(proc=proc, clock=clock, addressing=addressing).observe()
    assert network is not None
    assert (network.interfaces_omitted, network.udp_sockets_omitted) == (UNSET, UNSET)
    assert {"net/dev: cut at 256 KiB", "net/udp: cut at 256 KiB"} <= set(network.reasons)
    assert [interface.name for interface in network.interfaces] == ["eth0"]


def test_only_a_file_that_goes_on_is_cut_and_after_a_whole_line(tmp_path: Path) -> None:
    lines = "row\n" * (FILE_BYTES_MAX // 4)
    reasons: list[str] = []
    kept: dict[str, Table] = {}
    for name, text in (("whole", lines), ("longer", "12" + lines)):
        (tmp_path / name).write_text(text)
        kept[name] = read_table(LinuxProc(str(tmp_path)), name, reasons)
    assert kept == {
        "whole": Table(ReadOutcome.WHOLE, lines),
        "longer": Table(ReadOutcome.CUT, "12" + lines[:-4]),
    }
    assert reasons == ["longer: cut at 256 KiB"]


def test_the_block_has_the_addresses_and_the_resolvers_beside_the_counters(
    captured: Path, links: Links, clock: Clock
) -> None:
    proc = LinuxProc(str(captured))
    addressing = AddressingReader(proc=proc, links=links, clock=clock)
    network = KernelNetIntrospector(
        proc=proc, clock=clock, addressing=addressing, nameservers=lambda: ("10.0.0.53",)
    ).observe()
    assert network is not None
    eth0 = network.interfaces[3]
    assert (eth0.name, eth0.addresses[0], eth0.mtu, eth0.up) == ("eth0", "192.0.2.2", 1400, True)
    assert isinstance(eth0.counters, InterfaceCounters)
    assert network.resolv_conf_nameservers == ("10.0.0.53",)
    assert network.default_routes[0].gateway == "192.0.2.1"
    assert network.udp_sockets[0].drops == 47
