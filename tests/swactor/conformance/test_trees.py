"""Parents and children: who ends before whom, whose failure is whose, what a parent may do."""

from typing import Any

import anyio

from swactor import Actor, ActorRef, ChildFailedError, Context, Down, ExitKind, ExitReason

from .conftest import SYNC, Kind, World, echo, fail, ignore, statistics_of


class Names:
    """Actors that spawn a tree and say in which order they end."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.ended: list[str] = []

    def __call__(self, tree: dict[str, Any]) -> Actor[Any]:
        def start(ctx: Context[Any]) -> None:
            for name, below in tree.items():
                ctx.spawn(self(below), name=name)

        return self.kind(start=start, stop=lambda ctx, reason: self.ended.append(ctx.actor_id.path))


async def test_children_end_before_their_parent_newest_first(world: World, kind: Kind) -> None:
    tree = Names(kind)
    async with world.system() as system:
        ref = await system.spawn(tree({"a": {}, "b": {}, "c": {}}), name="p")
        await world.settle()
        await world.result(system.stop_actor(ref))
    assert tree.ended == ["/p/c", "/p/b", "/p/a", "/p"]


async def test_a_child_has_ended_with_all_below_it_before_the_next_older_one_is_stopped(
    world: World, kind: Kind
) -> None:
    tree = Names(kind)
    async with world.system() as system:
        ref = await system.spawn(tree({"a": {"x": {}, "y": {}}, "b": {"z": {}}}), name="p")
        await world.settle()
        await world.result(system.stop_actor(ref))
    assert tree.ended == ["/p/b/z", "/p/b", "/p/a/y", "/p/a/x", "/p/a", "/p"]


async def test_a_parent_that_completes_takes_its_children_along(world: World, kind: Kind) -> None:
    tree = Names(kind)

    def handle(ctx: Context[Any], message: Any) -> None:
        ctx.spawn(tree({}), name="child")
        ctx.stop("result")

    async with world.system() as system:
        ref = await system.spawn(kind(handle), name="p")
        ref.tell("go")
        reason = await world.result(system.wait_stopped(ref))
        await world.until(lambda: system.statistics().actors == ())
    assert tree.ended == ["/p/child"]
    assert reason.value == "result"


async def test_children_are_stopped_with_reason_stopped(world: World, kind: Kind) -> None:
    reasons: list[ExitReason] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        ctx.spawn(kind(stop=lambda ctx, reason: reasons.append(reason)))
        raise RuntimeError

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("go")
        await world.result(system.wait_stopped(ref))
    assert [reason.kind for reason in reasons] == [ExitKind.STOPPED]


async def test_a_parent_handles_nothing_more_while_its_children_end(world: World, kind: Kind) -> None:
    got: list[str] = []
    opened = anyio.Event()

    class SlowToStop(Actor[Any]):
        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            await opened.wait()

    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "spawn":
            ctx.spawn(SlowToStop())
        else:
            got.append(message)

    async with world.system() as system:
        ref = await system.spawn(kind(handle))
        await world.result(ref.ask("spawn"))
        async with anyio.create_task_group() as group:
            group.start_soon(system.stop_actor, ref)
            await world.settle()
            ref.tell("too late")
            await world.settle()
            opened.set()
    assert got == []


async def test_a_stuck_child_delays_its_parent_by_its_grace_only(world: World) -> None:
    class Hangs(Actor[Any]):
        async def on_stop(self, ctx: Context[Any], reason: ExitReason) -> None:
            await anyio.sleep_forever()

    reasons: list[ExitReason] = []
    async with world.system() as system:
        ref = await system.spawn(
            SYNC(
                start=lambda ctx: ctx.spawn(Hangs()),
                stop=lambda ctx, reason: reasons.append(reason),
            )
        )
        reason = await world.result(system.stop_actor(ref, grace_s=0.01))
        await world.until(lambda: system.statistics().actors == ())
    assert reasons == [reason]
    assert reason.kind is ExitKind.STOPPED


# -- failures of children ------------------------------------------------------------------------------------


def failing_child(kind: Kind, *, monitors: bool, downs: list[Down]) -> Actor[Any]:
    """Return a parent that makes a child fail when told "go"."""

    def handle(ctx: Context[Any], message: Any) -> Any:
        if isinstance(message, Down):
            downs.append(message)
        elif message == "go":
            child = ctx.spawn(kind(fail), name="child")
            if monitors:
                ctx.monitor(child)
            child.tell("fail")
        return message

    return kind(handle)


async def test_a_failing_child_fails_its_parent_which_says_why(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(failing_child(kind, monitors=False, downs=[]), name="parent")
        ref.tell("go")
        reason = await world.result(system.wait_stopped(ref))
    assert reason.kind is ExitKind.FAILED
    assert isinstance(reason.error, ChildFailedError)
    assert reason.error.child.path == "/parent/child"
    assert isinstance(reason.error.__cause__, RuntimeError)


async def test_a_parent_that_monitors_its_child_is_told_instead_of_failing(world: World, kind: Kind) -> None:
    downs: list[Down] = []
    async with world.system() as system:
        ref = await system.spawn(failing_child(kind, monitors=True, downs=downs))
        ref.tell("go")
        await world.until(lambda: len(downs) == 1)
        assert await world.result(ref.ask("alive")) == "alive"
        assert await world.result(system.stop_actor(ref)) == ExitReason(ExitKind.STOPPED)
    assert isinstance(downs[0].reason.error, RuntimeError)


async def test_a_failure_climbs_up_to_the_top_level_actor_and_takes_all_below_along(
    world: World, kind: Kind
) -> None:
    stopped: list[str] = []

    def tidy(ctx: Context[Any], reason: ExitReason) -> None:
        stopped.append(ctx.actor_id.path)

    def middle(ctx: Context[Any], message: Any) -> None:
        ctx.spawn(kind(fail), name="bottom").tell("fail")

    def top(ctx: Context[Any], message: Any) -> None:
        ctx.spawn(kind(stop=tidy), name="sibling")
        ctx.spawn(kind(middle, stop=tidy), name="middle").tell("go")

    async with world.system() as system:
        bystander = await system.spawn(kind(echo))
        ref = await system.spawn(kind(top, stop=tidy), name="top")
        ref.tell("go")
        reason = await world.result(system.wait_stopped(ref))
        assert await world.result(bystander.ask("alive")) == "alive"
    assert stopped == ["/top/middle", "/top/sibling", "/top"]
    assert isinstance(reason.error, ChildFailedError)
    assert reason.error.child.path == "/top/middle"


async def test_a_child_that_ends_normally_does_not_touch_its_parent(world: World, kind: Kind) -> None:
    children: list[ActorRef[Any]] = []

    def parent(ctx: Context[Any], message: Any) -> Any:
        if message == "spawn":
            children.append(ctx.spawn(kind(lambda ctx, message: ctx.stop())))
        return message

    async with world.system() as system:
        ref = await system.spawn(kind(parent))
        await world.result(ref.ask("spawn"))
        children[0].tell("end")
        await world.result(system.wait_stopped(children[0]))
        await world.settle()
        assert await world.result(ref.ask("alive")) == "alive"


async def test_a_child_that_cannot_start_fails_its_parent(world: World, kind: Kind) -> None:
    def start(ctx: Context[Any]) -> None:
        raise ZeroDivisionError("cannot start")

    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.spawn(kind(start=start))))
        ref.tell("spawn")
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, ChildFailedError)
    assert isinstance(reason.error.__cause__, ZeroDivisionError)


async def test_a_parent_that_monitors_a_child_is_told_even_when_the_child_fails_to_start(
    world: World, kind: Kind
) -> None:
    downs: list[Down] = []

    def start(ctx: Context[Any]) -> None:
        raise ZeroDivisionError("cannot start")

    def handle(ctx: Context[Any], message: Any) -> None:
        if isinstance(message, Down):
            downs.append(message)
        else:
            ctx.monitor(ctx.spawn(kind(start=start)))

    async with world.system() as system:
        parent = await system.spawn(kind(handle))
        parent.tell("spawn")
        await world.until(lambda: len(downs) == 1)
        assert (await world.result(system.stop_actor(parent))).kind is ExitKind.STOPPED


async def test_a_parent_that_is_stopping_does_not_fail_because_a_child_does(world: World, kind: Kind) -> None:
    def stop(ctx: Context[Any], reason: ExitReason) -> None:
        raise ZeroDivisionError("child cannot tidy up")

    async with world.system() as system:
        ref = await system.spawn(kind(start=lambda ctx: ctx.spawn(kind(stop=stop))))
        await world.settle()
        reason = await world.result(system.stop_actor(ref))
    assert reason == ExitReason(ExitKind.STOPPED)


# -- what a parent may do ------------------------------------------------------------------------------------


async def test_a_parent_stops_a_child_and_only_its_own(world: World, kind: Kind) -> None:
    errors: list[str] = []
    downs: list[Down] = []
    async with world.system() as system:
        stranger = await system.spawn(kind(echo))

        def handle(ctx: Context[Any], message: Any) -> None:
            if isinstance(message, Down):
                downs.append(message)
                return
            try:
                ctx.stop_child(stranger)
            except ValueError as error:
                errors.append(str(error))
            child = ctx.spawn(kind(echo))
            ctx.monitor(child)
            ctx.stop_child(child)

        await world.result((await system.spawn(kind(handle))).ask("go"))
        await world.until(lambda: bool(downs))
        assert await world.result(stranger.ask("alive")) == "alive"
    assert [down.reason.kind for down in downs] == [ExitKind.STOPPED]
    assert len(errors) == 1
    assert "not a living child" in errors[0]


async def test_a_grandchild_is_not_a_child(world: World, kind: Kind) -> None:
    grandchildren: list[ActorRef[Any]] = []
    errors: list[ValueError] = []

    def middle(ctx: Context[Any]) -> None:
        grandchildren.append(ctx.spawn(kind(ignore)))

    def top(ctx: Context[Any], message: Any) -> None:
        try:
            ctx.stop_child(grandchildren[0])
        except ValueError as error:
            errors.append(error)

    async with world.system() as system:
        ref = await system.spawn(kind(top, start=lambda ctx: ctx.spawn(kind(start=middle))))
        await world.until(lambda: len(grandchildren) == 1)
        await world.result(ref.ask("stop it"))
        assert statistics_of(system, grandchildren[0]) is not None
    assert len(errors) == 1


async def test_stopping_a_child_that_has_ended_is_refused(world: World, kind: Kind) -> None:
    children: list[ActorRef[Any]] = []

    def parent(ctx: Context[Any], message: Any) -> str:
        if message == "spawn":
            children.append(ctx.spawn(kind(lambda ctx, message: ctx.stop())))
            return "spawned"
        try:
            ctx.stop_child(children[0])
        except ValueError:
            return "refused"
        return "stopped"

    async with world.system() as system:
        ref = await system.spawn(kind(parent))
        await world.result(ref.ask("spawn"))
        children[0].tell("end")
        await world.result(system.wait_stopped(children[0]))
        await world.settle()
        assert await world.result(ref.ask("stop")) == "refused"
