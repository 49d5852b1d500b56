"""The ``swactor`` program: what happens before the command line is there.

Owns: Ctrl-C while modules are being imported; output streams that are missing or lack a character.
Not here: the commands and how they end (``main``).
"""

import os
import signal
import sys
from io import TextIOWrapper


def main() -> int:
    """Run one command and return its exit status."""
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:
        # There is nothing yet to end in order, and a traceback would tell nobody anything.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    mend_streams()
    from swactor_diag.cli.main import main as run  # late: this is what takes long

    signal.signal(signal.SIGINT, interrupted)
    return run()


def mend_streams() -> None:
    """Have both output streams, and have them take every character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
