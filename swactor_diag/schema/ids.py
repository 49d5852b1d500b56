"""What an id in a record, a header or a path may look like.

Owns: the strict pattern of run and node ids, and the two spellings in which records carry node ids.
Not here: which ids exist (a run's manifest), how a node id comes about (``swactor.cluster``).
"""

import re

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_HEX_64 = re.compile(r"[0-9a-fA-F]{64}")


class IdError(ValueError):
    """The id cannot be used as a name of a run, a node or a boot; nothing was created for it."""


def check_id(text: str, *, what: str) -> str:
    """Return ``text`` when it may be used as an id and as one part of a path.

    Raises:
        IdError: it is not 1 to 128 ASCII letters, digits, ``.``, ``_``, ``-``, or it is ``.`` or ``..``.
    """
    if not is_id(text):
        raise IdError(f"{what} must be 1 to 128 letters, digits, '.', '_', '-', not {text[:40]!r}")
    return text


def is_id(text: str) -> bool:
    """Return whether `check_id` would return ``text``."""
    return _ID.fullmatch(text) is not None and text not in {".", ".."}


def short_id(node_id_hex: str) -> str:
    """Return the first eight digits, as people read a node id."""
    return node_id_hex[:8]


def read_node_id(value: object) -> str | None:
    """Return a node id in hex from either spelling, or None when ``value`` is neither.

    Records carry 64 hex digits or, from the original's nodes, an array of 32 integers.
    """
    if isinstance(value, str):
        return value.lower() if _HEX_64.fullmatch(value) else None
    if isinstance(value, list) and len(value) == 32 and all(_is_byte(item) for item in value):
        return bytes(value).hex()
    return None


def _is_byte(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= 255
