"""A node that leaves: what it said before is still heard, and nobody needs a timeout to notice."""

from swactor import ActorRef
from swactor.cluster import MemberState
from swactor.cluster.events import SwimTransition

from .conftest import Collector, Item, World


async def test_what_was_told_before_a_stop_arrives(world: World) -> None:
    sender, receiver = await world.converged(2)
    collector = Collector()
    ref = await receiver.system.spawn(collector)
    receiver.cluster.register("collector", ref)
    remote: ActorRef[Item] = await sender.cluster.resolve("collector")
    world.hub.latency_s = 0.05
    for number in range(2_000):
        remote.tell(Item(number, data=bytes(100)))

    await sender.cluster.stop()
    await world.run_for(1.0)

    assert [item.number for item in collector.messages] == list(range(2_000))


async def test_peers_know_at_once_that_it_left_and_it_waits_for_nobody(world: World) -> None:
    leaver, other, third = await world.converged(3)
    third.transport.vanish()  # it reads no farewell

    began_ns = world.clock.monotonic_ns()
    await leaver.cluster.stop()
    took_s = (world.clock.monotonic_ns() - began_ns) / 1e9
    await world.run_for(0.5)

    assert took_s < 2.0
    assert other.state_of(leaver) is MemberState.DEAD
    reasons = [event.reason for event in other.of(SwimTransition) if event.peer == leaver.key.node_id]
    assert reasons[-1] == "left"


async def test_a_link_that_is_being_redialled_still_carries_what_was_told(world: World) -> None:
    sender, receiver = await world.converged(2)
    collector = Collector()
    receiver.cluster.register("collector", await receiver.system.spawn(collector))
    remote: ActorRef[Item] = await sender.cluster.resolve("collector")
    world.hub.cut(sender.key.node_id, receiver.key.node_id)
    world.hub.heal()  # one reset; both sides redial within 75 ms
    await world.run_for(0.001)
    for number in range(10):
        remote.tell(Item(number))

    await sender.cluster.stop()
    await world.run_for(0.5)

    assert [item.number for item in collector.messages] == list(range(10))
    assert receiver.state_of(sender) is MemberState.DEAD
