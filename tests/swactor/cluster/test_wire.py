"""Frames in any cutting, garbage, and which messages may cross."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swactor.cluster.wire import (
    FRAME_BODY_BYTES_MAX,
    ActorAddress,
    DownBody,
    Envelope,
    FailureBody,
    Frame,
    FrameDecoder,
    FrameKind,
    MessageCodec,
    MessageTooLargeError,
    ReplyBody,
    UnknownMessageTypeError,
    WireError,
    decode_body,
    encode_frame,
)

frame_lists = st.lists(
    st.builds(
        Frame,
        st.sampled_from(FrameKind),
        st.integers(min_value=0, max_value=2**64 - 1),
        st.binary(max_size=300),
    ),
    max_size=8,
)


class Work(msgspec.Struct, frozen=True):
    """A message."""

    number: int
    data: bytes = b""


class Odd(msgspec.Struct, frozen=True):
    """A message that can hold what cannot cross."""

    value: object


def a_codec(*types: type[msgspec.Struct]) -> MessageCodec:
    def refuse(*_: object) -> object:
        raise NotImplementedError("no refs here")

    return MessageCodec(types, outgoing_ref=refuse, incoming_ref=refuse)


@given(frame_lists, st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=30))
def test_frames_come_out_whole_however_the_stream_is_cut(frames: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(frame.kind, frame.id, frame.body) for frame in frames)
    decoder = FrameDecoder()

    found, at, turn = [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += decoder.feed(stream[at : at + step])
        at, turn = at + step, turn + 1

    assert found == frames


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_garbage_gives_frames_or_a_wire_error_and_nothing_else(chunks: list[bytes]) -> None:
    decoder = FrameDecoder(body_bytes_max=1_000)
    with contextlib.suppress(WireError):
        for chunk in chunks:
            assert all(len(frame.body) <= 1_000 for frame in decoder.feed(chunk))


def test_a_frame_that_is_too_long_is_refused_before_its_body_comes() -> None:
    head = encode_frame(FrameKind.TELL, 0, b"")
    with pytest.raises(WireError, match="exceeds"):
        FrameDecoder().feed((FRAME_BODY_BYTES_MAX + 1).to_bytes(4, "big") + head[4:])


def test_a_frame_of_no_known_kind_is_refused() -> None:
    with pytest.raises(WireError, match="kind 200"):
        FrameDecoder().feed(b"\x00\x00\x00\x00\xc8" + bytes(8))


@given(st.binary(max_size=100), st.sampled_from([Envelope, ReplyBody, FailureBody, DownBody, ActorAddress]))
def test_a_body_is_valid_or_a_wire_error(body: bytes, type_: type) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(decode_body(type_, body), type_)


def test_bytes_in_a_message_stay_bytes() -> None:
    codec = a_codec(Work)
    name, payload = codec.encode(Work(1, b"\x00\xff" * 500))

    assert name == "Work"
    assert len(payload) < 1_030
    assert codec.decode(name, payload) == Work(1, b"\x00\xff" * 500)


def test_a_tag_of_its_own_names_the_message() -> None:
    class Renamed(msgspec.Struct, frozen=True, tag="renamed"):
        pass

    assert a_codec(Renamed).encode(Renamed())[0] == "renamed"


def test_two_messages_with_one_name_are_refused_at_boot() -> None:
    class Other(msgspec.Struct, frozen=True, tag="Work"):
        pass

    with pytest.raises(ValueError, match="'Work'"):
        a_codec(Work, Other)


@pytest.mark.parametrize("message", ["text", 5, Odd(1)])
def test_what_was_not_declared_cannot_be_sent(message: object) -> None:
    with pytest.raises(UnknownMessageTypeError):
        a_codec(Work).encode(message)


def test_a_declared_message_with_a_foreign_part_cannot_be_sent() -> None:
    with pytest.raises(UnknownMessageTypeError, match="Odd"):
        a_codec(Odd).encode(Odd(object()))


def test_a_message_longer_than_a_frame_cannot_be_sent() -> None:
    with pytest.raises(MessageTooLargeError):
        a_codec(Work).encode(Work(1, bytes(FRAME_BODY_BYTES_MAX)))


@pytest.mark.parametrize(("kind", "payload"), [("Nothing", b"\x80"), ("Work", b"\x80"), ("Work", b"\xc1")])
def test_what_is_no_declared_message_is_an_error(kind: str, payload: bytes) -> None:
    with pytest.raises(WireError):
        a_codec(Work).decode(kind, payload)


@pytest.mark.parametrize("value", [None, 5, "text", b"bytes", [1, 2], {"a": 1}, Work(3)])
def test_a_reply_is_a_declared_message_or_a_plain_value(value: object) -> None:
    codec = a_codec(Work)
    body: ReplyBody = decode_body(ReplyBody, codec.encode_reply(value))

    assert codec.decode(body.kind, body.payload) == value
