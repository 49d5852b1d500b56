"""What a user of actors may rely on, the same for both kinds of handler on every event loop."""

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from swactor import (
    Actor,
    ActorDeadError,
    ActorFailed,
    ActorRef,
    ActorSystem,
    AskCircleError,
    AskTimeoutError,
    ChildFailedError,
    Context,
    Down,
    Event,
    ExitKind,
    ExitReason,
    MailboxFullError,
    MailboxPolicy,
    NameTakenError,
    NotAskedError,
    Overflow,
    Reply,
    Request,
    SystemStoppingError,
)

Handler = Callable[[Context[Any], Any], Any]
Factory = Callable[[Handler], Actor[Any]]


class GetTotal(msgspec.Struct, Request[int], frozen=True):
    """Asks for the sum so far."""


class Plain(Actor[Any]):
    """Runs a function as a synchronous handler."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def on_message(self, ctx: Context[Any], message: Any) -> object:
        return self._handler(ctx, message)


class Waiting(Actor[Any]):
    """Runs the same function as an asynchronous handler, after one turn of the loop."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def on_message(self, ctx: Context[Any], message: Any) -> object:
        await anyio.lowlevel.checkpoint()
        return self._handler(ctx, message)


class Seen:
    """An Observer that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def anyio_backend(every_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return every_backend


@pytest.fixture(params=[Plain, Waiting], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Factory:
    factory: Factory = request.param
    return factory


def ignore(ctx: Context[Any], message: Any) -> None:
    """Handle nothing."""


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until ``condition`` holds, for at most five seconds."""
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_messages_of_one_sender_are_handled_in_order(kind: Factory) -> None:
    got: list[int] = []
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)))
        for number in range(500):
            ref.tell(number)
        await until(lambda: len(got) == 500)
    assert got == list(range(500))


async def test_ask_returns_what_the_handler_returns(kind: Factory) -> None:
    async with ActorSystem() as system:
        ref: ActorRef[GetTotal] = await system.spawn(kind(lambda ctx, message: 42))
        total: int = await ref.ask(GetTotal())
    assert total == 42


async def test_a_deferred_reply_may_come_later_from_another_message(kind: Factory) -> None:
    waiting: list[Reply[str]] = []

    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "ask":
            waiting.append(ctx.defer())
            ctx.ref.tell("answer")
        else:
            waiting.pop().send("later")

    async with ActorSystem() as system:
        ref = await system.spawn(kind(handle))
        assert await ref.ask("ask") == "later"


async def test_a_deferred_reply_fails_when_the_actor_ends_without_it(kind: Factory) -> None:
    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "ask":
            ctx.defer()
            ctx.ref.tell("end")
        else:
            ctx.stop()

    async with ActorSystem() as system:
        ref = await system.spawn(kind(handle))
        with pytest.raises(ActorDeadError):
            await ref.ask("ask", timeout_s=60)


async def test_deferring_a_told_message_fails_the_actor_that_tried(kind: Factory) -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.defer()))
        ref.tell("told")
        reason = await system.wait_stopped(ref)
    assert isinstance(reason.error, NotAskedError)


async def test_fc_073_an_exception_ends_the_actor_and_everybody_is_told(kind: Factory) -> None:
    seen = Seen()
    async with ActorSystem() as system:
        system.attach(seen)
        ref = await system.spawn(kind(lambda ctx, message: 1 / 0), name="divider")
        with pytest.raises(ZeroDivisionError):
            await ref.ask(GetTotal())
        reason = await system.wait_stopped(ref)
        assert system.whereis("divider") is None
    assert reason.kind is ExitKind.FAILED
    failed = [event for event in seen.events if isinstance(event, ActorFailed)]
    assert [(event.actor, event.error_type, event.message_type) for event in failed] == [
        ("/divider", "ZeroDivisionError", "GetTotal")
    ]


@pytest.mark.parametrize("waits", [False, True], ids=["sync", "async"])
async def test_fc_073_a_failing_start_makes_spawn_fail(waits: bool) -> None:
    class Broken(Actor[str]):
        def on_start(self, ctx: Context[str]) -> Any:
            return self.later() if waits else 1 / 0

        async def later(self) -> None:
            await anyio.lowlevel.checkpoint()
            raise ZeroDivisionError

    async with ActorSystem() as system:
        with pytest.raises(ZeroDivisionError):
            await system.spawn(Broken(), name="broken")
        await until(lambda: system.whereis("broken") is None)


async def test_fc_072_asks_that_wait_when_the_actor_stops_fail_promptly(kind: Factory) -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.stop() if message == "stop" else None))
        failures: list[str] = []

        async def ask() -> None:
            try:
                await ref.ask("late", timeout_s=60)
            except ActorDeadError as error:
                failures.append(error.why)

        ref.tell("stop")
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask)
    assert failures == ["completed"] * 20


async def test_fc_072_messages_left_at_the_end_are_counted_as_dead_letters(kind: Factory) -> None:
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: ctx.stop()))
        for _ in range(10):
            ref.tell("x")
        await system.wait_stopped(ref)
        ref.tell("after the end")
        assert system.statistics().dead_letters == 10


async def test_an_ask_that_is_not_answered_times_out_and_the_late_reply_is_dropped(kind: Factory) -> None:
    late: list[Reply[str]] = []
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: late.append(ctx.defer())))
        with pytest.raises(AskTimeoutError) as caught:
            await ref.ask(GetTotal(), timeout_s=0.01)
        late[0].send("too late")
    assert caught.value.message_type == "GetTotal"


async def test_fc_071_asking_oneself_or_in_a_circle_is_refused_with_the_chain() -> None:
    class Asks(Actor[Any]):
        async def on_message(self, ctx: Context[Any], message: Any) -> object:
            return await message.pop(0).ask(message, timeout_s=60) if message else "end"

    async with ActorSystem() as system:
        first = await system.spawn(Asks(), name="first")
        with pytest.raises(AskCircleError):
            await first.ask([first, first])
        first = await system.spawn(Asks(), name="first-again")
        second = await system.spawn(Asks(), name="second")
        with pytest.raises(AskCircleError) as caught:
            await first.ask([second, first])
    assert [actor.path for actor in caught.value.chain] == ["/second", "/first-again", "/second"]


async def test_fc_074_a_full_mailbox_refuses_by_default_and_drops_when_told_to() -> None:
    got: list[int] = []
    gate = anyio.Event()

    class Gated(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            await gate.wait()
            got.append(message)

    async with ActorSystem() as system:
        refusing = await system.spawn(Gated(), mailbox=MailboxPolicy(capacity=3))
        for number in range(3):
            refusing.tell(number)
        with pytest.raises(MailboxFullError):
            refusing.tell(3)
        oldest = await system.spawn(
            Gated(), mailbox=MailboxPolicy(capacity=2, overflow=Overflow.DROP_OLDEST), name="oldest"
        )
        for number in range(10, 15):
            oldest.tell(number)
        gate.set()
        await until(lambda: len(got) == 5)
        statistics = {actor.path: actor for actor in system.statistics().actors}
    assert sorted(got) == [0, 1, 2, 13, 14]
    assert statistics["/oldest"].dropped == 3


async def test_a_full_mailbox_that_drops_the_newest_keeps_what_waits_and_refuses_asks() -> None:
    got: list[int] = []
    gate = anyio.Event()

    class Gated(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            await gate.wait()
            got.append(message)

    async with ActorSystem() as system:
        policy = MailboxPolicy(capacity=2, overflow=Overflow.DROP_NEWEST)
        ref = await system.spawn(Gated(), mailbox=policy, name="newest")
        for number in range(5):
            ref.tell(number)
        with pytest.raises(MailboxFullError):
            await ref.ask(5, timeout_s=1.0)
        gate.set()
        await until(lambda: len(got) == 2)
        statistics = {actor.path: actor for actor in system.statistics().actors}
    assert got == [0, 1]
    assert statistics["/newest"].dropped == 3


async def test_send_waits_for_room_and_loses_nothing(kind: Factory) -> None:
    got: list[int] = []
    async with ActorSystem() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: got.append(message)), mailbox=MailboxPolicy(capacity=2)
        )
        for number in range(50):
            await ref.send(number)
        await until(lambda: len(got) == 50)
    assert got == list(range(50))


async def test_fc_075_stop_now_overtakes_a_long_queue(kind: Factory) -> None:
    handled: list[int] = []
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: handled.append(message)))
        for number in range(5_000):
            ref.tell(number)
        reason = await system.stop_actor(ref)
    assert reason.kind is ExitKind.STOPPED
    assert len(handled) < 5_000


async def test_stop_after_draining_handles_all_that_waits(kind: Factory) -> None:
    handled: list[int] = []
    async with ActorSystem() as system:
        ref = await system.spawn(kind(lambda ctx, message: handled.append(message)))
        for number in range(300):
            ref.tell(number)
        await system.stop_actor(ref, drain=True)
    assert len(handled) == 300


async def test_a_monitor_is_told_exactly_once_with_reason_and_value(kind: Factory) -> None:
    downs: list[Down] = []
    async with ActorSystem() as system:
        target = await system.spawn(kind(lambda ctx, message: ctx.stop("result")))

        def watch(ctx: Context[Any], message: Any) -> None:
            if isinstance(message, Down):
                downs.append(message)
            else:
                ctx.monitor(target)

        watcher = await system.spawn(kind(watch))
        watcher.tell("watch")
        watcher.tell("watch twice")
        await watcher.ask("both done")
        target.tell("stop")
        await until(lambda: bool(downs))
        watcher.tell("watch a dead one")
        await until(lambda: len(downs) == 2)
    assert [(down.ref, down.reason.kind, down.reason.value) for down in downs] == [
        (target, ExitKind.COMPLETED, "result")
    ] * 2


async def test_who_has_stopped_monitoring_is_told_nothing(kind: Factory) -> None:
    heard: list[Any] = []
    async with ActorSystem() as system:
        target = await system.spawn(kind(lambda ctx, message: ctx.stop()))

        def handle(ctx: Context[Any], message: Any) -> None:
            heard.append(message)
            match message:
                case "monitor":
                    ctx.monitor(target)
                case "demonitor":
                    ctx.demonitor(target)

        former, other = await system.spawn(kind(handle)), await system.spawn(kind(handle))
        await former.ask("monitor")
        await other.ask("monitor")
        await former.ask("demonitor")
        target.tell("stop")
        await until(lambda: any(isinstance(message, Down) for message in heard))
        await former.ask("and now")
    assert sum(isinstance(message, Down) for message in heard) == 1


async def test_a_parent_stops_a_child_and_only_its_own(kind: Factory) -> None:
    errors: list[str] = []
    downs: list[Down] = []
    async with ActorSystem() as system:
        stranger = await system.spawn(kind(lambda ctx, message: message))

        def handle(ctx: Context[Any], message: Any) -> None:
            if isinstance(message, Down):
                downs.append(message)
                return
            try:
                ctx.stop_child(stranger)
            except ValueError as error:
                errors.append(str(error))
            child = ctx.spawn(kind(lambda ctx, message: message))
            ctx.monitor(child)
            ctx.stop_child(child)

        await (await system.spawn(kind(handle))).ask("go")
        await until(lambda: bool(downs))
        assert await stranger.ask("alive") == "alive"
    assert [down.reason.kind for down in downs] == [ExitKind.STOPPED]
    assert len(errors) == 1
    assert "not a living child" in errors[0]


async def test_a_failing_child_fails_its_parent_unless_the_parent_monitors_it(kind: Factory) -> None:
    def parent(ctx: Context[Any], message: Any) -> None:
        if isinstance(message, Down):
            return
        child = ctx.spawn(kind(lambda ctx, message: 1 / 0), name="child")
        if message == "monitor":
            ctx.monitor(child)
        child.tell("fail")

    async with ActorSystem() as system:
        careless = await system.spawn(kind(parent), name="careless")
        careless.tell("spawn")
        reason = await system.wait_stopped(careless)
        careful = await system.spawn(kind(parent), name="careful")
        careful.tell("monitor")
        await careful.ask("alive?")
        assert (await system.stop_actor(careful)).kind is not ExitKind.KILLED
    assert isinstance(reason.error, ChildFailedError)
    assert isinstance(reason.error.__cause__, ZeroDivisionError)


async def test_children_end_before_their_parent_newest_first(kind: Factory) -> None:
    ended: list[str] = []

    class Says(Actor[str]):
        def __init__(self, children: tuple[str, ...] = ()) -> None:
            self._children = children

        def on_start(self, ctx: Context[str]) -> None:
            for child in self._children:
                ctx.spawn(Says(), name=child)

        def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
            ended.append(ctx.actor_id.path)

    async with ActorSystem() as system:
        await system.spawn(Says(("a", "b", "c")), name="p")
    assert ended == ["/p/c", "/p/b", "/p/a", "/p"]


async def test_fc_077_nothing_is_spawned_once_shutdown_began(kind: Factory) -> None:
    refused: list[BaseException] = []

    class SpawnsLate(Actor[str]):
        def on_stop(self, ctx: Context[str], reason: ExitReason) -> None:
            try:
                ctx.spawn(kind(ignore))
            except SystemStoppingError as error:
                refused.append(error)

    async with ActorSystem() as system:
        await system.spawn(SpawnsLate())
    assert len(refused) == 1
    with pytest.raises(SystemStoppingError):
        await system.spawn(kind(ignore))


async def test_a_handler_that_does_not_end_within_the_grace_is_cancelled() -> None:
    class Sleeps(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            await anyio.sleep(3600)

    async with ActorSystem() as system:
        ref = await system.spawn(Sleeps())
        ref.tell("sleep")
        await until(lambda: any(actor.handling == "str" for actor in system.statistics().actors))
        reason = await system.stop_actor(ref, grace_s=0.01)
    assert reason.kind is ExitKind.KILLED


async def test_a_timer_fires_once_a_periodic_one_until_cancelled(kind: Factory) -> None:
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

    async with ActorSystem() as system:
        ref = await system.spawn(kind(handle))
        ref.tell("begin")
        await until(lambda: "end" in got)
    assert sorted(got) == ["end", "once", "tick", "tick", "tick"]


async def test_a_cancelled_timer_that_waits_in_the_mailbox_does_not_fire(kind: Factory) -> None:
    got: list[str] = []

    def begin_late(ctx: Context[Any], message: Any) -> None:
        ctx.send_after(0.0, "cancelled later")
        ctx.cancel("cancelled later")
        ctx.send_after(0.005, "end")

    async with ActorSystem() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: begin_late(ctx, message) if message == "begin" else got.append(message))
        )
        ref.tell("begin")
        await until(lambda: "end" in got)
    assert got == ["end"]


async def test_a_name_belongs_to_one_living_actor(kind: Factory) -> None:
    async with ActorSystem() as system:
        first = await system.spawn(kind(ignore), name="stage")
        with pytest.raises(NameTakenError):
            await system.spawn(kind(ignore), name="stage")
        assert system.whereis("stage") == first
        await system.stop_actor(first)
        second = await system.spawn(kind(ignore), name="stage")
        assert system.whereis("stage") == second != first


async def test_an_observer_that_raises_is_detached_and_hurts_nobody(kind: Factory) -> None:
    class Broken:
        def observe(self, event: Event) -> None:
            raise RuntimeError("observer")

    seen = Seen()
    async with ActorSystem() as system:
        system.attach(Broken())
        system.attach(seen)
        ref = await system.spawn(kind(lambda ctx, message: ctx.emit(ActorFailed(**FAILED))))
        await ref.ask("emit")
        await ref.ask("emit")
    assert len([event for event in seen.events if isinstance(event, ActorFailed)]) == 2


FAILED = {"actor": "/x", "actor_type": "X", "error_type": "E", "error": "e"}


async def test_fc_079_ended_actors_leave_nothing_behind(kind: Factory) -> None:
    async with ActorSystem() as system:
        for number in range(200):
            ref = await system.spawn(kind(ignore), name=f"short-{number}")
            await system.stop_actor(ref)
        assert system.statistics().actors == ()
        assert len(system.names) == 0


async def test_a_flood_to_one_actor_does_not_starve_another(kind: Factory) -> None:
    flooded: list[int] = []
    async with ActorSystem() as system:
        busy = await system.spawn(kind(lambda ctx, message: flooded.append(message)))
        other = await system.spawn(kind(lambda ctx, message: len(flooded)))
        for number in range(9_000):
            busy.tell(number)
        assert await other.ask("how far?") < 9_000  # type: ignore[operator]  # an untyped ask gives object
