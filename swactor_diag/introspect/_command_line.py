"""A command line as people may read it in a bundle: bounded, one line, without secrets.

Owns: cutting and masking. Pure. Not here: where the arguments come from.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

COMMAND_BYTES_MAX = 256
ARGUMENT_CHARS_MAX = 4096
"""Nothing behind it is looked at: no argument that long is shown whole."""
MASK = "***"

_LONG = (
    r"(?:token(?!iz)|secret|passw|passcode|passphrase|(?<![a-z])pass(?![a-z])|(?:ssh|db)pass(?![a-z])"
    r"|credential|authorization|cookie|mnemonic|seed[-_]?phrase"
    r"|(?:api|access|account|private|auth|encryption|signing|shared|master|aes|license)[-_]?key)"
)
_SHORT = r"(?:(?:(?<![a-z])(?<!no-)(?:auth|bearer|creds?|jwt|otp|psk|pw)|(?<=[-_.;])pwd)(?![\w-]))"
"""Only as the end of a name: ``--auth-mode`` is no secret, nor is ``PWD``, where a shell is."""
_SENSITIVE = rf"(?:{_LONG}|{_SHORT})"
_NAME = rf"[\w.-]{{0,64}}?{_SENSITIVE}[\w.-]{{0,64}}"
_ASSIGNED = re.compile(rf"(?i)(-*+{_NAME})=(.*)", re.DOTALL)
_FLAG = re.compile(rf"(?i)--?{_NAME}")
_OPTION = r"(?:--?|-[a-z]|--[a-z]+(?:-[a-z]+)*(?:=\S*)?)"
"""What follows a sensitive flag and looks so is the next flag; with anything else it is a value."""
_NEXT_FLAG = re.compile(rf"(?i){_OPTION}")

# The same within an argument: JSON, a header, a line for a shell, a query. Where it is not clear where a
# value ends, what follows is masked as well.
_INSIDE = rf"{_SENSITIVE}[\w.-]{{0,64}}"
_HEADER_NAME = rf"[\w.-]{{0,64}}?{_LONG}[\w.-]{{0,64}}\s*:(?!:)\s*"  # no short name: auth:8080 is a host
_DOUBLE_QUOTED, _SINGLE_QUOTED = r"(?:[^\"\\]|\\.)*", r"(?:[^'\\]|\\.)*"
_QUOTED = rf"(?:\"{_DOUBLE_QUOTED}\"?|'{_SINGLE_QUOTED}'?)"
_PAIR_FLAG = r"-u|--(?:proxy-)?user(?:info)?"
_USER_FLAG = re.compile(rf"(?i){_PAIR_FLAG}")
"""What follows it is a user, or a user and a password."""
_BEHIND_COLON = r"(?!/|[0-9]{1,7}(?:[\s\"']|$))([^\s\"']+)"
"""Behind a user and a colon: neither a path nor a group's number."""
_PAIR = re.compile(rf"([^\s:/]+:){_BEHIND_COLON}")
_SQL_CLIENTS = ("mysql", "mysqldump", "mariadb")
_PASSWORD_FLAGS = {"sshpass": "-p", "redis-cli": "-a"} | dict.fromkeys(_SQL_CLIENTS, "-p")
"""Programs that take a password by a flag without a name."""
_PROGRAM = re.compile(r"(?:(?:[^-].*)?/s?bin/|\./|s?bin/)?[\w-]+", re.DOTALL)
"""Behind the first argument, not every path that ends in such a name: ``/var/lib/mysql`` is a folder."""
_WORD = rf"(?:(?:bearer|basic|token)\s+)?((?:{_QUOTED}|\\.|[^\s\"'\\&;])+)"
_SECRETS_INSIDE = (
    re.compile(rf"(?i)({_INSIDE}\\*[\"']\s*:\s*)(\\*{_QUOTED}|[\[{{].*|[^\s\"',}}\]]+)"),
    re.compile(rf"(?i)((?<=\"){_HEADER_NAME})({_DOUBLE_QUOTED})"),
    re.compile(rf"(?i)((?<='){_HEADER_NAME})({_SINGLE_QUOTED})"),
    re.compile(rf"(?i)((?:(?<![\w./@\"'-]){_HEADER_NAME}|(?<=[/@]){_NAME}:\s+))(.+)"),
    re.compile(rf"(?i)({_INSIDE}(?:=|\s+=\s*)){_WORD}"),
    re.compile(rf"(?i)((?<![\w-])--?{_NAME}\s+)(?!{_OPTION}(?:[\s\"'&;]|$)){_WORD}"),
    re.compile(rf"(?i)((?<![\w-])(?:{_PAIR_FLAG})[=\s]*[\"']?[^\s:/\"'-][^\s:/\"']{{0,64}}:){_BEHIND_COLON}"),
    re.compile(
        r"((?:(?<![\w/.-])|(?<=bin/)|(?<=\./))(?:sshpass\s+-p|redis-cli\s[^|;&]{0,99}?(?<!\S)-a"
        rf"|(?:{'|'.join(_SQL_CLIENTS)})\s[^|;&]{{0,99}}?(?<!\S)-p)\s*)([^\s\"'&;]+)"
    ),
    re.compile(r"(?i)([?&](?:key|sig|signature|x-(?:amz|goog)-signature)=)([^\s&#]+)"),
    re.compile(r"(?i)(\bbearer\s+)([\w.~+/=-]{16,})"),
    re.compile(r"(?i)(hooks\.slack\.com/services/|/api/webhooks/|api\.telegram\.org/bot)([^\s\"'?]+)"),
    re.compile(r"(-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----)(.+)"),
)
_USERINFO = re.compile(r"(?<=://)[^/?#\s]+(?=@)")
_ISSUED = re.compile(
    r"\b(?:(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|sk-|[rs]k_(?:live|test)_|AKIA|AIza|ya29\."
    r"|dckr_pat_|nvapi-|dop_v1_|shpat_|xkeysib-|AGE-SECRET-KEY-|SG\.)[A-Za-z0-9_.-]{16,}"
    r"|ASIA[A-Z0-9]{16}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{32,})"
    r"|(?<![\w-])eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]+)+"
)
"""Tokens that say by their beginning who issued them."""

_COUNT = re.compile(r"[0-9]{1,7}")
_COUNTED = re.compile(
    r"(?i)tokens|(?:max|min|num|new|per|n)[-_.]?token|token[-_.]?(?:budget|count|id|len|limit|rate|size)"
)
"""``--max-tokens 512`` is no secret, ``--token 482913`` is one."""


def readable_command(arguments: Sequence[str], *, bytes_max: int = COMMAND_BYTES_MAX) -> tuple[str, bool]:
    """Return the arguments joined by blanks, and whether something was cut off.

    Whole arguments are dropped from the end; a first argument that alone is too long is cut at a character.
    A cut text ends in an ellipsis.
    """
    kept: list[str] = []
    used = 0
    for word in _masked(arguments):
        used += len(word.encode()) + (1 if kept else 0)
        if used > bytes_max:
            if not kept:
                kept.append(word.encode()[:bytes_max].decode("utf-8", "ignore"))
            return " ".join(kept) + "…", True
        kept.append(word)
    return " ".join(kept), False


def split_cmdline(text: str) -> tuple[str, ...]:
    """Return the arguments of a ``/proc/<pid>/cmdline``: NUL-separated, NUL-padded when rewritten."""
    stripped = text.rstrip("\0")
    return tuple(stripped.split("\0")) if stripped else ()


def may_be_secret(name: str) -> bool:
    """Whether the value of a variable or an option of this name is masked."""
    return _FLAG.fullmatch(f"--{name}") is not None


def _masked(arguments: Iterable[str]) -> Iterator[str]:
    """Yield each argument as it may be shown; one behind a sensitive flag is its value."""
    flag = before = password_flag = ""
    for at, argument in enumerate(arguments):
        text = _one_line(argument[:ARGUMENT_CHARS_MAX])
        pair = _PAIR.fullmatch(text) if _USER_FLAG.fullmatch(before) else None
        before = text
        if not at or _PROGRAM.fullmatch(text):
            password_flag = _PASSWORD_FLAGS.get(text.rpartition("/")[2], password_flag)
        if flag and not _NEXT_FLAG.fullmatch(text):
            yield _mask_value(flag, text)
            flag = ""
            continue
        if pair is not None:
            yield f"{pair[1]}{MASK}"
            continue
        if password_flag and text.startswith(password_flag):
            flag = text if text == password_flag else ""
            yield password_flag if flag else f"{password_flag}{MASK}"
            continue
        flag = text if _FLAG.fullmatch(text) else ""
        assigned = _ASSIGNED.fullmatch(text)
        yield f"{assigned[1]}={_mask_value(assigned[1], assigned[2])}" if assigned else _mask_inside(text)


def _mask_inside(text: str) -> str:
    for pattern in _SECRETS_INSIDE:
        text = pattern.sub(lambda found: found[1] + _mask_value(found[1], found[2]), text)
    return _ISSUED.sub(MASK, _USERINFO.sub(MASK, text))


def _mask_value(name: str, value: str) -> str:
    return value if _COUNTED.search(name) and _COUNT.fullmatch(value) else MASK


def _one_line(argument: str) -> str:
    return "".join(char if char.isprintable() else "�" for char in argument)
