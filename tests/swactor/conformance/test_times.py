"""Times that are no numbers are refused where they come in, and nothing has happened then."""

from math import inf, nan
from typing import Any

import pytest

from swactor import Actor, ActorSystem, AskTimeoutError, Backoff, ChildSpec, Context, RestartBudget

from .conftest import Kind, World


def never(ctx: Context[Any], message: Any) -> object:
    return ctx.defer()


async def test_a_timeout_that_is_no_number_is_refused_and_nothing_was_asked(world: World, kind: Kind) -> None:
    heard: list[object] = []
    async with world.system() as system:
        actor = await system.spawn(kind(lambda ctx, message: heard.append(message)))
        with pytest.raises(ValueError, match="timeout_s is a number of seconds, not nan"):
            await actor.ask("question", timeout_s=nan)
        await world.settle()
    assert heard == []


async def test_a_timeout_below_0_is_over_and_one_without_an_end_never_is(world: World, kind: Kind) -> None:
    async with world.system() as system:
        silent = await system.spawn(kind(never))
        with pytest.raises(AskTimeoutError):
            await world.result(silent.ask("question", timeout_s=-1.0))
        answers = await system.spawn(kind(lambda ctx, message: message))
        assert await world.result(answers.ask("question", timeout_s=inf)) == "question"


async def test_a_grace_that_is_no_number_is_refused_and_nobody_is_stopped(world: World, kind: Kind) -> None:
    refused: list[str] = []

    def stop_it(ctx: Context[Any], message: Any) -> None:
        child = ctx.spawn(kind(never))
        try:
            ctx.stop_child(child, grace_s=nan)
        except ValueError as error:
            refused.append(str(error))

    async with world.system() as system:
        actor = await system.spawn(kind(stop_it))
        with pytest.raises(ValueError, match="grace_s is a number of seconds, not nan"):
            await system.stop_actor(actor, grace_s=nan)
        with pytest.raises(ValueError, match="grace_s"):
            await system.stop_actor(actor, grace_s=nan, drain=True)
        actor.tell("still there")
        await world.until(lambda: len(refused) == 1)
    assert refused == ["grace_s is a number of seconds, not nan"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ActorSystem(grace_s=nan), "grace_s is a number"),
        (lambda: ChildSpec("a", Actor, shutdown_grace_s=nan), "shutdown_grace_s is a number"),
        (lambda: RestartBudget(restarts_max=-1), "restarts_max is 0 or more, not -1"),
        (lambda: RestartBudget(period_s=nan), "period_s is above 0, not nan"),
        (lambda: RestartBudget(period_s=0), "period_s is above 0, not 0"),
        (lambda: Backoff(first_s=-1.0), "first_s is 0 or more, with an end, not -1"),
        (lambda: Backoff(limit_s=inf), "limit_s is 0 or more, with an end, not inf"),
        (lambda: Backoff(jitter=1.5), "jitter is a share between 0 and 1, not 1.5"),
    ],
)
def test_what_is_made_of_times_says_which_of_them_is_wrong(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
