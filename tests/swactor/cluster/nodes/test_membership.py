"""Membership of several nodes over the memory transport, in virtual time."""

from typing import Any

import pytest

from swactor import ActorRef, ExitKind, NodeId
from swactor.cluster import MemberState
from swactor.cluster.events import (
    DialOutcome,
    DialStarted,
    LinkLoss,
    LinkLost,
    LinkUp,
    PeerRefused,
    RefusalReason,
    SwimReason,
    SwimTransition,
)
from swactor.cluster.handshake import make_hello
from swactor.cluster.links import HELLO_TIMEOUT_S, WAITING_MAX
from swactor.cluster.session import CloseCode
from swactor.cluster.testing import Recording
from swactor.cluster.transport import DialFailed, PeerAddress

from .conftest import Collector, Item, Node, World


async def watch(near: Node, far: Node) -> tuple[Collector, ActorRef[Any]]:
    """Spawn an actor on ``far`` and one on ``near`` that monitors it; return the watcher and the watched."""
    watched = await far.system.spawn(Collector(), name="watched")
    far.cluster.register("watched", watched)
    watcher = Collector()
    watcher.watch = await near.cluster.resolve("watched")
    await near.system.spawn(watcher)
    return watcher, watched


def opinions(node: Node, other: Node) -> list[tuple[MemberState, MemberState, SwimReason]]:
    found = [event for event in node.of(SwimTransition) if event.peer == other.key.node_id]
    return [(event.from_, event.to, event.reason) for event in found]


async def test_three_nodes_find_each_other_through_one_seed(world: World) -> None:
    nodes = await world.converged(3)

    for node in nodes:
        assert len(node.cluster.members()) == 2
        assert all(connection.is_up for connection in node.cluster.links_view().connections)
        assert len(node.of(LinkUp)) == 2


async def test_a_quiet_cluster_stays_as_it_is(world: World) -> None:
    nodes = await world.converged(3)
    before = [len(node.of(SwimTransition)) for node in nodes]

    await world.run_for(300)

    assert [len(node.of(SwimTransition)) for node in nodes] == before
    assert not any(node.of(LinkLost) for node in nodes)


async def test_a_killed_node_is_suspected_then_dead(world: World) -> None:
    one, two, three = await world.converged(3)

    await three.kill()
    took_s = await world.until(lambda: all(n.state_of(three) is MemberState.DEAD for n in (one, two)))

    assert took_s < 15
    transitions = [*opinions(one, three), *opinions(two, three)]
    assert (MemberState.ALIVE, MemberState.SUSPECT, SwimReason.PROBE_TIMEOUT) in transitions
    assert (MemberState.SUSPECT, MemberState.DEAD, SwimReason.SUSPICION_TIMEOUT) in transitions
    assert one.state_of(two) is MemberState.ALIVE
    [lost] = one.of(LinkLost)
    assert lost.cause is LinkLoss.HEARTBEAT
    assert lost.duration_ms >= 6_000


async def test_monitors_of_a_killed_node_hear_node_down_once(world: World) -> None:
    one, _, three = await world.converged(3)
    watcher, _ = await watch(one, three)

    await three.kill()
    await world.until(lambda: bool(watcher.messages))
    await world.run_for(60)

    [down] = watcher.messages
    assert down.ref == watcher.watch
    assert down.reason.kind is ExitKind.NODE_DOWN


async def test_monitors_of_a_remote_actor_hear_how_it_ended(world: World) -> None:
    one, two = await world.converged(2)
    watcher, watched = await watch(one, two)
    await world.run_for(1)

    await two.system.stop_actor(watched)
    await world.until(lambda: bool(watcher.messages))

    [down] = watcher.messages
    assert down.reason.kind is ExitKind.STOPPED


async def test_a_restarted_node_supersedes_its_former_life(world: World) -> None:
    one, two, three = await world.converged(3)
    former_boot = next(m.boot for m in one.cluster.members() if m.peer == three.key.node_id)
    await three.kill()
    await world.until(lambda: one.state_of(three) is MemberState.DEAD)

    again = await world.node(3)
    await world.until(lambda: one.state_of(again) is two.state_of(again) is MemberState.ALIVE, within_s=30)

    boot = next(m.boot for m in one.cluster.members() if m.peer == three.key.node_id)
    assert boot > former_boot
    worker = await again.system.spawn(Collector(), name="worker")
    again.cluster.register("worker", worker)
    assert await (await one.cluster.resolve("worker")).ask(Item(1)) is None


async def test_a_node_restarted_before_it_was_missed_ends_its_former_life(world: World) -> None:
    one, two = await world.converged(2)
    watcher, _ = await watch(one, two)

    await two.kill()
    again = await world.node(2)
    await world.until(lambda: bool(watcher.messages), within_s=10)

    assert watcher.messages[0].reason.kind is ExitKind.NODE_DOWN
    await world.until(lambda: one.state_of(again) is MemberState.ALIVE, within_s=10)


async def test_a_node_whose_clock_went_back_is_still_taken_in(world: World) -> None:
    one, two = await world.converged(2)
    await two.kill()
    await world.until(lambda: one.state_of(two) is MemberState.DEAD)

    again = await world.node(2, boot_id=5)
    await world.until(lambda: one.state_of(again) is MemberState.ALIVE, within_s=30)
    worker = await again.system.spawn(Collector(), name="worker")
    again.cluster.register("worker", worker)

    assert await (await one.cluster.resolve("worker")).ask(Item(1)) is None


async def test_a_node_that_leaves_is_dead_at_once(world: World) -> None:
    one, two = await world.converged(2)

    await two.cluster.stop()
    took_s = await world.until(lambda: one.state_of(two) is MemberState.DEAD)

    assert took_s < 1
    assert opinions(one, two)[-1][2] is SwimReason.LEFT
    assert one.of(LinkLost)[-1].cause is LinkLoss.STOPPED


async def test_after_a_long_cut_everybody_is_back_within_a_minute(world: World) -> None:
    one, two, three = await world.converged(3)
    world.hub.cut(one.key.node_id, three.key.node_id)
    world.hub.cut(two.key.node_id, three.key.node_id)
    await world.run_for(600)
    assert three.state_of(one) is three.state_of(two) is MemberState.DEAD
    assert one.state_of(three) is MemberState.DEAD

    world.hub.heal()
    took_s = await world.until(
        lambda: all(
            a.state_of(b) is MemberState.ALIVE
            for a in (one, two, three)
            for b in (one, two, three)
            if a is not b
        )
    )

    assert took_s < 60


async def test_a_broken_path_between_two_kills_nobody(world: World) -> None:
    one, two, three = await world.converged(3)

    world.hub.drop(two.key.node_id, three.key.node_id)
    await world.run_for(120)

    assert all(
        MemberState.DEAD is not event.to for node in (one, two, three) for event in node.of(SwimTransition)
    )


async def test_a_wrong_token_is_refused_on_both_sides(world: World) -> None:
    one = await world.node(1)
    stranger = await world.node(2, token=b"not the secret")

    await world.run_for(5)

    assert not one.cluster.members()
    assert not stranger.cluster.members()
    assert {event.reason for event in one.of(PeerRefused)} == {RefusalReason.PROOF}
    assert dict(one.cluster.links_view().refused)["proof"] >= 1
    assert {event.outcome for event in stranger.of(DialOutcome)} == {"Refused"}
    assert not one.cluster.links_view().connections


async def test_a_node_that_is_not_on_the_list_is_refused_unread(world: World) -> None:
    one = await world.node(1, allowed=frozenset())
    await world.node(2)

    await world.run_for(5)

    assert {event.reason for event in one.of(PeerRefused)} == {RefusalReason.NOT_ALLOWED}
    assert not one.cluster.members()


async def test_each_dial_that_started_has_one_outcome(world: World) -> None:
    nodes = await world.converged(4)
    world.hub.cut(nodes[0].key.node_id, nodes[1].key.node_id)
    await world.run_for(90)

    for node in nodes:
        begun = [(event.peer, event.attempt) for event in node.of(DialStarted)]
        ended = [(event.peer, event.attempt) for event in node.of(DialOutcome)]
        assert sorted(begun)[: len(ended)] == sorted(ended) or set(ended) <= set(begun)
        assert len(begun) - len(ended) <= len(nodes)


async def test_two_nodes_that_dial_each_other_at_once_end_up_with_one_connection(world: World) -> None:
    one = await world.node(1, seeds=(2,))
    two = await world.node(2, seeds=(1,))

    await world.until(lambda: one.state_of(two) is two.state_of(one) is MemberState.ALIVE)
    await world.run_for(30)

    assert len(one.transport.connections()) == len(two.transport.connections()) == 1
    assert not one.of(LinkLost)
    assert not two.of(LinkLost)


@pytest.mark.parametrize("gap_s", [3, 30])
async def test_a_node_that_was_cut_off_accuses_nobody_when_it_is_back(world: World, gap_s: int) -> None:
    one, two, three = await world.converged(3)
    world.hub.drop(one.key.node_id, three.key.node_id)
    world.hub.drop(two.key.node_id, three.key.node_id)
    await world.run_for(gap_s)
    world.hub.heal()

    await world.until(
        lambda: all(a.state_of(b) is MemberState.ALIVE for a, b in ((one, three), (three, one), (two, three)))
    )

    assert one.state_of(two) is MemberState.ALIVE


async def test_a_connection_without_a_hello_is_refused_and_its_place_is_free_again(world: World) -> None:
    one = await world.node(1)
    silent = world.hub.transport(NodeId("f" * 64))
    await silent.start(lambda connection: connection.close(0, ""))
    for _ in range(WAITING_MAX + 1):
        silent.dial(PeerAddress(one.key.node_id), lambda _: None)

    await world.run_for(HELLO_TIMEOUT_S + 1)

    assert dict(one.cluster.links_view().refused) == {"busy": 1, "timeout": WAITING_MAX}
    assert not one.transport.connections()
    two = await world.node(2)
    await world.until(lambda: one.state_of(two) is MemberState.ALIVE, within_s=2)


async def test_garbage_on_an_admitted_link_ends_it_and_nothing_else(world: World) -> None:
    one = await world.node(1)
    token, me = b"the cluster's secret", NodeId("f" * 64)
    transport = world.hub.transport(me)
    await transport.start(lambda connection: connection.close(0, ""))
    dialled: list[Recording] = []
    transport.dial(
        PeerAddress(one.key.node_id),
        lambda result: (
            None if isinstance(result, DialFailed) else dialled.append(Recording(world.hub.loop, result))
        ),
    )
    await world.until(lambda: bool(dialled))
    await dialled[0].write(make_hello(token, sender=me, receiver=one.key.node_id, boot=1))
    await dialled[0].write(b"\xff" * 100)

    await world.until(lambda: bool(dialled[0].losses))

    assert dialled[0].losses[0].code == CloseCode.PROTOCOL
    assert one.of(LinkLost)[-1].cause is LinkLoss.PROTOCOL
    assert not one.cluster.members()


async def test_an_actor_that_ended_while_the_link_was_down_is_reported_afterwards(world: World) -> None:
    one, two = await world.converged(2)
    watcher, watched = await watch(one, two)
    await world.run_for(1)

    world.hub.cut(one.key.node_id, two.key.node_id)
    await world.run_for(0.5)
    await two.system.stop_actor(watched)
    world.hub.heal()
    await world.until(lambda: bool(watcher.messages), within_s=10)

    assert [down.reason.kind for down in watcher.messages] == [ExitKind.STOPPED]
    assert one.state_of(two) is not MemberState.DEAD
