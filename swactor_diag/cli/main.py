"""The ``swactor`` command line: which commands there are, and how every one of them ends.

Owns: the list of commands, those that other packages add, and the way from an error to an exit status.
Not here: any command (one file each), writing (``console``).
"""

import importlib.metadata
import sys
from collections.abc import Sequence

import typer
from typer.core import TyperGroup

from swactor_diag.cli import bundle, collector, relay, schema, spool
from swactor_diag.cli.console import CommandError, Exit, lose, say

COMMANDS_GROUP = "swactor.commands"
"""Entry points of this group add commands: the name is the command, the object a ``typer.Typer``."""

_HELP = """Actors that own subprocesses, with a flight recorder built in.

Nodes send what they record to a `collector`. `bundle fetch` gets what came
of one run, `bundle summary` tells what happened in it.

Exit status: 0 done, 1 failed, 2 wrong input, 3 done with what was there:
something was missing or bad.
"""

# Typer brings a click of its own and exports no base of its errors.
_ClickError: type[Exception] = next(
    base
    for base in typer.BadParameter.__mro__
    if issubclass(base, Exception) and base.__name__ == "ClickException"
)


def _added_commands() -> dict[str, typer.Typer]:
    """Return the commands of other packages; one whose package is not installed here is left out."""
    found: dict[str, typer.Typer] = {}
    for entry in sorted(importlib.metadata.entry_points(group=COMMANDS_GROUP), key=lambda one: one.name):
        try:
            added = entry.load()
        except (ImportError, AttributeError):
            continue
        if isinstance(added, typer.Typer):
            found.setdefault(entry.name, added)
    return found


def build_app() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(
        name="swactor",
        help=_HELP,
        cls=TyperGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.command("collector")(collector.run)
    app.command("relay")(relay.run)
    app.command("schema")(schema.run)
    app.add_typer(bundle.app, name="bundle")
    app.add_typer(spool.app, name="spool")
    for name, added in _added_commands().items():
        app.add_typer(added, name=name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        status = build_app()(args=arguments, prog_name="swactor", standalone_mode=False)
    except CommandError as exc:
        say(f"swactor: {exc}")
        return exc.status
    except _ClickError as exc:
        # Its message, without the usage around it. Asking for nothing shows the help, which is no error line.
        text = exc.format_message() if hasattr(exc, "format_message") else str(exc)
        if text:
            say(f"swactor: {text}")
        return Exit.WRONG_INPUT
    except (KeyboardInterrupt, typer.Abort):
        say("swactor: interrupted")
        return 130
    except OSError as exc:
        # The commands know what to say of files. This is output that cannot be written: whoever read it has
        # gone, or a disk is full.
        lose(sys.stdout)
        if not isinstance(exc, BrokenPipeError):
            say(f"swactor: {exc}")
        return Exit.FAILURE
    return status if isinstance(status, int) else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
