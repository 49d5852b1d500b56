"""What a supervisor promises: who is restarted, in which order, and what a restart keeps and forgets."""

from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorRestarted,
    Backoff,
    ChildExistsError,
    ChildSpec,
    Context,
    Down,
    ExitKind,
    ExitReason,
    MailboxFullError,
    MailboxPolicy,
    NoSuchChildError,
    RestartKind,
    StartChild,
    Strategy,
)

from .conftest import SYNC, Kind, Seen, World, echo, fail, is_handling, statistics_of
from .hanging import stubbornly
from .supervised import NEVER, Fragile, child_of, down, supervise

# -- what a restart keeps and what it forgets ----------------------------------------------------------------


async def test_a_restarted_child_keeps_its_address_and_its_mailbox_but_not_its_state(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        a = await child_of(await supervise(system, fragile.spec("a")), "a")
        assert await world.result(a.ask("count")) == 1
        a.tell("fail")
        assert await world.result(a.ask("handled by the next life")) == 1
    assert fragile.log == ["start a", "stop a", "start a", "stop a"]


async def test_the_message_that_failed_is_not_tried_again(world: World, kind: Kind) -> None:
    got: list[str] = []

    def handle(ctx: Context[Any], message: str) -> None:
        got.append(message)
        if message == "bad":
            raise RuntimeError

    async with world.system() as system:
        a = await child_of(await supervise(system, ChildSpec("a", lambda: kind(handle))), "a")
        for text in ("good", "bad", "next", "bad", "last"):
            a.tell(text)
        await world.until(lambda: len(got) >= 5)
        await world.settle()
        assert system.statistics().dead_letters == 0
    assert got == ["good", "bad", "next", "bad", "last"]


async def test_messages_told_while_a_child_is_down_wait_for_its_next_life(world: World, kind: Kind) -> None:
    got: list[object] = []

    def handle(ctx: Context[Any], message: object) -> None:
        got.append(message)
        if message == "fail":
            raise RuntimeError

    async with world.system() as system:
        backoff = Backoff(first_s=0.02, limit_s=0.02, jitter=0.0)
        a = await child_of(
            await supervise(system, ChildSpec("a", lambda: kind(handle)), backoff=backoff), "a"
        )
        a.tell("fail")
        await down(system, a)
        for number in range(5):
            a.tell(number)
        await world.until(lambda: len(got) == 6)
    assert got == ["fail", 0, 1, 2, 3, 4]


async def test_the_bound_of_a_mailbox_holds_while_its_actor_is_down(world: World, kind: Kind) -> None:
    async with world.system() as system:
        spec = ChildSpec("a", lambda: kind(fail), mailbox=MailboxPolicy(capacity=2))
        a = await child_of(await supervise(system, spec, backoff=NEVER), "a")
        a.tell("fail")
        await down(system, a)
        a.tell(1)
        a.tell(2)
        with pytest.raises(MailboxFullError):
            a.tell(3)


async def test_fc_072_replies_that_a_life_owed_fail_at_its_restart(world: World, kind: Kind) -> None:
    errors: list[ActorDeadError] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "fail":
            raise RuntimeError
        ctx.defer()

    async with world.system() as system:
        a = await child_of(await supervise(system, ChildSpec("a", lambda: kind(handle))), "a")

        async def ask() -> None:
            try:
                await a.ask("later", timeout_s=3600)
            except ActorDeadError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await world.settle()
            a.tell("fail")
            await world.until(lambda: len(errors) == 1)


async def test_timers_of_a_life_do_not_fire_in_the_next(world: World, kind: Kind) -> None:
    got: list[str] = []
    lives = 0

    def start(ctx: Context[Any]) -> None:
        nonlocal lives
        lives += 1
        ctx.send_every(0.002, f"every of life {lives}")
        ctx.send_after(0.004, f"after of life {lives}")

    def handle(ctx: Context[Any], message: str) -> None:
        got.append(message)
        if message == "fail":
            raise RuntimeError

    async with world.system() as system:
        a = await child_of(await supervise(system, ChildSpec("a", lambda: kind(handle, start=start))), "a")
        a.tell("fail")
        await world.until(lambda: got.count("every of life 2") >= 4 and "after of life 2" in got)
    assert not [text for text in got[got.index("fail") :] if text.endswith("life 1")]


async def test_children_of_a_life_have_ended_before_the_next_begins(world: World, kind: Kind) -> None:
    log: list[str] = []

    def start(ctx: Context[Any]) -> None:
        log.append("start")
        ctx.spawn(kind(stop=lambda ctx, reason: log.append("child stopped")), name="helper")

    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("a", lambda: kind(fail, start=start)))
        a = await child_of(supervisor, "a")
        a.tell("fail")
        await world.until(lambda: log.count("start") == 2)
        assert log == ["start", "child stopped", "start"]
        paths = [actor.path for actor in system.statistics().actors]
        assert paths.count(f"{a.actor_id.path}/helper") == 1


async def test_whoever_monitors_a_child_is_told_when_it_ends_for_good_and_not_at_a_restart(
    world: World, fragile: Fragile, kind: Kind
) -> None:
    downs: list[Down] = []

    def watch(ctx: Context[Any], message: Any) -> None:
        if isinstance(message, Down):
            downs.append(message)
        else:
            ctx.monitor(message)

    async with world.system() as system:
        a = await child_of(await supervise(system, fragile.spec("a", RestartKind.TRANSIENT)), "a")
        await world.result((await system.spawn(kind(watch))).ask(a))
        a.tell("fail")
        assert await world.result(a.ask("restarted")) == 1
        assert downs == []
        a.tell("stop")
        await world.until(lambda: len(downs) == 1)
    assert [(down.ref, down.reason.kind) for down in downs] == [(a, ExitKind.COMPLETED)]


async def test_a_name_stays_with_a_child_through_its_restarts(world: World, fragile: Fragile) -> None:
    async with world.system() as system:
        a = await child_of(await supervise(system, fragile.spec("a")), "a")
        system.register("well known", a)
        a.tell("fail")
        await world.until(lambda: fragile.log.count("start a") == 2)
        assert system.whereis("well known") == a


async def test_a_task_that_was_given_up_does_not_wake_in_the_next_life(world: World) -> None:
    handled: list[tuple[int, str]] = []
    lives = 0
    release = anyio.Event()

    class Stubborn(Actor[str]):
        def __init__(self) -> None:
            nonlocal lives
            lives += 1
            self._life = lives

        async def on_message(self, ctx: Context[str], message: str) -> None:
            if message == "hold":
                await stubbornly(release)
                return
            handled.append((self._life, message))

    async with world.system() as system:
        supervisor = await supervise(
            system,
            ChildSpec("sibling", lambda: SYNC(fail)),
            ChildSpec("stubborn", Stubborn, shutdown_grace_s=0.01),
            strategy=Strategy.ONE_FOR_ALL,
        )
        stubborn = await child_of(supervisor, "stubborn")
        stubborn.tell("hold")
        await world.until(lambda: is_handling(system, stubborn))
        (await child_of(supervisor, "sibling")).tell("fail")
        await world.until(lambda: lives == 2)
        release.set()
        for number in range(20):
            stubborn.tell(str(number))
        await world.until(lambda: len(handled) == 20)
    assert handled == [(2, str(number)) for number in range(20)]


# -- who is restarted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "stopped_then_started"),
    [
        (Strategy.ONE_FOR_ONE, ["stop b", "start b"]),
        (Strategy.ONE_FOR_ALL, ["stop b", "stop c", "stop a", "start a", "start b", "start c"]),
        (Strategy.REST_FOR_ONE, ["stop b", "stop c", "start b", "start c"]),
    ],
)
async def test_the_strategy_decides_who_restarts(
    world: World, fragile: Fragile, strategy: Strategy, stopped_then_started: list[str]
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, *(fragile.spec(name) for name in "abc"), strategy=strategy)
        await world.until(lambda: len(fragile.log) == 3)
        fragile.log.clear()
        (await child_of(supervisor, "b")).tell("fail")
        await world.until(lambda: len(fragile.log) == len(stopped_then_started))
        await world.settle()
        assert fragile.log == stopped_then_started


@pytest.mark.parametrize(
    ("restart", "how", "restarts"),
    [
        (RestartKind.PERMANENT, "stop", True),
        (RestartKind.PERMANENT, "fail", True),
        (RestartKind.TRANSIENT, "stop", False),
        (RestartKind.TRANSIENT, "fail", True),
        (RestartKind.TEMPORARY, "stop", False),
        (RestartKind.TEMPORARY, "fail", False),
    ],
)
async def test_the_restart_kind_decides_whether(
    world: World, fragile: Fragile, restart: RestartKind, how: str, restarts: bool
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, fragile.spec("a", restart))
        a = await child_of(supervisor, "a")
        a.tell(how)
        if restarts:
            await world.until(lambda: fragile.log.count("start a") == 2)
            assert await child_of(supervisor, "a") == a
        else:
            await world.result(system.wait_stopped(a))
            with pytest.raises(NoSuchChildError):
                await world.result(child_of(supervisor, "a"))


async def test_a_child_that_had_to_be_killed_counts_as_failed(world: World, kind: Kind) -> None:
    log: list[str] = []
    release = anyio.Event()

    class Hangs(Actor[str]):
        def on_start(self, ctx: Context[str]) -> None:
            log.append("start")

        async def on_message(self, ctx: Context[str], message: str) -> None:
            await release.wait()

    async with world.system() as system:
        supervisor = await supervise(
            system,
            ChildSpec("fails", lambda: kind(fail)),
            ChildSpec("hangs", Hangs, restart=RestartKind.TRANSIENT, shutdown_grace_s=0.001),
            strategy=Strategy.REST_FOR_ONE,
        )
        hangs = await child_of(supervisor, "hangs")
        hangs.tell("hang")
        await world.until(lambda: is_handling(system, hangs))
        (await child_of(supervisor, "fails")).tell("fail")
        await world.until(lambda: log == ["start", "start"])


async def test_a_temporary_sibling_is_stopped_with_the_others_and_not_started_again(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        supervisor = await supervise(
            system,
            fragile.spec("a"),
            fragile.spec("b", RestartKind.TEMPORARY),
            strategy=Strategy.ONE_FOR_ALL,
        )
        b = await child_of(supervisor, "b")
        (await child_of(supervisor, "a")).tell("fail")
        await world.until(lambda: fragile.log.count("start a") == 2)
        assert (await world.result(system.wait_stopped(b))).kind is ExitKind.STOPPED
        assert fragile.log.count("start b") == 1
        with pytest.raises(NoSuchChildError):
            await world.result(child_of(supervisor, "b"))


async def test_children_that_fail_at_the_same_time_are_all_restarted(world: World, fragile: Fragile) -> None:
    async with world.system() as system:
        names = [f"child-{number}" for number in range(10)]
        supervisor = await supervise(system, *(fragile.spec(name) for name in names))
        children = [await child_of(supervisor, name) for name in names]
        for child in children:
            child.tell("fail")
        for child in children:
            assert await world.result(child.ask("alive")) == 1
    assert sorted(fragile.log[10:30]) == sorted(f"{what} {n}" for n in names for what in ("start", "stop"))


async def test_a_sibling_that_fails_while_it_is_stopped_for_a_restart_is_restarted(
    world: World, fragile: Fragile, kind: Kind
) -> None:
    log: list[str] = []

    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        raise ZeroDivisionError("cannot tidy up")

    async with world.system() as system:
        supervisor = await supervise(
            system,
            fragile.spec("a"),
            ChildSpec("b", lambda: kind(echo, start=lambda ctx: log.append("start b"), stop=stop)),
            strategy=Strategy.ONE_FOR_ALL,
        )
        (await child_of(supervisor, "a")).tell("fail")
        await world.until(lambda: log == ["start b", "start b"])
        b = await child_of(supervisor, "b")
        assert await world.result(b.ask("alive")) == "alive"


async def test_a_child_stopped_for_good_is_not_started_again_and_its_id_is_free(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, fragile.spec("a"))
        a = await child_of(supervisor, "a")
        assert (await world.result(system.stop_actor(a))).kind is ExitKind.STOPPED
        with pytest.raises(NoSuchChildError):
            await world.result(child_of(supervisor, "a"))
        again: Any = await world.result(supervisor.ask(StartChild(fragile.spec("a"))))
        assert again != a
        assert await world.result(again.ask("alive")) == 1


async def test_a_child_that_waits_for_its_restart_can_be_stopped_for_good(world: World, kind: Kind) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("a", lambda: kind(fail)), backoff=NEVER)
        a = await child_of(supervisor, "a")
        a.tell("fail")
        await down(system, a)
        await world.result(system.stop_actor(a))
        await world.until(lambda: [actor.path for actor in system.statistics().actors] == ["/Supervisor-1"])


async def test_the_others_restart_although_one_of_them_is_stopped_for_good_meanwhile(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        supervisor = await supervise(
            system,
            *(fragile.spec(name) for name in "abc"),
            strategy=Strategy.ONE_FOR_ALL,
            backoff=Backoff(first_s=0.05, limit_s=0.05, jitter=0.0),
        )
        b, c = await child_of(supervisor, "b"), await child_of(supervisor, "c")
        c.tell("fail")
        await down(system, b)
        await system.stop_actor(b)
        await world.until(lambda: fragile.log.count("start c") == 2)
        await world.settle()
    assert fragile.log.count("start a") == 2
    assert fragile.log.count("start b") == 1


# -- children on demand --------------------------------------------------------------------------------------


async def test_children_start_in_the_order_given(world: World, fragile: Fragile) -> None:
    async with world.system() as system:
        await supervise(system, *(fragile.spec(name) for name in "abcd"))
        await world.until(lambda: len(fragile.log) == 4)
        assert fragile.log == ["start a", "start b", "start c", "start d"]


async def test_a_child_started_later_is_supervised_too_and_its_id_is_unique(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system)
        late: Any = await world.result(supervisor.ask(StartChild(fragile.spec("late"))))
        with pytest.raises(ChildExistsError):
            await world.result(supervisor.ask(StartChild(fragile.spec("late"))))
        late.tell("fail")
        await world.until(lambda: fragile.log.count("start late") == 2)


async def test_a_child_started_later_counts_as_the_newest(world: World, fragile: Fragile) -> None:
    async with world.system() as system:
        supervisor = await supervise(
            system, fragile.spec("a"), fragile.spec("b"), strategy=Strategy.REST_FOR_ONE
        )
        await world.result(supervisor.ask(StartChild(fragile.spec("late"))))
        await world.until(lambda: len(fragile.log) == 3)
        fragile.log.clear()
        (await child_of(supervisor, "b")).tell("fail")
        await world.until(lambda: len(fragile.log) == 4)
        assert fragile.log == ["stop b", "stop late", "start b", "start late"]


async def test_a_supervisor_refuses_a_question_about_a_child_it_has_not_and_lives_on(
    world: World, fragile: Fragile
) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, fragile.spec("a"))
        with pytest.raises(NoSuchChildError):
            await world.result(child_of(supervisor, "unknown"))
        assert await world.result((await child_of(supervisor, "a")).ask("alive")) == 1


async def test_each_restart_is_an_event_and_counted(world: World, fragile: Fragile) -> None:
    seen = Seen()
    async with world.system() as system:
        system.attach(seen)
        a = await child_of(await supervise(system, fragile.spec("a")), "a")
        for _ in range(3):
            a.tell("fail")
            assert await world.result(a.ask("alive")) == 1
        actor = statistics_of(system, a)
        assert actor is not None
        assert actor.restarts == 3
    assert [(event.actor, event.restarts) for event in seen.of(ActorRestarted)] == [
        (a.actor_id.path, 1),
        (a.actor_id.path, 2),
        (a.actor_id.path, 3),
    ]
