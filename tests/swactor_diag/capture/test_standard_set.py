"""What a production node says of a real machine, with nothing configured but where things are."""

import os
import socket

import pytest

from swactor import ActorSystem
from swactor_diag.introspect import LinuxProc
from swactor_diag.ports import production_ports
from swactor_diag.schema.blocks import HostBlock, HostNetwork, IntrospectionOutcome
from swactor_diag.schema.boot import Identity
from swactor_diag.schema.network import ProbesBlock, RentalBlock
from swactor_diag.schema.reading import Snapshot
from swactor_diag.supervisor import Diagnostics


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, object]]) -> tuple[str, dict[str, object]]:
    return every_backend


def tried(snapshot: Snapshot) -> bool:
    probes = snapshot.body.probes
    return isinstance(probes, ProbesBlock) and all(row.attempts for row in probes.probes)


async def test_fc041_a_node_that_knows_its_relay_tries_its_port_and_says_where_it_runs(
    identity: Identity,
) -> None:
    with socket.socket() as relay:
        relay.bind(("127.0.0.1", 0))
        relay.listen()
        environ = {
            "SWACTOR_IROH_RELAY_URL": f"http://127.0.0.1:{relay.getsockname()[1]}/",
            "CONTAINER_ID": "37777190",
            "CONTAINER_API_KEY": "hunter2",
        }
        ports = production_ports(environ, pid=os.getpid())
        async with ActorSystem(clock=ports.clock, random=ports.random) as system:
            diag = await Diagnostics.from_ports(system, identity, ports=ports)
            snapshot = await diag.snapshot()
            while not tried(snapshot):
                snapshot = await diag.snapshot()
    body = snapshot.body
    assert isinstance(body.probes, ProbesBlock)
    assert [(row.kind, row.last_outcome) for row in body.probes.probes] == [("tcp_relay", "ok")]
    assert IntrospectionOutcome.FAILED not in {row.outcome for row in body.introspectors}
    assert isinstance(body.host, HostBlock)
    assert isinstance(body.host.network, HostNetwork)
    assert [one.addresses[0] for one in body.host.network.interfaces if one.name == "lo"] == ["127.0.0.1"]
    assert body.host.network.namespace == LinuxProc().read_text("self/ns/net")
    assert isinstance(body.vastai, RentalBlock)
    assert body.vastai.env_vars == (("CONTAINER_ID", "37777190"),)
    assert snapshot.problems == ()
