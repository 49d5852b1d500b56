"""What a stage and its worker process say to each other: msgpack records in frames, both ways.

Owns: the records on the worker's stdin (`Work`) and stdout (`Result`). stderr is for people.
An activation is the float32 rows of consecutive positions, little endian, as they lie in memory.
"""

from typing import TypeAlias

import msgspec

from examples.pipeline_inference.frames import frame
from examples.pipeline_inference.model.config import GREEDY, Sampling


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """To the first stage: compute the positions of ``prompt``."""

    request_id: str
    prompt: str
    sampling: Sampling = GREEDY


class Extend(msgspec.Struct, frozen=True, tag="extend"):
    """To the first stage: ``token`` was taken, compute its position."""

    request_id: str
    token: int


class Forward(msgspec.Struct, frozen=True, tag="forward"):
    """To any later stage: put the positions from ``position`` on through your layers.

    With ``more`` the prompt goes on in another one, so no token is taken yet.
    """

    request_id: str
    position: int
    activation: bytes
    more: bool
    sampling: Sampling = GREEDY


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """The request is over."""

    request_id: str


Work: TypeAlias = Begin | Extend | Forward | Forget


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    """So many of the slice's layers are loaded."""

    loaded: int
    layers: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The slice is loaded; work is taken from now on. Layers are counted from 0."""

    model: str
    role: str
    layers: tuple[int, ...]


class Computed(msgspec.Struct, frozen=True, tag="computed"):
    """What the next stage needs; it becomes that one's `Forward`."""

    request_id: str
    position: int
    activation: bytes
    more: bool
    sampling: Sampling = GREEDY


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    """From the last stage: the next token and the bytes of text it adds; ``final`` ends the answer."""

    request_id: str
    token: int
    piece: bytes
    final: bool


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """This work could not be done. ``request_id`` is None when it was not even understood."""

    request_id: str | None
    why: str


Result: TypeAlias = Loading | Ready | Computed | Sampled | Refused

_encode = msgspec.msgpack.Encoder().encode
decode_work = msgspec.msgpack.Decoder(Work).decode
"""Return the work in the body of a frame; raises `msgspec.DecodeError`."""
_decode_result = msgspec.msgpack.Decoder[Result](Result).decode


def framed(record: Work | Result) -> bytes:
    """Return ``record`` as one frame."""
    return frame(_encode(record))


def decode_result(body: bytes) -> Result:
    """Return the result in the body of a frame.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _decode_result(body)
