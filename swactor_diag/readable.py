"""Text that may hold what is no text: bytes that the operating system handed over and nobody could decode.

Python keeps such a byte as a lone surrogate, which no encoder takes. A record is worth more than that byte.

Owns: what stands in its place, in a text and in whatever is made of texts. Pure.
Not here: what may be shown at all (``introspect._command_line``).
"""

import re
from collections.abc import Mapping

import msgspec

_ENCODER = msgspec.json.Encoder()
_UNDECODABLE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """Return ``text`` with U+FFFD in place of each character that cannot be encoded."""
    return _UNDECODABLE.sub("�", text)


def readable_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment as they can be written into a record."""
    return {readable(name): readable(value) for name, value in environ.items()}


def encode_readable(value: object) -> bytes:
    """Return ``value`` as JSON, with its texts and keys made `readable` where they are not.

    Raises:
        Exception: what msgspec, or a type that it asks, raises when the value cannot be written.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_readable_copy(msgspec.to_builtins(value, str_keys=True)))


def _readable_copy(value: object) -> object:
    match value:
        case str():
            return readable(value)
        case dict():
            return {_readable_copy(key): _readable_copy(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_readable_copy(inner) for inner in value]
        case _:
            return value
