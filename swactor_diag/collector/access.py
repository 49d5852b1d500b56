"""Who may do what at a collector: one token to hand records in, another one to read.

Owns: the token file, and comparing in constant time. Not here: which request needs what (``routes``).

The file holds lines ``ingest: TOKEN`` and ``read: TOKEN``, or one bare token that allows both. Blank lines
and those that begin with ``#`` say nothing. A program that only reads, or only sends, gets its own file.
"""

import enum
import hmac

from swactor.addresses import is_loopback
from swactor_diag.collector.config import CollectorConfig, ConfigError

TOKEN_LENGTH_MIN = 16


class Right(enum.StrEnum):
    """What a token allows."""

    INGEST = "ingest"
    READ = "read"


class Verdict(enum.Enum):
    """What is to become of a request."""

    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    """Nobody that we know: 401."""
    FORBIDDEN = "forbidden"
    """Somebody who may not do this: 403."""


class Access:
    """The tokens of one collector; without any, everybody may do everything."""

    def __init__(self, tokens: dict[Right, set[bytes]]) -> None:
        self._tokens = tokens

    def judge(self, authorization: str, right: Right) -> Verdict:
        """Return whether the bearer of ``authorization``, a header's value, has ``right``.

        How long it takes does not tell how much of a token was right.
        """
        if not any(self._tokens.values()):
            return Verdict.ALLOWED
        given = authorization.encode("utf-8", "surrogateescape")
        held = {
            one
            for one, tokens in self._tokens.items()
            if sum(hmac.compare_digest(given, b"Bearer " + token) for token in sorted(tokens))
        }
        if right in held:
            return Verdict.ALLOWED
        return Verdict.FORBIDDEN if held else Verdict.UNKNOWN


def load_access(config: CollectorConfig) -> Access:
    """Return the tokens that requests must carry.

    Raises:
        ConfigError: others can reach the address and there is no token file, or the file is of no use.
    """
    file = config.token_file
    if file is None:
        if not is_loopback(config.host):
            raise ConfigError(f"{config.host} can be reached from other machines: give a token file")
        return Access({})
    try:
        text = file.read_text("ascii")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot read the token file {file}: it must be ASCII text") from exc
    tokens: dict[Right, set[bytes]] = {right: set() for right in Right}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, colon, token = line.partition(":")
            for right in _rights(name.strip() if colon else "", where=str(file)):
                tokens[right].add(_checked(token if colon else line, where=str(file)))
    for right, held in tokens.items():
        if not held:
            raise ConfigError(f"{file} holds no token that allows to {right.value}")
    return Access(tokens)


def _rights(name: str, *, where: str) -> tuple[Right, ...]:
    if not name:
        return tuple(Right)
    try:
        return (Right(name),)
    except ValueError as exc:
        raise ConfigError(f"{where}: a line begins with ingest: or read:, or is a bare token") from exc


def _checked(token: str, *, where: str) -> bytes:
    token = token.strip()
    if len(token) < TOKEN_LENGTH_MIN or not token.isprintable() or " " in token:
        raise ConfigError(f"{where}: a token has at least {TOKEN_LENGTH_MIN} characters and no blanks")
    return token.encode()
