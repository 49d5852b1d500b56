"""Groups: who is in, in which order, and what publishing to them means."""

from typing import Any

import pytest

from swactor import ActorRef, ActorSystem, ChildSpec, Context, MailboxPolicy, RestartKind

from .conftest import Kind, World, do, ignore
from .supervised import NEVER, child_of, down, supervise


class Member:
    """A handler that keeps what is published, and does what it is told to do."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def __call__(self, ctx: Context[Any], message: Any) -> Any:
        if callable(message):
            return message(ctx)
        self.got.append(message)
        return message


async def joined(
    world: World, system: ActorSystem, kind: Kind, count: int, *, group: str = "g", **options: Any
) -> tuple[list[Member], list[ActorRef[Any]]]:
    """Return ``count`` members of a group, joined in this order, and their addresses."""
    members = [Member() for _ in range(count)]
    refs = [await system.spawn(kind(member), **options) for member in members]
    for ref in refs:
        await world.result(ref.ask(lambda ctx: ctx.join(group)))
    return members, refs


async def test_members_are_listed_in_the_order_of_joining(world: World, kind: Kind) -> None:
    async with world.system() as system:
        refs = [await system.spawn(kind(do)) for _ in range(4)]
        for number in (2, 0, 3, 1):
            await world.result(refs[number].ask(lambda ctx: ctx.join("g")))
        assert system.members("g") == (refs[2], refs[0], refs[3], refs[1])


async def test_an_actor_may_join_while_it_starts(world: World, kind: Kind) -> None:
    async with world.system() as system:
        ref = await system.spawn(kind(ignore, start=lambda ctx: ctx.join("g")))
        assert system.members("g") == (ref,)


async def test_what_is_published_reaches_each_member_once(world: World, kind: Kind) -> None:
    async with world.system() as system:
        members, _ = await joined(world, system, kind, 5)
        outsider = Member()
        await system.spawn(kind(outsider))
        assert system.publish("g", "news") == 5
        await world.until(lambda: all(member.got for member in members))
        await world.settle()
    assert [member.got for member in members] == [["news"]] * 5
    assert outsider.got == []


async def test_a_group_without_members_has_none_and_takes_nothing(world: World, kind: Kind) -> None:
    async with world.system() as system:
        await joined(world, system, kind, 1, group="other")
        assert system.members("nobody") == ()
        assert system.publish("nobody", "news") == 0
        assert system.statistics().dead_letters == 0


async def test_joining_twice_is_once_and_keeps_the_place(world: World, kind: Kind) -> None:
    async with world.system() as system:
        members, refs = await joined(world, system, kind, 2)
        await world.result(refs[0].ask(lambda ctx: ctx.join("g")))
        assert system.members("g") == tuple(refs)
        assert system.publish("g", "news") == 2
        await world.until(lambda: all(member.got for member in members))
        await world.settle()
    assert members[0].got == ["news"]


async def test_who_has_left_hears_nothing_more(world: World, kind: Kind) -> None:
    async with world.system() as system:
        members, refs = await joined(world, system, kind, 3)
        await world.result(refs[1].ask(lambda ctx: ctx.leave("g")))
        await world.result(refs[1].ask(lambda ctx: ctx.leave("g")))  # once is enough
        assert system.members("g") == (refs[0], refs[2])
        assert system.publish("g", "news") == 2
        await world.until(lambda: bool(members[0].got and members[2].got))
        await world.settle()
    assert members[1].got == []


async def test_who_joins_again_is_the_latest(world: World, kind: Kind) -> None:
    async with world.system() as system:
        _, refs = await joined(world, system, kind, 2)
        await world.result(refs[0].ask(lambda ctx: ctx.leave("g")))
        await world.result(refs[0].ask(lambda ctx: ctx.join("g")))
        assert system.members("g") == (refs[1], refs[0])


async def test_groups_are_independent(world: World, kind: Kind) -> None:
    async with world.system() as system:
        members, refs = await joined(world, system, kind, 1, group="one")
        await world.result(refs[0].ask(lambda ctx: ctx.join("two")))
        await world.result(refs[0].ask(lambda ctx: ctx.leave("one")))
        assert system.members("one") == ()
        assert system.members("two") == (refs[0],)
        assert system.publish("one", "unheard") == 0
        assert system.publish("two", "heard") == 1
        await world.until(lambda: members[0].got == ["heard"])


async def test_ended_members_are_forgotten(world: World, kind: Kind) -> None:
    async with world.system() as system:
        _, refs = await joined(world, system, kind, 3)
        await world.result(system.stop_actor(refs[0]))
        refs[2].tell(lambda ctx: 1 / 0)
        await world.result(system.wait_stopped(refs[2]))
        assert system.members("g") == (refs[1],)
        assert system.publish("g", "news") == 1
        assert system.statistics().dead_letters == 0


async def test_a_member_with_a_full_mailbox_keeps_nobody_else_from_hearing(world: World, kind: Kind) -> None:
    async with world.system() as system:
        members, refs = await joined(world, system, kind, 3, mailbox=MailboxPolicy(capacity=1))
        refs[1].tell("fills it")
        assert system.publish("g", "news") == 2
        assert system.statistics().dead_letters == 1
        await world.until(lambda: bool(members[0].got and members[2].got))
        await world.settle()
    assert [member.got for member in members] == [["news"], ["fills it"], ["news"]]


async def test_what_is_published_does_not_overtake_what_was_told_before(world: World, kind: Kind) -> None:
    async with world.system() as system:
        (member,), (ref,) = await joined(world, system, kind, 1)
        for number in range(0, 60, 2):
            ref.tell(number)
            assert system.publish("g", number + 1) == 1
        await world.until(lambda: len(member.got) == 60)
    assert member.got == list(range(60))


async def test_a_member_may_publish_to_its_own_group(world: World, kind: Kind) -> None:
    async with world.system() as system:
        members, refs = await joined(world, system, kind, 3)
        taken = await world.result(refs[0].ask(lambda ctx: ctx.system.publish("g", "from within")))
        assert taken == 3
        await world.until(lambda: all(member.got for member in members))
    assert [member.got for member in members] == [["from within"]] * 3


async def test_a_membership_survives_a_restart(world: World, kind: Kind) -> None:
    member = Member()
    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("a", lambda: kind(member)))
        a = await child_of(supervisor, "a")
        await world.result(a.ask(lambda ctx: ctx.join("g")))
        a.tell(lambda ctx: 1 / 0)
        await world.result(a.ask("next life"))
        assert system.members("g") == (a,)
        assert system.publish("g", "news") == 1
        await world.until(lambda: member.got == ["next life", "news"])


async def test_a_member_that_waits_for_its_restart_takes_what_is_published(world: World, kind: Kind) -> None:
    async with world.system() as system:
        supervisor = await supervise(system, ChildSpec("a", lambda: kind(do)), backoff=NEVER)
        a = await child_of(supervisor, "a")
        await world.result(a.ask(lambda ctx: ctx.join("g")))
        a.tell(lambda ctx: 1 / 0)
        await down(system, a)
        assert system.publish("g", "news") == 1
        assert system.statistics().dead_letters == 0


async def test_a_member_that_is_not_restarted_is_forgotten(world: World, kind: Kind) -> None:
    async with world.system() as system:
        spec = ChildSpec("a", lambda: kind(do), restart=RestartKind.TEMPORARY)
        a = await child_of(await supervise(system, spec), "a")
        await world.result(a.ask(lambda ctx: ctx.join("g")))
        a.tell(lambda ctx: 1 / 0)
        await world.result(system.wait_stopped(a))
        assert system.members("g") == ()


async def test_the_list_of_members_that_was_taken_does_not_change_any_more(world: World, kind: Kind) -> None:
    async with world.system() as system:
        _, refs = await joined(world, system, kind, 2)
        taken = system.members("g")
        await world.result(refs[0].ask(lambda ctx: ctx.leave("g")))
        assert taken == tuple(refs)


async def test_groups_of_two_systems_have_nothing_to_do_with_each_other(world: World, kind: Kind) -> None:
    async with world.system() as first, world.system() as second:
        _, refs = await joined(world, first, kind, 1)
        assert second.members("g") == ()
        assert second.publish("g", "news") == 0
        assert first.members("g") == tuple(refs)


@pytest.mark.parametrize("how", ["shutdown", "stop"])
async def test_nobody_is_a_member_after_the_end(world: World, kind: Kind, how: str) -> None:
    async with world.system() as system:
        _, refs = await joined(world, system, kind, 2)
        if how == "shutdown":
            await world.result(system.shutdown())
        else:
            for ref in refs:
                await world.result(system.stop_actor(ref))
        assert system.members("g") == ()
