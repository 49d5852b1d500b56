"""``swactor spool``: hand a node's spool in by hand, when the node itself cannot any more.

Owns: the command. Not here: the spool and the way to the collector (``swactor_diag.delivery``).
"""

from pathlib import Path
from typing import Annotated

import anyio
import typer

from swactor_diag.cli.console import CommandError, Exit, put

app = typer.Typer(help="Records that a node kept because its collector was away.", no_args_is_help=True)


@app.callback()
def spool() -> None:
    """Records that a node kept because its collector was away."""


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="Folder of one node's spool: <spool>/<run>/<node>.")],
    url: Annotated[str, typer.Argument(help="Address of the collector, such as http://127.0.0.1:9080.")],
    token_file: Annotated[Path | None, typer.Option(help="File with the collector's token.")] = None,
) -> None:
    """Send everything in a spool and remove what is stored. The node must not run.

    Exit status 3: the collector refused some; they are set aside in the
    folder, with the reason.
    """
    from swactor_diag.cli._service import read_token  # late: slow to import

    if not folder.is_dir():
        raise CommandError(f"there is no folder {folder}", status=Exit.WRONG_INPUT)
    sent, refused = anyio.run(_push, folder, url, read_token(token_file))
    put(f"{sent} records sent, {refused} refused and set aside")
    if refused:
        raise typer.Exit(Exit.INCOMPLETE)


async def _push(folder: Path, url: str, token: str | None) -> tuple[int, int]:
    from swactor import SystemClock  # late: slow to import
    from swactor_diag.delivery.disk_spool import DiskSpool  # late too
    from swactor_diag.delivery.folder_lock import FolderLock  # late too
    from swactor_diag.delivery.http import HttpSink  # late too
    from swactor_diag.delivery.sink import RecordRefusedError, SinkAddressError, SinkError

    try:
        sink = HttpSink(url, clock=SystemClock(), token=token)
        spool = DiskSpool(folder, lock=FolderLock(folder))
    except SinkAddressError as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc
    except BlockingIOError as exc:
        raise CommandError(f"a node that runs uses the spool {folder}") from exc
    except OSError as exc:
        raise CommandError(f"cannot use the spool {folder}: {exc.strerror or exc}") from exc
    sent = refused = 0
    try:
        while (record := spool.peek()) is not None:
            try:
                await sink.post(record)
                sent += 1
            except RecordRefusedError as exc:
                spool.set_aside(record, str(exc))
                refused += 1
            spool.pop(record.batch_id)
    except SinkError as exc:
        raise CommandError(f"{sent} records sent, then: {exc}") from exc
    finally:
        spool.close()
        await sink.close()
    return sent, refused
