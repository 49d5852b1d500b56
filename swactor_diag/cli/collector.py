"""``swactor collector``: receive the records of runs, and serve their bundles.

Owns: the options. Not here: the process behind them (``_collector_process``).
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
    ] = 9080,
    root: Annotated[Path, typer.Option(envvar="SWACTOR_DIAG_ROOT", help="Folder for the records.")] = Path(
        "diag-data"
    ),
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that every request must carry.")
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(envvar="SWACTOR_DIAG_RUN_ID", help="Be a node of this run too, with role collector."),
    ] = None,
    finalize_wait_s: Annotated[
        float, typer.Option(min=0, help="Longest wait for the last snapshots of a finalized run.")
    ] = 5.0,
    fsync: Annotated[
        bool, typer.Option("--fsync", help="Survive a power loss too: two disk flushes a record.")
    ] = False,
) -> None:
    """Receive records and serve bundles until SIGTERM or Ctrl-C.

    Prints one JSON line with its address on standard output when it is ready.
    """
    from swactor_diag.cli import _collector_process  # late: the web server is slow to import
    from swactor_diag.collector.config import CollectorConfig  # late too

    _collector_process.serve(
        CollectorConfig(
            root=root,
            host=host,
            port=port,
            token_file=token_file,
            finalize_wait_s=finalize_wait_s,
            fsync=fsync,
        ),
        run_id=run_id,
    )
