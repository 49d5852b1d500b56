"""From flags, environment and a TOML file to the settings of ``swactor relay``.

Owns: which names the file may hold, and who wins: a flag, then the environment, the file, the default.
Not here: the flags (``relay``), what a setting means (``swactor.relay.config``).
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from swactor.relay import RelayConfig
from swactor_diag.cli._service import read_token
from swactor_diag.cli.console import CommandError, Exit
from swactor_diag.settings_file import SettingsFileError, path_setting, read_settings_file

_TOKENS = ("token", "read_token", "admin_token")


class Reporting(msgspec.Struct, frozen=True, kw_only=True):
    """To whom the relay reports, as a node of which run."""

    collector_url: str | None = None
    collector_token_file: Path | None = None
    run_id: str | None = None


def read_settings(given: Mapping[str, object], file: Path | None) -> tuple[RelayConfig, Reporting]:
    """Return the settings that are ``given``, completed from ``file``.

    Tokens are named by the files that hold them (``token_file`` for ``token``), so that none stands in a
    command line, an environment or a settings file.

    Raises:
        CommandError: the file cannot be read, or names or holds something else than a setting.
        RelayConfigError: the settings are out of range or unsafe.
    """
    settings = _from_file(file) | {name: value for name, value in given.items() if value is not None}
    for name in _TOKENS:
        path = settings.pop(f"{name}_file", None)
        if path is not None:
            settings[name] = read_token(Path(str(path)))
    reporting = {name: settings.pop(name) for name in Reporting.__struct_fields__ if name in settings}
    try:
        return (
            msgspec.convert(settings, RelayConfig, dec_hook=path_setting),
            msgspec.convert(reporting, Reporting, dec_hook=path_setting),
        )
    except msgspec.ValidationError as exc:
        raise CommandError(f"relay settings: {exc}", status=Exit.WRONG_INPUT) from exc


def _from_file(file: Path | None) -> dict[str, object]:
    if file is None:
        return {}
    try:
        settings = read_settings_file(file)
    except SettingsFileError as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc
    plain = set(RelayConfig.__struct_fields__) - set(_TOKENS)
    known = plain | {f"{name}_file" for name in _TOKENS} | set(Reporting.__struct_fields__)
    unknown = sorted(settings.keys() - known)
    if unknown:
        message = f"settings file {file}: {', '.join(unknown)} is not one of {', '.join(sorted(known))}"
        raise CommandError(message, status=Exit.WRONG_INPUT)
    return settings
