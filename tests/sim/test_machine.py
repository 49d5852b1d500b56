"""Simulated ``/proc``: the production parsers read it, and it says what the simulation knows."""

from collections.abc import AsyncIterator

import pytest

from sim.clock import NodeClock
from sim.loop import running_virtual_loop
from sim.machine import Machine
from sim.network import HostCounters
from sim.processes import Processes
from sim.streams import SimRandom
from swactor import ActorSystem
from swactor_diag.introspect.kernel_net import KernelNetIntrospector
from swactor_diag.introspect.process import ProcessIntrospector
from swactor_process import ProcessSpec
from swactor_process.testing import SCRIPTED_STANDARD, RecordingListener


class Lab:
    """One machine with the standard programs."""

    def __init__(self) -> None:
        loop = running_virtual_loop()
        self.clock = NodeClock(loop, 1_700_000_000_000)
        self.counters = HostCounters()
        random = SimRandom(1)
        self.processes = Processes(
            loop, self.clock, random.stream("pid"), command=("swactor", "stage"), programs=SCRIPTED_STANDARD
        )
        self.machine = Machine(
            number=3,
            clock=self.clock,
            random=random,
            counters=self.counters,
            running=self.processes.running,
        )


@pytest.fixture
async def listener() -> AsyncIterator[RecordingListener]:
    async with ActorSystem() as system:
        yield RecordingListener(system.loop)


async def test_the_node_itself_is_a_process() -> None:
    lab = Lab()
    await running_virtual_loop().sleep_until_ns(60_000_000_000)
    introspector = ProcessIntrospector(
        proc=lab.machine, clock=lab.clock, pid=lab.processes.pid, interpreter=lab.machine.interpreter
    )

    block = introspector.observe()

    assert block.pid == lab.processes.pid
    assert block.reasons == ()
    assert isinstance(block.cpu_ms, int)
    assert 0 < block.cpu_ms < 60_000
    assert isinstance(block.rss_bytes, int)
    assert isinstance(block.vm_size_bytes, int)
    assert block.rss_bytes < block.vm_size_bytes


async def test_network_counters_are_those_of_the_network() -> None:
    lab = Lab()
    lab.counters.received(3_000)
    lab.counters.sent(100)

    block = KernelNetIntrospector(proc=lab.machine, clock=lab.clock).observe()

    assert block is not None
    assert block.reasons == ()
    assert [interface.name for interface in block.interfaces] == ["lo", "eth0"]
    counters = block.interfaces[1].counters
    assert (getattr(counters, "rx_bytes", None), getattr(counters, "tx_packets", None)) == (3_000, 1)
    assert getattr(block.udp_kernel_stats, "in_datagrams", None) == 3


async def test_a_child_is_there_while_it_lives_and_only_then(listener: RecordingListener) -> None:
    lab = Lab()
    child = lab.processes.spawn(ProcessSpec(program="stays", label="stays"), listener)

    assert lab.machine.read_text(f"{child.pid}/cmdline") == "stays\0"
    assert lab.machine.list_dir(f"{child.pid}/fd")
    assert lab.processes.kill("stays", 9) == 1
    await listener.until_over()

    assert lab.machine.read_text(f"{child.pid}/stat") is None
    assert lab.machine.list_dir(f"{child.pid}/fd") is None
    assert lab.processes.kill("stays", 9) == 0


async def test_children_die_silently_with_their_node(listener: RecordingListener) -> None:
    lab = Lab()
    lab.processes.spawn(ProcessSpec(program="exits-with-7", label="exits"), listener)

    lab.processes.die()
    await running_virtual_loop().sleep_until_ns(running_virtual_loop().now_ns + 5_000_000_000)

    assert listener.heard == []


@pytest.mark.parametrize("path", ["meminfo", "99999/stat", "self/fd", "nonsense"])
async def test_what_is_not_simulated_is_not_there(path: str) -> None:
    assert Lab().machine.read_text(path) is None
    assert Lab().machine.list_dir(path) is None
