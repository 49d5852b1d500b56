"""Bytes and records: frames on a link, and what the body of each kind of frame means.

Answers: how a frame looks, how one is found in a stream that is cut anywhere, which messages may cross.
Owns: `FrameDecoder`, the frame kinds, `MessageCodec` (application messages by their tag name), the bounds.
Not here: what anybody does with a frame (``links``, ``routing``), the bytes before the first frame
(``handshake``). Pure: no clock, no I/O.

A frame is ``length u32 | kind u8 | id u64 | body``, big endian; ``length`` counts the body only. Bodies are
msgpack, written as arrays without field names. Anything malformed raises `WireError`, nothing else.
"""

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import msgspec

from swactor import NodeId, SwactorError

B = TypeVar("B", bound=msgspec.Struct)

FRAME_BODY_BYTES_MAX = 16 << 20
"""A longer body is refused by the sender, and ends the link when it arrives."""

_HEAD = struct.Struct(">IBQ")


class WireError(SwactorError):
    """Bytes that are no frame or no valid body. The stream they came from cannot be trusted any further."""


class UnknownMessageTypeError(SwactorError):
    """The message's type was not declared to the cluster; it was not sent. Declare it at boot, everywhere."""

    def __init__(self, message_type: str) -> None:
        super().__init__(f"{message_type} is not among the messages that may cross this cluster")
        self.message_type = message_type


class MessageTooLargeError(SwactorError):
    """The encoded message is longer than a frame may be; it was not sent."""

    def __init__(self, message_type: str, size_bytes: int) -> None:
        super().__init__(f"{message_type} takes {size_bytes} bytes, a frame holds {FRAME_BODY_BYTES_MAX}")
        self.message_type, self.size_bytes = message_type, size_bytes


class FrameKind(IntEnum):
    """What a frame is for. ``id`` means something only where noted."""

    BEAT = 1
    ACK = 2  # id: how many bytes after the hello were read so far
    SWIM = 3
    NAMES = 4
    TELL = 5
    ASK = 6  # id: of the ask, chosen by the asker
    REPLY = 7  # id: of the ask
    FAILURE = 8  # id: of the ask
    WATCH = 9  # id: of the watch, chosen by the watcher
    UNWATCH = 10  # id: of the watch
    DOWN = 11  # id: of the watch
    LEAVE = 12  # the sender leaves the cluster; this is the last frame it sends


_KINDS = {int(kind): kind for kind in FrameKind}


class Frame(NamedTuple):
    """One frame as read."""

    kind: FrameKind
    id: int
    body: bytes


def encode_frame(kind: FrameKind, number: int = 0, body: bytes = b"") -> bytes:
    """Return the bytes of one frame; the caller has checked the body against `FRAME_BODY_BYTES_MAX`."""
    return _HEAD.pack(len(body), kind, number) + body


class FrameDecoder:
    """Finds frames in a stream that arrives in pieces. Of no use any more once it has raised."""

    __slots__ = ("_body_bytes_max", "_rest")

    def __init__(self, *, body_bytes_max: int = FRAME_BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes, in order; keep what is left for the next call.

        Raises:
            WireError: a frame is longer than allowed or of no known kind. Frames before it in ``data`` are
                lost with it: the link ends either way.
        """
        stream = self._rest + data if self._rest else data
        frames: list[Frame] = []
        at, end = 0, len(stream)
        while end - at >= _HEAD.size:
            length, kind_number, number = _HEAD.unpack_from(stream, at)
            kind = _KINDS.get(kind_number)
            if kind is None:
                raise WireError(f"no frame has kind {kind_number}")
            if length > self._body_bytes_max:
                raise WireError(f"a frame body of {length} bytes exceeds {self._body_bytes_max}")
            body_at = at + _HEAD.size
            if end - body_at < length:
                break
            at = body_at + length
            frames.append(Frame(kind, number, stream[body_at:at]))
        self._rest = stream[at:]
        return frames


class ActorAddress(msgspec.Struct, frozen=True, array_like=True):
    """An actor anywhere: the node, which life of the node, and which actor of that life."""

    node: NodeId
    boot: int
    path: str
    serial: int


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """Body of TELL and ASK: for which actor, of which type, and the encoded message itself."""

    path: str
    serial: int
    boot: int
    kind: str
    payload: msgspec.Raw
    timeout_ms: int = 0  # of an ASK: how long the asker waits


class ReplyBody(msgspec.Struct, frozen=True, array_like=True):
    """Body of REPLY. ``kind`` is empty for a plain value: None, number, text, bytes, list, map."""

    kind: str
    payload: msgspec.Raw


class FailureBody(msgspec.Struct, frozen=True, array_like=True):
    """Body of FAILURE: the ask brought an error instead of a reply; its class name and text."""

    error: str
    text: str


class DownBody(msgspec.Struct, frozen=True, array_like=True):
    """Body of DOWN: how the watched actor ended, an `ExitKind` value, and the text of its error."""

    kind: str
    text: str


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {
    type_: msgspec.msgpack.Decoder(type_)
    for type_ in (Envelope, ReplyBody, FailureBody, DownBody, ActorAddress)
}


def encode_body(body: msgspec.Struct) -> bytes:
    """Return the bytes of one of this module's bodies."""
    return _encoder.encode(body)


def decode_body(type_: type[B], data: bytes) -> B:
    """Return ``data`` as ``type_``, one of this module's bodies.

    Raises:
        WireError: it is not one.
    """
    try:
        body: B = _decoders[type_].decode(data)
    except msgspec.MsgspecError as exc:
        raise WireError(f"not a {type_.__name__}: {exc}") from exc
    return body


class MessageCodec:
    """Which messages may cross the wire, and how: each declared Struct type under its tag name.

    ``outgoing_ref`` and ``incoming_ref`` turn references inside messages into addresses and back.

    Raises:
        ValueError: two of ``types`` have the same name.
    """

    def __init__(
        self,
        types: Iterable[type[msgspec.Struct]],
        *,
        outgoing_ref: Callable[[object], object],
        incoming_ref: Callable[[type, object], object],
    ) -> None:
        self._names: dict[type, str] = {}
        self._decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
            "": msgspec.msgpack.Decoder(Any)  # a plain value; only replies use it
        }
        self._encoder = msgspec.msgpack.Encoder(enc_hook=outgoing_ref)
        for type_ in types:
            name = _tag_name(type_)
            if name in self._decoders:
                raise ValueError(f"two messages are called {name!r}; give one of them another tag")
            self._names[type_] = name
            self._decoders[name] = msgspec.msgpack.Decoder(type_, dec_hook=incoming_ref)

    def encode(self, message: object) -> tuple[str, bytes]:
        """Return the name and the bytes of a declared message.

        Raises:
            UnknownMessageTypeError: its type was not declared, or holds a value that was not.
            MessageTooLargeError: it does not fit into a frame.
        """
        type_ = type(message)
        name = self._names.get(type_)
        if name is None:
            raise UnknownMessageTypeError(type_.__qualname__)
        return name, self._encode(message)

    def encode_reply(self, value: object) -> bytes:
        """Return the body of a REPLY with ``value``: a declared message or a plain value.

        Raises:
            UnknownMessageTypeError: ``value`` is neither.
            MessageTooLargeError: it does not fit into a frame.
        """
        name = self._names.get(type(value), "")
        return _encoder.encode(ReplyBody(name, msgspec.Raw(self._encode(value))))

    def decode(self, kind: str, payload: bytes | msgspec.Raw) -> object:
        """Return the message that ``payload`` encodes.

        Raises:
            WireError: ``kind`` is not declared here, or ``payload`` is not one.
        """
        decoder = self._decoders.get(kind)
        if decoder is None:
            raise WireError(f"no message is called {kind[:80]!r} here")
        try:
            return decoder.decode(payload)
        except msgspec.MsgspecError as exc:
            raise WireError(f"not a {kind}: {exc}") from exc

    def _encode(self, value: object) -> bytes:
        try:
            data = self._encoder.encode(value)
        except (TypeError, NotImplementedError, OverflowError) as exc:
            raise UnknownMessageTypeError(f"a part of {type(value).__qualname__} ({exc})") from exc
        if len(data) > FRAME_BODY_BYTES_MAX - 1024:  # leaves room for the envelope
            raise MessageTooLargeError(type(value).__qualname__, len(data))
        return data


def _tag_name(type_: type[msgspec.Struct]) -> str:
    tag = type_.__struct_config__.tag
    return tag if isinstance(tag, str) and tag else type_.__name__
