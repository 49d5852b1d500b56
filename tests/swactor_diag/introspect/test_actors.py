"""The actors of a system in its own snapshot."""

from dataclasses import replace

import msgspec

from swactor import Actor, ActorStatistics, ActorSystem, Context, SystemClock, SystemStatistics
from swactor.abc import Clock
from swactor_diag.introspect.actors import ActorsIntrospector


class Echo(Actor[str]):
    def on_message(self, ctx: Context[str], message: str) -> str:
        return message


def actor(serial: int, *, depth: int = 0, restarts: int = 0) -> ActorStatistics:
    return ActorStatistics(
        path=f"/a{serial}",
        serial=serial,
        actor_type="A",
        state="running",
        depth=depth,
        handled=serial,
        dropped=1,
        restarts=restarts,
        handling="Work" if depth else None,
        handling_s=1.5 if depth else None,
        oldest_wait_s=0.25 if depth else None,
    )


def test_those_with_the_most_to_do_are_listed_and_the_totals_are_over_all(clock: Clock) -> None:
    actors = (actor(1), actor(2, depth=9), actor(3, restarts=2), actor(4, depth=4), actor(5))
    now = SystemStatistics(actors=actors, ready=2, lag_s=0.002, dead_letters=7)
    block = ActorsIntrospector(lambda: now, clock=clock, actors_max=3).observe()
    assert [row.actor for row in block.actors] == ["/a2#2", "/a3#3", "/a4#4"]
    assert (block.actors_total, block.actors_omitted, block.messages_waiting) == (5, 2, 13)
    assert (block.messages_dropped, block.dead_letters, block.ready_depth) == (5, 7, 2)
    assert block.run_queue_lag_ms == 2
    assert (block.messages_handled, block.restarts) == (15, 2)
    busy = block.actors[0]
    assert (busy.current_message, busy.current_message_ms, busy.oldest_wait_ms) == ("Work", 1500, 250)
    assert "oldest_wait_ms" not in msgspec.to_builtins(block.actors[1])


def test_one_that_is_stuck_is_listed_however_many_have_messages_waiting(clock: Clock) -> None:
    waiting = tuple(actor(serial, depth=serial) for serial in range(1, 200))
    stuck = replace(actor(200), handling="Load", handling_s=600.0)
    now = SystemStatistics(actors=(*waiting, stuck), ready=0, lag_s=0.0, dead_letters=0)
    block = ActorsIntrospector(lambda: now, clock=clock, actors_max=8).observe()
    assert "/a200#200" in [row.actor for row in block.actors]
    assert "/a199#199" in [row.actor for row in block.actors]
    assert (len(block.actors), block.actors_omitted) == (8, 192)


async def test_a_real_system() -> None:
    async with ActorSystem() as system:
        echo = await system.spawn(Echo(), name="echo")
        await echo.ask("hello")
        block = ActorsIntrospector(system.statistics, clock=SystemClock()).observe()
    (row,) = block.actors
    assert (row.actor, row.behaviour, row.handled, row.state) == ("/echo#1", "Echo", 1, "running")
