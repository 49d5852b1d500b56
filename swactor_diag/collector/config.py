"""What a collector is told before it starts, and where it was told.

Owns: the settings with their limits; putting flags, environment and a TOML file together.
Not here: command line options (``swactor_diag.cli``), tokens (``access``).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from swactor_diag.schema.submission import BODY_BYTES_MAX
from swactor_diag.settings_file import SettingsFileError, path_setting, read_settings_file

ENVIRONMENT_PREFIX = "SWACTOR_DIAG_"
"""A setting's variable is this and its name in capitals."""

BIND_VARIABLE = "SWACTOR_DIAG_BIND"
"""``host:port`` in one, as the original has it."""

Days = Annotated[float, Meta(gt=0, le=36_500)]
Count = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, Meta(ge=0, le=3_600)]


class ConfigError(Exception):
    """The collector cannot start with these settings; the text says which one to change."""


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one collector. Port 0 takes a free one. Sizes are bytes; a limit of 0 is none."""

    root: Path = Path("diag-data")
    """Folder for the records, unless there is a ``storage``."""
    storage: str | None = None
    """Address of an object store, such as ``s3://bucket/prefix``, that several collectors may share."""
    host: str = "127.0.0.1"
    port: Port = 9080
    udp_port: Port | None = None
    """Port that echoes datagrams, so that nodes can tell whether UDP gets through; none: no echo."""
    token_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    fsync: bool = False
    """Acknowledge only what survives a power loss."""
    body_bytes_max: Annotated[int, Meta(ge=1)] = BODY_BYTES_MAX
    """Of one body, on the wire and inflated."""
    bodies_bytes_max: Annotated[int, Meta(ge=1)] = 8 * BODY_BYTES_MAX
    """Of all bodies that are being received at one moment."""
    body_deadline_s: Seconds = 30.0
    idle_s: Annotated[float, Meta(gt=0, le=3_600)] = 60.0
    """A connection on which no whole request comes for so long is closed."""
    connections_max: Count = 8_192
    """One more is closed at once. What the limit of open files leaves room for may be fewer."""
    node_records_per_s: Count = 0
    node_bytes_per_s: Count = 0
    finalize_wait_s: Seconds = 5.0
    """Longest wait for the last snapshots of a run that was declared over."""
    stream_capacity: Annotated[int, Meta(ge=1, le=100_000)] = 1_024
    """Records that wait for a reader of the live stream; a slower one skips."""
    keep_unfinalized_days: Days = 30.0
    keep_finalized_days: Days = 30.0
    disk_bytes_max: Count = 64 * 1024**3
    """What may be stored altogether; beyond it the oldest runs go."""
    pins: tuple[str, ...] = ()
    """Runs that are kept whatever their age."""
    trim_every_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0


SETTINGS = CollectorConfig.__struct_fields__


def resolve(
    flags: Mapping[str, object], environment: Mapping[str, str], *, file: Path | None = None
) -> CollectorConfig:
    """Return the settings: what ``flags`` do not say, the environment does, then the file, then the defaults.

    The file is TOML: the settings at its top, or in a table ``[collector]``. Flags that are None say nothing.

    Raises:
        ConfigError: a setting that does not exist, or a value that it cannot have; says where.
    """
    settings = {} if file is None else _read_file(file)
    settings |= _from_environment(environment)
    settings |= {name: value for name, value in flags.items() if value is not None}
    if isinstance(settings.get("pins"), str):
        settings["pins"] = tuple(pin.strip() for pin in str(settings["pins"]).split(",") if pin.strip())
    try:
        config = msgspec.convert(settings, CollectorConfig, strict=False, dec_hook=path_setting)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"a setting is wrong: {exc}") from exc
    if (config.tls_cert is None) != (config.tls_key is None):
        raise ConfigError("TLS needs both tls_cert and tls_key")
    return config


def shown(config: CollectorConfig) -> str:
    """Return the settings as TOML that would give the same ones; what is not set is commented out."""
    lines = []
    for name in SETTINGS:
        value = getattr(config, name)
        if isinstance(value, Path):
            value = str(value)
        text = "" if value is None else msgspec.json.encode(value).decode()
        lines.append(f"# {name} =" if value is None else f"{name} = {text}")
    return "\n".join(lines)


def _read_file(file: Path) -> dict[str, object]:
    try:
        found = read_settings_file(file)
    except SettingsFileError as exc:
        raise ConfigError(str(exc)) from exc
    inner = found.get("collector", found)
    return dict(inner) if isinstance(inner, dict) else found


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    host, colon, port = environment.get(BIND_VARIABLE, "").rpartition(":")
    if colon:
        found |= {"host": host.strip("[]"), "port": port}
    for name in SETTINGS:
        value = environment.get(ENVIRONMENT_PREFIX + name.upper(), "").strip()
        if value:
            found[name] = value
    return found
