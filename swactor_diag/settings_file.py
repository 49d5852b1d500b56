"""A TOML file with settings, for whichever service.

Owns: reading it, and making paths of its texts. Not here: which settings there are and what they mean
(``collector.config``, ``swactor.relay.config``).
"""

import tomllib
from pathlib import Path


class SettingsFileError(Exception):
    """The file cannot be read, or is not TOML; the text names it and says why."""


def read_settings_file(file: Path) -> dict[str, object]:
    """Return what is in ``file``.

    Raises:
        SettingsFileError: see there.
    """
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as exc:
        raise SettingsFileError(f"cannot read the settings file {file}: {exc.strerror or exc}") from exc
    except (ValueError, RecursionError) as exc:  # not UTF-8, not TOML, or nested beyond all measure
        raise SettingsFileError(f"settings file {file}: {exc}") from exc


def path_setting(kind: type, value: object) -> object:
    """Return ``value`` as the path that it names, for `msgspec.convert`, which has none of its own."""
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise NotImplementedError(f"no setting is a {kind.__name__}")
