"""Links: two actors share an abnormal end, and only that; a link belongs to one life of each."""

import gc
import itertools
import weakref
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorFailed,
    ActorId,
    ActorRef,
    ChildSpec,
    Context,
    Down,
    ExitKind,
    ExitReason,
    LinkedActorFailedError,
    Strategy,
)

from .conftest import Kind, Seen, World, do, is_handling, spawn_gated, statistics_of
from .hanging import Hangs
from .supervised import NEVER, child_of, down, supervise


def fail_now(ctx: Context[Any]) -> None:
    """Fail."""
    raise ZeroDivisionError("asked to fail")


async def linked(world: World, one: ActorRef[Any], other: ActorRef[Any]) -> None:
    """Link ``one`` to ``other``."""
    await world.result(one.ask(lambda ctx: ctx.link(other)))


class Elsewhere(ActorRef[Any]):
    """The address of an actor of another node."""

    @property
    def actor_id(self) -> ActorId:
        return ActorId("/elsewhere", 1)

    def tell(self, message: Any) -> None: ...

    async def ask(self, message: Any, *, timeout_s: float = 5.0) -> Any: ...

    async def send(self, message: Any) -> None: ...

    def add_watcher(self, watcher: ActorRef[Any]) -> None: ...

    def remove_watcher(self, watcher: ActorRef[Any]) -> None: ...

    def notify_down(self, down: Down) -> None: ...


# -- what passes a link --------------------------------------------------------------------------------------


async def test_an_actor_fails_with_the_one_that_it_is_linked_to_and_says_why(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        one, other = await system.spawn(kind(do)), await system.spawn(kind(do), name="other")
        await linked(world, one, other)
        other.tell(fail_now)
        reason = await world.result(system.wait_stopped(one))
    assert reason.kind is ExitKind.FAILED
    error = reason.error
    assert isinstance(error, LinkedActorFailedError)
    assert error.actor == other.actor_id
    assert error.why == "failed: ZeroDivisionError: asked to fail"
    assert isinstance(error.__cause__, ZeroDivisionError)


async def test_a_link_works_both_ways(world: World, kind: Kind) -> None:
    async with world.system() as system:
        one, other = await system.spawn(kind(do)), await system.spawn(kind(do))
        await linked(world, one, other)
        one.tell(fail_now)
        reason = await world.result(system.wait_stopped(other))
    assert isinstance(reason.error, LinkedActorFailedError)
    assert reason.error.actor == one.actor_id


async def test_an_actor_that_was_killed_takes_those_it_is_linked_to_along(world: World, kind: Kind) -> None:
    async with world.system() as system:
        one, hangs = await system.spawn(kind(do)), await system.spawn(Hangs())
        await linked(world, one, hangs)
        hangs.tell("hang")
        await world.until(lambda: is_handling(system, hangs))
        await world.result(system.stop_actor(hangs, grace_s=0.001))
        reason = await world.result(system.wait_stopped(one))
    assert isinstance(reason.error, LinkedActorFailedError)
    assert reason.error.actor == hangs.actor_id


@pytest.mark.parametrize("how", ["stopped", "completed"])
async def test_a_normal_end_only_dissolves_the_link(world: World, kind: Kind, how: str) -> None:
    async with world.system() as system:
        one, other = await system.spawn(kind(do)), await system.spawn(kind(do))
        await linked(world, one, other)
        if how == "stopped":
            await world.result(system.stop_actor(other))
        else:
            other.tell(lambda ctx: ctx.stop("done"))
            await world.result(system.wait_stopped(other))
        await world.settle()
        assert await world.result(one.ask("alive")) == "alive"


async def test_a_failure_passes_from_link_to_link(world: World, kind: Kind) -> None:
    async with world.system() as system:
        refs = [await system.spawn(kind(do)) for _ in range(5)]
        for one, other in itertools.pairwise(refs):
            await linked(world, one, other)
        refs[2].tell(fail_now)
        for ref in refs:
            assert (await world.result(system.wait_stopped(ref))).kind is ExitKind.FAILED
        last = await world.result(system.wait_stopped(refs[4]))
    assert isinstance(last.error, LinkedActorFailedError)
    assert last.error.actor == refs[3].actor_id
    assert isinstance(last.error.__cause__, LinkedActorFailedError)


async def test_a_circle_of_links_ends_each_once(world: World, kind: Kind) -> None:
    seen = Seen()
    stopped: list[str] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        stopped.append(ctx.actor_id.path)

    async with world.system() as system:
        system.attach(seen)
        refs = [await system.spawn(kind(do, stop=stop), name=name) for name in "abc"]
        for one, other in zip(refs, [*refs[1:], refs[0]], strict=True):
            await linked(world, one, other)
        refs[0].tell(fail_now)
        for ref in refs:
            await world.result(system.wait_stopped(ref))
        await world.settle()
    assert sorted(stopped) == ["/a", "/b", "/c"]
    assert sorted(event.actor for event in seen.of(ActorFailed)) == ["/a", "/b", "/c"]


async def test_a_failure_of_a_link_is_told_to_on_stop_and_is_an_event(world: World, kind: Kind) -> None:
    seen = Seen()
    reasons: list[ExitReason] = []
    async with world.system() as system:
        system.attach(seen)
        one = await system.spawn(kind(do, stop=lambda ctx, reason: reasons.append(reason)), name="one")
        other = await system.spawn(kind(do))
        await linked(world, one, other)
        other.tell(fail_now)
        reason = await world.result(system.wait_stopped(one))
    assert reasons == [reason]
    failed = [event.error_type for event in seen.of(ActorFailed) if event.actor == "/one"]
    assert failed == ["LinkedActorFailedError"]


async def test_the_failure_of_a_link_overtakes_messages_that_wait(world: World, kind: Kind) -> None:
    got: list[int] = []
    opened = anyio.Event()
    async with world.system() as system:
        other = await system.spawn(kind(do))
        one = await spawn_gated(
            system,
            kind,
            lambda ctx, message: got.append(message),
            opened,
            start=lambda ctx: ctx.link(other),
        )
        for number in range(10):
            one.tell(number)
        other.tell(fail_now)
        await world.result(system.wait_stopped(other))
        opened.set()
        await world.until(lambda: statistics_of(system, one) is None)
    assert got == []


async def test_a_message_under_way_is_handled_to_its_end_although_a_link_fails(
    world: World, kind: Kind
) -> None:
    log: list[str] = []
    opened = anyio.Event()

    class Busy(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: ActorRef[Any]) -> None:
            ctx.link(message)
            await opened.wait()
            log.append("handled")

    async with world.system() as system:
        busy, other = await system.spawn(Busy()), await system.spawn(kind(do))
        busy.tell(other)
        await world.until(lambda: is_handling(system, busy))
        other.tell(fail_now)
        await world.result(system.wait_stopped(other))
        await world.settle()
        opened.set()
        reason = await world.result(system.wait_stopped(busy))
    assert log == ["handled"]
    assert isinstance(reason.error, LinkedActorFailedError)


# -- making and dissolving -----------------------------------------------------------------------------------


async def test_linking_to_an_actor_that_has_failed_fails_the_linker_after_its_handler(
    world: World, kind: Kind
) -> None:
    log: list[str] = []

    def link(ctx: Context[Any]) -> str:
        ctx.link(other)
        log.append("after link")
        return "answered"

    async with world.system() as system:
        other = await system.spawn(kind(do))
        other.tell(fail_now)
        await world.result(system.wait_stopped(other))
        one = await system.spawn(kind(do))
        assert await world.result(one.ask(link)) == "answered"
        reason = await world.result(system.wait_stopped(one))
    assert log == ["after link"]
    assert isinstance(reason.error, LinkedActorFailedError)
    assert isinstance(reason.error.__cause__, ZeroDivisionError)


async def test_linking_to_an_actor_that_has_ended_normally_does_nothing(world: World, kind: Kind) -> None:
    async with world.system() as system:
        one, other = await system.spawn(kind(do)), await system.spawn(kind(do))
        await world.result(system.stop_actor(other))
        await linked(world, one, other)
        await world.settle()
        assert await world.result(one.ask("alive")) == "alive"


@pytest.mark.parametrize("who", [0, 1], ids=["who_linked", "who_was_linked"])
async def test_either_side_may_dissolve_a_link(world: World, kind: Kind, who: int) -> None:
    async with world.system() as system:
        refs = [await system.spawn(kind(do)) for _ in range(2)]
        await linked(world, refs[0], refs[1])
        await world.result(refs[who].ask(lambda ctx: ctx.unlink(refs[1 - who])))
        refs[0].tell(fail_now)
        await world.result(system.wait_stopped(refs[0]))
        await world.settle()
        assert await world.result(refs[1].ask("alive")) == "alive"


async def test_a_link_made_twice_from_either_side_is_one(world: World, kind: Kind) -> None:
    async with world.system() as system:
        one, other = await system.spawn(kind(do)), await system.spawn(kind(do))
        await linked(world, one, other)
        await linked(world, one, other)
        await linked(world, other, one)
        await world.result(one.ask(lambda ctx: ctx.unlink(other)))
        one.tell(fail_now)
        await world.result(system.wait_stopped(one))
        await world.settle()
        assert await world.result(other.ask("alive")) == "alive"


async def test_dissolving_a_link_that_is_none_does_nothing(world: World, kind: Kind) -> None:
    async with world.system() as system:
        one, other = await system.spawn(kind(do)), await system.spawn(kind(do))
        await world.result(one.ask(lambda ctx: ctx.unlink(other)))
        assert await world.result(one.ask("alive")) == "alive"


async def test_an_actor_cannot_be_linked_to_itself(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(do))
        with pytest.raises(ValueError):  # noqa: PT011 - which text does not matter
            await world.result(ref.ask(lambda ctx: ctx.link(ctx.ref)))


async def test_an_actor_of_another_node_cannot_be_linked_to_but_monitored(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(do))
        with pytest.raises(ValueError, match="monitor"):
            await world.result(ref.ask(lambda ctx: ctx.link(Elsewhere())))


async def test_links_and_monitors_of_the_same_actor_are_independent(world: World, kind: Kind) -> None:
    downs: list[Down] = []

    def handle(ctx: Context[Any], message: Any) -> Any:
        return downs.append(message) if isinstance(message, Down) else do(ctx, message)

    async with world.system() as system:
        one, other = await system.spawn(kind(handle)), await system.spawn(kind(do))
        await linked(world, one, other)
        await world.result(one.ask(lambda ctx: ctx.monitor(other)))
        await world.result(one.ask(lambda ctx: ctx.unlink(other)))
        other.tell(fail_now)
        await world.until(lambda: len(downs) == 1)
        assert await world.result(one.ask("alive")) == "alive"


# -- links and lives -----------------------------------------------------------------------------------------


async def test_an_actor_fails_with_a_linked_one_also_when_that_is_restarted(world: World, kind: Kind) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("a", lambda: kind(do)))
        a = await child_of(supervisor, "a")
        one = await system.spawn(kind(do))
        await linked(world, one, a)
        a.tell(fail_now)
        reason = await world.result(system.wait_stopped(one))
        assert isinstance(reason.error, LinkedActorFailedError)
        assert await world.result(a.ask("next life")) == "next life"


async def test_a_restarted_actor_has_no_links(world: World, kind: Kind) -> None:
    async with world.system() as system:
        supervisor = await supervise(
            system, ChildSpec("a", lambda: kind(do)), ChildSpec("b", lambda: kind(do))
        )
        a, b = await child_of(supervisor, "a"), await child_of(supervisor, "b")
        await linked(world, a, b)
        b.tell(fail_now)

        def restarts() -> list[int]:
            return [actor.restarts for actor in system.statistics().actors if actor.state == "running"]

        await world.until(lambda: restarts() == [0, 1, 1])  # both have failed once
        b.tell(fail_now)
        await world.until(lambda: restarts() == [0, 1, 2])
        await world.settle()
        assert restarts() == [0, 1, 2]


async def test_linking_to_an_actor_that_waits_for_its_restart_fails_the_linker(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("a", lambda: kind(do)), backoff=NEVER)
        a = await child_of(supervisor, "a")
        a.tell(fail_now)
        await down(system, a)
        one = await system.spawn(kind(do))
        one.tell(lambda ctx: ctx.link(a))
        reason = await world.result(system.wait_stopped(one))
    assert isinstance(reason.error, LinkedActorFailedError)


async def test_a_sibling_stopped_for_a_restart_has_ended_normally_for_its_links(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        supervisor = await supervise(
            system,
            ChildSpec("a", lambda: kind(do)),
            ChildSpec("b", lambda: kind(do)),
            strategy=Strategy.ONE_FOR_ALL,
        )
        a, b = await child_of(supervisor, "a"), await child_of(supervisor, "b")
        one = await system.spawn(kind(do))
        await linked(world, one, b)
        a.tell(fail_now)
        assert await world.result(b.ask("next life")) == "next life"
        await world.settle()
        assert await world.result(one.ask("alive")) == "alive"


async def test_fc_079_an_ended_actor_is_not_kept_alive_by_its_links(world: World, kind: Kind) -> None:
    async with world.system() as system:
        lasting = await system.spawn(kind(do))
        actor = kind(do)
        gone = weakref.ref(actor)
        short = await system.spawn(actor)
        await linked(world, lasting, short)
        await world.result(system.stop_actor(short))
        del actor, short
        await world.settle()
        await world.elapse(system, 0.001)
        gc.collect()
        assert gone() is None
