"""Text that may hold what is no text: bytes that the operating system handed over and nobody could decode.

Python keeps such a byte as a lone surrogate, which no encoder takes. A record is worth more than that byte.

Owns: what stands in its place. Pure.
Not here: what may be shown at all (``introspect._command_line``).
"""

import re
from collections.abc import Mapping

_UNDECODABLE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """Return ``text`` with U+FFFD in place of each character that cannot be encoded."""
    return _UNDECODABLE.sub("�", text)


def readable_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment as they can be written into a record."""
    return {readable(name): readable(value) for name, value in environ.items()}
