"""The name registry of one node, and that all nodes come to the same table."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.streams import SimRandom
from swactor import NodeId
from swactor.cluster.names import (
    ENTRIES_PER_FRAME_MAX,
    Effect,
    Entry,
    Names,
    NamesMessage,
    SendNames,
    decode_names,
    encode_names,
)
from swactor.cluster.wire import WireError

ME, ONE, TWO = (NodeId(digit * 64) for digit in "012")


def a_registry(me: NodeId = ME, boot: int = 10) -> Names:
    return Names(me, boot=boot, random=SimRandom(1).stream("names", me))


def frames(effects: list[Effect]) -> list[SendNames]:
    return [effect for effect in effects if isinstance(effect, SendNames)]


def entries() -> st.SearchStrategy[Entry]:
    numbers = st.integers(min_value=0, max_value=3)
    return st.builds(
        Entry,
        name=st.sampled_from(["a", "b"]),
        owner=st.sampled_from([ONE, TWO]),
        boot=numbers,
        path=st.sampled_from(["/x", "/y"]),
        serial=numbers,
        generation=numbers,
        logical_time=numbers,
        is_tombstone=st.booleans(),
    )


@given(st.lists(entries(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_gossip_does_not_matter(heard: list[Entry], random: object) -> None:
    one, other = a_registry(), a_registry()
    shuffled = list(heard)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types its randoms loosely

    for entry in heard:
        one.receive(ONE, NamesMessage((entry,)))
    for entry in [*shuffled, *heard[:2]]:
        other.receive(ONE, NamesMessage((entry,)))

    assert one.entries == other.entries


@given(st.lists(entries(), max_size=6))
def test_tables_that_compare_end_up_equal(heard: list[Entry]) -> None:
    one, two = a_registry(ONE, boot=3), a_registry(TWO, boot=3)
    for at, entry in enumerate(heard):
        (one, two)[at % 2].receive(ME, NamesMessage((entry,)))

    for asker, asked in ((one, two), (two, one)):
        talk = [(asked, frame) for frame in frames(asker.comparison_for([asked.me]))]
        for _ in range(20):
            if not talk:
                break
            receiver, frame = talk.pop(0)
            sender = asker if receiver is asked else asked
            talk += [(sender, answer) for answer in frames(receiver.receive(sender.me, frame.message))]
        assert not talk

    assert one.entries == two.entries


def test_a_registered_name_is_news_for_a_few_and_then_not() -> None:
    names = a_registry()
    names.register("stage", path="/stage", serial=4)

    rounds = 0
    while names.has_news:
        assert frames(names.news_for([ONE, TWO], fanout=2, members=2))
        rounds += 1

    assert 1 <= rounds <= 10
    assert names.news_for([ONE, TWO], fanout=2, members=2) == []


def test_news_waits_until_there_is_somebody_to_tell() -> None:
    names = a_registry()
    names.register("stage", path="/stage", serial=4)

    for _ in range(50):
        names.news_for([], fanout=2, members=0)

    assert names.has_news


def test_many_names_travel_in_frames_of_bounded_size() -> None:
    names = a_registry()
    for number in range(300):
        names.register(f"name-{number}", path="/x" * 50, serial=number)

    sent = frames(names.whole_table_for(ONE))

    assert sum(len(frame.message.entries) for frame in sent) == 300
    assert max(len(frame.message.entries) for frame in sent) == ENTRIES_PER_FRAME_MAX
    assert max(len(encode_names(frame.message)) for frame in sent) < 32 * 1024


def test_the_entry_of_a_former_life_is_contradicted() -> None:
    former = Entry("stage", ME, 9, "/stage", 4, 1, 99)
    names = a_registry(boot=10)

    names.receive(ONE, NamesMessage((former,)))
    assert names.entries["stage"].is_tombstone

    names = a_registry(boot=10)
    names.register("stage", path="/new", serial=1)
    names.receive(ONE, NamesMessage((former,)))
    assert names.entries["stage"].path == "/new"
    assert names.entries["stage"].age > former.age


def test_a_withdrawn_name_is_a_tombstone_everywhere() -> None:
    names, other = a_registry(), a_registry(ONE)
    names.register("stage", path="/stage", serial=4)
    names.withdraw("stage", serial=5)
    assert not names.entries["stage"].is_tombstone

    names.withdraw("stage", serial=4)
    for frame in frames(names.whole_table_for(ONE)):
        other.receive(ME, frame.message)

    assert other.entries["stage"].is_tombstone


def test_withdrawing_a_name_that_another_node_took_leaves_it_there() -> None:
    names, other = a_registry(), a_registry(ONE)
    names.register("stage", path="/stage", serial=4)
    for frame in frames(names.whole_table_for(ONE)):
        other.receive(ME, frame.message)
    other.register("stage", path="/other", serial=7)
    for frame in frames(other.whole_table_for(ME)):
        names.receive(ONE, frame.message)

    assert names.withdraw("stage", serial=4) == []
    assert names.held_by(4) == []
    assert names.entries["stage"].owner == ONE


def test_ages_of_different_entries_differ() -> None:
    base = Entry("a", ONE, 1, "/x", 1, 1, 1)
    variants = [
        Entry("a", TWO, 1, "/x", 1, 1, 1),
        Entry("a", ONE, 2, "/x", 1, 1, 1),
        Entry("a", ONE, 1, "/y", 1, 1, 1),
        Entry("a", ONE, 1, "/x", 2, 1, 1),
        Entry("a", ONE, 1, "/x", 1, 2, 1),
        Entry("a", ONE, 1, "/x", 1, 1, 2),
        Entry("a", ONE, 1, "/x", 1, 1, 1, is_tombstone=True),
    ]

    for one, other in itertools.combinations([base, *variants], 2):
        assert one.age != other.age


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_has_a_sensible_length(name: str) -> None:
    with pytest.raises(ValueError, match="characters"):
        a_registry().register(name, path="/x", serial=1)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"\x91\x91\x01", encode_names(NamesMessage((Entry("", ONE, 1, "", 1, 1, 1),)))]
)
def test_what_is_no_names_message_is_an_error(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_names(body)
