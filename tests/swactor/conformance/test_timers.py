"""Keyed timers: they fire once or in a steady rhythm, and never after they were called off."""

from typing import Any

import anyio
import pytest

from swactor import ActorSystem, Context, ExitKind, ExitReason

from .conftest import Kind, World, depth_of, ignore, spawn_gated


def keeping(got: list[Any]) -> Any:
    """Return a handler that keeps messages and calls those that are functions, with its context."""

    def handle(ctx: Context[Any], message: Any) -> None:
        if callable(message):
            message(ctx)
        else:
            got.append(message)

    return handle


async def test_a_timer_fires_once_a_periodic_one_until_it_is_cancelled(world: World, kind: Kind) -> None:
    got: list[str] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "begin":
            ctx.send_after(0.001, "once")
            ctx.send_every(0.001, "tick")
        else:
            got.append(message)
            if got.count("tick") == 3:
                ctx.cancel("tick")
                ctx.send_after(0.02, "end")

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("begin")
        await world.until(lambda: "end" in got)
    assert sorted(got) == ["end", "once", "tick", "tick", "tick"]


async def test_timers_fire_in_the_order_in_which_they_are_due(world: World, kind: Kind) -> None:
    delays_ms = (6, 2, 12, 10, 4, 8)
    got: list[int] = []

    def start(ctx: Context[Any]) -> None:
        took_ns = began_ns = 10**9
        while took_ns > 1_000_000:  # once more, if a slow machine took as long as what parts them
            began_ns = ctx.clock.monotonic_ns()
            for delay_ms in delays_ms:
                ctx.send_after(delay_ms / 1000, delay_ms)
            took_ns = ctx.clock.monotonic_ns() - began_ns
        if type(world) is World:  # in real time they shall all be late, and found due at the same moment
            while ctx.clock.monotonic_ns() < began_ns + (max(delays_ms) + 2) * 1_000_000:
                pass

    async with world.system() as system:
        await system.spawn(kind(keeping(got), start=start))
        await world.until(lambda: len(got) == 6)
    assert got == sorted(delays_ms)


async def test_a_timer_does_not_fire_early(world: World, kind: Kind) -> None:
    times_ns: list[int] = []

    def note(ctx: Context[Any], message: Any) -> None:
        times_ns.append(ctx.clock.monotonic_ns())

    def start(ctx: Context[Any]) -> None:
        note(ctx, "start")
        ctx.send_after(0.02, "due")

    async with world.system() as system:
        await system.spawn(kind(note, start=start))
        await world.until(lambda: len(times_ns) == 2)
    assert times_ns[1] - times_ns[0] >= 15_000_000  # a loop counts from when its present turn began


async def test_a_timer_without_delay_comes_after_what_waits_already(world: World, kind: Kind) -> None:
    got: list[str] = []

    def begin(ctx: Context[Any]) -> None:
        ctx.send_after(0.0, "timer")
        got.append("begin")

    async with world.system() as system:
        ref = await system.spawn(kind(keeping(got)))
        ref.tell(begin)
        ref.tell("waits")
        await world.until(lambda: len(got) == 3)
    assert got == ["begin", "waits", "timer"]


async def test_a_timer_with_the_key_of_another_replaces_it(world: World, kind: Kind) -> None:
    got: list[str] = []

    def start(ctx: Context[Any]) -> None:
        ctx.send_after(0.001, "first", key="k")
        ctx.send_every(0.001, "second", key="k")
        ctx.send_after(0.003, "third", key="k")
        ctx.send_after(0.010, "end")

    async with world.system() as system:
        await system.spawn(kind(keeping(got), start=start))
        await world.until(lambda: {"third", "end"} <= set(got))
    assert sorted(got) == ["end", "third"]


async def test_the_same_message_under_two_keys_comes_twice(world: World, kind: Kind) -> None:
    got: list[str] = []

    def start(ctx: Context[Any]) -> None:
        ctx.send_after(0.001, "same", key=1)
        ctx.send_after(0.001, "same", key=2)
        ctx.send_after(0.001, "same")

    async with world.system() as system:
        await system.spawn(kind(keeping(got), start=start))
        await world.until(lambda: len(got) == 3)
    assert got == ["same"] * 3


async def test_a_message_that_cannot_be_a_key_needs_one(world: World, kind: Kind) -> None:
    got: list[Any] = []
    async with world.system() as system:
        ref = await system.spawn(kind(keeping(got)))
        ref.tell(lambda ctx: ctx.send_after(0.001, ["a list"], key="list"))
        await world.until(lambda: got == [["a list"]])
        ref.tell(lambda ctx: ctx.send_after(0.001, ["a list"]))
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, TypeError)


async def test_cancelling_what_was_never_started_or_has_fired_does_nothing(world: World, kind: Kind) -> None:
    got: list[str] = []
    async with world.system() as system:
        ref = await system.spawn(kind(keeping(got)))
        ref.tell(lambda ctx: ctx.cancel("never started"))
        ref.tell(lambda ctx: ctx.send_after(0.0, "fired"))
        await world.until(lambda: got == ["fired"])
        ref.tell(lambda ctx: ctx.cancel("fired"))
        ref.tell("alive")
        await world.until(lambda: got == ["fired", "alive"])


async def test_timers_of_two_actors_with_the_same_key_are_independent(world: World, kind: Kind) -> None:
    got: list[Any] = []
    async with world.system() as system:
        one, two = [await system.spawn(kind(keeping(got))) for _ in range(2)]
        one.tell(lambda ctx: ctx.send_after(0.005, "one", key="k"))
        two.tell(lambda ctx: ctx.send_after(0.005, "two", key="k"))
        two.tell(lambda ctx: ctx.cancel("k"))
        two.tell(lambda ctx: ctx.send_after(0.010, "end"))
        await world.until(lambda: {"one", "end"} <= set(got))
    assert sorted(got) == ["end", "one"]


@pytest.mark.parametrize(
    "start",
    [
        lambda ctx: ctx.send_after(-0.001, "past"),
        lambda ctx: ctx.send_every(0.0, "never ends"),
        lambda ctx: ctx.send_every(-1.0, "past"),
        lambda ctx: ctx.send_every(1.0, "past", first_s=-1.0),
        lambda ctx: ctx.send_every(1e-10, "is no time at all"),
        lambda ctx: ctx.send_every(float("inf"), "never"),
        lambda ctx: ctx.send_after(float("inf"), "never"),
        lambda ctx: ctx.send_after(float("nan"), "whenever"),
    ],
)
async def test_a_timer_that_does_not_lie_ahead_is_refused(world: World, kind: Kind, start: Any) -> None:
    async with world.system() as system:
        with pytest.raises(ValueError, match="must lie ahead"):
            await world.result(system.spawn(kind(start=start)))


# -- called off ----------------------------------------------------------------------------------------------


async def test_a_timer_that_is_cancelled_in_time_does_not_fire(world: World, kind: Kind) -> None:
    got: list[str] = []

    def begin(ctx: Context[Any]) -> None:
        ctx.send_after(0.0, "cancelled")
        ctx.cancel("cancelled")
        ctx.send_after(0.005, "end")

    async with world.system() as system:
        ref = await system.spawn(kind(keeping(got)))
        ref.tell(begin)
        await world.until(lambda: "end" in got)
    assert got == ["end"]


async def test_a_timer_that_is_cancelled_while_its_message_waits_in_the_mailbox_does_not_fire(
    world: World, kind: Kind
) -> None:
    got: list[str] = []
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(
            system, kind, keeping(got), opened, start=lambda ctx: ctx.send_after(0.001, "late")
        )
        ref.tell(lambda ctx: ctx.cancel("late"))
        await world.until(lambda: depth_of(system, ref) == 2)
        ref.tell("after it")
        opened.set()
        await world.until(lambda: len(got) == 1)
    assert got == ["after it"]


async def test_a_timer_that_is_replaced_while_its_message_waits_fires_as_the_new_one_only(
    world: World, kind: Kind
) -> None:
    got: list[str] = []
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(
            system, kind, keeping(got), opened, start=lambda ctx: ctx.send_after(0.001, "old", key="k")
        )
        ref.tell(lambda ctx: ctx.send_after(0.001, "new", key="k"))
        await world.until(lambda: depth_of(system, ref) == 2)
        opened.set()
        await world.until(lambda: len(got) == 1)
        await world.elapse(system, 0.005)
    assert got == ["new"]


async def test_no_timer_fires_once_its_actor_has_ended_and_none_is_a_dead_letter(
    world: World, kind: Kind
) -> None:
    got: list[str] = []

    def start(ctx: Context[Any]) -> None:
        ctx.send_every(0.001, "tick")
        ctx.send_after(0.015, "late")

    async with world.system() as system:
        ref = await system.spawn(kind(keeping(got), start=start))
        await world.until(lambda: len(got) >= 2)
        await world.result(system.stop_actor(ref))
        count = len(got)
        await world.elapse(system, 0.02)
        assert system.statistics().dead_letters == 0
    assert len(got) == count


async def test_a_timer_started_in_on_stop_does_not_fire(world: World, kind: Kind) -> None:
    got: list[str] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        ctx.send_after(0.0, "from the grave")
        ctx.send_after(0.001, "from the grave, too")

    async with world.system() as system:
        ref = await system.spawn(kind(keeping(got), stop=stop))
        reason = await world.result(system.stop_actor(ref))
        await world.elapse(system, 0.005)
        assert system.statistics().dead_letters == 0
    assert reason.kind is ExitKind.STOPPED
    assert got == []


async def test_a_timer_far_ahead_does_not_hold_up_the_end(world: World, kind: Kind) -> None:
    async with world.system() as system:
        first = await system.spawn(kind(ignore, start=lambda ctx: ctx.send_after(0.0, "soon")))
        await world.result(first.ask("alive?"))
        await world.result(system.stop_actor(first))
        await world.settle()
        tasks = world.tasks()  # what a loop needs for the runtime itself is there by now
        ref = await system.spawn(kind(ignore, start=lambda ctx: ctx.send_after(1e8, "in three years")))
        before_ns = system.clock.monotonic_ns()
        await world.result(system.stop_actor(ref))
        assert system.clock.monotonic_ns() - before_ns < 10e9
        await world.until(lambda: world.tasks() <= tasks)


# -- rhythm --------------------------------------------------------------------------------------------------


async def test_a_periodic_timer_fires_first_when_it_is_told_to(world: World, kind: Kind) -> None:
    times_ns: list[int] = []

    def start(ctx: Context[Any]) -> None:
        note(ctx, "start")
        ctx.send_every(0.020, "tick", first_s=0.005)

    def note(ctx: Context[Any], message: str) -> None:
        times_ns.append(ctx.clock.monotonic_ns())

    async with world.system() as system:
        await system.spawn(kind(note, start=start))
        await world.until(lambda: len(times_ns) >= 3)
    start_ns, first_ns, second_ns, *_ = times_ns
    # A loop may round to its millisecond, and count from when its present turn began.
    assert first_ns - start_ns >= 2_000_000
    assert second_ns - start_ns >= 20_000_000
    if type(world) is not World:
        assert (first_ns - start_ns, second_ns - start_ns) == (5_000_000, 25_000_000)


async def test_a_periodic_timer_may_fire_at_once(world: World, kind: Kind) -> None:
    got: list[str] = []
    async with world.system() as system:
        await system.spawn(kind(keeping(got), start=lambda ctx: ctx.send_every(1e6, "at once", first_s=0.0)))
        await world.until(lambda: got == ["at once"])


async def test_a_periodic_timer_neither_makes_up_for_missed_rounds_nor_drifts(
    world: World, kind: Kind
) -> None:
    """The actor is kept busy for two and a half rounds; other timers then show when the next are due."""
    period_ns = 60_000_000
    got: list[str] = []
    opened = anyio.Event()
    began_ns = 0

    def phase(ctx: Context[Any] | ActorSystem) -> float:
        return ((ctx.clock.monotonic_ns() - began_ns) % period_ns) / period_ns

    def start(ctx: Context[Any]) -> None:
        nonlocal began_ns
        began_ns = ctx.clock.monotonic_ns()
        ctx.send_every(period_ns / 1e9, "tick")

    def handle(ctx: Context[Any], message: Any) -> None:
        got.append(message)
        if got == ["tick"]:
            until_next_s = (1 - phase(ctx)) * period_ns / 1e9
            ctx.send_after(until_next_s / 2, "before the next round")
            ctx.send_after(until_next_s + period_ns / 2e9, "half a round later")

    async with world.system() as system:
        await spawn_gated(system, kind, handle, opened, start=start)
        await world.elapse(system, 2 * period_ns / 1e9)
        await world.elapse(system, (0.6 - phase(system)) % 1.0 * period_ns / 1e9)
        opened.set()
        await world.until(lambda: "half a round later" in got)
    assert got == ["tick", "before the next round", "tick", "half a round later"]


async def test_rounds_that_nobody_had_time_for_do_not_pile_up(world: World, kind: Kind) -> None:
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(system, kind, ignore, opened, start=lambda ctx: ctx.send_every(0.001, "tick"))
        await world.until(lambda: depth_of(system, ref) >= 1)
        await world.elapse(system, 0.01)
        assert depth_of(system, ref) == 1
        opened.set()
