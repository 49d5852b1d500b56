"""The world: production nodes in virtual time, silent kills, findings that are not the end of the run."""

from pathlib import Path

import pytest
from msgspec import structs

from sim.errors import ScenarioError, SimulationError
from sim.node import NodeState
from sim.scenario import (
    ChildKill,
    ClockJump,
    Cut,
    EdgeSpec,
    Fault,
    HostDown,
    LinkSpec,
    NodeKill,
    Scenario,
    TunnelClose,
)
from sim.world import UncaughtError, World, simulate
from swactor.relay import RelaySessionOpened
from swactor_diag.collector.run_index import NodeCounts
from swactor_diag.postproc.load import load_run
from swactor_diag.schema.reading import UnknownEvent


def with_boot(scenario: Scenario, boot: str) -> Scenario:
    first, *others = scenario.node
    return structs.replace(scenario, node=(structs.replace(first, boot=boot), *others))


def with_faults(scenario: Scenario, *faults: Fault) -> Scenario:
    return structs.replace(scenario, fault=faults)


def stored(world: World, name: str) -> NodeCounts:
    [run] = world.collector.ingest.runs()
    return next(node for node in run.nodes if node.node_id == world.node(name).node_id)


def event_types(archive: bytes, label: str) -> list[str]:
    node = next(node for node in load_run(archive).nodes if node.label == label)
    return [str(record.raw["type"]) for record in node.records]


async def test_nodes_boot_ship_and_end_by_themselves(small: Scenario) -> None:
    async with World(small, seed=1) as world:
        await world.run_for(seconds=60)

        assert world.node("left").state is NodeState.RUNNING
        assert world.node("right").state is NodeState.ENDED
        assert stored(world, "right").finalize_recorded
        assert stored(world, "left").boot_recorded
        assert stored(world, "left").snapshots == 12
        assert stored(world, "relay").boot_recorded


def test_the_production_reader_reads_the_bundle_without_a_remark(small: Scenario) -> None:
    bundle, _ = simulate(small, seed=1)

    run = load_run(bundle.archive)

    assert [node.label for node in run.nodes] == ["relay", "stage-0", "stage-1"]
    assert not run.problems
    assert not run.incomplete
    assert not any(isinstance(r.event, UnknownEvent) for node in run.nodes for r in node.records)
    assert not any(snapshot.problems for node in run.nodes for snapshot in node.snapshots)


async def test_a_killed_node_says_nothing_more(small: Scenario) -> None:
    scenario = with_boot(small, "small_app:stubborn")
    async with World(scenario, seed=1) as world:
        await world.run_for(seconds=20)
        before = stored(world, "left")

        world.kill("left")
        await world.run_for(seconds=40)

        assert world.node("left").state is NodeState.KILLED
        assert stored(world, "left") == before
        assert not before.finalize_recorded


async def test_the_same_node_says_goodbye_when_it_is_not_muted(small: Scenario) -> None:
    scenario = with_boot(small, "small_app:stubborn")
    async with World(scenario, seed=1) as world:
        await world.run_for(seconds=20)

        world.node("left")._scope.cancel()
        await world.run_for(seconds=40)

        assert stored(world, "left").finalize_recorded


async def test_a_node_can_be_killed_before_it_starts_and_twice(small: Scenario) -> None:
    async with World(small, seed=1) as world:
        world.kill("right")
        world.kill("right")
        await world.run_for(seconds=10)

        assert world.node("right").state is NodeState.KILLED
        [run] = world.collector.ingest.runs()
        assert world.node("right").node_id not in {node.node_id for node in run.nodes}


async def test_a_node_that_fails_is_a_finding(small: Scenario) -> None:
    async with World(with_boot(small, "small_app:fail"), seed=1) as world:
        await world.run_for(seconds=5)

        assert world.node("left").state is NodeState.FAILED
        assert world.node("left").failure == "RuntimeError: no such model"
        assert world.node("right").state is NodeState.RUNNING


async def test_a_node_that_reaches_for_the_real_clock_is_told(small: Scenario) -> None:
    async with World(with_boot(small, "small_app:leak"), seed=1) as world:
        await world.run_for(seconds=5)

        assert "a simulation has no real time (time)" in world.node("left").failure


async def test_an_error_that_nobody_caught_ends_the_run(small: Scenario) -> None:
    def fails() -> None:
        raise KeyError("lost")

    async with World(small, seed=1) as world:
        world.loop.call_later(1, fails)
        with pytest.raises(UncaughtError, match="KeyError: 'lost'"):
            await world.run_for(seconds=5)


async def test_run_until_stops_when_it_holds_and_complains_when_it_never_does(small: Scenario) -> None:
    async with World(small, seed=1) as world:
        await world.run_until(lambda world: world.node("right").state is NodeState.RUNNING, at_most_s=10)
        assert world.loop.now_ns <= 1_600_000_000
        with pytest.raises(SimulationError, match="did not come to hold"):
            await world.run_until(lambda world: False, at_most_s=1)


async def test_a_cut_node_catches_up_after_the_cut(small: Scenario) -> None:
    scenario = with_faults(small, Cut(at_s=10, source="left", target="collector", for_s=30))
    async with World(scenario, seed=1) as world:
        await world.run_for(seconds=35)
        before = stored(world, "left").snapshots
        await world.run_for(seconds=60)

        assert before <= 3
        assert stored(world, "left").snapshots == 19


async def test_a_host_that_is_down_is_silent_for_a_while(small: Scenario) -> None:
    scenario = with_faults(small, HostDown(at_s=10, host="left", for_s=20))
    async with World(scenario, seed=1) as world:
        await world.run_for(seconds=29)
        assert stored(world, "left").snapshots <= 2
        await world.run_for(seconds=60)

        assert stored(world, "left").snapshots >= 16


async def test_without_a_collector_nodes_run_on(small: Scenario) -> None:
    async with World(with_faults(small, NodeKill(at_s=10, node="collector")), seed=1) as world:
        await world.run_for(seconds=30)

        assert world.node("left").state is NodeState.RUNNING
        assert stored(world, "left").snapshots <= 2


async def test_a_wall_clock_may_jump_while_a_node_runs(small: Scenario) -> None:
    scenario = with_faults(small, ClockJump(at_s=10, node="left", offset_ms=-60_000))
    async with World(scenario, seed=1) as world:
        await world.run_for(seconds=20)

        assert world.node("left").parts.clock.wall_ms() == world.clock.wall_ms() - 60_000


def test_faults_are_applied_at_their_time_and_end_up_in_the_bundle(small: Scenario) -> None:
    scenario = with_faults(
        small,
        ChildKill(at_s=10, node="left", program="worker"),
        TunnelClose(at_s=20, node="left"),
        NodeKill(at_s=30, node="right"),
    )

    bundle, virtual_ns = simulate(scenario, seed=1)

    assert virtual_ns == 60_000_000_000
    assert "SubprocessExited" in event_types(bundle.archive, "stage-0")
    assert event_types(bundle.archive, "relay").count("RelaySessionClosed") == 2
    assert b'"at_ns": 20000000000' in bundle.tar_bytes


def test_a_link_of_the_scenario_replaces_the_default(small: Scenario) -> None:
    slow = LinkSpec(source="left", target="relay", latency_ms=300, jitter_ms=0)
    scenario = structs.replace(small, link=(slow,), network=EdgeSpec(latency_ms=1, jitter_ms=0))

    bundle, _ = simulate(scenario, seed=1)

    relay = next(node for node in load_run(bundle.archive).nodes if node.label == "relay")
    opened = [record for record in relay.records if isinstance(record.event, RelaySessionOpened)]
    assert opened[0].wall_ms - scenario.epoch_ms == 300


def test_a_scenario_that_names_no_function_is_refused(apps: Path, small: Scenario) -> None:
    with pytest.raises(
        ScenarioError, match=r"small\.toml: node\[0\]\.boot: small_app:nothing cannot be loaded"
    ):
        simulate(with_boot(small, "small_app:nothing"), seed=1, file="small.toml")
