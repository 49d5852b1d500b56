"""Frames on a pipe: whatever the bytes and however they are cut, the same bodies; bad bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.pipeline_inference.frames import BODY_BYTES_MAX, FrameError, FrameReader, frame


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 13))
def test_bodies_come_out_as_they_went_in_however_the_stream_is_cut(bodies: list[bytes], size: int) -> None:
    stream = b"".join(map(frame, bodies))
    reader = FrameReader()
    found = [body for at in range(0, len(stream), size) for body in reader.feed(stream[at : at + size])]
    assert found == bodies


@pytest.mark.parametrize(
    "stream",
    [
        b"x",
        b"\n",
        b"-1\n",
        b"3\nabcX",
        b"Traceback (most",
        b"%d\n" % (BODY_BYTES_MAX + 1),
        b"9" * 30,
        b" 1\na\n",
    ],
)
def test_bytes_that_are_no_frame_are_refused_before_they_take_memory(stream: bytes) -> None:
    with pytest.raises(FrameError, match="frame"):
        list(FrameReader().feed(stream))


def test_what_came_before_a_broken_frame_is_still_given() -> None:
    bodies = FrameReader().feed(frame(b"good") + b"bad")
    assert next(bodies) == b"good"
    with pytest.raises(FrameError):
        next(bodies)


def test_a_body_that_is_too_large_is_refused_where_it_is_made() -> None:
    with pytest.raises(FrameError, match="holds"):
        frame(bytes(BODY_BYTES_MAX + 1))
