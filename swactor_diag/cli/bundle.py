"""``swactor bundle``: fetch a bundle, make one from staged files, and say what is in it.

Owns: arguments, files and exit statuses. Not here: reading (``swactor_diag.postproc``), making
(``swactor_diag.collector.bundle``), HTTP (``fetch``).
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swactor_diag.cli.console import CommandError, Exit, put, say, write_file, write_pieces

if TYPE_CHECKING:
    from swactor_diag.collector.repair import Salvage

app = typer.Typer(
    help="Fetch, build and read the bundle of a run: the one file that tells what happened on all its nodes.",
    no_args_is_help=True,
)

_SUMMARY = "summary.md"


@app.command()
def summary(
    file: Annotated[Path, typer.Argument(help="A bundle: <run>.tar.gz.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write summary.md into this folder.")
    ] = None,
) -> None:
    """Print what a bundle tells, as Markdown; on a terminal, as a page. Exit status 3: cut off or damaged.

    Read it from the top: each section answers one question, and says so
    when it has no data.
    """
    from swactor_diag.postproc import load, summary  # late: slow to import

    try:
        run = load.load_run(file)
    except OSError as exc:
        raise CommandError(f"cannot read {file}: {exc.strerror or exc}", status=Exit.WRONG_INPUT) from exc
    if not run.nodes and run.manifest is None and not run.problems:
        raise CommandError(f"{file} is not a bundle: it holds no run", status=Exit.WRONG_INPUT)
    text = summary.render(run)
    if out is None and sys.stdout.isatty():
        from rich.console import Console  # late: slow to import

        from swactor_diag.cli.page import THEME, Page  # late too

        Console(theme=THEME).print(Page(text))
    elif out is None:
        put(text.rstrip("\n"))
    else:
        target = out / _SUMMARY
        write_file(target, text.encode())
        put(str(target))
    if run.incomplete:
        raise typer.Exit(Exit.INCOMPLETE)


@app.command()
def fetch(
    url: Annotated[str, typer.Argument(help="Address of the collector, such as http://127.0.0.1:9080.")],
    run_id: Annotated[str, typer.Argument(help="Run to fetch.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write; else <run>.tar.gz.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the collector's token.")] = None,
) -> None:
    """Download the bundle of a run, whether it was finalized or not, and print where it was written.

    A run that still goes on is bundled as far as it has come: fetch it again
    later for the rest.
    """
    from swactor_diag.cli import fetch as fetching  # late: slow to import

    target = out if out is not None else Path(f"{_checked(run_id)}.tar.gz")
    size = fetching.download(url, _checked(run_id), target=target, token_file=token_file)
    say(f"{size} bytes")
    put(str(target))


@app.command("from-dir")
def from_dir(
    folder: Annotated[Path, typer.Argument(help="Root of a collector, or a copy of it.")],
    run_id: Annotated[str, typer.Argument(help="Run to build.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write; else <run>.tar.gz.")] = None,
) -> None:
    """Build the bundle of a run from staged files, without a collector, and print where it was written."""
    from swactor_diag.collector.bundle import Bundle, BundleError  # late: slow to import
    from swactor_diag.collector.staging import Staging  # late too
    from swactor_diag.collector.storage import LocalStorage, StorageError

    try:
        bundle = Bundle(Staging(LocalStorage(folder)), _checked(run_id))
        target = out if out is not None else Path(f"{run_id}.tar.gz")
        write_pieces(target, bundle.stream())
    except BundleError as exc:
        raise CommandError(f"{exc} below {folder}", status=Exit.WRONG_INPUT) from exc
    except StorageError as exc:
        raise CommandError(str(exc)) from exc
    put(str(target))


@app.command()
def check(
    target: Annotated[Path, typer.Argument(help="A bundle, or the folder of a collector or a copy of it.")],
    *,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Write a copy of what can be used; the original is not changed."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where the copy goes; else beside, as <name>.repaired.")
    ] = None,
) -> None:
    """Verify each file of a bundle, or each record in a folder. Exit status 3: some are bad."""
    from swactor_diag.cli import check as checking  # late: slow to import
    from swactor_diag.cli import repair as repairing  # late too

    found = checking.check_folder(target) if target.is_dir() else checking.check_archive(target)
    for one in found.wrong:
        put(f"{one.path}: {one.reason}")
    if found.earlier:
        say(f"{target}: {found.earlier} things were set aside earlier, and are named in the manifest")
    if not found.wrong:
        say(f"{target}: nothing is wrong")
        return
    if repair:
        copy = out if out is not None else repairing.copy_name(target)
        _tell(repairing.repair(target, found, copy), copy)
    raise typer.Exit(Exit.INCOMPLETE)


def _tell(salvage: "Salvage", copy: Path) -> None:
    say(f"{copy}: {salvage.files} saved ({salvage.size_bytes} bytes), {len(salvage.set_aside)} set aside")
    kept = [one.kept_as for one in salvage.set_aside if isinstance(one.kept_as, str)]
    if kept:
        say(f"the bytes of {len(kept)} of them are kept, from {kept[0]} on")
    for name in salvage.left:
        say(f"not in the copy, since it belongs to no run: {name}")


def _checked(run_id: str) -> str:
    from swactor_diag.schema.ids import IdError, check_id  # late: keeps --help fast

    try:
        return check_id(run_id, what="run id")
    except IdError as exc:
        raise CommandError(str(exc), status=Exit.WRONG_INPUT) from exc
