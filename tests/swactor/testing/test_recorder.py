"""A recorder keeps what happened, and waits for what is still to happen."""

from typing import Any

import pytest

from swactor import Actor, ActorFailed, ActorSystem, Context, Event
from swactor.testing import ManualClock, MissingEventError, Recorder

from .conftest import system_on


class Sold(Event, frozen=True, kw_only=True):
    """Something was sold."""

    item: str


class Opened(Event, frozen=True, kw_only=True):
    """The shop was opened."""


class Shop(Actor[Any]):
    """Sells what it is told to; an item with a delay is sold later."""

    def on_start(self, ctx: Context[Any]) -> None:
        ctx.emit(Opened())

    def on_message(self, ctx: Context[Any], message: Any) -> None:
        match message:
            case (str() as item, float() as delay_s):
                ctx.send_after(delay_s, item)
            case "bankrupt":
                raise RuntimeError("no money")
            case str():
                ctx.emit(Sold(item=message))


async def test_events_are_kept_in_order_and_by_type(system: ActorSystem) -> None:
    recorder = Recorder(system)
    shop = await system.spawn(Shop())
    for item in ("hat", "coat"):
        shop.tell(item)
    await recorder.expect(Sold, lambda sold: sold.item == "coat")
    assert recorder.of(Opened) == (Opened(),)
    assert recorder.of(Sold) == (Sold(item="hat"), Sold(item="coat"))
    in_shop = [event for event in recorder.events if isinstance(event, Opened | Sold)]
    assert in_shop == [Opened(), Sold(item="hat"), Sold(item="coat")]


async def test_what_happens_later_is_waited_for(system: ActorSystem) -> None:
    recorder = Recorder(system)
    (await system.spawn(Shop())).tell(("hat", 0.02))
    assert await recorder.expect(Sold) == Sold(item="hat")


async def test_expecting_twice_waits_for_it_to_happen_twice(system: ActorSystem) -> None:
    recorder = Recorder(system)
    shop = await system.spawn(Shop())
    shop.tell("hat")
    shop.tell(("hat", 0.02))
    assert await recorder.expect(Sold) == await recorder.expect(Sold)
    assert len(recorder.of(Sold)) == 2


async def test_events_may_be_expected_in_any_order(system: ActorSystem) -> None:
    recorder = Recorder(system)
    shop = await system.spawn(Shop())
    shop.tell("hat")
    shop.tell("bankrupt")
    assert (await recorder.expect(ActorFailed)).error == "no money"
    assert await recorder.expect(Sold) == Sold(item="hat")


async def test_an_event_that_does_not_happen_is_missed(system: ActorSystem) -> None:
    recorder = Recorder(system)
    (await system.spawn(Shop())).tell("hat")
    await recorder.expect(Sold)
    told = (
        r"expected Sold for which the condition \(test_recorder.py:\d+\) holds within 0.02 s; heard so far:"
    )
    with pytest.raises(MissingEventError, match=told) as caught:
        await recorder.expect(Sold, lambda sold: sold.item == "coat", timeout_s=0.02)
    assert "Sold(item='hat')" in str(caught.value)
    assert caught.value.heard == recorder.events


async def test_manual_time_passes_until_the_event_and_no_further() -> None:
    clock = ManualClock()
    async with system_on(clock) as system:
        recorder = Recorder(system)
        (await system.spawn(Shop())).tell(("hat", 3600.0))
        with pytest.raises(MissingEventError):
            await recorder.expect(Sold, timeout_s=0)
        await recorder.expect(Sold, timeout_s=7200.0)
    assert clock.monotonic_ns() == 3_600_000_000_000


async def test_of_many_events_the_latest_are_kept(system: ActorSystem) -> None:
    recorder = Recorder(system, events_max=2)
    shop = await system.spawn(Shop())
    for item in ("hat", "coat", "scarf"):
        shop.tell(item)
    await recorder.expect(Sold, lambda sold: sold.item == "scarf")
    assert recorder.of(Sold) == (Sold(item="coat"), Sold(item="scarf"))


async def test_systems_may_share_a_recorder(system: ActorSystem) -> None:
    recorder = Recorder(system)
    async with ActorSystem() as other:
        other.attach(recorder)
        await other.spawn(Shop())
    await recorder.expect(Opened)
