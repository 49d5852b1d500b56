"""How a host is attached to its network, from captured kernel files and from broken ones."""

import ipaddress
import sys
from pathlib import Path
from types import FrameType
from typing import Protocol

import pytest
from msgspec import UNSET

from swactor.abc import Clock
from swactor_diag.introspect import EmptyProc, LinuxProc, ProcReadError, ProcRoot
from swactor_diag.introspect.host import (
    AddressingReader,
    InterfaceFacts,
    Links,
    NoLinks,
    parse_address_v6,
    parse_routes,
    parse_sockets,
)


class SettableClock(Clock, Protocol):
    now_ns: int


class Proc(ProcRoot, Protocol):
    files: dict[str, str | ProcReadError]
    reads: list[str]


ROUTE_HEAD = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"


def test_captured_files_of_a_linux_machine(captured: Path, links: Links, clock: Clock) -> None:
    reader = AddressingReader(proc=LinuxProc(str(captured)), links=links, clock=clock)
    found = reader.read(["lo", "eth0"])
    assert found.interfaces == {
        "lo": InterfaceFacts(("127.0.0.1", "::1"), mtu=65536, up=True),
        "eth0": InterfaceFacts(("192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:1"), mtu=1400, up=True),
    }
    assert [(route.family, route.destination, route.gateway, route.interface) for route in found.routes] == [
        ("v4", "0.0.0.0/0", "192.0.2.1", "eth0"),
        ("v6", "::/0", "fd00::1", "eth0"),
        ("v4", "192.0.2.0/24", UNSET, "eth0"),
        ("v6", "fd00::/64", UNSET, "eth0"),
        ("v6", "fe80::/64", UNSET, "eth0"),
    ]
    assert (found.conntrack_count, found.ipv6_enabled, found.reasons) == (0, True, ())
    assert [(one.local_addr, one.state, one.rx_queue_bytes, one.drops) for one in found.sockets] == [
        ("127.0.0.1:7000", "07", 3840, 47),
        ("127.0.0.1:37426", "07", 0, 0),
        ("127.0.0.1:39838", "01", 0, 0),
        ("[::1]:9081", "07", 0, 0),
    ]
    assert found.sockets[2].remote_addr == "127.0.0.1:7000"


def test_without_any_file_everything_is_absent_with_its_reason(clock: Clock) -> None:
    found = AddressingReader(proc=EmptyProc(), links=NoLinks(), clock=clock).read(["eth0"])
    assert found.interfaces == {"eth0": InterfaceFacts()}
    assert (found.conntrack_count, found.ipv6_enabled, found.routes) == (UNSET, UNSET, ())
    assert {"net/route: no such file", "addresses: nobody to ask"} <= set(found.reasons)


def test_what_is_denied_costs_itself(proc: Proc, clock: Clock) -> None:
    proc.files |= {
        "net/route": ProcReadError("net/route", "EACCES"),
        "net/if_inet6": "00000000000000000000000000000001 01 80 10 80       lo\n",
    }
    found = AddressingReader(proc=proc, links=NoLinks(), clock=clock).read(["lo"])
    assert "net/route: EACCES" in found.reasons
    assert found.interfaces["lo"].addresses == ("::1",)


def test_it_is_read_again_every_half_minute_and_when_an_interface_comes(
    proc: Proc, clock: SettableClock
) -> None:
    reader = AddressingReader(proc=proc, links=NoLinks(), clock=clock)
    reader.read(["lo"])
    proc.reads.clear()
    clock.now_ns += 29_000_000_000
    reader.read(["lo"])
    assert proc.reads == []
    reader.read(["lo", "veth0"])
    assert "net/route" in proc.reads
    proc.reads.clear()
    clock.now_ns += 30_000_000_000
    reader.read(["lo", "veth0"])
    assert "net/route" in proc.reads


def test_an_address_of_an_interface_that_is_not_listed_is_told_without_it(
    proc: Proc, links: Links, clock: Clock
) -> None:
    found = AddressingReader(proc=proc, links=links, clock=clock).read(["eth0"])
    assert found.interfaces["eth0"].addresses == ("192.0.2.2",)
    assert found.local_addresses == ("127.0.0.1", "10.9.8.7")


@pytest.mark.parametrize(
    "row",
    [
        "eth0",
        "eth0 zz 00 0001 0 0 0 00 0 0 0",
        "eth0 000200C0 00 0001 0 0 0 mask 0 0 0",
        "",
        "a b c d e f g h i",
    ],
)
def test_a_malformed_row_costs_that_row(row: str) -> None:
    good = "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0"
    routes, _ = parse_routes(f"{ROUTE_HEAD}{row}\n{good}\n", f"{row}\n")
    assert [route.destination for route in routes] == ["192.0.2.0/24"]
    assert parse_sockets(f"head\n{row}\n") == ((), 0)
    assert parse_address_v6(row) == ("", "")


def test_a_route_that_is_down_leads_nowhere() -> None:
    assert parse_routes(f"{ROUTE_HEAD}eth0 000200C0 00000000 0000 0 0 0 00FFFFFF 0 0 0\n", "") == ((), 0)


def test_a_host_with_very_much_of_everything_is_read_in_a_moment(proc: Proc, clock: Clock) -> None:
    """Only what is shown is worth the work of showing it; all of this is read on the loop."""
    rows = {
        "net/route": "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0",
        "net/ipv6_route": f"{'fd' * 16} 40 {'00' * 16} 00 {'00' * 16} 0100 1 0 1 eth0",
        "net/udp6": f"  1: {'00' * 16}:0044 {'00' * 16}:0000 07 0:00 00:00 0 0 0 17024 2 0 7",
        "net/if_inet6": f"{'fd' * 16} 40 40 80 80 eth0",
    }
    proc.files |= {name: f"{row}\n" * 2_000 for name, row in rows.items()}
    formatted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal formatted
        formatted += event == "call" and frame.f_code.co_filename == ipaddress.__file__

    sys.setprofile(count)
    try:
        found = AddressingReader(proc=proc, links=NoLinks(), clock=clock).read(["eth0"])
    finally:
        sys.setprofile(None)
    shown = len(found.routes) + len(found.sockets) + len(found.interfaces["eth0"].addresses)
    assert shown == 64 + 32 + 256
    assert (found.sockets_omitted, found.routes_omitted) == (1_967, 1_999 + 2_000 - 64)
    assert formatted < 20 * shown


def test_a_blackhole_is_no_route_through_an_interface() -> None:
    rows = "* 0001F40A 00000000 0201 0 0 0 C0FFFFFF 0 0 0\neth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"
    assert [route.interface for route in parse_routes(ROUTE_HEAD + rows, "")[0]] == ["eth0"]


def test_a_default_route_is_not_lost_among_many() -> None:
    v4 = "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n" * 100
    v6 = f"{'00' * 16} 00 {'00' * 16} 00 {'fd' * 16} 00000400 00000001 00000000 00000003 eth1\n"
    routes, omitted = parse_routes(ROUTE_HEAD + v4, v6)
    assert (routes[0].destination, routes[0].interface, len(routes), omitted) == ("::/0", "eth1", 64, 37)
