"""Names, tells and asks between nodes over the memory transport, in virtual time."""

import math

import pytest

from swactor import ActorDeadError, AskTimeoutError
from swactor.cluster import (
    ClusterNotRunningError,
    LinkLostError,
    RemoteHandlerError,
    RemoteRef,
    UnknownMessageTypeError,
)
from swactor.cluster.events import LinkUp, NameConflict

from .conftest import Collector, CountItems, Fail, Item, Undeclared, World


async def test_a_name_is_found_from_every_node_and_tells_arrive_in_order(world: World) -> None:
    one, two, three = await world.converged(3)
    collector = Collector()
    two.cluster.register("stage-1", await two.system.spawn(collector, name="stage"))

    for node in (one, three):
        ref = await node.cluster.resolve("stage-1")
        for number in range(1_000):
            ref.tell(Item(number, b"\x00\xff"))
        await world.run_for(1)
        assert [item.number for item in collector.messages] == list(range(1_000))
        assert collector.messages[0].data == b"\x00\xff"
        collector.messages.clear()


async def test_a_name_registered_before_anybody_joined_is_found(world: World) -> None:
    one = await world.node(1)
    one.cluster.register("early", await one.system.spawn(Collector(), name="early"))
    two = await world.node(2)

    assert isinstance(await two.cluster.resolve("early"), RemoteRef)


async def test_a_name_of_this_node_resolves_to_the_local_actor(world: World) -> None:
    one = await world.node(1)
    ref = await one.system.spawn(Collector(), name="here")
    one.cluster.register("here", ref)

    assert await one.cluster.resolve("here") == ref


async def test_a_name_nobody_has_times_out(world: World) -> None:
    one = await world.node(1)

    with pytest.raises(AskTimeoutError):
        await one.cluster.resolve("nobody", timeout_s=2)


async def test_a_name_goes_with_its_actor(world: World) -> None:
    one, two = await world.converged(2)
    ref = await two.system.spawn(Collector(), name="short")
    two.cluster.register("short", ref)
    await one.cluster.resolve("short")

    await two.system.stop_actor(ref)
    await world.run_for(2)

    with pytest.raises(AskTimeoutError):
        await one.cluster.resolve("short", timeout_s=1)
    assert one.cluster.names_view().tombstone_count == 1


async def test_the_later_of_two_registrations_wins_everywhere(world: World) -> None:
    one, two, three = await world.converged(3)
    one.cluster.register("only", await one.system.spawn(Collector(), name="only"))
    await three.cluster.resolve("only")
    second = await two.system.spawn(Collector(), name="only")
    two.cluster.register("only", second)
    await world.run_for(5)

    assert await two.cluster.resolve("only") == second
    for node in (one, three):
        found = await node.cluster.resolve("only")
        assert isinstance(found, RemoteRef)
        assert found.node_id == two.key.node_id
    assert {event.winner for event in three.of(NameConflict)} == {two.key.node_id}


async def test_an_ask_brings_the_reply_of_the_other_node(world: World) -> None:
    one, two = await world.converged(2)
    two.cluster.register("c", await two.system.spawn(Collector()))
    ref = await one.cluster.resolve("c")
    ref.tell(Item(1))

    assert await ref.ask(CountItems()) == 1


async def test_an_ask_of_another_node_may_wait_without_an_end_but_its_time_is_a_number(world: World) -> None:
    one, two = await world.converged(2)
    two.cluster.register("c", await two.system.spawn(Collector()))
    ref = await one.cluster.resolve("c")

    assert await ref.ask(CountItems(), timeout_s=math.inf) == 0
    with pytest.raises(ValueError, match="timeout_s is a number of seconds, not nan"):
        await ref.ask(CountItems(), timeout_s=math.nan)
    with pytest.raises(AskTimeoutError):
        await ref.ask(CountItems(), timeout_s=-1.0)


async def test_a_message_carries_a_reference_to_reply_to(world: World) -> None:
    one, two = await world.converged(2)
    here = Collector()
    here_ref = await one.system.spawn(here, name="here")  # not registered: reachable since it is passed along
    two.cluster.register("there", await two.system.spawn(Collector()))

    (await one.cluster.resolve("there")).tell(Item(5, reply_to=here_ref))
    await world.run_for(1)

    assert [item.number for item in here.messages] == [-5]


async def test_what_the_other_handler_raised_is_raised_here(world: World) -> None:
    one, two = await world.converged(2)
    two.cluster.register("c", await two.system.spawn(Collector()))
    ref = await one.cluster.resolve("c")

    with pytest.raises(RemoteHandlerError, match="asked to fail") as caught:
        await ref.ask(Fail())
    assert caught.value.error == "RuntimeError"
    await world.run_for(1)
    with pytest.raises(ActorDeadError):
        await ref.ask(CountItems())


async def test_an_undeclared_message_raises_at_the_sender(world: World) -> None:
    one, two = await world.converged(2)
    two.cluster.register("c", await two.system.spawn(Collector()))
    ref = await one.cluster.resolve("c")

    with pytest.raises(UnknownMessageTypeError, match="Undeclared"):
        ref.tell(Undeclared())


async def test_an_ask_under_way_fails_when_the_link_is_lost(world: World) -> None:
    one, two = await world.converged(2)
    two.cluster.register("c", await two.system.spawn(Collector()))
    ref = await one.cluster.resolve("c")

    world.hub.drop(one.key.node_id, two.key.node_id)
    with pytest.raises(LinkLostError, match="silent"):
        await ref.ask(CountItems(), timeout_s=60)


async def test_messages_told_while_the_link_is_down_arrive_when_it_is_back(world: World) -> None:
    one, two = await world.converged(2)
    collector = Collector()
    two.cluster.register("c", await two.system.spawn(collector))
    ref = await one.cluster.resolve("c")

    world.hub.cut(one.key.node_id, two.key.node_id)
    await world.run_for(0.5)
    for number in range(10):
        ref.tell(Item(number))
    world.hub.heal()
    await world.until(lambda: len(collector.messages) == 10)

    assert [item.number for item in collector.messages] == list(range(10))
    assert one.of(LinkUp)[-1].generation == 2


async def test_a_message_for_an_actor_that_was_never_exposed_is_counted(world: World) -> None:
    one, two = await world.converged(2)
    collector = Collector()
    two.cluster.register("c", await two.system.spawn(collector))
    hidden = await two.system.spawn(Collector(), name="hidden")
    ref = await one.cluster.resolve("c")
    assert isinstance(ref, RemoteRef)

    forged = RemoteRef[Item](
        type(ref.address)(ref.node_id, ref.address.boot, hidden.actor_id.path, hidden.actor_id.serial),
        ref._router,
    )
    forged.tell(Item(1))
    await world.run_for(1)

    assert dict(two.cluster.links_view().dropped) == {"unknown_target": 1}


async def test_a_stopped_cluster_refuses_use(world: World) -> None:
    one = await world.node(1)
    await one.cluster.stop()
    await one.cluster.stop()

    with pytest.raises(ClusterNotRunningError):
        one.cluster.swim_view()
