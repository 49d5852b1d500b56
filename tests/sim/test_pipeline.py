"""The main job in virtual time: the pipeline's own node functions, and what bundles say after each fault."""

from pathlib import Path

import pytest
from msgspec import structs

from sim.scenario import ChildKill, Fault, HostDown, NodeKill, PeerPathDown, Scenario, TunnelClose, load
from sim.world import World, simulate
from swactor.cluster.events import (
    DialOutcome,
    LinkLost,
    LinkUp,
    MemberState,
    SwimTransition,
)
from swactor.relay import CloseReason
from swactor_diag.postproc.load import Node, Run, load_run
from swactor_diag.postproc.sections.dials import rows as dials_rows
from swactor_diag.schema.events import SubprocessExited, SubprocessSpawned
from swactor_diag.schema.reading import UnknownEvent

FILE = Path(__file__).parents[2] / "sim" / "scenarios" / "three_stages.toml"


@pytest.fixture
def three_stages() -> Scenario:
    return load(FILE)


def ran(scenario: Scenario, *faults: Fault, seconds: float = 60) -> Run:
    """Return what a reader sees of a short run."""
    short = structs.replace(scenario, duration_s=seconds, fault=faults)
    return load_run(simulate(short, seed=1)[0].archive)


def node_of(run: Run, label: str) -> Node:
    return next(node for node in run.nodes if node.label == label)


async def test_three_prompts_are_answered_within_ten_minutes(three_stages: Scenario) -> None:
    async with World(three_stages, seed=1) as world:
        await world.run_for(seconds=three_stages.duration_s)
        run = load_run(world.bundle().archive)

    assert run.manifest is not None
    assert run.manifest.finalize_received
    assert run.manifest.finalize_reason == "answered"
    assert [node.label for node in run.nodes] == ["orchestrator", "relay", "stage-0", "stage-1", "stage-2"]
    assert len(node_of(run, "stage-1").snapshots) >= 119


def test_a_killed_worker_is_named_with_its_signal_and_with_the_request_that_it_cost(
    three_stages: Scenario,
) -> None:
    run = ran(three_stages, ChildKill(at_s=20, node="stage-1", program="worker"))

    exits = [r.event for r in node_of(run, "stage-1").records if isinstance(r.event, SubprocessExited)]
    assert [event.exit_signal for event in exits] == [9]
    spawns = [r for r in node_of(run, "stage-1").records if isinstance(r.event, SubprocessSpawned)]
    assert len(spawns) == 2, "its supervisor starts another one"
    (ended,) = [
        r.event.body
        for r in node_of(run, "orchestrator").records
        if isinstance(r.event, UnknownEvent) and r.event.kind == "InferenceResponseSent"
    ]
    assert (ended["send_outcome"], ended["stage"]) == ("stage_failed", "stage-1")


def test_a_killed_orchestrator_leaves_a_usable_bundle(three_stages: Scenario) -> None:
    run = ran(three_stages, NodeKill(at_s=20, node="orchestrator"))

    assert run.manifest is not None
    assert not run.manifest.finalize_received
    assert node_of(run, "orchestrator").snapshots[-1].wall_ms - three_stages.epoch_ms <= 20_000
    assert node_of(run, "stage-0").snapshots[-1].wall_ms - three_stages.epoch_ms >= 50_000


def test_a_peer_path_that_is_down_shows_beside_healthy_tunnels(three_stages: Scenario) -> None:
    run = ran(three_stages, PeerPathDown(at_s=20, source="stage-0", target="stage-1"))

    for label in ("stage-0", "stage-1"):
        node = node_of(run, label)
        assert [r for r in node.records if isinstance(r.event, LinkLost)]
        iroh = node.snapshots[-1].raw_body["iroh"]
        assert isinstance(iroh, dict)
        assert iroh["relay_session"]["status"] == "connected"
    assert not [r for r in node_of(run, "stage-2").records if isinstance(r.event, LinkLost)]


def test_a_killed_relay_takes_tunnels_and_links_with_it(three_stages: Scenario) -> None:
    run = ran(three_stages, NodeKill(at_s=20, node="relay"))

    stage = node_of(run, "stage-1")
    lost = [r for r in stage.records if isinstance(r.event, LinkLost)]
    assert {r.event.cause.value for r in lost if isinstance(r.event, LinkLost)} == {"heartbeat"}
    iroh = stage.snapshots[-1].raw_body["iroh"]
    assert isinstance(iroh, dict)
    assert iroh["relay_session"]["status"] != "connected"
    assert node_of(run, "relay").snapshots[-1].wall_ms - three_stages.epoch_ms <= 20_000


LABELS = ("orchestrator", "stage-0", "stage-1", "stage-2")


def relay_away(*faults: Fault) -> tuple[Fault, ...]:
    """Return what happens when the relay is stopped at 20 s and is back at 50 s."""
    closes = (TunnelClose(at_s=20, node=label, reason=CloseReason.RELAY_SHUTDOWN) for label in LABELS)
    return (*closes, HostDown(at_s=20.03, host="relay", for_s=30), *faults)


def judgements(node: Node) -> list[SwimTransition]:
    transitions = [r.event for r in node.records if isinstance(r.event, SwimTransition)]
    return [event for event in transitions if event.to is not MemberState.ALIVE]


def test_while_the_relay_is_away_nobody_is_blamed_for_it(three_stages: Scenario) -> None:
    """FC-084: for half a minute every dial fails, and each node knows that its own tunnel is down."""
    run = ran(three_stages, *relay_away(), seconds=90)

    for label in LABELS:
        node = node_of(run, label)
        assert judgements(node) == []
        dials = [r.event for r in node.records if isinstance(r.event, DialOutcome)]
        timeouts = [event for event in dials if event.outcome == "Timeout"]
        assert len(timeouts) >= 10
        assert sum(event.tunnel_down is True for event in timeouts) >= 0.8 * len(timeouts)
        assert not any(event.tunnel_down is True for event in dials if event.outcome == "Success")
        lost, up = (sum(isinstance(r.event, kind) for r in node.records) for kind in (LinkLost, LinkUp))
        assert (lost, up) == (3, 6), "all three links are back"
    by_target = {row.target: row for row in dials_rows(run)}
    assert all(0.8 * row.failed <= row.failed_cut_off <= row.failed for row in by_target.values())


def test_who_dies_while_the_relay_is_away_is_found_dead_when_it_is_back(three_stages: Scenario) -> None:
    run = ran(three_stages, *relay_away(NodeKill(at_s=30, node="stage-1")), seconds=120)

    died = node_of(run, "stage-1").node_id
    for label in ("stage-0", "stage-2"):
        events = judgements(node_of(run, label))
        assert [(event.peer, event.to) for event in events] == [
            (died, MemberState.SUSPECT),
            (died, MemberState.DEAD),
        ]


def test_equal_seeds_give_equal_bytes(three_stages: Scenario) -> None:
    short = structs.replace(three_stages, duration_s=30)

    assert simulate(short, seed=4)[0].sha256 == simulate(short, seed=4)[0].sha256
    assert simulate(short, seed=4)[0].sha256 != simulate(short, seed=5)[0].sha256
