"""The kernel of this machine: network namespaces, interfaces that come and go, a process of another user."""

import json
import os
import shutil
import socket
import subprocess
import sys
from typing import Any

import pytest

from swactor import SystemClock
from swactor_diag.introspect import LinuxProc
from swactor_diag.introspect.kernel_net import KernelNetIntrospector
from swactor_diag.schema.blocks import UdpKernelStats

LOOKS_AT_NETWORK = """
import json, subprocess, sys
from msgspec import UNSET
from swactor import SystemClock
from swactor_diag.introspect import LinuxProc
from swactor_diag.introspect.kernel_net import KernelNetIntrospector

introspector = KernelNetIntrospector(proc=LinuxProc(), clock=SystemClock())
for command in ["true", *sys.argv[1:]]:
    subprocess.run(command.split(), check=True)
    seen = introspector.observe()
    names = {row.name: row.first_seen_at_ms is not UNSET for row in seen.interfaces}
    print(json.dumps([seen.namespace, names, seen.udp_kernel_stats is not UNSET]))
"""
LOOKS_AT_LINKS = """
import json, os, sys
from msgspec import to_builtins
from swactor import SystemClock
from swactor_diag.introspect import LinuxProc
from swactor_diag.introspect.host import AddressingReader
from swactor_diag.introspect.kernel_net import KernelNetIntrospector
from swactor_diag.introspect.links import SocketLinks

for command in sys.argv[1:]:
    os.system(command)
proc, clock = LinuxProc(), SystemClock()
addressing = AddressingReader(proc=proc, links=SocketLinks(), clock=clock)
seen = KernelNetIntrospector(proc=proc, clock=clock, addressing=addressing).observe()
print(json.dumps({row.name: to_builtins(row) for row in seen.interfaces}))
"""

LOOKS_AT_A_STRANGER = """
import os, sys
import msgspec
from swactor import SystemClock
from swactor_diag.introspect import LinuxProc, kernel_units
from swactor_diag.introspect.subprocesses import SubprocessIntrospector
from swactor_process import ProcessStarted

pid = int(sys.argv[1])
table = SubprocessIntrospector(proc=LinuxProc(), clock=SystemClock(), units=kernel_units())
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
table.hear(
    ProcessStarted(
        process=None,
        spawn_id="s1",
        label="worker",
        pid=pid,
        parent_pid=os.getpid(),
        start_time=None,
        command=("worker",),
        started_at_ms=0,
        guarded=True,
    )
)
for _ in range(2):
    print(msgspec.json.encode(table.observe().subprocesses[0]).decode())
"""

LOOKS_AT_ITSELF_AND_A_CHILD = """
import os, subprocess
import msgspec
from swactor import SystemClock
from swactor_diag.introspect import LinuxProc, kernel_units
from swactor_diag.introspect.process import ProcessIntrospector
from swactor_diag.introspect.subprocesses import SubprocessIntrospector
from swactor_process import ProcessStarted

how = dict(proc=LinuxProc(), clock=SystemClock(), units=kernel_units())
with subprocess.Popen(["sleep", "600"]) as child:
    table = SubprocessIntrospector(**how)
    table.hear(
        ProcessStarted(
            process=None,
            spawn_id="s1",
            label="worker",
            pid=child.pid,
            parent_pid=os.getpid(),
            start_time=None,
            command=("worker",),
            started_at_ms=0,
            guarded=True,
        )
    )
    print(msgspec.json.encode(table.observe().subprocesses[0]).decode())
    child.kill()
print(msgspec.json.encode(ProcessIntrospector(**how, pid=os.getpid()).observe()).decode())
print(len(os.listdir("/proc/self/fd")) - 1)
"""


def in_own_namespace(kind: str = "n") -> list[str]:
    """The command that runs another one in a namespace of its own, of the network by default."""
    for command in (["unshare", f"-{kind}"], ["unshare", f"-r{kind}"]):
        try:
            if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
                return command
        except FileNotFoundError:
            break
    pytest.skip("no such namespaces for us here")


def looks(*commands: str, within: list[str]) -> list[Any]:
    run = [*within, sys.executable, "-c", LOOKS_AT_NETWORK, *commands]
    printed = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def test_fc038_nodes_in_two_real_namespaces_have_two_marks_and_in_one_the_same() -> None:
    apart = in_own_namespace()
    ((mine, names, counts),) = looks(within=[])
    ((again, _, _),) = looks(within=[])
    ((other, others, _),) = looks(within=apart)
    assert mine == again
    assert mine != other
    assert (counts, set(others)) == (True, {"lo"})
    assert set(names) >= {"lo"}


def test_what_is_lost_over_ipv6_is_counted() -> None:
    introspector = KernelNetIntrospector(proc=LinuxProc(), clock=SystemClock())

    def lost() -> int:
        network = introspector.observe()
        assert network is not None
        assert isinstance(network.udp6_kernel_stats, UdpKernelStats)
        assert isinstance(network.udp6_kernel_stats.rcvbuf_errors, int)
        return network.udp6_kernel_stats.rcvbuf_errors

    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as full:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        try:
            full.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        before = lost()
        for _ in range(100):
            full.sendto(bytes(1000), full.getsockname())
        assert lost() >= before + 50


def test_fc036_a_real_interface_that_appears_says_so_and_one_that_goes_costs_nothing() -> None:
    apart = in_own_namespace()
    if shutil.which("ip") is None:
        pytest.skip("no ip command here")
    seen = looks("ip link add va type veth peer name vb", "ip link del va", within=apart)
    assert [names for _, names, _ in seen] == [
        {"lo": False},
        {"lo": False, "va": True, "vb": True},
        {"lo": False},
    ]


def test_interfaces_are_those_of_this_namespace_whatever_sys_shows() -> None:
    """Only the network namespace is new: ``/sys`` still shows the one around it, where lo is up."""
    run = [*in_own_namespace(), sys.executable, "-c", LOOKS_AT_LINKS]
    links = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert (links["lo"]["up"], links["lo"]["mtu"]) == (False, 65536)


def test_each_address_is_told_of_the_interface_that_has_it() -> None:
    """Neither one network on two interfaces nor a blackhole around an address makes a guess of it."""
    if shutil.which("ip") is None:
        pytest.skip("no ip command here")
    commands = [
        "ip link set lo up",
        "ip addr add 10.0.0.100/32 dev lo",
        "ip link add va type veth peer name vb",
        "ip addr add 10.0.0.2/24 dev va && ip link set va up",
        "ip addr add 10.0.0.3/24 dev vb label vb:1 && ip link set vb up mtu 1400",
        "ip link add 'a|b' type bridge && ip addr add 10.244.1.0/32 dev 'a|b' && ip link set 'a|b' up",
        "ip route add blackhole 10.244.1.0/26",
    ]
    run = [*in_own_namespace(), sys.executable, "-c", LOOKS_AT_LINKS, *commands]
    links = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    v4 = {name: [one for one in link.get("addresses", ()) if "." in one] for name, link in links.items()}
    assert v4 == {
        "lo": ["127.0.0.1", "10.0.0.100"],
        "va": ["10.0.0.2"],
        "vb": ["10.0.0.3"],
        "a|b": ["10.244.1.0"],
    }
    assert (links["vb"]["mtu"], links["vb"]["up"]) == (1400, True)


def test_fc031_a_process_of_another_user_shows_what_it_may() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        stranger = child.pid if os.geteuid() == 0 else 1
        printed = subprocess.run(
            [sys.executable, "-c", LOOKS_AT_A_STRANGER, str(stranger)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        child.kill()
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["status"] for row in rows] == ["running", "running"]
    for row in rows:
        assert row["reasons"] == ["fd: EACCES"]
        assert "open_fd_count" not in row
        assert row["vm_size_bytes"] > 0
        assert row["cmdline"]


def test_fc029_with_the_proc_of_another_pid_namespace_no_stranger_has_our_name() -> None:
    run = [*in_own_namespace("fp"), sys.executable, "-c", LOOKS_AT_ITSELF_AND_A_CHILD]
    printed = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    child, itself, descriptors = map(json.loads, printed.splitlines())
    assert (child["status"], child["cmdline"]) == ("unknown", "worker")
    assert child["reasons"] == ["stat: /proc is of another pid namespace"]
    assert "rss_bytes" not in child
    assert (itself["pid"], itself["open_fd_count"]) == (1, descriptors)
    assert itself["rss_bytes"] > 1_000_000
