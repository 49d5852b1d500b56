"""How commands speak: data on standard output, words on standard error, one line for what went wrong.

Owns: the exit statuses, the one error a command raises, files as results. Not here: any command.
"""

import contextlib
import enum
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO


class Exit(enum.IntEnum):
    """What a command's exit status means."""

    OK = 0
    FAILURE = 1
    WRONG_INPUT = 2
    INCOMPLETE = 3
    """The work was done with what was there, and something was missing."""


class CommandError(Exception):
    """Ends the command with one line on standard error and the given status."""

    def __init__(self, message: str, *, status: Exit = Exit.FAILURE) -> None:
        super().__init__(message)
        self.status = status


def say(text: str) -> None:
    """Write one line for people."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def put(text: str) -> None:
    """Write one line of data, at once: somebody may be waiting for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def lose(stream: TextIO) -> None:
    """Have all that is still written to ``stream`` go nowhere: it cannot be written where it was going.

    Else Python would complain once more when it flushes at exit.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_file(target: Path, data: bytes) -> None:
    """Write a file that the command promised, with the folders above it.

    Raises:
        CommandError: it cannot be written; says why.
    """
    write_pieces(target, [data])


def write_pieces(target: Path, pieces: Iterable[bytes]) -> None:
    """As `write_file`, piece by piece; what fails on the way leaves no file.

    Raises:
        CommandError: it cannot be written; says why.
    """
    unfinished = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        unfinished.replace(target)
    except OSError as exc:
        raise CommandError(f"cannot write {target}: {exc.strerror or exc}") from exc
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
