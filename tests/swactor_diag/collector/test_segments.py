"""A segment gives back what was put in, wherever it was cut off or damaged."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from swactor_diag.collector.segments import Damage, Frame, encode_frame, read_frames
from swactor_diag.schema.submission import Outgoing, RecordKind

BODIES = st.lists(
    st.binary(max_size=60) | st.sampled_from([b"\n@rec ", b"x\n@rec 01234567 events"]), max_size=8
)


def segment(bodies: list[bytes]) -> tuple[bytes, list[int]]:
    """Return the bytes, and where each record ends."""
    data, ends = b"", []
    for number, body in enumerate(bodies, start=1):
        record = Outgoing(
            kind=RecordKind.EVENTS, run_id="r", node_id="n", batch_id=f"b-events-{number}", body=body
        )
        data += encode_frame(record, recv_ms=number)
        ends.append(len(data))
    return data, ends


def read(data: bytes) -> list[Frame | Damage]:
    return list(read_frames(lambda at, length: data[at : at + length], start=0, end=len(data)))


def sound(data: bytes) -> list[int]:
    """Return the numbers of the records that come back as they were."""
    return [
        found.recv_ms
        for found in read(data)
        if isinstance(found, Frame)
        and zlib.crc32(data[found.body_at : found.body_at + found.body_bytes]) == found.checksum
    ]


@given(BODIES)
def test_what_was_put_in_comes_back_in_order(bodies: list[bytes]) -> None:
    data, _ = segment(bodies)

    found = [frame for frame in read(data) if isinstance(frame, Frame)]

    assert [data[frame.body_at : frame.body_at + frame.body_bytes] for frame in found] == bodies
    assert [frame.batch_id for frame in found] == [f"b-events-{n + 1}" for n in range(len(bodies))]


@given(BODIES, st.data())
def test_a_cut_costs_the_record_that_it_goes_through(bodies: list[bytes], data: st.DataObject) -> None:
    """FC-043."""
    whole, ends = segment(bodies)
    cut = data.draw(st.integers(0, len(whole)))

    found = read(whole[:cut])

    assert sum(isinstance(one, Frame) for one in found) == sum(end <= cut for end in ends)
    torn = [one for one in found if isinstance(one, Damage)]
    assert bool(torn) == (cut not in {0, *ends})
    assert all(one.reason.startswith("torn: ") and one.end == cut for one in torn)


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8), st.data())
def test_damage_costs_the_record_that_it_hits(bodies: list[bytes], data: st.DataObject) -> None:
    whole, ends = segment(bodies)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :]
    hit = sum(end <= at for end in ends) + 1

    left = set(sound(damaged))

    # The line feed after a body guards the line of the next record: both stand or fall with it.
    assert set(range(1, len(bodies) + 1)) - {hit, hit + 1} <= left
    if at + 1 not in ends:
        assert left == set(range(1, len(bodies) + 1)) - {hit}


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=3), st.data())
def test_damage_is_not_called_torn(bodies: list[bytes], data: st.DataObject) -> None:
    """A record that was whole once and is not any more is no record that was never written to its end."""
    whole, ends = segment(bodies)
    last = [0, *ends][-2]
    at = data.draw(st.integers(last, whole.index(b"\n", last) - 1))

    found = read(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])

    assert [one for one in found if isinstance(one, Damage)] == [
        Damage(last, len(whole), "no record begins here")
    ]


def test_a_long_stretch_of_garbage_is_one_damage() -> None:
    first, _ = segment([b"one"])
    garbage = b"\n@rec x" * 100_000
    following, _ = segment([b"two", b"three"])

    found = read(first + garbage + b"\n" + following)

    assert [type(one).__name__ for one in found] == ["Frame", "Damage", "Frame", "Frame"]
