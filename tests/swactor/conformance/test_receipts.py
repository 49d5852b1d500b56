"""Messages with a receipt: their sender learns once that they have left the mailbox."""

from typing import Any

import anyio
import pytest

from swactor import DeadLetters, MailboxFullError, MailboxPolicy, Overflow, WithReceipt
from swactor.testing import Recorder

from .conftest import Kind, World, ignore, spawn_gated


class Receipts:
    """Which receipts came, in their order."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def of(self, message: Any) -> WithReceipt:
        return WithReceipt(message, lambda: self.came.append(f"left: {message}"))


async def test_the_handler_gets_the_message_and_just_before_the_sender_its_receipt(
    world: World, kind: Kind
) -> None:
    receipts = Receipts()
    async with world.system() as system:
        ref = await system.spawn(kind(lambda ctx, message: receipts.came.append(message)))
        ref.tell(receipts.of("told"))
        ref.tell("between")
        await ref.send(receipts.of("sent"))
        await world.until(lambda: len(receipts.came) == 5)
    assert receipts.came == ["left: told", "told", "between", "left: sent", "sent"]


async def test_a_refused_message_has_no_receipt_and_one_that_the_newest_gives_way_to_has(
    world: World, kind: Kind
) -> None:
    receipts = Receipts()
    gate = anyio.Event()
    async with world.system() as system:
        refusing, dropping = [
            await spawn_gated(system, kind, ignore, gate, mailbox=MailboxPolicy(1, overflow))
            for overflow in (Overflow.REFUSE, Overflow.DROP_NEWEST)
        ]
        for ref in (refusing, dropping):
            ref.tell("first")
        with pytest.raises(MailboxFullError):
            refusing.tell(receipts.of("refused"))
        dropping.tell(receipts.of("dropped"))
        gate.set()
    assert receipts.came == ["left: dropped"]


async def test_a_mailbox_that_drops_the_oldest_spares_what_has_a_receipt(world: World, kind: Kind) -> None:
    receipts, got = Receipts(), list[str]()
    gate = anyio.Event()
    async with world.system() as system:
        ref = await spawn_gated(
            system,
            kind,
            lambda ctx, message: got.append(message),
            gate,
            mailbox=MailboxPolicy(2, Overflow.DROP_OLDEST),
        )
        ref.tell(receipts.of("kept"))
        ref.tell("dropped")
        ref.tell("new")
        assert receipts.came == []
        gate.set()
        await world.until(lambda: len(got) == 2)
    assert got == ["kept", "new"]
    assert receipts.came == ["left: kept"]


async def test_a_dead_letter_has_its_receipt_and_is_counted_by_its_own_type(world: World, kind: Kind) -> None:
    receipts = Receipts()
    gate = anyio.Event()
    async with world.system() as system:
        seen = Recorder(system)
        ref = await spawn_gated(system, kind, ignore, gate)
        ref.tell(receipts.of("left over"))
        await system.stop_actor(ref, grace_s=0.0)
        ref.tell(receipts.of("too late"))
    assert receipts.came == ["left: left over", "left: too late"]
    assert [event.message_type for event in seen.of(DeadLetters)] == ["str", "str"]
