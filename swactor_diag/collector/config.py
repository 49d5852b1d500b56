"""What a collector is told before it starts.

Owns: the settings, their limits, and the rule that a collector which others can reach asks for a token.
Not here: command line flags (``swactor_diag.cli``).
"""

import ipaddress
from pathlib import Path

import msgspec

from swactor_diag.schema.submission import BODY_BYTES_MAX

_TOKEN_LENGTH_MIN = 16


class ConfigError(Exception):
    """The collector cannot start with these settings; the text says which one to change."""


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one collector. ``port`` 0 takes a free one. Sizes are bytes, times seconds."""

    root: Path
    host: str = "127.0.0.1"
    port: int = 9080
    token_file: Path | None = None
    fsync: bool = False
    body_bytes_max: int = BODY_BYTES_MAX
    body_deadline_s: float = 30.0
    finalize_wait_s: float = 5.0


def load_token(config: CollectorConfig) -> bytes | None:
    """Return the token that requests must carry, or None when this machine alone can reach the collector.

    Raises:
        ConfigError: others can reach the address and there is no token file, or the file is of no use.
    """
    if config.token_file is None:
        if not _is_loopback(config.host):
            raise ConfigError(f"{config.host} can be reached from other machines: give a token file")
        return None
    try:
        token = config.token_file.read_bytes().strip()
    except OSError as exc:
        raise ConfigError(f"cannot read the token file {config.token_file}: {exc.strerror or exc}") from exc
    if len(token) < _TOKEN_LENGTH_MIN or not token.isascii():
        raise ConfigError(f"{config.token_file} must hold at least {_TOKEN_LENGTH_MIN} ASCII characters")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
