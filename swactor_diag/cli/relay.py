"""``swactor relay``: forward the packets of nodes that cannot reach each other, and say who closed what.

Owns: the options. Not here: the process behind them (``_relay_process``).
"""

from pathlib import Path
from typing import Annotated

import typer


def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(envvar="SWACTOR_RELAY_CONFIG", help="TOML file with settings; options win over it."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            envvar="SWACTOR_RELAY_HOST",
            help="Address to listen on (127.0.0.1); other than loopback needs a token or allowed ids.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            envvar="SWACTOR_RELAY_PORT",
            min=0,
            max=65535,
            help="Port to listen on (7843); 0 takes a free one.",
        ),
    ] = None,
    advertised_url: Annotated[
        str | None,
        typer.Option(
            envvar="SWACTOR_RELAY_ADVERTISED_URL",
            help="How nodes reach this relay, when that differs from host and port.",
        ),
    ] = None,
    certificate_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SWACTOR_RELAY_CERTIFICATE_FILE",
            help="PEM certificate chain; makes the relay speak https.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(envvar="SWACTOR_RELAY_KEY_FILE", help="PEM key, when not in the certificate file."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="SWACTOR_RELAY_TOKEN_FILE", help="File with the token that nodes must show."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            envvar="SWACTOR_RELAY_ALLOW",
            help="Node id that may use the relay; once for each (in the variable: spaces between).",
        ),
    ] = None,
    read_token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SWACTOR_RELAY_READ_TOKEN_FILE",
            help="File with the token for /sessions and /metrics; without it this machine may read them.",
        ),
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SWACTOR_RELAY_ADMIN_TOKEN_FILE",
            help="File with the token for drills; without it there are none.",
        ),
    ] = None,
    journal_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SWACTOR_RELAY_JOURNAL_FILE",
            help="Where open sessions are kept, to tell after a crash how they ended.",
        ),
    ] = None,
    drain_s: Annotated[
        float | None,
        typer.Option(
            envvar="SWACTOR_RELAY_DRAIN_S", min=0, help="Spread the closes of a stop over so long (0)."
        ),
    ] = None,
    opens_per_s_max: Annotated[
        float | None,
        typer.Option(
            envvar="SWACTOR_RELAY_OPENS_PER_S_MAX",
            help="Let so many clients in each second, so that not all are back at once (no limit).",
        ),
    ] = None,
    collector_url: Annotated[
        str | None,
        typer.Option(envvar="SWACTOR_DIAG_COLLECTOR_URL", help="Collector to report to; none: no reports."),
    ] = None,
    collector_token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="SWACTOR_DIAG_COLLECTOR_TOKEN_FILE", help="File with the token of the collector."
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(envvar="SWACTOR_DIAG_RUN_ID", help="Run to report to, with role relay.")
    ] = None,
) -> None:
    """Relay until SIGTERM or Ctrl-C.

    Prints one JSON line with its address on standard output when it is ready, and on standard error what the
    nodes' configuration needs.
    """
    from swactor_diag.cli import _relay_process  # late: the web server is slow to import

    given: dict[str, object] = {
        "host": host,
        "port": port,
        "advertised_url": advertised_url,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "token_file": token_file,
        "allowed_ids": allow or None,
        "read_token_file": read_token_file,
        "admin_token_file": admin_token_file,
        "journal_file": journal_file,
        "drain_s": drain_s,
        "opens_per_s_max": opens_per_s_max,
        "collector_url": collector_url,
        "collector_token_file": collector_token_file,
        "run_id": run_id,
    }
    _relay_process.serve(given, config)
