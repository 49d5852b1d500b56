"""What simulated nodes can reach, as their own snapshots say: production probes, simulated network."""

import pytest
from msgspec import structs

from sim.scenario import Cut, NodeKill, Scenario
from sim.world import simulate
from swactor_diag.postproc.load import Node, load_run
from swactor_diag.schema.blocks import HostBlock, HostNetwork, ProcessBlock
from swactor_diag.schema.network import ProbesBlock


def node_of(scenario: Scenario, label: str) -> Node:
    bundle, _ = simulate(scenario, seed=1)
    return next(node for node in load_run(bundle.archive).nodes if node.label == label)


def outcomes(node: Node) -> list[str]:
    """What the probe of the relay's port said, snapshot by snapshot."""
    blocks = [snapshot.body.probes for snapshot in node.snapshots]
    return [row.last_outcome for block in blocks if isinstance(block, ProbesBlock) for row in block.probes]


def test_the_port_of_the_relay_is_tried_by_itself(small: Scenario) -> None:
    node = node_of(small, "stage-0")
    assert outcomes(node) == ["pending", *["ok"] * 11]
    block = node.snapshots[-1].body.probes
    assert isinstance(block, ProbesBlock)
    (row,) = block.probes
    assert (row.target, row.kind, row.protocol, row.resolved_addr) == (
        "relay-port-relay",
        "tcp_relay",
        "tcp",
        "10.0.0.1",
    )


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Cut(at_s=20, source="left", target="relay"), "timeout"),
        (NodeKill(at_s=20, node="relay"), "refused"),
    ],
)
def test_fc041_a_relay_that_cannot_be_reached_is_told_by_its_probe(
    small: Scenario, fault: Cut | NodeKill, outcome: str
) -> None:
    seen = outcomes(node_of(structs.replace(small, fault=(fault,)), "stage-0"))
    assert seen[:4] == ["pending", "ok", "ok", "ok"]
    assert seen[-4:] == [outcome] * 4


def test_a_simulated_host_is_attached_as_a_real_one_is(small: Scenario) -> None:
    snapshot = node_of(small, "stage-1").snapshots[-1]
    host, process = snapshot.body.host, snapshot.body.process
    assert isinstance(host, HostBlock)
    assert isinstance(host.network, HostNetwork)
    assert {one.name: (one.addresses, one.mtu, one.up) for one in host.network.interfaces} == {
        "lo": (("127.0.0.1",), 65536, True),
        "eth0": (("10.0.0.3",), 1500, True),
    }
    assert [(one.destination, one.interface) for one in host.network.default_routes] == [
        ("0.0.0.0/0", "eth0"),
        ("10.0.0.0/16", "eth0"),
    ]
    assert (host.network.reasons, host.network.resolv_conf_nameservers) == ((), ("10.0.0.53",))
    assert [(entry.hostname, entry.a_records) for entry in host.dns] == [("relay", ("10.0.0.1",))]
    assert isinstance(process, ProcessBlock)
    assert process.loop_lag_ms == 0
