"""The signals this package speaks of, by number.

Owns: the only look at the system's signal table outside of the files that make real processes.
"""

import signal

from swactor_process._rules import is_whole

TERM = int(signal.SIGTERM)
KILL = int(signal.SIGKILL)
CONT = int(signal.SIGCONT)
HARMLESS = frozenset(
    int(number) for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP)
)
"""Signals that do not end a process that has not said what to do with them."""


def is_signal(number: object) -> bool:
    """Whether the system has a signal ``number``; 9.0 and True are equal to one, and are none."""
    return is_whole(number) and number in signal.valid_signals()


def name_of(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``; one without a name is named by its number.

    Real-time signals are valid, but only the first and the last of them have names.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
