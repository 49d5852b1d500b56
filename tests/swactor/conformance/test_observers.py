"""What a system says about itself: events to observers, and the current values of all actors."""

import dataclasses
from typing import Any

import anyio
import pytest

from swactor import Actor, ActorFailed, ChildSpec, Context, Event, ExitReason

from .conftest import Kind, Seen, World, echo, fail, ignore, is_handling, spawn_gated, statistics_of
from .supervised import child_of, supervise


class Happened(Event, frozen=True, kw_only=True):
    """An event of an application."""

    what: str


class Broken:
    """An observer that raises."""

    def __init__(self) -> None:
        self.calls = 0

    def observe(self, event: Event) -> None:
        self.calls += 1
        raise RuntimeError("observer")


def emitting(ctx: Context[Any], message: str) -> None:
    """Report what is told."""
    ctx.emit(Happened(what=message))


# -- observers -----------------------------------------------------------------------------------------------


async def test_an_observer_hears_what_actors_emit_in_order(world: World, kind: Kind) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(emitting))
        for text in "abc":
            await world.result(ref.ask(text))
    assert [event.what for event in seen.of(Happened)] == ["a", "b", "c"]


async def test_an_observer_has_heard_of_an_event_when_emit_returns(world: World, kind: Kind) -> None:
    seen = Seen()
    heard: list[int] = []

    def handle(ctx: Context[Any], message: str) -> None:
        ctx.emit(Happened(what=message))
        heard.append(len(seen.of(Happened)))

    async with world.system() as system:
        system.attach(seen)
        await world.result((await system.spawn(kind(handle))).ask("a"))
    assert heard == [1]


async def test_observers_hear_an_event_in_the_order_in_which_they_were_attached(
    world: World, kind: Kind
) -> None:
    order: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self._name = name

        def observe(self, event: Event) -> None:
            if isinstance(event, Happened):
                order.append(self._name)

    async with world.system() as system:
        for name in "abc":
            system.attach(Named(name))
        await world.result((await system.spawn(kind(emitting))).ask("now"))
    assert order == ["a", "b", "c"]


async def test_an_observer_that_raises_is_detached_once_and_hurts_nobody(
    world: World, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    broken, seen = Broken(), Seen()
    async with world.system() as system:
        system.attach(broken)
        system.attach(seen)
        ref = await system.spawn(kind(emitting))
        for text in "abc":
            await world.result(ref.ask(text))
    assert broken.calls == 1
    assert [event.what for event in seen.of(Happened)] == ["a", "b", "c"]
    assert len([record for record in caplog.records if "observer" in record.getMessage()]) == 1


async def test_a_detached_observer_hears_nothing_more_and_detaching_twice_is_fine(
    world: World, kind: Kind
) -> None:
    seen = Seen()
    async with world.system() as system:
        system.detach(seen)  # it is not attached
        system.attach(seen)
        ref = await system.spawn(kind(emitting))
        await world.result(ref.ask("heard"))
        system.detach(seen)
        system.detach(seen)
        await world.result(ref.ask("not heard"))
    assert [event.what for event in seen.of(Happened)] == ["heard"]


async def test_an_observer_may_detach_itself_and_attach_another_while_it_hears(
    world: World, kind: Kind
) -> None:
    later, last = Seen(), Seen()

    class Once:
        def observe(self, event: Event) -> None:
            system.detach(self)
            system.attach(later)

    async with world.system() as system:
        ref = await system.spawn(kind(emitting))
        system.attach(Once())
        system.attach(last)
        await world.result(ref.ask("first"))
        await world.result(ref.ask("second"))
    assert [event.what for event in last.of(Happened)] == ["first", "second"]
    assert [event.what for event in later.of(Happened)][-1] == "second"
    assert len(later.of(Happened)) <= 2


async def test_the_failure_of_a_hook_is_an_event_without_a_message(world: World, kind: Kind) -> None:
    from msgspec import UNSET

    seen = Seen()

    def start(ctx: Context[Any]) -> None:
        raise ZeroDivisionError("cannot start")

    async with world.system() as system:
        system.attach(seen)
        with pytest.raises(ZeroDivisionError):
            await world.result(system.spawn(kind(start=start), name="broken"))
    failed = seen.of(ActorFailed)
    assert [(event.actor, event.error, event.message_type) for event in failed] == [
        ("/broken", "cannot start", UNSET)
    ]


async def test_the_text_of_a_failure_in_an_event_is_bounded(world: World, kind: Kind) -> None:
    seen = Seen()

    def handle(ctx: Context[Any], message: Any) -> None:
        raise RuntimeError("x" * 1_000_000)

    async with world.system() as system:
        system.attach(seen)
        ref = await system.spawn(kind(handle))
        ref.tell("fail")
        await world.result(system.wait_stopped(ref))
    (failed,) = seen.of(ActorFailed)
    assert 100 <= len(failed.error) <= 10_000


async def test_two_systems_report_to_their_own_observers(world: World, kind: Kind) -> None:
    one, two = Seen(), Seen()
    async with world.system() as first, world.system() as second:
        first.attach(one)
        second.attach(two)
        await world.result((await first.spawn(kind(emitting))).ask("from the first"))
        await world.result((await second.spawn(kind(emitting))).ask("from the second"))
    assert [event.what for event in one.of(Happened)] == ["from the first"]
    assert [event.what for event in two.of(Happened)] == ["from the second"]


# -- statistics ----------------------------------------------------------------------------------------------


async def test_statistics_list_living_actors_parents_before_children(world: World, kind: Kind) -> None:
    def start(ctx: Context[Any]) -> None:
        ctx.spawn(kind(start=lambda ctx: ctx.spawn(kind(ignore), name="c")), name="b")
        ctx.spawn(kind(ignore), name="d")

    async with world.system() as system:
        await system.spawn(kind(start=start), name="a")
        await system.spawn(kind(ignore), name="e")
        await world.settle()
        assert [actor.path for actor in system.statistics().actors] == ["/a", "/a/b", "/a/b/c", "/a/d", "/e"]


async def test_statistics_count_what_was_handled_whether_told_asked_or_by_a_timer(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(echo, start=lambda ctx: ctx.send_after(0.0, "timer")))
        ref.tell("told")
        await world.result(ref.ask("asked"))

        def handled() -> int:
            actor = statistics_of(system, ref)
            return 0 if actor is None else actor.handled

        await world.until(lambda: handled() == 3)
        await world.settle()
        assert handled() == 3


async def test_statistics_count_the_messages_of_a_batch_one_by_one(world: World) -> None:
    """Those that wait behind one that fails are counted by the life that handles them."""
    begun: list[str] = []
    go_on = [anyio.Event() for _ in range(4)]

    class Slow(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            place = len(begun)
            begun.append(message)
            await go_on[place].wait()
            if message == "fail":
                raise ValueError(message)

    async with world.system() as system:
        ref = await child_of(await supervise(system, ChildSpec("slow", Slow)), "slow")

        def counts() -> tuple[int, int, int]:
            actor = statistics_of(system, ref)
            return (len(begun), actor.handled, actor.depth) if actor is not None else (-1, -1, -1)

        for message in ("one", "fail", "three", "four"):
            ref.tell(message)
        for place in range(4):
            await world.until(lambda: len(begun) == place + 1)  # noqa: B023 - it is called at once
            assert counts() == (place + 1, place + 1, 3 - place)
            go_on[place].set()
        await world.until(lambda: not is_handling(system, ref))
        assert counts() == (4, 4, 0)


async def test_statistics_show_what_waits_and_what_is_being_handled(world: World) -> None:
    opened = anyio.Event()

    class Busy(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> None:
            await opened.wait()

    async with world.system() as system:
        ref = await system.spawn(Busy())
        ref.tell(("a", "tuple"))
        await world.until(lambda: is_handling(system, ref))
        for number in range(3):
            ref.tell(number)
        actor = statistics_of(system, ref)
        assert actor is not None
        assert (actor.depth, actor.handling, actor.state) == (3, "tuple", "running")
        opened.set()
        await world.until(lambda: not is_handling(system, ref))
        idle = statistics_of(system, ref)
        assert idle is not None
        assert (idle.depth, idle.handling) == (0, None)


async def test_statistics_show_the_state_of_an_actor(world: World, kind: Kind) -> None:
    opened = anyio.Event()

    def state(path: str) -> str | None:
        return next((actor.state for actor in system.statistics().actors if actor.path == path), None)

    class SlowToStop(Actor[Any]):
        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            await closed.wait()

    closed = anyio.Event()
    async with world.system() as system, anyio.create_task_group() as group:
        starting = await spawn_gated(system, kind, ignore, opened)
        assert state(starting.actor_id.path) == "starting"
        opened.set()
        await world.until(lambda: state(starting.actor_id.path) == "running")
        slow = await system.spawn(SlowToStop(), name="slow")
        group.start_soon(system.stop_actor, slow)
        await world.until(lambda: state("/slow") == "stopping")
        closed.set()
        await world.until(lambda: state("/slow") is None)


async def test_statistics_name_the_class_and_the_serial_of_an_actor(world: World, kind: Kind) -> None:
    async with world.system() as system:
        actor = kind(ignore)
        ref = await system.spawn(actor)
        values = statistics_of(system, ref)
        assert values is not None
        assert (values.actor_type, values.serial) == (type(actor).__qualname__, ref.actor_id.serial)


async def test_statistics_that_were_taken_do_not_change_any_more(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))
        ref.tell("waits")
        taken = system.statistics()
        depth = taken.actors[0].depth
        await world.until(lambda: system.statistics().actors[0].depth == 0)
        assert taken.actors[0].depth == depth == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            taken.dead_letters = 5  # type: ignore[misc]  # that is the point


async def test_statistics_can_be_taken_before_the_start_and_after_the_end(world: World, kind: Kind) -> None:
    system = world.new()
    assert system.statistics().actors == ()
    async with system:
        ref = await system.spawn(kind(ignore))
    ref.tell("late")
    assert system.statistics().actors == ()
    assert system.statistics().dead_letters == 1


async def test_statistics_can_be_taken_by_a_handler(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.system.statistics()), name="me")
        taken: Any = await world.result(ref.ask("take"))
    assert [actor.path for actor in taken.actors] == ["/me"]


async def test_a_failed_actor_is_gone_from_the_statistics(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(fail))
        ref.tell("fail")
        await world.result(system.wait_stopped(ref))
        await world.until(lambda: system.statistics().actors == ())
