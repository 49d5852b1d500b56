"""``swactor collector``: receive the records of runs, and serve their bundles.

Owns: the options. Not here: the process behind them (``_collector_process``), what the settings mean
(``swactor_diag.collector.config``).
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from swactor_diag.cli.console import CommandError, Exit, put


def run(
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; other than loopback needs a token file.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on (9080); 0 takes a free one.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder for the records (diag-data).")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the tokens: 'ingest: ...' and 'read: ...', or one."),
    ] = None,
    udp_port: Annotated[int | None, typer.Option(help="Port that echoes datagrams; else none.")] = None,
    finalize_wait_s: Annotated[
        float | None, typer.Option(min=0, help="Longest wait for the last snapshots of a finalized run (5).")
    ] = None,
    fsync: Annotated[
        bool | None, typer.Option("--fsync", help="Acknowledge only what survives a power loss.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as NAME=VALUE; see --print-config.")
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", envvar="SWACTOR_DIAG_CONFIG", help="TOML file with settings."),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(envvar="SWACTOR_DIAG_RUN_ID", help="Be a node of this run too, with role collector."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the settings as TOML, and end.")
    ] = False,
    trim_dry_run: Annotated[
        bool, typer.Option("--trim-dry-run", help="Print which runs would be removed now, and end.")
    ] = False,
) -> None:
    """Receive records and serve bundles until SIGTERM or Ctrl-C.

    Settings come from options, then variables SWACTOR_DIAG_<NAME>, then the
    file, then the defaults. Prints one JSON line with its address on standard
    output when it is ready.

    Nodes send here when their SWACTOR_DIAG_COLLECTOR_URL is that address;
    `swactor bundle fetch` gets the bundle of a run from it.
    """
    from swactor_diag.collector.config import ConfigError, resolve, shown  # late: slow to import

    flags: dict[str, object] = {
        "host": host,
        "port": port,
        "root": root,
        "token_file": token_file,
        "udp_port": udp_port,
        "finalize_wait_s": finalize_wait_s,
        "fsync": fsync,
    }
    try:
        config = resolve(_named(settings or []) | _given(flags), os.environ, file=config_file)
    except ConfigError as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc
    if print_config:
        put(shown(config))
        return
    from swactor_diag.cli import _collector_process  # late: the web server is slow to import

    if trim_dry_run:
        _collector_process.show_trims(config)
    else:
        _collector_process.serve(config, run_id=run_id)


def _given(flags: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in flags.items() if value is not None}


def _named(settings: list[str]) -> dict[str, object]:
    named: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise CommandError(f"--set takes NAME=VALUE, not {setting!r}", status=Exit.WRONG_INPUT)
        named[name.strip()] = value.strip()
    return named
