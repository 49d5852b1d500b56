"""Text from outside, as it may be written down: it may hold what is no text, an address may hold a password.

A byte that nobody could decode is kept by Python as a lone surrogate, which no encoder takes. A record is
worth more than that byte.

Owns: what stands in its place, in a text and in whatever is made of texts; what is shown of an address, and
of what has control codes. Pure.
Not here: what is shown of a command line (``introspect._command_line``).
"""

import re
from collections.abc import Mapping

import msgspec

_ENCODER = msgspec.json.Encoder()
_UNDECODABLE = re.compile("[\ud800-\udfff]")
_BEFORE_HOST = re.compile(r"([a-z][a-z0-9+.-]*://)?.*@", re.IGNORECASE | re.DOTALL)
_BEHIND_PATH = re.compile(r"([?#]).+", re.DOTALL)


def readable(text: str) -> str:
    """Return ``text`` with U+FFFD in place of each character that cannot be encoded."""
    return _UNDECODABLE.sub("�", text)


def printable(text: str) -> str:
    r"""Return ``text`` with every character that cannot be seen as its escape, such as ``\n``."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def readable_url(url: str) -> str:
    """Return ``url``, whatever it is, `readable`, with ``***`` for user, password, query and fragment."""
    url = _BEFORE_HOST.sub(lambda found: f"{found[1] or ''}***@", readable(url), count=1)
    return _BEHIND_PATH.sub(r"\1***", url)


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
