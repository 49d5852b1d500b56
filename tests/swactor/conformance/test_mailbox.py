"""What waits: bounds, the policies of a full mailbox, senders that wait for room, the lane that overtakes."""

import asyncio
from typing import Any

import anyio
import pytest

from swactor import (
    Actor,
    ActorRef,
    Context,
    Down,
    ExitKind,
    MailboxFullError,
    MailboxPolicy,
    Overflow,
)

from .conftest import (
    SYNC,
    Kind,
    World,
    depth_of,
    echo,
    ignore,
    is_handling,
    spawn_gated,
    spawn_starting,
    statistics_of,
)

DROP_OLDEST = Overflow.DROP_OLDEST
DROP_NEWEST = Overflow.DROP_NEWEST


# -- refuse --------------------------------------------------------------------------------------------------


async def test_fc_074_a_full_mailbox_refuses_and_says_whose_and_how_full(world: World, kind: Kind) -> None:
    got: list[int] = []
    async with world.system() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: got.append(message)), mailbox=MailboxPolicy(capacity=3)
        )
        for number in range(3):
            ref.tell(number)
        with pytest.raises(MailboxFullError) as caught:
            ref.tell(3)
        await world.until(lambda: len(got) == 3)
        await world.settle()
    assert (caught.value.actor, caught.value.capacity) == (ref.actor_id, 3)
    assert got == [0, 1, 2]  # what was refused was not enqueued


async def test_fc_074_a_mailbox_is_bounded_when_nobody_says_how(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore))
        with pytest.raises(MailboxFullError):
            flood(ref, 1_000_000)


async def test_fc_074_an_actor_cannot_flood_another_within_its_handler(world: World, kind: Kind) -> None:
    accepted: list[int] = []
    got: list[int] = []
    async with world.system() as system:
        target = await system.spawn(
            kind(lambda ctx, message: got.append(message)), mailbox=MailboxPolicy(capacity=5)
        )

        def flood(ctx: Context[Any], message: Any) -> str:
            for number in range(1_000):
                try:
                    target.tell(number)
                except MailboxFullError:
                    continue
                accepted.append(number)
            return "done"

        source = await system.spawn(kind(flood))
        target.tell(-1)  # it is on its way to look into its mailbox already
        await world.result(source.ask("go"))
        assert len(accepted) <= 5
        await world.until(lambda: len(got) == len(accepted) + 1)
    assert got == [-1, *accepted]


async def test_fc_074_the_bound_holds_while_a_handler_is_busy(world: World) -> None:
    opened = anyio.Event()

    class Waits(Actor[int]):
        async def on_message(self, ctx: Context[int], message: int) -> None:
            await opened.wait()

    async with world.system() as system:
        ref = await system.spawn(Waits(), mailbox=MailboxPolicy(capacity=2))
        ref.tell(0)
        await world.until(lambda: is_handling(system, ref))
        ref.tell(1)
        ref.tell(2)
        with pytest.raises(MailboxFullError):
            ref.tell(3)
        opened.set()


async def test_a_mailbox_that_was_full_takes_messages_again_once_there_is_room(
    world: World, kind: Kind
) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(echo), mailbox=MailboxPolicy(capacity=1))
        for number in range(5):
            ref.tell("fills it")
            with pytest.raises(MailboxFullError):
                ref.tell("too much")
            await world.until(lambda: depth_of(system, ref) == 0)
            assert await world.result(ref.ask(number)) == number


async def test_an_actor_that_floods_itself_fails_with_the_refusal(world: World, kind: Kind) -> None:
    def flood(ctx: Context[Any], message: Any) -> None:
        while True:
            ctx.ref.tell("more")

    async with world.system() as system:
        ref = await system.spawn(kind(flood), mailbox=MailboxPolicy(capacity=10))
        ref.tell("go")
        reason = await world.result(system.wait_stopped(ref))
    assert isinstance(reason.error, MailboxFullError)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_mailbox_that_could_hold_nothing_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="at least one message"):
        MailboxPolicy(capacity=capacity)


def flood(ref: ActorRef[Any], count: int) -> None:
    for number in range(count):
        ref.tell(number)


# -- drop ----------------------------------------------------------------------------------------------------


async def test_fc_074_a_mailbox_that_drops_the_oldest_keeps_the_newest_and_counts(
    world: World, kind: Kind
) -> None:
    got: list[int] = []
    policy = MailboxPolicy(capacity=2, overflow=DROP_OLDEST)
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)), mailbox=policy)
        for number in range(10, 15):
            ref.tell(number)
        await world.until(lambda: len(got) == 2)
        actor = statistics_of(system, ref)
    assert got == [13, 14]
    assert actor is not None
    assert actor.dropped == 3


async def test_fc_074_a_mailbox_that_drops_the_newest_keeps_what_waits_and_counts(
    world: World, kind: Kind
) -> None:
    got: list[int] = []
    policy = MailboxPolicy(capacity=2, overflow=DROP_NEWEST)
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)), mailbox=policy)
        for number in range(5):
            ref.tell(number)
        await world.until(lambda: len(got) == 2)
        await world.settle()
        actor = statistics_of(system, ref)
    assert got == [0, 1]
    assert actor is not None
    assert actor.dropped == 3


async def test_a_mailbox_that_drops_the_newest_refuses_an_ask_instead(world: World, kind: Kind) -> None:
    policy = MailboxPolicy(capacity=2, overflow=DROP_NEWEST)
    async with world.system() as system:
        ref = await system.spawn(kind(echo), mailbox=policy)
        ref.tell(0)
        ref.tell(1)
        with pytest.raises(MailboxFullError):
            await world.result(ref.ask("an asker must know", timeout_s=3600))


async def test_a_mailbox_that_drops_the_oldest_keeps_asks_and_timers(world: World, kind: Kind) -> None:
    got: list[Any] = []
    answers: list[object] = []
    opened = anyio.Event()

    def handle(ctx: Context[Any], message: Any) -> Any:
        got.append(message)
        return message

    async with world.system() as system:
        ref = await spawn_gated(
            system,
            kind,
            handle,
            opened,
            start=lambda ctx: ctx.send_after(0.001, "timer"),
            mailbox=MailboxPolicy(capacity=2, overflow=DROP_OLDEST),
        )

        async def ask() -> None:
            answers.append(await ref.ask("question"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await world.until(lambda: depth_of(system, ref) == 2)
            for number in range(50):
                ref.tell(number)
            opened.set()
        await world.until(lambda: "timer" in got)
    assert answers == ["question"]
    assert got[:2] == ["question", "timer"]


async def test_fc_074_a_mailbox_that_drops_the_oldest_is_bounded_even_when_only_asks_wait(
    world: World, kind: Kind
) -> None:
    refused: list[int] = []
    opened = anyio.Event()
    async with world.system() as system:
        policy = MailboxPolicy(capacity=3, overflow=DROP_OLDEST)
        ref = await spawn_gated(system, kind, echo, opened, mailbox=policy)

        async def ask(number: int) -> None:
            try:
                assert await ref.ask(number) == number
            except MailboxFullError:
                refused.append(number)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(ask, number)
            await world.settle()
            depth = depth_of(system, ref)
            opened.set()
    assert depth == 3
    assert len(refused) == 17


async def test_what_was_dropped_is_no_dead_letter(world: World, kind: Kind) -> None:
    got: list[int] = []
    policy = MailboxPolicy(capacity=1, overflow=DROP_OLDEST)
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: got.append(message)), mailbox=policy)
        for number in range(5):
            ref.tell(number)
        await world.until(lambda: got == [4])
        assert system.statistics().dead_letters == 0


# -- senders that wait for room ------------------------------------------------------------------------------


async def test_send_waits_for_room_and_loses_nothing(world: World, kind: Kind) -> None:
    got: list[int] = []
    async with world.system() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: got.append(message)), mailbox=MailboxPolicy(capacity=2)
        )
        for number in range(50):
            await world.result(ref.send(number))
        await world.until(lambda: len(got) == 50)
    assert got == list(range(50))


async def test_send_does_not_wait_for_its_message_to_be_handled(world: World, kind: Kind) -> None:
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(system, kind, ignore, opened)
        await world.result(ref.send("waits in the mailbox"))
        assert depth_of(system, ref) == 1
        opened.set()


async def test_senders_that_wait_are_let_in_first_come_first_served(world: World, kind: Kind) -> None:
    got: list[int] = []
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(
            system,
            kind,
            lambda ctx, message: got.append(message),
            opened,
            mailbox=MailboxPolicy(capacity=1),
        )
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(ref.send, number)
                await world.settle()
            opened.set()
        await world.until(lambda: len(got) == 6)
    assert got == list(range(6))


async def test_a_send_that_was_cancelled_sends_nothing_and_keeps_nobody_out(world: World, kind: Kind) -> None:
    got: list[str] = []
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(
            system,
            kind,
            lambda ctx, message: got.append(message),
            opened,
            mailbox=MailboxPolicy(capacity=1),
        )
        ref.tell("first")
        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(ref.send, "cancelled")
                await world.settle()
                group.start_soon(ref.send, "patient")
                await world.settle()
                given_up.cancel_scope.cancel()
            opened.set()
            await world.until(lambda: len(got) == 2)
    assert got == ["first", "patient"]


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop", "manual", "virtual"])
async def test_a_sender_that_is_cancelled_when_its_turn_has_come_leaves_its_place_to_the_next(
    world: World, kind: Kind
) -> None:
    """Only asyncio can cancel a task whose future is done already; trio lets it go on, and it has sent."""
    got: list[str] = []
    opened = anyio.Event()

    def handle_at_once(ctx: Context[Any], message: str) -> None:
        got.append(message)
        if message == "first":  # its place is given away right after this, and taken after the cancellation
            ctx.loop.call_soon(cancel)

    class Waits(Actor[str]):
        async def on_start(self, ctx: Context[str]) -> None:
            await opened.wait()

        async def on_message(self, ctx: Context[str], message: str) -> None:
            got.append(message)
            if message == "first":  # its place was given away right before this
                cancel()

    def cancel() -> None:
        impatient.cancel()

    async with world.system() as system:
        actor = kind.gated(handle_at_once, opened) if kind is SYNC else Waits()
        ref = await spawn_starting(system, actor, mailbox=MailboxPolicy(capacity=1))
        ref.tell("first")
        impatient = asyncio.ensure_future(ref.send("cancelled"))
        await world.settle()
        patient = asyncio.ensure_future(ref.send("patient"))
        await world.settle()
        opened.set()
        await world.until(patient.done)
        await world.until(lambda: len(got) == 2)
        assert impatient.cancelled()
    assert got == ["first", "patient"]


async def test_a_sender_is_let_in_while_the_handler_is_still_busy_with_the_message_before(
    world: World,
) -> None:
    got: list[str] = []
    gates = [anyio.Event(), anyio.Event()]

    class Busy(Actor[str]):
        async def on_message(self, ctx: Context[str], message: str) -> None:
            got.append(message)
            if len(got) <= 2:
                await gates[len(got) - 1].wait()

    async with world.system() as system:
        ref = await system.spawn(Busy(), mailbox=MailboxPolicy(capacity=1))
        ref.tell("first")
        await world.until(lambda: is_handling(system, ref))
        ref.tell("second")
        sent: list[str] = []

        async def send() -> None:
            await ref.send("third")
            sent.append("third")

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await world.settle()
            assert sent == []
            gates[0].set()
            await world.until(lambda: got[-1] == "second")
            await world.settle()
            let_in = list(sent)
            gates[1].set()
        await world.until(lambda: got[-1] == "third")
    assert let_in == ["third"]


async def test_a_send_to_an_actor_that_ends_meanwhile_returns_and_is_a_dead_letter(
    world: World, kind: Kind
) -> None:
    opened = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(
            system, kind, lambda ctx, message: ctx.stop(), opened, mailbox=MailboxPolicy(capacity=1)
        )
        ref.tell("stops it")
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(ref.send, number)
            await world.settle()
            opened.set()
            await world.until(lambda: statistics_of(system, ref) is None)
        assert system.statistics().dead_letters == 3


# -- the lane that overtakes ---------------------------------------------------------------------------------


def watching(target: ActorRef[Any], got: list[Any]) -> Any:
    """Return a handler that monitors ``target`` on "watch" and keeps everything else."""

    def handle(ctx: Context[Any], message: Any) -> None:
        if message == "watch":
            ctx.monitor(target)
        else:
            got.append("down" if isinstance(message, Down) else message)

    return handle


async def test_a_down_overtakes_the_messages_that_wait(world: World, kind: Kind) -> None:
    got: list[Any] = []
    opened = anyio.Event()
    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        ref = await spawn_gated(
            system, kind, watching(target, got), opened, start=lambda ctx: ctx.monitor(target)
        )
        for number in range(10):
            ref.tell(number)
        await world.result(system.stop_actor(target))
        opened.set()
        await world.until(lambda: len(got) == 11)
    assert got == ["down", *range(10)]


async def test_downs_are_told_in_the_order_of_the_ends(world: World, kind: Kind) -> None:
    got: list[ActorRef[Any]] = []
    async with world.system() as system:
        targets = [await system.spawn(kind(ignore)) for _ in range(5)]

        def handle(ctx: Context[Any], message: Any) -> None:
            if isinstance(message, Down):
                got.append(message.ref)
                return
            for target in targets:
                ctx.monitor(target)

        watcher = await system.spawn(kind(handle))
        await world.result(watcher.ask("watch"))
        for number in (3, 0, 4, 1, 2):
            await world.result(system.stop_actor(targets[number]))
        await world.until(lambda: len(got) == 5)
    assert got == [targets[number] for number in (3, 0, 4, 1, 2)]


async def test_fc_074_a_full_mailbox_refuses_no_down_and_no_timer(world: World, kind: Kind) -> None:
    got: list[Any] = []
    opened = anyio.Event()

    def start(ctx: Context[Any]) -> None:
        ctx.monitor(target)
        ctx.send_after(0.001, "timer")

    async with world.system() as system:
        target = await system.spawn(kind(ignore))
        ref = await spawn_gated(
            system, kind, watching(target, got), opened, start=start, mailbox=MailboxPolicy(capacity=1)
        )
        ref.tell("fills it")
        await world.result(system.stop_actor(target))
        await world.until(lambda: depth_of(system, ref) == 2)
        opened.set()
        await world.until(lambda: len(got) == 3)
    assert got == ["down", "fills it", "timer"]


async def test_fc_075_a_stop_overtakes_a_long_queue(world: World, kind: Kind) -> None:
    handled: list[int] = []
    async with world.system() as system:
        ref = await system.spawn(
            kind(lambda ctx, message: handled.append(message)), mailbox=MailboxPolicy(capacity=100_000)
        )
        for number in range(50_000):
            ref.tell(number)
        reason = await world.result(system.stop_actor(ref))
    assert reason.kind is ExitKind.STOPPED
    assert len(handled) < 50_000
