"""``python -m sim``: the same as ``swactor sim``, from a source tree."""

import sys

from sim.command import app
from swactor_diag.cli.console import CommandError, say

try:
    app(prog_name="python -m sim")
except CommandError as exc:
    say(f"sim: {exc}")
    sys.exit(exc.status)
