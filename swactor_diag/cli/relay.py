"""``swactor relay``: forward the packets of nodes that cannot reach each other, and say who closed what.

Owns: the options. Not here: the process behind them (``_relay_process``).
"""

from pathlib import Path
from typing import Annotated

import typer


def run(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 7843,
    advertised_url: Annotated[
        str | None, typer.Option(help="How nodes reach this relay, when that differs from host and port.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that nodes must show.")] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="File with the token for drills; without it there are none.")
    ] = None,
    collector_url: Annotated[
        str | None,
        typer.Option(envvar="SWACTOR_DIAG_COLLECTOR_URL", help="Collector to report to; none: no reports."),
    ] = None,
    collector_token_file: Annotated[
        Path | None, typer.Option(help="File with the token of the collector.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(envvar="SWACTOR_DIAG_RUN_ID", help="Run to report to, with role relay.")
    ] = None,
) -> None:
    """Relay until SIGTERM or Ctrl-C.

    Prints one JSON line with its address on standard output when it is ready.
    """
    from swactor_diag.cli import _relay_process  # late: the web server is slow to import

    _relay_process.serve(
        _relay_process.RelayOptions(
            host=host,
            port=port,
            advertised_url=advertised_url,
            token_file=token_file,
            admin_token_file=admin_token_file,
            collector_url=collector_url,
            collector_token_file=collector_token_file,
            run_id=run_id,
        )
    )
