"""A command line as people may read it in a bundle: bounded, one line, without secrets.

Owns: cutting and masking. Pure. Not here: where the arguments come from.
"""

import re
from collections.abc import Sequence

COMMAND_BYTES_MAX = 256
ARGUMENT_CHARS_MAX = 4096
"""Nothing behind it is looked at: no argument that long is shown whole."""
MASK = "***"

_SENSITIVE = r"(?:token|secret|passw|api[-_]?key|private[-_]?key|credential)"
_ASSIGNED = re.compile(rf"(?i)(-*[\w.-]*{_SENSITIVE}[\w.-]*)=.*", re.DOTALL)
_FLAG = re.compile(rf"(?i)--?[\w-]*{_SENSITIVE}[\w-]*")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def readable_command(arguments: Sequence[str], *, bytes_max: int = COMMAND_BYTES_MAX) -> tuple[str, bool]:
    """Return the arguments joined by blanks, and whether something was cut off.

    Whole arguments are dropped from the end; a first argument that alone is too long is cut at a character.
    A cut text ends in an ellipsis.
    """
    words = _masked([_one_line(argument[:ARGUMENT_CHARS_MAX]) for argument in arguments[: bytes_max + 1]])
    kept: list[str] = []
    used = 0
    for word in words:
        used += len(word.encode()) + (1 if kept else 0)
        if used > bytes_max:
            break
        kept.append(word)
    if len(kept) == len(words):
        return " ".join(kept), False
    if not kept:
        kept.append(words[0].encode()[:bytes_max].decode("utf-8", "ignore"))
    return " ".join(kept) + "…", True


def split_cmdline(text: str) -> tuple[str, ...]:
    """Return the arguments of a ``/proc/<pid>/cmdline``: NUL-separated, NUL-padded when rewritten."""
    stripped = text.rstrip("\0")
    return tuple(stripped.split("\0")) if stripped else ()


def _masked(arguments: Sequence[str]) -> list[str]:
    shown: list[str] = []
    mask_next = False
    for argument in arguments:
        if mask_next and not argument.startswith("-"):
            shown.append(MASK)
        else:
            assigned = _ASSIGNED.fullmatch(argument)
            shown.append(_USERINFO.sub(MASK, f"{assigned[1]}={MASK}" if assigned else argument))
        mask_next = _FLAG.fullmatch(argument) is not None
    return shown


def _one_line(argument: str) -> str:
    clean = argument.encode("utf-8", "replace").decode()  # lone surrogates of a non-UTF-8 argument
    return "".join(char if char.isprintable() else "�" for char in clean)
